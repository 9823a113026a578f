//! The guest: VMM and driver.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use vhost::VhostBackend;
use vhost::vhost_user::message::{VhostUserHeaderFlag, VhostUserProtocolFeatures as P};
use vhost::vhost_user::{Frontend, VhostUserFrontend};

use vnic_backend::{MacAddr, hash_type};

use super::memory::GuestMem;
use super::queue::Queue;
use super::ring::{Desc, NEXT, Ring, WRITE};
use super::{NetHdr, Options, feature};

/// Rings and indirect tables are here.
pub const RINGS_AT: u64 = 0;
/// Buffers are here.
pub const BUFFERS_AT: u64 = 1 << 32;

/// A guest with a virtio-net driver. See the module.
pub struct Guest {
    /// What it was made with.
    pub options: Options,
    mem: GuestMem,
    frontend: Option<Frontend>,
    /// The connection once more, for messages that the frontend does not know.
    stream: Option<UnixStream>,
    /// By vhost-user index: 2·pair for receive, 2·pair+1 for transmit.
    queues: Vec<Queue>,
    /// The control queue, if the driver has one, and where its commands lie.
    control: Option<(Ring, u64)>,
    /// Hash that came with the last frame, and its type (HASH_REPORT).
    pub hash: (u32, u16),
}

/// Entries of the control queue.
const CONTROL: u16 = 64;
/// Bytes for commands and for answers, each.
const CONTROL_BYTES: u64 = 1 << 16;

/// Waits politely: poll loops have the CPUs. A thread that gives its CPU up again and again without sleeping may wait for
/// it for seconds when others come (Linux 6.18: each time puts it back by a whole slice).
pub fn pause(tries: u32) {
    if tries < 4 {
        std::thread::yield_now();
    } else {
        std::thread::sleep(Duration::from_micros(50));
    }
}

impl Guest {
    /// A guest that is not attached; its receive buffers are posted.
    pub fn new(options: Options) -> Result<Guest> {
        let mut mem = GuestMem::new();
        let o = &options;
        let (mut rings, mut buffers) = (0, 0);
        for i in 0..2 * o.pairs {
            let (b, t) = Queue::footprint(o, i % 2 == 0);
            rings += Ring::footprint(o.queue_size) + t;
            buffers += b;
        }
        let has_control = o.features & feature::CTRL_VQ != 0;
        let control_at = RINGS_AT + rings;
        if has_control {
            rings += Ring::footprint(CONTROL) + 2 * CONTROL_BYTES;
        }
        mem.add(RINGS_AT, rings)?;
        mem.add(BUFFERS_AT, buffers)?;
        let (mut ring_at, mut buffer_at) = (RINGS_AT, BUFFERS_AT);
        let mut queues = Vec::new();
        for i in 0..2 * o.pairs {
            let mut ring = Ring::new(&mem, ring_at, o.queue_size)?;
            ring.event_idx = o.features & feature::RING_EVENT_IDX != 0;
            if o.features & feature::RING_PACKED != 0 {
                ring.pack();
            }
            let (b, t) = Queue::footprint(o, i % 2 == 0);
            let tables = ring_at + Ring::footprint(o.queue_size);
            let mut q = Queue::new(&mem, o, i % 2 == 0, ring, buffer_at, tables)?;
            q.ring.start_at(o.start_at);
            q.ring.want_calls(o.calls);
            queues.push(q);
            ring_at = tables + t;
            buffer_at += b;
        }
        let control = match has_control {
            true => {
                let mut ring = Ring::new(&mem, control_at, CONTROL)?;
                ring.event_idx = options.features & feature::RING_EVENT_IDX != 0;
                if options.features & feature::RING_PACKED != 0 {
                    ring.pack();
                }
                Some((ring, control_at + Ring::footprint(CONTROL)))
            }
            false => None,
        };
        let mut guest = Guest {
            options,
            control,
            hash: (0, 0),
            mem,
            frontend: None,
            stream: None,
            queues,
        };
        for pair in 0..guest.options.pairs {
            guest.post(pair, guest.options.post);
        }
        Ok(guest)
    }

