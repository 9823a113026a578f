//! A network device of the host as uplink, through an AF_PACKET socket (packet(7)).
//!
//! Frames come through a ring that the kernel fills (`PACKET_RX_RING`, TPACKET_V2: a frame is seen at once, while V3 shows
//! blocks when they are full or a timer expires): a look is no system call. A slot holds a frame of the MTU; longer ones
//! (uncut TCP segments) are queued on the socket instead (`PACKET_COPY_THRESH`) and read with a system call each. Frames
//! leave in batches of one system call. In both directions each has a virtio header (`PACKET_VNET_HDR`), so that offload
//! requests pass, and packets of RoCE go together (`bundle`).

mod bundle;
mod ring;

use std::fmt::Write as _;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use arrayvec::ArrayVec;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, MMsgHdr, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType,
};
use vnic_engine::virtio_net::NetHdr;

use super::frames::{Arrived, SEND_BURST, Sent};
use super::link::Facts;
use super::stamps::{Stamping, Stamps, Sums};
use super::sys;
use crate::types::{NicError, PortSpec};
pub use bundle::Train;
use bundle::{Bundle, Singly};
use ring::{ADDRESSES, Ring, TAG, VNET};

/// Frames that the ring holds.
const SLOTS: usize = 4096;
/// Largest number of bytes of the ring.
const RING: usize = 16 << 20;
/// Bytes of a slot that are not the frame: header of the ring, virtio header, their alignment.
const SLOT_OVERHEAD: usize = 128;
/// Bytes that may wait to be sent, and to be read beside the ring.
const SEND_BUFFER: usize = 1 << 20;
const RECEIVE_BUFFER: usize = 16 << 20;
/// Bytes of the longest frame that is queued beside the ring, with tag and virtio header, rounded up.
const LONG: usize = 1 << 17;

/// Receiving half of a packet socket.
pub struct PacketRx {
    socket: Arc<OwnedFd>,
    ring: Ring,
    /// Buffer of a frame that was read beside the ring.
    long: Vec<u8>,
    /// Packets that came as one and were not all returned.
    bundle: Option<Arriving>,
    lost: u64,
    /// Times of the device's hardware, if it has any.
    stamps: Option<Box<Stamps>>,
}

/// Packets that came as one.
struct Arriving {
    bundle: Bundle,
    place: Place,
}

/// Place of a frame.
#[derive(Clone, Copy)]
enum Place {
    /// The slot of the ring that was taken last.
    Slot,
    /// The buffer of frames read beside the ring, up to this end.
    Beside(usize),
}

/// Sending half of a packet socket.
pub struct PacketTx {
    socket: Arc<OwnedFd>,
    /// Whether the kernel takes packets of RoCE together.
    bundles: bool,
    /// Whether frames bypass the device's queueing discipline.
    bypass: bool,
}

/// An open interface.
pub struct Opened {
    /// Receiving half.
    pub rx: PacketRx,
    /// Sending half.
    pub tx: PacketTx,
    /// How frames come and go, as a text.
    pub mode: String,
    /// Stamping of the device's hardware, if it has any.
    pub stamping: Option<Stamping>,
}

