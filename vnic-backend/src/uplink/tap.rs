//! A TAP device as uplink: one system call for each frame, behind its virtio header (`IFF_VNET_HDR`), so that offload
//! requests pass in both directions. With several queues (`IFF_MULTI_QUEUE`) all are read in turn, and a flow always leaves
//! through the same one.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use tun_rs::{DeviceBuilder, Layer, SyncDevice};
use vnic_engine::virtio_net::NetHdr;
use vnic_engine::virtio_net::steering::{Flow, flow_number};

use super::frames::{Arrived, Sent, any_of};
use super::link::Links;
use super::sys;
use crate::types::{NicError, PortSpec, invalid};

/// Length of the virtio header before each frame.
const VNET: usize = NetHdr::LEN_LEGACY;
/// Frames read from a queue before the next one gets its turn.
const TURN: usize = 16;
/// Bytes of a short frame, which lasts until [`TapRx::release`], and how many there are of it.
const SHORT: usize = 2048;
const KEPT: usize = 32;

/// Queues of a device, in the order in which they were opened.
type Queues = Arc<[SyncDevice]>;

/// Receiving half, from the host.
pub struct TapRx {
    queues: Queues,
    /// Epoll set that is ready when one of several queues is.
    any: Option<OwnedFd>,
    /// The queue that is read, and the frames left of its turn.
    at: usize,
    left: usize,
    /// Memory of short frames, and how much of it has frames that were returned.
    #[allow(clippy::vec_box, reason = "each is borrowed while others are lent")]
    short: Vec<Box<[u8; SHORT]>>,
    used: usize,
}

/// Sending half, to the host.
pub struct TapTx(Queues);

/// Creates the device, or attaches to an existing one; with `only`, just attaches to the device of this index. Returns also
/// the device's index and, as a text, how frames come and go.
pub fn open(
    spec: &PortSpec,
    (ifname, queues): (&str, u8),
    only: Option<u32>,
    links: &mut Links,
) -> Result<(TapRx, TapTx, u32, String), NicError> {
    let refused = |source: io::Error| {
        let name = &spec.name;
        let what = match Errno::from_io_error(&source) {
            Some(Errno::PERM) => format!(
                "port {name}: opening TAP device {ifname} needs the capability CAP_NET_ADMIN; run vnicd with it, or \
                 create the device for its user first: ip tuntap add dev {ifname} mode tap user USER"
            ),
            Some(Errno::BUSY) => format!(
                "port {name}: another program has TAP device {ifname} open; end it, or take another device"
            ),
            _ if source.kind() == io::ErrorKind::NotFound => format!(
                "port {name}: /dev/net/tun is missing; load the kernel module tun (and a service of systemd needs ports/tap.conf)"
            ),
            _ => format!("port {name}: opening TAP device {ifname}"),
        };
        NicError::Os { what, source }
    };
    let gone = || refused(Errno::NODEV.into());
    let existed = links.find(ifname).map_err(refused)?.is_some();
    if only.is_some() && !existed {
        return Err(gone());
    }
    let attach = |several: bool| {
        let builder = DeviceBuilder::new().name(ifname).layer(Layer::L2);
        let builder = builder.offload(true).multi_queue(several);
        let builder = if existed {
            builder.inherit_enable_state()
        } else {
            builder.mtu(spec.mtu).enable(true)
        };
        builder.build_sync()
    };
    // The kernel refuses one queue at a device that was made for several, and the other way round.
    let first = match attach(queues > 1) {
        Err(e) if existed && differs(&e) => match attach(queues == 1) {
            Err(e) if differs(&e) => {
                let problem = format!("{ifname} is there and is no TAP device: take another name, or packet");
                return invalid("ifname", problem);
            }
            Ok(_) if queues > 1 => {
                return invalid(
                    "queues",
                    format!(
                        "TAP device {ifname} was made for one queue: take 1, or delete it (ip link delete {ifname}) and \
                         make it with ip tuntap add dev {ifname} mode tap multi_queue"
                    ),
                );
            }
            other => other,
        },
        other => other,
    }
    .map_err(refused)?;
    let mut all = vec![first];
    for _ in 1..queues {
        all.push(all[0].try_clone().map_err(refused)?);
    }
    for queue in &all {
        queue.set_nonblocking(true).map_err(refused)?;
    }
    if !sys::tap_has_header(all[0].as_fd()).map_err(refused)? {
        return Err(refused(Errno::BUSY.into()));
    }
    sys::tap_offload(all[0].as_fd(), VNET).map_err(refused)?;
    let mtu = all[0].mtu().map_err(refused)?;
    if mtu != spec.mtu {
        return invalid(
            "mtu",
            format!(
                "TAP device {ifname} has MTU {mtu}, not {}: set one of them to the other's value",
                spec.mtu
            ),
        );
    }
    let index = links.find(ifname).map_err(refused)?.map_or(0, |f| f.index);
    if only.is_some_and(|only| only != index) {
        // The device went away meanwhile, and attaching has made another one, which ends with these descriptors.
        return Err(gone());
    }
    let any = any_of(all.iter()).map_err(refused)?;
    let queues: Queues = all.into();
    let count = queues.len();
    let mode = format!("tap, {count} queue{}", if count == 1 { "" } else { "s" });
    let rx = TapRx {
        queues: queues.clone(),
        any,
        at: 0,
        left: TURN,
        short: (0..KEPT).map(|_| Box::new([0; SHORT])).collect(),
        used: 0,
    };
    Ok((rx, TapTx(queues), index, mode))
}

