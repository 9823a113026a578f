//! Somebody on the way: takes the datagrams of a connection from one to the other, reads them, and harms them.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Numbers that look random (Steele's SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }
}

#[derive(Default)]
struct Seen {
    bad: AtomicBool,
    ended: AtomicBool,
    bytes: Mutex<Vec<u8>>,
    lost: AtomicU64,
    twice: AtomicU64,
    late: AtomicU64,
}

pub struct Relay {
    pub address: String,
    seen: Arc<Seen>,
}

impl Relay {
    /// Between whoever calls and this one.
    pub fn start(to: &str) -> Relay {
        let to: SocketAddr = to.parse().expect("an address");
        let front = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let back = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        for socket in [&front, &back] {
            // So that it sees when the test ends.
            socket
                .set_read_timeout(Some(Duration::from_millis(50)))
                .expect("a timeout");
        }
        back.connect(to).expect("connected");
        let address = front.local_addr().expect("an address").to_string();
        let seen = Arc::new(Seen::default());
        let caller = Arc::new(Mutex::new(None::<SocketAddr>));
        let (front, back) = (Arc::new(front), Arc::new(back));
        {
            let (seen, front, back, caller) = (seen.clone(), front.clone(), back.clone(), caller.clone());
            std::thread::spawn(move || {
                let mut harm = Harm::new(1);
                seen.each(&front, |from, datagram, seen| {
                    *caller.lock().expect("a lock") = Some(from);
                    harm.pass(seen, datagram, |d| {
                        let _ = back.send(d);
                    });
                });
            });
        }
        {
            let seen = seen.clone();
            std::thread::spawn(move || {
                let mut harm = Harm::new(2);
                seen.each(&back, |_, datagram, seen| {
                    let to = *caller.lock().expect("a lock");
                    harm.pass(seen, datagram, |d| {
                        if let Some(to) = to {
                            let _ = front.send_to(d, to);
                        }
                    });
                });
            });
        }
        Relay { address, seen }
    }

    /// From now on datagrams are harmed.
    pub fn worsen(&self) {
        self.seen.bad.store(true, Ordering::Relaxed);
    }

    /// Datagrams lost, doubled, overtaken.
    pub fn harm(&self) -> (u64, u64, u64) {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        (
            read(&self.seen.lost),
            read(&self.seen.twice),
            read(&self.seen.late),
        )
    }

    /// Bytes that came by.
    pub fn saw(&self) -> usize {
        self.seen.bytes.lock().expect("a lock").len()
    }

    /// Did this text come by?
    pub fn saw_text(&self, text: &[u8]) -> bool {
        let bytes = self.seen.bytes.lock().expect("a lock");
        bytes.windows(text.len()).any(|w| w == text)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.seen.ended.store(true, Ordering::Relaxed);
    }
}

impl Seen {
    fn each(&self, socket: &UdpSocket, mut pass: impl FnMut(SocketAddr, &[u8], &Seen)) {
        let mut buffer = vec![0; 65_536];
        while !self.ended.load(Ordering::Relaxed) {
            if let Ok((n, from)) = socket.recv_from(&mut buffer) {
                if !self.bad.load(Ordering::Relaxed) {
                    self.bytes.lock().expect("a lock").extend(&buffer[..n]);
                }
                pass(from, &buffer[..n], self);
            }
        }
    }
}

/// What happens to the datagrams of a direction, always the same.
struct Harm {
    random: Random,
    held: VecDeque<(u64, Vec<u8>)>,
}

impl Harm {
    fn new(seed: u64) -> Harm {
        Harm {
            random: Random(seed),
            held: VecDeque::new(),
        }
    }

    fn pass(&mut self, seen: &Seen, datagram: &[u8], mut send: impl FnMut(&[u8])) {
        let count = |n: &AtomicU64| {
            n.fetch_add(1, Ordering::Relaxed);
        };
        if !seen.bad.load(Ordering::Relaxed) {
            send(datagram);
            return;
        }
        if self.random.one_in(20) {
            count(&seen.lost);
        } else if self.random.one_in(20) {
            count(&seen.late);
            self.held
                .push_back((1 + self.random.next() % 4, datagram.to_vec()));
        } else {
            send(datagram);
            if self.random.one_in(20) {
                count(&seen.twice);
                send(datagram);
            }
        }
        for (overtaken, _) in &mut self.held {
            // One behind another that is later waits for that one.
            *overtaken = overtaken.saturating_sub(1);
        }
        while let Some((_, late)) = self.held.pop_front_if(|(left, _)| *left == 0) {
            send(&late);
        }
    }
}