    /// Makes a guest and connects it to an adapter's socket.
    pub fn attach(socket: impl AsRef<Path>, options: Options) -> Result<Guest> {
        let mut guest = Guest::new(options)?;
        guest.connect(socket)?;
        Ok(guest)
    }

    /// Connects (again): negotiates, shares memory, starts the rings where `used.idx` stands, as QEMU does.
    /// Waits for the socket when it is not there yet.
    pub fn connect(&mut self, socket: impl AsRef<Path>) -> Result<()> {
        self.frontend = Some(self.negotiate(socket.as_ref())?);
        self.start_rings()
    }

    fn negotiate(&mut self, socket: &Path) -> Result<Frontend> {
        let deadline = Instant::now() + Duration::from_secs(20);
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(s) => break s,
                Err(e) if Instant::now() > deadline => bail!("connecting to {}: {e}", socket.display()),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        self.stream = Some(stream.try_clone()?);
        let rings = 2 * u64::from(self.options.pairs) + u64::from(self.control.is_some());
        let mut f = Frontend::from_stream(stream, rings);
        f.set_owner()?;
        let mut offered = f.get_features()?;
        let features = self.options.features;
        if features & feature::PROTOCOL_FEATURES != 0 {
            let mut ours = P::MQ | P::REPLY_ACK | P::RESET_DEVICE | P::LOG_SHMFD | P::CONFIGURE_MEM_SLOTS;
            if features & feature::GUEST_ANNOUNCE != 0 {
                ours |= P::RARP;
            }
            if self.control.is_some() {
                ours |= P::CONFIG | P::BACKEND_REQ;
            }
            let common = f.get_protocol_features()? & ours;
            f.set_protocol_features(common)?;
            if common.contains(P::REPLY_ACK) {
                f.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
            }
            // QEMU asks twice, too: what is offered depends on the protocol's features.
            offered = f.get_features()?;
        }
        ensure!(
            features & !offered == 0,
            "not offered: {:#x}",
            features & !offered
        );
        f.set_features(features)?;
        f.set_mem_table(&self.mem.regions())?;
        Ok(f)
    }

