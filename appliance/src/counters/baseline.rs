//! Baseline of counters, which a client keeps to see growth since a time of its choice.
//!
//! The client sends the baseline with each request. So a reset needs neither memory nor a name in the daemon, changes
//! nothing for other clients, and survives a broken connection. A baseline of another run of the daemon, or of another
//! owner of the same name, is recognised and not applied.

use std::time::SystemTime;

use prost::Message as _;
use vnic_backend::DropReason;
use vnic_backend::counters::{
    AdapterValues, CoreValues, Drops, LinkValues, PortValues, QueueCounter, RDMA_COUNTERS,
};

use super::OwnerValues;

/// Version of the encoding. A baseline with another version is another program's.
const VERSION: u32 = 1;
/// Greatest size of a baseline: 16 queue pairs of an adapter with an RDMA function take about half of it.
pub const BYTES_MAX: usize = 16 << 10;

/// Encoding of a baseline.
#[derive(Clone, PartialEq, prost::Message)]
struct Wire {
    #[prost(uint32, tag = "1")]
    version: u32,
    /// Number of the daemon's run.
    #[prost(fixed64, tag = "2")]
    daemon: u64,
    #[prost(message, optional, tag = "3")]
    time: Option<prost_types::Timestamp>,
    /// Kind of the owner: 0 an adapter, 1 a port, 2 a core.
    #[prost(uint32, tag = "4")]
    kind: u32,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(uint64, tag = "6")]
    life: u64,
    #[prost(uint32, repeated, tag = "7")]
    queues: Vec<u32>,
    /// Whether there are values of the RDMA function, or of the mesh.
    #[prost(bool, tag = "8")]
    more: bool,
    /// Values of each queue or the port's traffic, then drops, then the link, then RDMA or the mesh.
    #[prost(uint64, repeated, tag = "9")]
    values: Vec<u64>,
}

/// A decoded baseline.
#[derive(Debug, Clone, PartialEq)]
pub enum Baseline {
    /// Values of an owner, and their time.
    Of(OwnerValues, prost_types::Timestamp),
    /// The baseline is of another run of the daemon.
    Outdated,
}

