//! Commands as descriptor chains.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Instant;

use vm_memory::{Bytes, GuestAddress};

use vnic_device::command::{CommandHead, Opcode, ReplyHead};
use vnic_device::status::CommandStatus;
use vnic_device::zerocopy::{FromBytes, Immutable, IntoBytes};

use super::super::guest::pause;
use super::super::memory::GuestMem;
use super::super::rig::deadline;
use super::super::ring::{Desc, INDIRECT, NEXT, WRITE};
use super::Driver;

/// Bytes between two pieces, which nobody may write.
const GAP: u64 = 16;
const PATTERN: u8 = 0xa7;
/// Indirect tables are at the arena's begin.
const TABLE: u64 = 64 << 10;
/// Room that commands usually leave for a reply.
const ROOM: usize = 4096;

/// How a chain is cut: lengths of descriptors, again and again; an empty list means one descriptor.
#[derive(Debug, Clone, Default)]
pub struct Pieces {
    /// Of what the device reads.
    pub readable: Vec<u32>,
    /// Of what the device writes.
    pub writable: Vec<u32>,
    /// In an indirect table (accept the feature too).
    pub indirect: bool,
}

/// What came back for a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// How it ended.
    pub status: CommandStatus,
    /// The command's cookie.
    pub cookie: u64,
    /// What is behind the head.
    pub bytes: Vec<u8>,
}

impl Reply {
    /// The text after an error.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes).expect("texts are UTF-8")
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.status, String::from_utf8_lossy(&self.bytes))
    }
}

impl std::error::Error for Reply {}

fn cut(total: usize, lengths: &[u32]) -> Vec<u32> {
    let mut left = total as u32;
    let mut out = Vec::new();
    let mut lengths = lengths.iter().copied().cycle();
    while left > 0 {
        let n = lengths.next().unwrap_or(left).clamp(1, left);
        out.push(n);
        left -= n;
    }
    out
}

impl Driver {
    /// Sends a chain and waits for its end: the used length, and all bytes that the device could have written.
    ///
    /// # Panics
    /// When the device does not answer, writes beside the chain, or the chain does not fit.
    pub fn raw(&mut self, readable: &[u8], room: usize) -> (u32, Vec<u8>) {
        let places = self.submit(readable, room);
        let (head, used) = self.wait_used();
        assert_eq!(head, 0, "another chain than the only one");
        let mut out = Vec::new();
        for (gpa, len) in &places {
            let mut bytes = vec![0; len + GAP as usize];
            self.mem.read(*gpa, &mut bytes).expect("the arena");
            assert_eq!(
                bytes[*len..],
                [PATTERN; GAP as usize],
                "the device wrote behind a descriptor"
            );
            out.extend_from_slice(&bytes[..*len]);
        }
        (used, out)
    }

    /// Makes a chain available; answers where the device writes, and how much.
    ///
    /// # Panics
    /// When the chain does not fit.
    pub fn submit(&mut self, readable: &[u8], room: usize) -> Vec<(u64, usize)> {
        let mut at = self.arena + TABLE;
        let mut descs = Vec::new();
        let mut places = Vec::new();
        for len in cut(readable.len(), &self.pieces.readable) {
            descs.push((at, len, 0));
            at += u64::from(len) + GAP;
        }
        for len in cut(room, &self.pieces.writable) {
            descs.push((at, len, WRITE));
            places.push((at, len as usize));
            at += u64::from(len) + GAP;
        }
        assert!(at < self.arena + super::ARENA, "a command too long for the arena");
        let mut from = readable;
        for (gpa, len, _) in descs.iter().filter(|d| d.2 == 0) {
            let (now, later) = from.split_at(*len as usize);
            self.mem.write(*gpa, now).expect("the arena");
            from = later;
        }
        let pattern = [PATTERN; GAP as usize];
        for (gpa, len) in &places {
            self.mem.write(*gpa, &vec![PATTERN; *len]).expect("the arena");
            self.mem.write(gpa + *len as u64, &pattern).expect("the arena");
        }
        self.offer_chain(&descs);
        self.control.publish();
        places
    }

    fn offer_chain(&mut self, descs: &[(u64, u32, u16)]) {
        let last = descs.len().saturating_sub(1);
        let all = descs.iter().enumerate().map(|(i, &(addr, len, flags))| Desc {
            addr,
            len,
            flags: flags | if i < last { NEXT } else { 0 },
            next: if i < last { i as u16 + 1 } else { 0 },
        });
        if self.pieces.indirect {
            let mut table = Vec::new();
            for desc in all {
                table.extend_from_slice(&desc.bytes());
            }
            assert!(table.len() as u64 <= TABLE);
            self.mem.write(self.arena, &table).expect("the arena");
            let desc = Desc {
                addr: self.arena,
                len: table.len() as u32,
                flags: INDIRECT,
                next: 0,
            };
            self.control.set_desc(0, desc);
        } else {
            for (i, desc) in all.enumerate() {
                self.control.set_desc(i as u16, desc);
            }
        }
        self.control.offer(0);
    }

