//! Frames between the switch and the peers.
//!
//! From the switch: a frame for an address behind a known peer goes to that peer, any other frame to all peers. From a
//! peer: each frame goes to the switch, never to another peer. Every daemon has a connection to every other one: there are
//! no loops.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quinn::{Connection, ConnectionError, SendDatagramError};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::yield_now;
use tokio::time::interval;
use vnic_backend::counters::{MeshCounter as C, MeshCounters};
use vnic_backend::{FrameRx, FrameTx};

use super::frame::{self, Assembly, Cut, PIECE_HEADER, WHOLE_HEADER};
use super::peers::{Peer, Peers};
use super::table::{Table, addresses};

/// Number of frames that are moved before other tasks run.
const BURST: usize = 64;
/// Size of an allocation; a datagram is a part of one.
const PORTION: usize = 64 * 1024;
/// Greatest size of a queued datagram in its connection beside its bytes.
const QUEUED: usize = 64;

/// Interval at which the losses are counted that only the connections know.
const LOOK: Duration = Duration::from_secs(1);

/// State that the tasks of a mesh share. They run in one thread, so the locks are never contended.
pub struct Flow {
    table: Mutex<Table>,
    to_switch: Mutex<FrameTx>,
    lost: Arc<MeshCounters>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add(counter: &AtomicU64, n: u64) {
    if n > 0 {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

impl Flow {
    /// Makes the flow of a mesh; `ageing` is that of its addresses. What is lost is counted in `lost`.
    pub fn new(to_switch: FrameTx, ageing: Duration, lost: Arc<MeshCounters>) -> Flow {
        Flow {
            table: Mutex::new(Table::new(ageing)),
            to_switch: Mutex::new(to_switch),
            lost,
        }
    }

    /// Forgets the addresses of a peer that is gone.
    pub fn forget(&self, peer: u32) {
        lock(&self.table).forget(peer);
    }

    /// Takes the frames of a peer to the switch until its connection ends; returns why it ended.
    pub async fn receive(&self, peer: &Peer) -> ConnectionError {
        let mut income = Income::default();
        let (mut look, mut looked) = (interval(LOOK), Instant::now());
        let error = loop {
            let moved = tokio::select! {
                biased;
                first = peer.connection.read_datagram() => {
                    first.and_then(|first| self.burst(peer, &mut income, first))
                }
                _ = look.tick() => Ok(()),
            };
            if let Err(error) = moved {
                break error;
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                income.look(&peer.connection, &self.lost);
            }
            yield_now().await;
        };
        income.look(&peer.connection, &self.lost);
        error
    }

    /// Takes the datagrams that are there, up to a burst.
    fn burst(&self, peer: &Peer, income: &mut Income, first: Bytes) -> Result<(), ConnectionError> {
        let now = Instant::now();
        let (mut table, mut to_switch) = (lock(&self.table), lock(&self.to_switch));
        let (mut frames, mut bytes, mut not_carried, mut no_room) = (0, 0, 0, 0);
        let assembly = &mut income.assembly;
        income.drained = false;
        let mut next = Some(Ok(first));
        for _ in 0..BURST {
            let datagram = match next.take().or_else(|| ready(peer.connection.read_datagram())) {
                Some(Ok(datagram)) => datagram,
                Some(Err(error)) => {
                    to_switch.flush();
                    return Err(error);
                }
                None => {
                    income.drained = true;
                    break;
                }
            };
            income.read += 1;
            let Some(frame) = assembly.take(&datagram, now) else {
                continue;
            };
            let Some(addresses) = addresses(frame) else {
                not_carried += 1;
                continue;
            };
            if let Some(from) = addresses.from {
                table.learn(from, peer.id, now);
            }
            if to_switch.put_or_lose(frame) {
                frames += 1;
                bytes += frame.len() as u64;
            } else {
                no_room += 1;
            }
        }
        to_switch.flush();
        let incomplete = std::mem::take(&mut assembly.incomplete);
        let malformed = std::mem::take(&mut assembly.malformed);
        let c = &peer.counters;
        add(&c.rx_frames, frames);
        add(&c.rx_bytes, bytes);
        add(&c.rx_dropped, not_carried + no_room);
        add(&c.rx_incomplete, incomplete);
        add(&c.rx_malformed, malformed);
        self.lost.add(C::RxNotCarried as usize, not_carried);
        self.lost.add(C::RxNoRoom as usize, no_room);
        self.lost.add(C::RxIncomplete as usize, incomplete);
        self.lost.add(C::RxMalformed as usize, malformed);
        Ok(())
    }

    /// Takes frames from the switch to the peers, for ever.
    pub async fn send(
        &self,
        mut from_switch: FrameRx,
        bell: AsyncFd<OwnedFd>,
        peers: &Peers,
    ) -> io::Result<()> {
        let mut changes = peers.watch();
        let mut lanes: Vec<Lane> = Vec::new();
        let mut portion = BytesMut::new();
        loop {
            if changes.has_changed().unwrap_or(false) {
                changes.borrow_and_update();
                lanes = Lane::all(lanes, peers);
            }
            let now = Instant::now();
            lanes.iter_mut().for_each(Lane::begin);
            let mut moved = 0;
            while moved < BURST {
                let Some(frame) = from_switch.next_frame() else {
                    break;
                };
                moved += 1;
                let Some(addresses) = addresses(frame) else {
                    self.lost.add(C::TxNotCarried as usize, 1);
                    continue;
                };
                let known = addresses.to.and_then(|to| lock(&self.table).find(to, now));
                let known = known.and_then(|id| lanes.iter().position(|l| l.peer.id == id));
                match (known, &mut lanes[..]) {
                    (_, []) => self.lost.add(C::TxNoPeer as usize, 1),
                    // With one peer, the task waits until there is room, and frames wait in the switch's queue. With
                    // several peers, one of them would hold up the others.
                    (_, [only]) => {
                        if !only.send(frame, &mut portion) {
                            tokio::select! {
                                () = only.send_wait(frame, &mut portion) => {}
                                _ = changes.changed() => {
                                    changes.mark_changed();
                                    self.lost.add(C::TxPeerLeft as usize, 1);
                                }
                            }
                            break;
                        }
                    }
                    (Some(i), lanes) => {
                        if let Some(lane) = lanes.get_mut(i) {
                            lane.send_or_drop(frame, &mut portion);
                        }
                    }
                    (None, lanes) => {
                        for lane in lanes {
                            lane.send_or_drop(frame, &mut portion);
                        }
                    }
                }
            }
            lanes.iter_mut().for_each(|lane| lane.count(&self.lost));
            if moved > 0 {
                yield_now().await;
            } else if !from_switch.rest() {
                tokio::select! {
                    rung = bell.ready(Interest::READABLE) => {
                        from_switch.woken();
                        rung?.clear_ready();
                    }
                    _ = changes.changed() => changes.mark_changed(),
                }
            }
        }
    }
}

/// What came from a peer.
#[derive(Default)]
struct Income {
    assembly: Assembly,
    /// Number of datagrams that were read, and whether none was left then.
    read: u64,
    drained: bool,
    /// Losses that are counted already: packets to the peer, and datagrams from it.
    packets: u64,
    unread: u64,
}

impl Income {
    /// Counts the losses that the connection knows.
    fn look(&mut self, connection: &Connection, lost: &MeshCounters) {
        let stats = connection.stats();
        // (The number is one of the path, and begins anew with another path.)
        let packets = stats.path.lost_packets;
        let more = packets.checked_sub(self.packets).unwrap_or(packets);
        self.packets = packets;
        lost.add(C::TxLostPackets as usize, more);
        // The connection discards the oldest datagrams when too many wait, and does not say so.
        if self.drained {
            let unread = stats.frame_rx.datagram.saturating_sub(self.read);
            lost.add(C::RxUnread as usize, unread.saturating_sub(self.unread));
            self.unread = self.unread.max(unread);
        }
    }
}

/// Sender of frames to a peer.
struct Lane {
    peer: Arc<Peer>,
    /// Number of the next frame that is cut.
    number: u32,
    /// Bytes for which the connection has room.
    room: usize,
    /// Greatest size of a datagram.
    max: usize,
    frames: u64,
    bytes: u64,
    too_long: u64,
    no_room: u64,
    peer_left: u64,
}

impl Lane {
    /// Lanes of all peers; those of `before` that are still needed are kept.
    fn all(mut before: Vec<Lane>, peers: &Peers) -> Vec<Lane> {
        let all = peers.all().into_iter();
        all.map(
            |peer| match before.iter().position(|l| Arc::ptr_eq(&l.peer, &peer)) {
                Some(i) => before.swap_remove(i),
                None => Lane {
                    peer,
                    number: 0,
                    room: 0,
                    max: 0,
                    frames: 0,
                    bytes: 0,
                    too_long: 0,
                    no_room: 0,
                    peer_left: 0,
                },
            },
        )
        .collect()
    }

    fn begin(&mut self) {
        self.room = self.peer.connection.datagram_send_buffer_space();
        self.max = self.peer.connection.max_datagram_size().unwrap_or(0);
    }

    fn count(&mut self, lost: &MeshCounters) {
        let c = &self.peer.counters;
        add(&c.tx_frames, std::mem::take(&mut self.frames));
        add(&c.tx_bytes, std::mem::take(&mut self.bytes));
        for (counter, n) in [
            (C::TxTooLong, &mut self.too_long),
            (C::TxNoRoom, &mut self.no_room),
            (C::TxPeerLeft, &mut self.peer_left),
        ] {
            add(&c.tx_dropped, *n);
            lost.add(counter as usize, std::mem::take(n));
        }
    }

    /// Bytes of a frame in the queue of the connection.
    fn need(len: usize, cut: Cut) -> usize {
        match cut {
            Cut::Whole => len + WHOLE_HEADER + QUEUED,
            Cut::Pieces(n, _) => len + n * (PIECE_HEADER + QUEUED),
        }
    }

    /// Queues a frame; returns false if there is no room for it now.
    fn send(&mut self, frame: &[u8], portion: &mut BytesMut) -> bool {
        let Some(cut) = frame::cut(frame.len(), self.max) else {
            self.too_long += 1;
            return true;
        };
        let need = Lane::need(frame.len(), cut);
        if self.room < need {
            self.begin();
            if self.room < need {
                return false;
            }
        }
        let mut sent = Ok(());
        for datagram in Datagrams::new(frame, cut, self.number, portion) {
            sent = sent.and(self.peer.connection.send_datagram(datagram));
        }
        self.after(frame, cut, sent);
        true
    }

    /// Queues a frame as [`Lane::send`] does, but waits for room.
    async fn send_wait(&mut self, frame: &[u8], portion: &mut BytesMut) {
        let Some(cut) = frame::cut(frame.len(), self.max) else {
            self.too_long += 1;
            return;
        };
        let mut sent = Ok(());
        let datagrams: Vec<Bytes> = Datagrams::new(frame, cut, self.number, portion).collect();
        for datagram in datagrams {
            sent = self.peer.connection.send_datagram_wait(datagram).await;
            // The path became narrower since the frame was cut: the rest of the frame is useless.
            if sent.is_err() {
                break;
            }
        }
        self.after(frame, cut, sent);
    }

    fn after(&mut self, frame: &[u8], cut: Cut, sent: Result<(), SendDatagramError>) {
        self.room = self.room.saturating_sub(Lane::need(frame.len(), cut));
        if matches!(cut, Cut::Pieces(..)) {
            self.number = self.number.wrapping_add(1);
        }
        match sent {
            Ok(()) => {
                self.frames += 1;
                self.bytes += frame.len() as u64;
            }
            Err(SendDatagramError::ConnectionLost(_)) => self.peer_left += 1,
            Err(_) => self.too_long += 1,
        }
    }

    fn send_or_drop(&mut self, frame: &[u8], portion: &mut BytesMut) {
        if !self.send(frame, portion) {
            self.no_room += 1;
        }
    }
}

/// Iterator of the datagrams of a frame.
struct Datagrams<'a> {
    frame: &'a [u8],
    cut: Cut,
    number: u32,
    next: usize,
    portion: &'a mut BytesMut,
}

impl<'a> Datagrams<'a> {
    fn new(frame: &'a [u8], cut: Cut, number: u32, portion: &'a mut BytesMut) -> Self {
        Datagrams {
            frame,
            cut,
            number,
            next: 0,
            portion,
        }
    }

    fn made(&mut self, header: &[u8], bytes: &[u8]) -> Bytes {
        let len = header.len() + bytes.len();
        if self.portion.capacity() < len {
            // When all datagrams of the portion before are sent, its memory is used again.
            self.portion.reserve(PORTION);
        }
        self.portion.extend_from_slice(header);
        self.portion.extend_from_slice(bytes);
        self.portion.split_to(len).freeze()
    }
}

impl Iterator for Datagrams<'_> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let (piece, frame) = (self.next, self.frame);
        self.next += 1;
        match self.cut {
            Cut::Whole => (piece == 0).then(|| self.made(&frame::whole_header(), frame)),
            Cut::Pieces(pieces, size) => {
                let from = piece * size;
                let bytes = frame
                    .get(from..frame.len().min(from + size))
                    .filter(|b| !b.is_empty())?;
                let header = frame::piece_header(self.number, frame.len(), piece, pieces);
                Some(self.made(&header, bytes))
            }
        }
    }
}

/// Polls a future once.
fn ready<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_of_a_frame_make_the_frame() {
        let frame: Vec<u8> = (0..9014u32).map(|i| i as u8).collect();
        let (mut portion, mut assembly) = (BytesMut::new(), Assembly::default());
        for (number, max) in (0..).zip([1150, 1400, 4500, 9015, 9016]) {
            let cut = frame::cut(frame.len(), max).expect("it can be cut");
            let all: Vec<Bytes> = Datagrams::new(&frame, cut, number, &mut portion).collect();
            assert!(all.iter().all(|d| d.len() <= max));
            let mut whole = 0;
            for datagram in &all {
                whole += usize::from(assembly.take(datagram, Instant::now()) == Some(&frame[..]));
            }
            assert_eq!(whole, 1, "{max}");
        }
        assert_eq!((assembly.incomplete, assembly.malformed), (0, 0));
    }
}