/// Opens an existing interface.
pub fn open(spec: &PortSpec, ifname: &str, facts: &Facts) -> Result<Opened, NicError> {
    let os = |what: &str, source: io::Error| {
        // (A systemd unit restricts the families of sockets.)
        let cure = match Errno::from_io_error(&source) {
            Some(Errno::PERM | Errno::AFNOSUPPORT) => {
                " needs the capability CAP_NET_RAW; run vnicd with it (a service of systemd: with ports/packet.conf)"
            }
            _ => "",
        };
        NicError::Os {
            what: format!("port {}: {what} of {ifname}{cure}", spec.name),
            source,
        }
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    // Without a protocol the socket gets no frames yet.
    let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
        .map_err(|e| os("opening a packet socket", e.into()))?;
    let fd = socket.as_fd();
    let on = 1i32;
    let set =
        |name: i32, what: &str| sys::set_option(fd, libc::SOL_PACKET, name, &on).map_err(|e| os(what, e));
    set(
        libc::PACKET_VNET_HDR,
        "asking for virtio headers (PACKET_VNET_HDR)",
    )?;
    set(
        libc::PACKET_IGNORE_OUTGOING,
        "leaving out own frames (PACKET_IGNORE_OUTGOING, Linux 4.20)",
    )?;
    set(
        libc::PACKET_COPY_THRESH,
        "asking for long frames (PACKET_COPY_THRESH)",
    )?;
    set(libc::PACKET_QDISC_BYPASS, "sending past the queueing discipline")?;
    let version = libc::tpacket_versions::TPACKET_V2 as i32;
    sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_VERSION, &version)
        .map_err(|e| os("choosing the form of the ring", e))?;
    let buffers = rustix::net::sockopt::set_socket_send_buffer_size_force(&socket, SEND_BUFFER)
        .and_then(|()| rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER));
    // Without CAP_NET_ADMIN the sizes stay as the host configures them: slower, not wrong.
    let _ = buffers;
    let slot = (usize::from(spec.mtu) + 22 + SLOT_OVERHEAD).next_power_of_two();
    let slots = SLOTS.min(RING / slot);
    let ring = Ring::new(fd, slot as u32, slots as u32).map_err(|e| os("making a receive ring", e))?;
    sys::receive_all(fd, facts.index).map_err(|e| os("receiving the frames of all addresses", e))?;
    sys::bind_packet(fd, facts.index).map_err(|e| os("binding to the device", e))?;
    let mut mode = format!("packet, ring of {slots} frames");
    // Hardware that stamps nothing keeps nobody from the port.
    let stamping = Stamping::start(ifname).unwrap_or_else(|e| {
        let _ = write!(mode, ", without hardware timestamps: {e}");
        None
    });
    if stamping.is_some() {
        let by_hardware = libc::SOF_TIMESTAMPING_RAW_HARDWARE;
        sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_TIMESTAMP, &by_hardware)
            .map_err(|e| os("asking for hardware timestamps (PACKET_TIMESTAMP)", e))?;
        mode.push_str(", hardware timestamps");
    }
    let socket = Arc::new(socket);
    let rx = PacketRx {
        socket: socket.clone(),
        ring,
        long: vec![0; LONG],
        bundle: None,
        lost: 0,
        stamps: stamping.as_ref().map(|s| Box::new(s.stamps())),
    };
    let tx = PacketTx {
        socket,
        bundles: true,
        bypass: true,
    };
    Ok(Opened {
        rx,
        tx,
        mode,
        stamping,
    })
}

impl PacketRx {
    /// The next frame, if there is one. Never an error: a socket does not know that its device is gone for good.
    pub fn next(&mut self) -> io::Result<Option<Arrived<'_>>> {
        if let Some(from) = &mut self.bundle {
            let bytes = match from.place {
                Place::Slot => self.ring.bytes(),
                Place::Beside(end) => &mut self.long[..end],
            };
            if let Some(range) = from.bundle.next(bytes) {
                return Ok(Some(self.packet(range)));
            }
            self.bundle = None;
        }
        let Some(slot) = self.ring.next() else {
            return Ok(None);
        };
        if slot.lossy {
            self.count_lost();
        }
        let tag = self.ring.tag();
        let place = if slot.whole {
            Place::Slot
        } else if let Some(end) = self.long() {
            Place::Beside(end)
        } else {
            // The rest of the burst comes with the next look.
            self.lost += 1;
            return Ok(None);
        };
        let bytes = match place {
            Place::Slot => self.ring.bytes(),
            Place::Beside(end) => &mut self.long[..end],
        };
        let end = bytes.len();
        let (from, hdr, verified) = finish(bytes, tag);
        let several = Bundle::of(bytes, from, &hdr);
        if let Some(mut bundle) = several
            && let Some(range) = bundle.next(bytes)
        {
            self.bundle = Some(Arriving { bundle, place });
            return Ok(Some(self.packet(range)));
        }
        let (bytes, lasts) = match place {
            Place::Slot => (&mut self.ring.bytes()[from..], Some(sys::lasting(verified))),
            Place::Beside(_) => (&mut self.long[from..end], None),
        };
        Ok(Some(Arrived {
            bytes,
            hdr,
            lasts,
            stamp: match &mut self.stamps {
                Some(stamps) if slot.by_hardware => stamps.arrived(slot.stamp),
                _ => slot.stamp,
            },
        }))
    }

    /// Gives the slots of returned frames back, except one of which packets are still to be returned.
    pub fn release(&mut self) {
        let goes_on = self.bundle.as_ref();
        self.ring
            .release(goes_on.is_some_and(|b| matches!(b.place, Place::Slot)));
    }

    /// A packet of a bundle, which is complete.
    fn packet(&mut self, range: Range<usize>) -> Arrived<'_> {
        let bytes = match self.bundle.as_ref().map(|b| b.place) {
            Some(Place::Beside(_)) => &mut self.long[..],
            _ => self.ring.bytes(),
        };
        Arrived {
            bytes: &mut bytes[range],
            hdr: NetHdr::default(),
            lasts: None,
            stamp: 0,
        }
    }

    /// Reads the frame of a slot that is too short for it: it was queued beside the ring, in the same order. Returns its end;
    /// `None`: the socket's buffer was full, or the frame is longer than any may be.
    fn long(&mut self) -> Option<usize> {
        if !self.ring.copied() {
            return None;
        }
        // There is room for the frame's tag before the frame.
        let room = &mut self.long[TAG..];
        let read = rustix::net::recv(&*self.socket, room, RecvFlags::DONTWAIT | RecvFlags::TRUNC);
        let (n, real) = read.ok()?;
        (real == n && n >= VNET + ADDRESSES).then_some(TAG + n)
    }

    fn count_lost(&mut self) {
        // To read packets and drops clears them.
        if let Ok([_, drops]) = sys::numbers::<2>(self.fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS) {
            self.lost += u64::from(drops);
        }
    }

    /// Number of frames, since the last call, that the kernel or this half had no room for.
    pub fn lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// Frames, since the last call, that the device's hardware has stamped.
    pub fn stamped(&mut self) -> Sums {
        self.stamps
            .as_mut()
            .map_or(Sums::default(), |stamps| stamps.take())
    }

    /// Clears the socket's error: a device that goes down sets it once, and the socket stays ready until it is read.
    pub fn woken(&self) {
        let _ = rustix::net::sockopt::socket_error(&*self.socket);
    }

    /// Descriptor to wait on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Turns room for a tag, virtio header and frame into the frame as it was on the wire. Returns its start, its offload
