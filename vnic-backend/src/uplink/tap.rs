//! A TAP device as uplink: one frame a system call, finished in software both ways.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use tun_rs::{DeviceBuilder, Layer, SyncDevice};
use vnic_engine::counters::PortCounter as P;
use vnic_fabric::DropReason;
use vnic_wire::MacAddr;

use crate::datapath::{BY_TAG, Gate, Link, OutFrame, PortCounters, Priorities, Receiver, Way};
use crate::mem;
use crate::types::{NicError, PortKind, PortSpec};

/// Frames waiting to be written.
const STAGE_LIMIT: usize = 512;

/// An open TAP device.
pub struct TapDevice {
    device: SyncDevice,
    mtu: u16,
    mac: MacAddr,
}

impl TapDevice {
    /// Creates the device, or attaches to it when it exists.
    pub fn open(spec: &PortSpec) -> Result<TapDevice, NicError> {
        let PortKind::Tap { ifname } = &spec.kind;
        let existed = std::path::Path::new("/sys/class/net").join(ifname).exists();
        let refused = |source: io::Error| {
            let what = if source.raw_os_error() == Some(rustix::io::Errno::PERM.raw_os_error()) {
                format!(
                    "port {}: opening TAP device {ifname} needs the capability CAP_NET_ADMIN; run vnicd with it, or \
                     create the device for its user first: ip tuntap add dev {ifname} mode tap user USER",
                    spec.name
                )
            } else if source.kind() == io::ErrorKind::NotFound {
                format!(
                    "port {}: /dev/net/tun is missing; load the kernel module tun",
                    spec.name
                )
            } else {
                format!("port {}: opening TAP device {ifname}", spec.name)
            };
            NicError::Os { what, source }
        };
        let builder = DeviceBuilder::new().name(ifname.as_str()).layer(Layer::L2);
        let builder = if existed {
            builder.inherit_enable_state()
        } else {
            builder.mtu(spec.mtu).enable(true)
        };
        let device = builder.build_sync().map_err(refused)?;
        device.set_nonblocking(true).map_err(refused)?;
        let mtu = device.mtu().map_err(refused)?;
        if mtu != spec.mtu {
            let problem = format!(
                "TAP device {ifname} has MTU {mtu}, not {}: set one of them to the other's value",
                spec.mtu
            );
            return Err(NicError::Invalid {
                field: "mtu",
                problem,
            });
        }
        let mac = own_address(&spec.name);
        Ok(TapDevice { device, mtu, mac })
    }

    /// Reads a frame; nothing when there is none.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        match self.device.recv(buf) {
            Ok(n) => Ok(Some(n)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// MTU, in bytes.
    pub fn mtu(&self) -> usize {
        usize::from(self.mtu)
    }

    /// For waiting.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the device owns the descriptor and outlives the borrow.
        unsafe { BorrowedFd::borrow_raw(self.device.as_raw_fd()) }
    }
}

/// The address from which a port speaks for itself, the same at each start: locally administered, of its name (FNV-1a).
fn own_address(name: &str) -> MacAddr {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let [.., a, b, c, d, e] = hash.to_be_bytes();
    MacAddr([2, a, b, c, d, e])
}

/// Towards the wire.
pub struct PortTx {
    device: Arc<TapDevice>,
    /// Its counters.
    pub counters: Arc<PortCounters>,
    staged: VecDeque<Staged>,
    pool: Vec<Vec<u8>>,
    /// Is it in the list of receivers to be flushed?
    pub touched: bool,
    /// Priority of the frame that comes next, as the port's receiver classifies it; [`BY_TAG`]: nobody does.
    pub priority: u8,
    /// Quality of service of what it is given, if anything is configured or its wire's other end says wait.
    pub receiver: Option<Box<Receiver>>,
    /// Flow control of its wire.
    pub link: Link,
    priorities: Priorities,
}

/// A frame that waits to be written.
struct Staged {
    bytes: Vec<u8>,
    gate: Option<Gate>,
    priority: u8,
}

impl PortTx {
    /// For an open device.
    pub fn new(device: Arc<TapDevice>, counters: Arc<PortCounters>) -> Self {
        PortTx {
            link: Link::new(device.mac),
            device,
            counters,
            staged: VecDeque::new(),
            pool: Vec::new(),
            touched: false,
            priority: BY_TAG,
            receiver: None,
            priorities: Priorities::default(),
        }
    }

    /// Copies a frame for the wire. It leaves with [`PortTx::flush`].
    pub fn put(&mut self, f: &OutFrame<'_>, gate: Option<Gate>) -> Result<(), DropReason> {
        if self.staged.len() >= STAGE_LIMIT {
            self.count_drop(DropReason::PortTransmit);
            return Err(DropReason::PortTransmit);
        }
        let mut buf = self.pool.pop().unwrap_or_default();
        buf.clear();
        buf.extend_from_slice(f.head);
        buf.resize(f.len(), 0);
        mem::gather(f.segs, f.skip, &mut buf[f.head.len()..]);
        self.staged.push_back(Staged {
            bytes: buf,
            gate,
            priority: self.priority,
        });
        Ok(())
    }

    /// Is there room for so many frames?
    pub fn has_room(&self, frames: usize) -> bool {
        self.staged.is_empty() || self.staged.len() + frames <= STAGE_LIMIT
    }

    /// Writes MAC control at once: it waits for nobody.
    pub fn send_control(&self, frame: &[u8]) {
        // A device that is gone takes nothing; that is found out when it is read.
        let _ = self.device.device.send(frame);
    }

    /// Writes what its senders' cores have committed. False while frames are held back.
    pub fn flush(&mut self, open: impl Fn(Gate) -> bool) -> bool {
        while let Some(Staged {
            bytes: buf,
            gate,
            priority,
        }) = self.staged.front()
        {
            if gate.is_some_and(|g| !open(g)) {
                return false;
            }
            match self.device.device.send(buf) {
                Ok(_) => {
                    self.priorities.frame(*priority, buf, buf.len() as u64);
                    self.priorities.flush(&self.counters.link, Way::Sent);
                    self.counters.io.add(P::TxFrames as usize, 1);
                    self.counters.io.add(P::TxBytes as usize, buf.len() as u64);
                }
                Err(_) => self.count_drop(DropReason::PortTransmit),
            }
            if let Some(sent) = self.staged.pop_front()
                && self.pool.len() < 64
            {
                self.pool.push(sent.bytes);
            }
        }
        true
    }

    /// Counts a frame that did not reach the wire.
    pub fn count_drop(&self, reason: DropReason) {
        self.counters.drops.add(reason as usize, 1);
    }
}