/// Whether the error says that the device is of another kind.
fn differs(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::INVAL)
}

impl TapRx {
    /// Reads the next frame, if there is one: a long one into `buf`. An error means that the device is gone.
    pub fn next<'a>(&'a mut self, buf: &'a mut [u8]) -> io::Result<Option<Arrived<'a>>> {
        let mut hdr = [0; VNET];
        let mut empty = 0;
        let short = match self.used < KEPT {
            true => SHORT,
            false => 0,
        };
        let n = loop {
            let begin = self
                .short
                .get_mut(self.used)
                .map_or(&mut [][..], |short| &mut short[..]);
            let mut parts = [
                IoSliceMut::new(&mut hdr),
                IoSliceMut::new(begin),
                IoSliceMut::new(&mut buf[short..]),
            ];
            match rustix::io::readv(self.queues[self.at].as_fd(), &mut parts) {
                Ok(n) => {
                    self.left -= 1;
                    if self.left == 0 {
                        self.turn();
                    }
                    break n;
                }
                Err(Errno::AGAIN) => {
                    self.turn();
                    empty += 1;
                    if empty == self.queues.len() {
                        return Ok(None);
                    }
                }
                Err(e) => return Err(e.into()),
            }
        };
        let mut hdr = NetHdr::parse(&hdr);
        // A flag that the checksum was verified is no request.
        let verified = hdr.flags & NetHdr::DATA_VALID != 0;
        hdr.flags &= NetHdr::NEEDS_CSUM;
        let len = n.saturating_sub(VNET);
        let Some(begin) = self.short.get_mut(self.used) else {
            let bytes = &mut buf[..len];
            return Ok(Some(Arrived {
                bytes,
                hdr,
                lasts: None,
                stamp: 0,
            }));
        };
        if len > SHORT {
            buf[..SHORT].copy_from_slice(&begin[..]);
            let bytes = &mut buf[..len];
            return Ok(Some(Arrived {
                bytes,
                hdr,
                lasts: None,
                stamp: 0,
            }));
        }
        self.used += 1;
        Ok(Some(Arrived {
            bytes: &mut begin[..len],
            hdr,
            lasts: Some(sys::lasting(verified)),
            stamp: 0,
        }))
    }

    /// Uses the memory of short frames again.
    pub fn release(&mut self) {
        self.used = 0;
    }

    /// Goes on to the next queue.
    fn turn(&mut self) {
        self.at = (self.at + 1) % self.queues.len();
        self.left = TURN;
    }

    /// Descriptor to wait on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match &self.any {
            Some(any) => any.as_fd(),
            None => self.queues[0].as_fd(),
        }
    }
}

impl TapTx {
    /// Sends frames, each with its virtio header.
    pub fn send(&self, frames: &[&[u8]]) -> Sent {
        for (i, frame) in frames.iter().enumerate() {
            let queue = match self.0.len() {
                1 => 0,
                n => {
                    let bytes = frame.get(VNET..).unwrap_or_default();
                    flow_number(bytes, Flow::of(bytes).as_ref()) as usize % n
                }
            };
            match rustix::io::write(self.0[queue].as_fd(), frame) {
                Ok(_) => {}
                Err(_) if i > 0 => return Sent::Some(i),
                Err(Errno::AGAIN) => return Sent::Full,
                // A lost device takes nothing; the receiving half notices the loss.
                Err(_) => return Sent::Refused,
            }
        }
        Sent::Some(frames.len())
    }
}