/// request, and whether its checksum was verified.
fn finish(bytes: &mut [u8], tag: Option<[u8; TAG]>) -> (usize, NetHdr, bool) {
    let mut hdr = [0; VNET];
    hdr.copy_from_slice(&bytes[TAG..TAG + VNET]);
    let mut hdr = NetHdr::parse(&hdr);
    // A flag that the checksum was verified is no request.
    let verified = hdr.flags & NetHdr::DATA_VALID != 0;
    hdr.flags &= NetHdr::NEEDS_CSUM;
    let mut from = TAG + VNET;
    if let Some(tag) = tag {
        bytes.copy_within(from..from + ADDRESSES, from - TAG);
        from -= TAG;
        bytes[from + ADDRESSES..from + ADDRESSES + TAG].copy_from_slice(&tag);
        if hdr.flags != 0 {
            hdr.csum_start = hdr.csum_start.wrapping_add(TAG as u16);
            hdr.hdr_len = hdr.hdr_len.wrapping_add(TAG as u16);
        }
    }
    (from, hdr, verified)
}

impl PacketTx {
    /// Whether packets of RoCEv2 may leave as one, a [`Train`].
    pub fn joins(&self) -> bool {
        self.bundles
    }

    /// Sends frames and trains, each with its virtio header, at most [`SEND_BURST`].
    pub fn send(&mut self, frames: &[&[u8]]) -> Sent {
        let mut answer = self.messages(frames);
        if answer == Err(Errno::NOBUFS) && self.bypass {
            // The kernel finishes what the device cannot, but only in the queueing discipline: without it such frames are
            // dropped.
            self.bypass = false;
            let _ = sys::set_option(
                self.socket.as_fd(),
                libc::SOL_PACKET,
                libc::PACKET_QDISC_BYPASS,
                &0i32,
            );
            answer = self.messages(frames);
        }
        if answer == Err(Errno::INVAL)
            && let Some(several) = frames.first().and_then(|first| Singly::of(first))
        {
            // This kernel does not know segmented datagrams.
            self.bundles = false;
            return self.singly(several);
        }
        outcome(answer)
    }

    /// Gives each frame to the kernel as a message. Returns how many it has taken.
    fn messages(&self, frames: &[&[u8]]) -> Result<usize, Errno> {
        let pieces: ArrayVec<[IoSlice<'_>; 1], SEND_BURST> =
            frames.iter().map(|frame| [IoSlice::new(frame)]).collect();
        let mut controls: ArrayVec<SendAncillaryBuffer<'_, '_, '_>, SEND_BURST> =
            pieces.iter().map(|_| SendAncillaryBuffer::default()).collect();
        let each = pieces.iter().zip(&mut controls);
        let mut list: ArrayVec<MMsgHdr<'_>, SEND_BURST> = each
            .map(|(piece, control)| MMsgHdr::new(piece, control))
            .collect();
        rustix::net::sendmmsg(&*self.socket, &mut list, SendFlags::DONTWAIT)
    }

    /// Sends the packets of a train one by one. Packets that the kernel has no room for are lost, as on a wire.
    fn singly(&self, mut several: Singly) -> Sent {
        let mut sent = Sent::Refused;
        while let Some(packet) = several.next() {
            if self.messages(&[packet]).is_ok() {
                sent = Sent::Some(1);
            }
        }
        sent
    }
}

fn outcome(answer: Result<usize, Errno>) -> Sent {
    match answer {
        Ok(n) => Sent::Some(n),
        Err(Errno::AGAIN) => Sent::Full,
        Err(_) => Sent::Refused,
    }
}