/// Number of this run of the daemon.
pub fn daemon(started: SystemTime) -> u64 {
    let since = started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

pub fn encode(values: &OwnerValues, daemon: u64, time: SystemTime) -> Vec<u8> {
    let mut wire = Wire {
        version: VERSION,
        daemon,
        time: Some(time.into()),
        ..Wire::default()
    };
    let drops = |drops: &Drops| drops.iter().map(|(_, n)| *n).collect::<Vec<_>>();
    let link = |link: &LinkValues| [link.priorities.as_flattened(), &link.all].concat();
    match values {
        OwnerValues::Adapter(a) => {
            wire.name.clone_from(&a.name);
            wire.life = a.life;
            for (queue, values) in &a.queues {
                wire.queues.push(u32::from(*queue));
                wire.values.extend(values);
            }
            wire.values.extend(drops(&a.drops));
            wire.values.extend(link(&a.link));
            if let Some(rdma) = &a.rdma {
                wire.more = true;
                wire.values.extend(rdma.iter());
            }
        }
        OwnerValues::Port(p) => {
            wire.kind = 1;
            wire.name.clone_from(&p.name);
            wire.life = p.life;
            wire.values.extend(p.io);
            wire.values.extend(p.dcbx);
            wire.values.extend(drops(&p.drops));
            wire.values.extend(link(&p.link));
            if let Some(mesh) = &p.mesh {
                wire.more = true;
                wire.values.extend(mesh.iter());
            }
        }
        OwnerValues::Core(c) => {
            wire.kind = 2;
            wire.life = u64::try_from(c.cpu).unwrap_or(u64::MAX);
            wire.values.extend(c.values);
        }
    }
    wire.encode_to_vec()
}

/// Decodes a baseline; `None` if it was not made by [`encode`].
pub fn decode(bytes: &[u8], this_daemon: u64) -> Option<Baseline> {
    if bytes.len() > BYTES_MAX {
        return None;
    }
    let wire = Wire::decode(bytes).ok()?;
    let time = wire.time?;
    if wire.version == 0 {
        return None;
    }
    if wire.daemon != this_daemon || wire.version != VERSION {
        // The tables of the other run may have been different.
        return Some(Baseline::Outdated);
    }
    let mut rest = wire.values.as_slice();
    let values = match wire.kind {
        0 => {
            let mut queues = Vec::new();
            for queue in &wire.queues {
                let values: [u64; QueueCounter::COUNT] = take(&mut rest)?;
                queues.push((u16::try_from(*queue).ok()?, values));
            }
            let drops = take_drops(&mut rest)?;
            let link = take_link(&mut rest)?;
            let rdma: Option<[u64; RDMA_COUNTERS.len()]> = match wire.more {
                true => Some(take(&mut rest)?),
                false => None,
            };
            OwnerValues::Adapter(AdapterValues {
                name: wire.name,
                life: wire.life,
                core: 0,
                queues,
                drops,
                link,
                rdma: rdma.map(Box::new),
            })
        }
        1 => OwnerValues::Port(PortValues {
            name: wire.name,
            life: wire.life,
            io: take(&mut rest)?,
            dcbx: take(&mut rest)?,
            drops: take_drops(&mut rest)?,
            link: take_link(&mut rest)?,
            mesh: match wire.more {
                true => Some(Box::new(take(&mut rest)?)),
                false => None,
            },
        }),
        2 => OwnerValues::Core(CoreValues {
            cpu: usize::try_from(wire.life).ok()?,
            values: take(&mut rest)?,
        }),
        _ => return None,
    };
    rest.is_empty().then_some(Baseline::Of(values, time))
}

fn take<const N: usize>(rest: &mut &[u64]) -> Option<[u64; N]> {
    let (values, more) = rest.split_first_chunk::<N>()?;
    *rest = more;
    Some(*values)
}

fn take_drops(rest: &mut &[u64]) -> Option<Drops> {
    let values: [u64; DropReason::ALL.len()] = take(rest)?;
    let named = DropReason::ALL.iter().map(|r| r.name()).zip(values);
    Some(named.collect())
}

fn take_link(rest: &mut &[u64]) -> Option<Box<LinkValues>> {
    let mut link = Box::<LinkValues>::default();
    for values in &mut link.priorities {
        *values = take(rest)?;
    }
    link.all = take(rest)?;
    Some(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Link values of which no two are equal.
    fn link() -> Box<LinkValues> {
        let mut next = u64::MAX;
        let mut count = |v: &mut u64| (*v, next) = (next, next - 1);
        let mut link = Box::<LinkValues>::default();
        link.priorities.iter_mut().flatten().for_each(&mut count);
        link.all.iter_mut().for_each(&mut count);
        link
    }

    fn adapter(rdma: bool) -> OwnerValues {
        OwnerValues::Adapter(AdapterValues {
            name: "vf0".into(),
            life: 7,
            core: 0,
            queues: vec![(0, [u64::MAX; _]), (15, [3; _])],
            drops: DropReason::ALL.map(|r| (r.name(), 9)).to_vec(),
            link: link(),
            rdma: rdma.then(|| Box::new([u64::MAX; _])),
        })
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let port = |mesh| {
            OwnerValues::Port(PortValues {
                name: "p0".into(),
                life: 8,
                io: [1; _],
                dcbx: [6; _],
                drops: DropReason::ALL.map(|r| (r.name(), 2)).to_vec(),
                link: link(),
                mesh,
            })
        };
        let core = OwnerValues::Core(CoreValues {
            cpu: 3,
            values: [4; _],
        });
        for values in [
            adapter(true),
            adapter(false),
            port(None),
            port(Some(Box::new([5; _]))),
            core,
        ] {
            let bytes = encode(&values, 77, SystemTime::UNIX_EPOCH);
            let time = prost_types::Timestamp::default();
            assert_eq!(decode(&bytes, 77), Some(Baseline::Of(values, time)));
            assert_eq!(decode(&bytes, 78), Some(Baseline::Outdated));
        }
    }

    #[test]
    fn the_largest_fits() {
        let OwnerValues::Adapter(mut a) = adapter(true) else {
            unreachable!("it is one")
        };
        a.queues = (0..16).map(|q| (q, [u64::MAX; _])).collect();
        a.drops.iter_mut().for_each(|d| d.1 = u64::MAX);
        let bytes = encode(&OwnerValues::Adapter(a), u64::MAX, SystemTime::now());
        assert!(bytes.len() < BYTES_MAX / 3 * 2, "{}", bytes.len());
        assert!(matches!(decode(&bytes, u64::MAX), Some(Baseline::Of(..))));
    }

    #[test]
    fn nonsense_is_refused() {
        let good = encode(&adapter(true), 1, SystemTime::UNIX_EPOCH);
        for n in 0..good.len() {
            // A truncated baseline is refused, or it is a message with fewer fields, which is refused as well.
            assert_eq!(decode(&good[..n], 1), None, "{n}");
        }
        assert_eq!(decode(&[0xff; 100], 1), None);
        assert_eq!(decode(&vec![0; BYTES_MAX + 1], 1), None);
        let mut more = good.clone();
        more.extend([0x48, 1]);
        assert_eq!(decode(&more, 1), None, "a value too many");
    }
}