    /// Asks for the announcement of an address (VHOST_USER_SEND_RARP), as a VMM does whose guest was moved here.
    pub fn send_rarp(&mut self, mac: MacAddr) -> Result<()> {
        const SEND_RARP: u32 = 19;
        const NEED_REPLY: u32 = 1 << 3;
        let [a, b, c, d, e, f] = mac.0;
        let (low, high) = (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, 0, 0]));
        let words = [SEND_RARP, 1 | NEED_REPLY, 8, low, high];
        let mut stream = self.stream.as_ref().context("not attached")?;
        stream.write_all(words.map(u32::to_ne_bytes).as_flattened())?;
        let mut reply = [0; 20];
        stream.read_exact(&mut reply)?;
        ensure!(reply[12..] == [0; 8], "refused: {reply:02x?}");
        Ok(())
    }

    /// Starts all rings at `used.idx` and enables them.
    pub fn start_rings(&mut self) -> Result<()> {
        for i in 0..self.queues.len() + usize::from(self.control.is_some()) {
            self.start_ring(i)?;
        }
        Ok(())
    }

    /// Asks for RSS over UDP and IPv4 by this table of receive queues, with all transmit queues (virtio 1.3 section 5.1.6.5.7.1).
    ///
    /// # Panics
    /// When there is no control queue.
    pub fn rss(&mut self, table: &[u16], key: &[u8; 40]) -> Result<Vec<u8>> {
        let mut command = vec![4, 1];
        command.extend((hash_type::UDPV4 | hash_type::IPV4).to_le_bytes());
        command.extend((table.len() as u16 - 1).to_le_bytes());
        command.extend(0u16.to_le_bytes());
        command.extend(table.iter().flat_map(|id| id.to_le_bytes()));
        command.extend(self.options.pairs.to_le_bytes());
        command.push(40);
        command.extend(key);
        self.command(&command, 1)
    }

    /// Gives the device a command by the control queue, and waits for acknowledgement and result, at most `room` bytes.
    ///
    /// # Panics
    /// When there is no control queue.
    pub fn command(&mut self, bytes: &[u8], room: u32) -> Result<Vec<u8>> {
        let (ring, at) = self.control.as_mut().expect("a control queue");
        self.mem.write(*at, bytes)?;
        let answer = *at + CONTROL_BYTES;
        let out = Desc {
            addr: *at,
            len: bytes.len() as u32,
            flags: NEXT,
            next: 1,
        };
        let into = Desc {
            addr: answer,
            len: room,
            flags: WRITE,
            next: 0,
        };
        ring.set_desc(0, out);
        ring.set_desc(1, into);
        ring.offer(0);
        ring.publish();
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut tries = 0;
        let len = loop {
            match ring.take() {
                Some((_, len)) => break len,
                None => ensure!(Instant::now() < deadline, "the device takes no commands"),
            }
            pause(tries);
            tries += 1;
        };
        let mut reply = vec![0; len as usize];
        self.mem.read(answer, &mut reply)?;
        Ok(reply)
    }

    /// The control queue.
    pub fn control(&mut self) -> Option<&mut Ring> {
        self.control.as_mut().map(|(ring, _)| ring)
    }

    /// Starts one ring at `used.idx` and enables it.
    pub fn start_ring(&mut self, i: usize) -> Result<()> {
        let enable = self.options.features & feature::PROTOCOL_FEATURES != 0;
        let f = self.frontend.as_mut().context("not attached")?;
        let ring = match self.queues.get(i) {
            Some(queue) => &queue.ring,
            None => &self.control.as_ref().context("no such ring")?.0,
        };
        f.set_vring_num(i, ring.size())?;
        f.set_vring_base(i, ring.base())?;
        f.set_vring_addr(i, &ring.config(false))?;
        f.set_vring_call(i, &ring.call)?;
        f.set_vring_kick(i, &ring.kick)?;
        if enable {
            f.set_vring_enable(i, true)?;
        }
        Ok(())
    }

    /// Stops a ring; answers where it stands.
    pub fn stop_ring(&mut self, i: usize) -> Result<u16> {
        let f = self.frontend.as_mut().context("not attached")?;
        let base = f.get_vring_base(i)?;
        let ring = match self.queues.get(i) {
            Some(queue) => Some(&queue.ring),
            None => self.control.as_ref().map(|(ring, _)| ring),
        };
        if let Some(packed) = ring.and_then(|ring| ring.packed.as_ref()) {
            ensure!(base >> 16 == base & 0xffff, "buffers are under way: {base:#x}");
            packed.base.set(base as u16);
        }
        Ok(base as u16)
    }

    /// Stops all rings and closes the connection. The rings keep their places: [`Guest::connect`] goes on.
    pub fn detach(&mut self) -> Result<Vec<u16>> {
        let rings = self.queues.len() + usize::from(self.control.is_some());
        let bases = (0..rings).map(|i| self.stop_ring(i)).collect();
        (self.frontend, self.stream) = (None, None);
        bases
    }

    /// Closes the connection without a word, as a VMM that is killed.
    pub fn hang_up(&mut self) {
        (self.frontend, self.stream) = (None, None);
    }

    /// Resets the device and begins with empty rings.
    pub fn reset(&mut self) -> Result<()> {
        self.frontend.as_mut().context("not attached")?.reset_device()?;
        for q in &mut self.queues {
            q.reset()?;
            q.ring.want_calls(self.options.calls);
        }
        if let Some((ring, _)) = &mut self.control {
            ring.reset()?;
        }
        for pair in 0..self.options.pairs {
            self.post(pair, self.options.post);
        }
        let f = self.frontend.as_mut().context("not attached")?;
        f.set_features(self.options.features)?;
        self.start_rings()
    }

    /// The VMM's half of vhost-user, while attached.
    pub fn frontend(&mut self) -> Result<&mut Frontend> {
        self.frontend.as_mut().context("not attached")
    }

    /// Guest memory.
    pub fn mem(&self) -> &GuestMem {
        &self.mem
    }

    /// A ring, by vhost-user index: 2·pair for receive, 2·pair+1 for transmit.
    pub fn ring(&mut self, i: usize) -> &mut Ring {
        &mut self.queues[i].ring
    }

    /// The receive queue of a pair.
    pub fn rx(&mut self, pair: u16) -> &mut Queue {
        &mut self.queues[2 * usize::from(pair)]
    }

    /// The transmit queue of a pair.
    pub fn tx(&mut self, pair: u16) -> &mut Queue {
        &mut self.queues[2 * usize::from(pair) + 1]
    }

    /// Adds memory and tells the device (ADD_MEM_REG).
    pub fn plug(&mut self, gpa: u64, len: u64) -> Result<()> {
        self.mem.add(gpa, len)?;
        let region = self.mem.region(gpa)?;
        self.frontend()?.add_mem_region(&region)?;
        Ok(())
    }

    /// Takes memory away (REM_MEM_REG). No buffer that the device has may be there.
    pub fn unplug(&mut self, gpa: u64) -> Result<()> {
        let region = self.mem.region(gpa)?;
        self.frontend()?.remove_mem_region(&region)?;
        self.mem.remove(gpa)
    }

    /// Tells all memory again (SET_MEM_TABLE).
    pub fn set_mem_table(&mut self) -> Result<()> {
        let regions = self.mem.regions();
        self.frontend()?.set_mem_table(&regions)?;
        Ok(())
    }

    /// From now on new buffers of ring `i` lie at `gpa`.
    pub fn move_buffers(&mut self, i: usize, gpa: u64) -> Result<()> {
        self.queues[i].move_to(&self.mem, gpa)
    }

    /// From now on new buffers of ring `i` lie where they lay in the beginning.
    pub fn move_buffers_home(&mut self, i: usize) {
        self.queues[i].move_home();
    }

    /// Posts up to `n` receive buffers; answers how many.
    pub fn post(&mut self, pair: u16, n: u16) -> u16 {
        let q = self.rx(pair);
        let buffer = q.buffer;
        let posted = (0..n).take_while(|_| q.place(buffer).is_some()).count() as u16;
        q.ring.publish();
        posted
    }

    /// Queues a frame without telling the device; false when there is no room.
    ///
    /// # Panics
    /// When the frame is longer than a transmit buffer.
    #[inline]
    pub fn stage(&mut self, pair: u16, frame: &[u8], hdr: NetHdr) -> bool {
        let q = self.tx(pair);
        let (bytes, hdr_len) = q.header(&hdr);
        let total = (hdr_len + frame.len()) as u32;
        assert!(
            total <= q.buffer,
            "a frame of {} bytes, transmit buffers of {}",
            frame.len(),
            q.buffer
        );
        if q.free() == 0 {
            self.reclaim(pair);
        }
        let q = self.tx(pair);
        let Some(slot) = q.place(total) else { return false };
        q.fill(slot, &bytes[..hdr_len], frame);
        true
    }

    /// Sends a frame; false when the ring is full.
    #[inline]
    pub fn send(&mut self, pair: u16, frame: &[u8], hdr: NetHdr) -> bool {
        let room = self.stage(pair, frame, hdr);
        self.tx(pair).ring.publish();
        room
    }

    /// Sends a frame, waiting for room.
    ///
    /// # Panics
    /// When the device takes nothing for 20 s.
    pub fn send_wait(&mut self, pair: u16, frame: &[u8], hdr: NetHdr) {
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut tries = 0;
        while !self.send(pair, frame, hdr) {
            assert!(Instant::now() < deadline, "the device takes no frames");
            pause(tries);
            tries += 1;
        }
    }

    /// Takes completed transmit buffers back; answers how many the device still has.
    #[inline]
    pub fn reclaim(&mut self, pair: u16) -> usize {
        let q = self.tx(pair);
        while let Some((slot, _)) = q.take() {
            q.give_back(slot);
        }
        let calls = self.options.calls;
        let q = self.tx(pair);
        q.ring.want_calls(calls);
        q.outstanding()
    }

    /// Waits until the device has completed all frames.
    ///
    /// # Panics
    /// When that takes more than 20 s.
    pub fn drain(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        for pair in 0..self.options.pairs {
            let mut tries = 0;
            while self.reclaim(pair) > 0 {
                assert!(
                    Instant::now() < deadline,
                    "{} frames are not completed",
                    self.reclaim(pair)
                );
                pause(tries);
                tries += 1;
            }
        }
    }

    /// The next frame: its virtio header, `num_buffers` as the device gave it (1 where the header has no such
    /// field), its bytes.
    pub fn try_recv(&mut self, pair: u16) -> Option<(NetHdr, u16, Vec<u8>)> {
        let mut bytes = Vec::new();
        let (hdr, n) = self.try_recv_into(pair, &mut bytes)?;
        Some((hdr, n, bytes))
    }

    /// The same, into a buffer of the caller's.
    ///
    /// # Panics
    /// When the device shows a part of a frame or a header without sense.
    pub fn try_recv_into(&mut self, pair: u16, frame: &mut Vec<u8>) -> Option<(NetHdr, u16)> {
        let hdr_len = self.options.hdr_len();
        let mergeable = self.options.features & feature::MRG_RXBUF != 0;
        let (repost, calls) = (self.options.repost, self.options.calls);
        let q = self.rx(pair);
        let (slot, len) = q.take()?;
        frame.clear();
        q.collect(slot, len, frame);
        q.give_back(slot);
        let mut again = u16::from(repost);
        assert!(
            frame.len() >= hdr_len,
            "a frame of {} bytes, header included",
            frame.len()
        );
        let hdr = NetHdr::parse(frame.first_chunk().expect("checked"));
        let hash: Option<[u8; 6]> = frame[..hdr_len].get(12..18).and_then(|h| h.try_into().ok());
        let n = if hdr_len >= NetHdr::LEN {
            u16::from_le_bytes([frame[10], frame[11]])
        } else {
            1
        };
        assert!(n == 1 || (mergeable && n > 1), "num_buffers is {n}");
        for k in 1..n {
            let (slot, len) = q
                .take()
                .unwrap_or_else(|| panic!("buffer {k} of {n} is not there"));
            q.collect(slot, len, frame);
            q.give_back(slot);
            again += u16::from(repost);
        }
        frame.drain(..hdr_len);
        let buffer = q.buffer;
        for _ in 0..again {
            q.place(buffer);
        }
        q.ring.publish();
        q.ring.want_calls(calls);
        if let Some([a, b, c, d, e, f]) = hash {
            self.hash = (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([e, f]));
        }
        Some((hdr, n))
    }

    /// The next frame, waiting for it.
    pub fn recv(&mut self, pair: u16, deadline: Instant) -> Option<(NetHdr, u16, Vec<u8>)> {
        let mut tries = 0;
        loop {
            if let Some(got) = self.try_recv(pair) {
                return Some(got);
            }
            if Instant::now() >= deadline {
                return None;
            }
            pause(tries);
            tries += 1;
        }
    }

    /// The next frame of any queue, with its pair; looks at each pair in turn.
    pub fn try_recv_any(&mut self) -> Option<(u16, NetHdr, Vec<u8>)> {
        (0..self.options.pairs).find_map(|pair| self.try_recv(pair).map(|(hdr, _, frame)| (pair, hdr, frame)))
    }
}