    fn wait_used(&mut self) -> (u32, u32) {
        let deadline = deadline();
        for tries in 0.. {
            if let Some(used) = self.control.take() {
                return used;
            }
            assert!(Instant::now() < deadline, "the device does not answer a command");
            pause(tries);
        }
        unreachable!("the deadline ends it")
    }

    /// A command with a head of the caller's, and its reply.
    ///
    /// # Panics
    /// When the reply does not hold together.
    pub fn command_with(&mut self, head: CommandHead, behind: &[u8], room: usize) -> Reply {
        let mut bytes = head.as_bytes().to_vec();
        bytes.extend_from_slice(behind);
        let (used, out) = self.raw(&bytes, size_of::<ReplyHead>() + room);
        let (reply, rest) = ReplyHead::read_from_prefix(&out).expect("room for a head");
        let what = format!("{head:?} {reply:?}");
        assert_eq!(used, 16 + reply.len, "{what}");
        assert_eq!(reply.cookie, head.cookie, "{what}");
        assert!(reply.len as usize <= room, "{what}");
        let (bytes, untouched) = rest.split_at(reply.len as usize);
        assert!(
            untouched.iter().all(|b| *b == PATTERN),
            "bytes behind the reply: {what}"
        );
        let status = self.record(head.opcode, &reply);
        Reply {
            status,
            cookie: reply.cookie,
            bytes: bytes.to_vec(),
        }
    }

    /// A well-formed head.
    pub fn head(&mut self, opcode: Opcode, body: usize, list: usize) -> CommandHead {
        self.cookie += 1;
        CommandHead {
            opcode: opcode.number(),
            body_len: body as u16,
            len: (body + list) as u32,
            cookie: self.cookie << 32 | 0xc00c,
        }
    }

    /// A command of body and list.
    pub fn command(&mut self, opcode: Opcode, body: &[u8], list: &[u8]) -> Reply {
        self.command_in(opcode, body, list, ROOM)
    }

    /// A command of body and list, with room for a reply of so many bytes behind its head.
    pub fn command_in(&mut self, opcode: Opcode, body: &[u8], list: &[u8], room: usize) -> Reply {
        let head = self.head(opcode, body.len(), list.len());
        let mut behind = body.to_vec();
        behind.extend_from_slice(list);
        self.command_with(head, &behind, room)
    }

    /// A command that is answered by a structure, or by nothing: `[u8; 0]`.
    ///
    /// # Panics
    /// When the reply has another length.
    pub fn ask<B, R>(&mut self, opcode: Opcode, body: &B, list: &[u8]) -> Result<R, Reply>
    where
        B: IntoBytes + Immutable + ?Sized,
        R: FromBytes,
    {
        let reply = self.command(opcode, body.as_bytes(), list);
        if reply.status != CommandStatus::Ok {
            return Err(reply);
        }
        let len = reply.bytes.len();
        Ok(R::read_from_bytes(&reply.bytes)
            .unwrap_or_else(|_| panic!("{opcode:?} is answered by {len} bytes, not {}", size_of::<R>())))
    }

    /// The status that a command ends with.
    pub fn status<B: IntoBytes + Immutable + ?Sized>(
        &mut self,
        opcode: Opcode,
        body: &B,
        list: &[u8],
    ) -> CommandStatus {
        self.command(opcode, body.as_bytes(), list).status
    }

