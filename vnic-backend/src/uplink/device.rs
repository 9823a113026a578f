//! The interface between a data core and a kind of uplink device.

use std::io;
use std::os::fd::BorrowedFd;

use vnic_engine::offload::Accepts;
use vnic_engine::virtio_net::NetHdr;
use vnic_wire::MacAddr;

use super::exchange::{self, FrameRx, FrameTx, PortEnd};
use super::frames::{Arrived, Sent};
use super::link::Links;
use super::packet::{PacketRx, PacketTx};
use super::stamps::{Stamping, Sums};
use super::tap::{self, TapRx, TapTx};
use super::xdp::{XdpRx, XdpTx};
use super::{link, packet, sys, xdp};
use crate::types::{NicError, PortKind, PortSpec, invalid};

/// An open device.
pub struct Opened {
    /// Receiving half, from the wire.
    pub rx: RxHalf,
    /// Sending half, to the wire.
    pub tx: TxHalf,
    /// MTU of the port.
    pub mtu: u16,
    /// Source address of the port's own frames.
    pub mac: MacAddr,
    /// Index of the network interface that was opened: another interface of the same name has another index.
    pub index: u32,
    /// How frames come and go, as a text.
    pub mode: String,
    /// Stamping of the device's hardware, if it has any.
    pub stamping: Option<Stamping>,
}

impl Opened {
    fn new(spec: &PortSpec, (rx, tx): (RxHalf, TxHalf), index: u32, mode: String) -> Opened {
        Opened {
            rx,
            tx,
            mtu: spec.mtu,
            mac: own_address(&spec.name),
            index,
            mode,
            stamping: None,
        }
    }
}

/// The receiving half of a device.
pub enum RxHalf {
    /// A TAP device.
    Tap(TapRx),
    /// An AF_PACKET socket.
    Packet(Box<PacketRx>),
    /// AF_XDP sockets.
    Xdp(Box<XdpRx>),
    /// Rings to the owner of the NIC.
    Exchange(Box<FrameRx>),
}

impl RxHalf {
    /// The next frame, if there is one: in `buf`, or in memory of the device, until the next call, or if it lasts until
    /// [`RxHalf::release`]. An error means that the device is gone.
    #[inline]
    pub fn next<'a>(&'a mut self, buf: &'a mut [u8]) -> io::Result<Option<Arrived<'a>>> {
        match self {
            RxHalf::Tap(tap) => tap.next(buf),
            RxHalf::Packet(packet) => packet.next(),
            RxHalf::Xdp(xdp) => xdp.next(buf),
            RxHalf::Exchange(end) => Ok(end.next()),
        }
    }

    /// Gives the memory of returned frames back to the device.
    #[inline]
    pub fn release(&mut self) {
        match self {
            RxHalf::Packet(packet) => packet.release(),
            RxHalf::Xdp(xdp) => xdp.release(),
            RxHalf::Tap(tap) => tap.release(),
            RxHalf::Exchange(_) => {}
        }
    }

    /// Whether a read is a system call even without a frame.
    pub fn looks_cost(&self) -> bool {
        matches!(self, RxHalf::Tap(_))
    }

    /// Frames that the device had no room for since the last call.
    pub fn lost(&mut self) -> u64 {
        match self {
            RxHalf::Tap(_) => 0,
            RxHalf::Packet(packet) => packet.lost(),
            RxHalf::Xdp(xdp) => xdp.lost(),
            RxHalf::Exchange(end) => end.lost(),
        }
    }

    /// Frames, since the last call, that the device's hardware has stamped.
    pub fn stamped(&mut self) -> Sums {
        match self {
            RxHalf::Packet(packet) => packet.stamped(),
            RxHalf::Tap(_) | RxHalf::Xdp(_) | RxHalf::Exchange(_) => Sums::default(),
        }
    }

    /// Clears a readiness of [`RxHalf::fd`] that is no frame, so that it does not wake the core again.
    pub fn woken(&self) {
        match self {
            RxHalf::Tap(_) | RxHalf::Xdp(_) => {}
            RxHalf::Packet(packet) => packet.woken(),
            RxHalf::Exchange(end) => end.woken(),
        }
    }

    /// Prepares for sleep. True: there is a frame already.
    pub fn rest(&self) -> bool {
        match self {
            RxHalf::Tap(_) | RxHalf::Packet(_) | RxHalf::Xdp(_) => false,
            RxHalf::Exchange(end) => end.rest(),
        }
    }

    /// Descriptor to wait on; readable while there are frames.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            RxHalf::Tap(tap) => tap.fd(),
            RxHalf::Packet(packet) => packet.fd(),
            RxHalf::Xdp(xdp) => xdp.fd(),
            RxHalf::Exchange(end) => end.fd(),
        }
    }
}

/// The sending half of a device.
pub enum TxHalf {
    /// A TAP device.
    Tap(TapTx),
    /// An AF_PACKET socket.
    Packet(Box<PacketTx>),
    /// An AF_XDP socket.
    Xdp(Box<XdpTx>),
    /// Rings to the owner of the NIC.
    Exchange(Box<FrameTx>),
}

