//! RDMA between two NICs: what a packet costs that goes out by a port, and one that comes in, ICRC included.
//!
//! The ports' other ends are held here: a frame costs the NICs no system call, and what they exchange is carried over when all
//! of it is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, ensure};
use vnic_backend::{ClockGuard, PortEnd, PortKind, PortSpec, VirtualClock};
use vnic_verbs::{QueuePair, Rc, SendWr};

use super::super::Lab;
use super::super::product::{Product, Setup};
use super::super::rdma::{LARGE, Side, connect};
use super::cases::{Meter, clock, completions};

/// Messages of 64 KiB under way, and packets of each.
const MESSAGES: usize = 4;
const PACKETS: usize = LARGE / 4096;
/// Rounds in which a NIC is done with all that it has been given.
const ROUNDS: u64 = 8;

/// A NIC with an adapter and a port.
struct Nic {
    clock: Arc<VirtualClock>,
    product: Product,
    end: PortEnd,
    _dir: tempfile::TempDir,
}

impl Nic {
    fn new(lab: &Lab, index: usize) -> Result<Nic> {
        let (dir, clock) = (lab.part()?, clock());
        let setup = Setup {
            cpu: lab.cpus[index],
            mtu: 9000,
            first_guest: index,
            ..lab.setup(dir.path(), 1)
        };
        let product = Product::start_virtual(&setup, clock.clone())?;
        let nic = product.nic().context("a NIC in this process")?;
        let (_, end) = nic.add_port_exchange(PortSpec {
            mtu: 9000,
            ..PortSpec::new(
                "p0",
                PortKind::Mesh {
                    label: "the other NIC".into(),
                },
            )
        })?;
        nic.set_port_link("p0", true, None)?;
        Ok(Nic {
            clock,
            product,
            end,
            _dir: dir,
        })
    }
}

/// Carries frames from one port to another; says how many were long.
fn carry(from: &mut PortEnd, to: &mut PortEnd) -> Result<usize> {
    let mut long = 0;
    while let Some(frame) = from.rx.next_frame() {
        long += usize::from(frame.len() > 4096);
        ensure!(to.tx.put(frame), "a port's ring is full");
    }
    to.tx.flush();
    Ok(long)
}

/// Connects a queue pair at each, while frames go to and fro.
fn joined(one: &mut Nic, other: &mut Nic, sides: [&Side; 2]) -> Result<[QueuePair<Rc>; 2]> {
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let carrier = s.spawn(|| -> Result<()> {
            while !done.load(Ordering::Acquire) {
                carry(&mut one.end, &mut other.end)?;
                carry(&mut other.end, &mut one.end)?;
                std::thread::yield_now();
            }
            Ok(())
        });
        let qps = connect(sides[0], sides[1]);
        done.store(true, Ordering::Release);
        let carried = carrier.join();
        carried.map_err(|_| anyhow::anyhow!("the carrier's thread panicked"))??;
        qps
    })
}

/// The NIC works.
fn rounds(held: &ClockGuard) -> Result<()> {
    held.rounds(ROUNDS);
    Ok(())
}

/// `wire-out` and `wire-in`.
pub fn run(lab: &Lab, meter: &mut Meter) -> Result<()> {
    let (mut one, mut other) = (Nic::new(lab, 0)?, Nic::new(lab, 1)?);
    let (near, far) = (Side::open(&one.product, 0, 1)?, Side::open(&other.product, 0, 1)?);
    let [qp, _qp] = joined(&mut one, &mut other, [&near, &far])?;
    let held: [ClockGuard; 2] = [one.clock.hold(), other.clock.hold()];
    let (mut out, mut into) = (Vec::new(), Vec::new());
    const WARM: usize = 8;
    const TIMES: usize = 16;
    for time in 0..WARM + TIMES {
        let at = |k: usize| (time * MESSAGES + k) % 16 * LARGE;
        for k in 0..MESSAGES {
            let wr = SendWr::write(
                near.region.slice(at(k)..at(k) + LARGE),
                far.region.addr() + at(k) as u64,
                far.region.rkey(),
            );
            qp.post_send(&[wr.signaled()])?;
        }
        let sent = meter.part(|| rounds(&held[0]))?;
        let packets = carry(&mut one.end, &mut other.end)?;
        ensure!(packets == MESSAGES * PACKETS, "{packets} packets were sent");
        let received = meter.part(|| rounds(&held[1]))?;
        carry(&mut other.end, &mut one.end)?;
        let acknowledged = meter.part(|| rounds(&held[0]))?;
        let n = completions(&near)?;
        ensure!(n == MESSAGES, "{n} messages completed");
        if time >= WARM {
            out.extend([sent, acknowledged]);
            into.push(received);
        }
    }
    let packets = TIMES * MESSAGES * PACKETS;
    for (name, parts) in [("wire-out", out), ("wire-in", into)] {
        let parts: Vec<String> = parts.iter().map(u32::to_string).collect();
        println!("{name} {packets} {}", parts.join(" "));
    }
    Ok(())
}