    /// Many commands of at most 256 bytes, replies of at most 64, as many under way as the virtqueue has room for.
    ///
    /// # Panics
    /// When the device does not answer, or gives chains back out of order.
    pub fn burst(&mut self, commands: impl Iterator<Item = (Opcode, Vec<u8>)>, mut each: impl FnMut(Reply)) {
        const SLOT: u64 = 512;
        let slots = self.control.size() / 2;
        let mut waiting = std::collections::VecDeque::new();
        let mut commands = commands.peekable();
        let mut turn: u16 = 0;
        let deadline = deadline();
        let mut tries = 0;
        while commands.peek().is_some() || !waiting.is_empty() {
            while waiting.len() < usize::from(slots)
                && let Some((opcode, body)) = commands.next()
            {
                let head = self.head(opcode, body.len(), 0);
                let mut bytes = head.as_bytes().to_vec();
                bytes.extend_from_slice(&body);
                let at = self.arena + TABLE + SLOT * u64::from(turn);
                assert!(bytes.len() <= 256);
                self.mem.write(at, &bytes).expect("the arena");
                let (first, second) = (2 * turn, 2 * turn + 1);
                self.control.set_desc(
                    first,
                    Desc {
                        addr: at,
                        len: bytes.len() as u32,
                        flags: NEXT,
                        next: second,
                    },
                );
                self.control.set_desc(
                    second,
                    Desc {
                        addr: at + 256,
                        len: 80,
                        flags: WRITE,
                        next: 0,
                    },
                );
                self.control.offer(first);
                waiting.push_back((first, head));
                turn = (turn + 1) % slots;
            }
            self.control.publish();
            let Some((id, used)) = self.control.take() else {
                assert!(Instant::now() < deadline, "the device does not answer");
                pause(tries);
                tries += 1;
                continue;
            };
            tries = 0;
            let (first, head) = waiting
                .pop_front()
                .expect("no chain is used that was not offered");
            assert_eq!(id, u32::from(first), "chains come back in order");
            let at = self.arena + TABLE + SLOT * u64::from(first / 2) + 256;
            let mut bytes = [0; 80];
            self.mem.read(at, &mut bytes).expect("the arena");
            let (reply, rest) = ReplyHead::read_from_prefix(&bytes).expect("room for a head");
            assert_eq!((used, reply.cookie), (16 + reply.len, head.cookie));
            each(Reply {
                status: self.record(head.opcode, &reply),
                cookie: reply.cookie,
                bytes: rest[..reply.len as usize].to_vec(),
            });
        }
    }

    /// The same command again and again until it fails, without looking at the replies more than needed. `each` gets the
    /// first word of every body. Answers how often it succeeded, and how it failed.
    ///
    /// # Panics
    /// When the device does not answer, gives chains back out of order, or never refuses.
    pub fn exhaust(
        &mut self,
        opcode: Opcode,
        body: &[u8],
        mut each: impl FnMut(u32),
    ) -> (u32, CommandStatus) {
        const SLOT: u64 = 512;
        let slots = self.control.size() / 2;
        let arena = self.arena;
        let at = |i: u16| arena + TABLE + SLOT * u64::from(i);
        let head = self.head(opcode, body.len(), 0);
        let bytes = [head.as_bytes(), body].concat();
        assert!(bytes.len() <= 256);
        let at: Vec<u64> = (0..slots).map(at).collect();
        for i in 0..slots {
            let (from, to) = (at[usize::from(i)], at[usize::from(i)] + 256);
            self.mem.write(from, &bytes).expect("the arena");
            let (len, next) = (bytes.len() as u32, 2 * i + 1);
            let desc = |addr, len, flags, next| Desc {
                addr,
                len,
                flags,
                next,
            };
            self.control.set_desc(2 * i, desc(from, len, NEXT, next));
            self.control.set_desc(next, desc(to, 80, WRITE, 0));
        }
        let (mut offered, mut taken, mut good) = (0u32, 0u32, 0u32);
        let mut end = None;
        let word = |mem: &GuestMem, gpa| -> u32 {
            let loaded = mem.map().load(GuestAddress(gpa), Ordering::Relaxed);
            loaded.expect("the arena")
        };
        let deadline = deadline();
        let mut tries = 0;
        while end.is_none() || taken < offered {
            while end.is_none() && offered - taken < u32::from(slots) {
                self.control.offer(2 * (offered % u32::from(slots)) as u16);
                offered += 1;
            }
            self.control.publish();
            let Some((id, _)) = self.control.take() else {
                assert!(
                    Instant::now() < deadline + good / 1000 * super::super::rig::PATIENCE,
                    "no answer"
                );
                pause(tries);
                tries += 1;
                continue;
            };
            tries = 0;
            let slot = taken % u32::from(slots);
            assert_eq!(id, 2 * slot, "chains come back in order");
            taken += 1;
            let reply = at[slot as usize] + 256;
            match CommandStatus::from_number(word(&self.mem, reply)).expect("a status of the contract") {
                CommandStatus::Ok => {
                    assert!(end.is_none(), "refused, and then not");
                    good += 1;
                    each(word(&self.mem, reply + 16));
                }
                status => {
                    self.seen.insert((opcode.number(), status.number()));
                    end = Some(status);
                }
            }
        }
        (good, end.expect("it has ended"))
    }
}