impl TxHalf {
    /// Offloads that the device accepts.
    pub fn accepts(&self) -> Accepts {
        match self {
            TxHalf::Tap(_) | TxHalf::Packet(_) => sys::accepts(),
            TxHalf::Xdp(_) | TxHalf::Exchange(_) => Accepts::NONE,
        }
    }

    /// Bytes before each frame that the device needs: a virtio header, or nothing.
    pub fn header_len(&self) -> usize {
        match self {
            TxHalf::Tap(_) | TxHalf::Packet(_) => NetHdr::LEN_LEGACY,
            TxHalf::Xdp(_) | TxHalf::Exchange(_) => 0,
        }
    }

    /// Whether packets of RoCEv2 may leave as one, a [`Train`](super::packet::Train).
    #[inline]
    pub fn joins(&self) -> bool {
        matches!(self, TxHalf::Packet(packet) if packet.joins())
    }

    /// Sends frames and trains, each with its header, at most [`SEND_BURST`](super::frames::SEND_BURST).
    pub fn send(&mut self, frames: &[&[u8]]) -> Sent {
        match self {
            TxHalf::Tap(tap) => tap.send(frames),
            TxHalf::Packet(packet) => packet.send(frames),
            TxHalf::Xdp(xdp) => xdp.send(frames),
            TxHalf::Exchange(end) => end.send(frames),
        }
    }

    /// Sends frames that the device has taken and not sent yet. False: it has to be called again.
    pub fn push(&mut self) -> bool {
        match self {
            TxHalf::Tap(_) | TxHalf::Packet(_) | TxHalf::Exchange(_) => true,
            TxHalf::Xdp(xdp) => xdp.push(),
        }
    }
}

/// Opens the device of a port. A failure leaves no device.
pub fn open(spec: &PortSpec, links: &mut Links) -> Result<Opened, NicError> {
    open_as(spec, None, links)
}

/// Opens the device of a port that has come back with this index. No device is made.
pub fn reopen(spec: &PortSpec, index: u32, links: &mut Links) -> Result<Opened, NicError> {
    open_as(spec, Some(index), links)
}

fn open_as(spec: &PortSpec, only: Option<u32>, links: &mut Links) -> Result<Opened, NicError> {
    let mut stamping = None;
    let (rx, tx, index, mode) = match &spec.kind {
        PortKind::Tap { ifname, queues } => {
            let (rx, tx, index, mode) = tap::open(spec, (ifname, *queues), only, links)?;
            (RxHalf::Tap(rx), TxHalf::Tap(tx), index, mode)
        }
        PortKind::Packet { ifname } => {
            let facts = existing(spec, ifname, links)?;
            let opened = packet::open(spec, ifname, &facts)?;
            let rx = RxHalf::Packet(Box::new(opened.rx));
            let tx = TxHalf::Packet(Box::new(opened.tx));
            stamping = opened.stamping;
            (rx, tx, facts.index, opened.mode)
        }
        PortKind::Xdp { ifname } => {
            let facts = existing(spec, ifname, links)?;
            let (rx, tx, mode) = xdp::open(spec, ifname, &facts)?;
            let (rx, tx) = (RxHalf::Xdp(Box::new(rx)), TxHalf::Xdp(Box::new(tx)));
            (rx, tx, facts.index, mode)
        }
        PortKind::Mesh { .. } => {
            let problem = "who makes such a port holds its other end: Nic::add_port_exchange";
            return invalid("kind", problem);
        }
    };
    Ok(Opened {
        stamping,
        ..Opened::new(spec, (rx, tx), index, mode)
    })
}

/// Makes the device of a port whose other end the caller holds, and that end.
pub fn open_exchange(spec: &PortSpec) -> Result<(Opened, PortEnd), NicError> {
    let what = format!("port {}: making an eventfd", spec.name);
    let (rx, tx, end) = exchange::open().map_err(NicError::os(what))?;
    let halves = (RxHalf::Exchange(Box::new(rx)), TxHalf::Exchange(Box::new(tx)));
    let mode = format!("mesh, rings of {} frames", exchange::FRAMES);
    Ok((Opened::new(spec, halves, 0, mode), end))
}

/// The device, which must exist and carry the port's MTU.
fn existing(spec: &PortSpec, ifname: &str, links: &mut Links) -> Result<link::Facts, NicError> {
    let what = format!("port {}: asking the kernel about {ifname}", spec.name);
    let Some(facts) = links.find(ifname).map_err(NicError::os(what))? else {
        let problem = format!("there is no network device {ifname}; ip link shows those there are");
        return invalid("ifname", problem);
    };
    if u32::from(spec.mtu) > facts.mtu {
        return invalid(
            "mtu",
            format!(
                "{} is more than the MTU of {ifname}, {}: take a lower one, or ip link set dev {ifname} mtu {}",
                spec.mtu, facts.mtu, spec.mtu
            ),
        );
    }
    if !facts.ethernet {
        return invalid("ifname", format!("{ifname} is no Ethernet device"));
    }
    Ok(facts)
}

/// Source address of a port's own frames, the same at each start: locally administered, from its name (FNV-1a).
pub fn own_address(name: &str) -> MacAddr {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let [.., a, b, c, d, e] = hash.to_be_bytes();
    MacAddr([2, a, b, c, d, e])
}
