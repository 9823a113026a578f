//! What a VMM says: vhost-user messages with descriptors, to either function of an adapter. The connection may end for it;
//! the adapter takes the next one, and two other guests lose nothing.

use std::cell::RefCell;
use std::fs::File;
use std::io::{ErrorKind, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use arbitrary::Unstructured;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use vnic_backend::MacAddr;
use vnic_tests::driver::packets::{Number, number_of, numbered};
use vnic_tests::driver::rdma::World;
use vnic_tests::driver::rig::deadline;
use vnic_tests::driver::{Guest, NetHdr, Options};

/// Requests of the vhost-user specification that a frontend may send.
const REQUESTS: u32 = 44;
/// Messages of an input, at most.
const MESSAGES: usize = 48;
/// Adapters in turn: one that had a useless VMM rests before it takes the next.
const LIARS: usize = 64;
const FILE: u64 = 64 << 10;

/// The adapters, and descriptors to give away.
struct Stage {
    world: World,
    turn: usize,
    bystanders: [Guest; 2],
    macs: [MacAddr; 2],
    seq: u64,
    memory: File,
    files: Vec<OwnedFd>,
}

impl Stage {
    fn new() -> Stage {
        let mut world = World::new(1, &[]).expect("a NIC");
        for i in 0..LIARS {
            world.add(&format!("liar{i}"), 1500).expect("an adapter");
        }
        let macs = ["x", "y"].map(|name| world.rig.add(name).expect("an adapter"));
        let bystanders = ["x", "y"].map(|name| {
            let guest = world.rig.attach(name, Options::default());
            guest.expect("a guest")
        });
        let memfd = |flags| File::from(memfd_create("fuzz", MemfdFlags::CLOEXEC | flags).expect("a memfd"));
        let (memory, short, sealed) = (
            memfd(MemfdFlags::empty()),
            memfd(MemfdFlags::empty()),
            memfd(MemfdFlags::ALLOW_SEALING),
        );
        for (file, len) in [(&memory, FILE), (&short, 100), (&sealed, FILE)] {
            ftruncate(file, len).expect("a memfd");
        }
        fcntl_add_seals(&sealed, SealFlags::WRITE).expect("a seal");
        let event = |flags| eventfd(0, EventfdFlags::CLOEXEC | flags).expect("an eventfd");
        let (pipe, _) = rustix::pipe::pipe().expect("a pipe");
        let (socket, _) = UnixStream::pair().expect("sockets");
        let files = vec![
            event(EventfdFlags::NONBLOCK),
            event(EventfdFlags::NONBLOCK),
            event(EventfdFlags::empty()),
            short.into(),
            sealed.into(),
            pipe,
            socket.into(),
            File::open("/dev/null").expect("/dev/null").into(),
            File::open("/").expect("/").into(),
        ];
        Stage {
            world,
            turn: 0,
            bystanders,
            macs,
            seq: 0,
            memory,
            files,
        }
    }

    fn descriptor(&self, u: &mut Unstructured<'_>) -> arbitrary::Result<BorrowedFd<'_>> {
        Ok(match u.int_in_range(0..=3)? {
            0 | 1 => self.memory.as_fd(),
            2 => self.files[0].as_fd(),
            _ => u.choose(&self.files)?.as_fd(),
        })
    }

    /// One message, and how many descriptors go with it.
    fn say(&self, stream: &UnixStream, u: &mut Unstructured<'_>) -> arbitrary::Result<bool> {
        let request = if u.ratio(1, 32)? {
            u.arbitrary()?
        } else {
            u.int_in_range(0..=REQUESTS)?
        };
        let mut payload = Vec::new();
        for _ in 0..u.int_in_range(0..=12)? {
            let word: u64 = match u.int_in_range(0..=9)? {
                0..=3 => u.int_in_range(0..=4)?,
                4 => FILE,
                5 => 0x1000 * u.int_in_range(0..=32)?,
                6 => 1 << u.int_in_range(0..=63)?,
                7 => u64::MAX - u.int_in_range(0..=0x1_0000)?,
                8 => u64::from(u.arbitrary::<u32>()?) << 32 | u.int_in_range(0..=256)?,
                _ => u.arbitrary()?,
            };
            payload.extend_from_slice(&word.to_ne_bytes());
        }
        // (Most structures are of 8-byte words, the state of a ring and the head of a configuration of 4.)
        payload.truncate(payload.len() - usize::from(u.ratio(1, 4)?) * 4 % (payload.len() + 1));
        let flags: u32 = if u.ratio(1, 16)? {
            u.arbitrary()?
        } else {
            1 | (8 * u32::from(u.arbitrary::<bool>()?))
        };
        let len = if u.ratio(1, 16)? {
            u.arbitrary()?
        } else {
            payload.len() as u32
        };
        let mut message: Vec<u8> = [request, flags, len]
            .iter()
            .flat_map(|w| w.to_ne_bytes())
            .collect();
        message.extend_from_slice(&payload);
        let count = match u.int_in_range(0..=15)? {
            0..=6 => 0,
            7..=13 => 1,
            14 => 2,
            _ => u.int_in_range(0..=8)?,
        };
        let files = (0..count)
            .map(|_| self.descriptor(u))
            .collect::<arbitrary::Result<Vec<_>>>()?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
        }
        let sent = sendmsg(
            stream,
            &[IoSlice::new(&message)],
            &mut control,
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        );
        Ok(sent.is_ok())
    }

    /// The bystanders exchange a frame.
    fn bystanders(&mut self) {
        let n = Number {
            sender: 1,
            stream: 0,
            seq: self.seq,
        };
        self.seq += 1;
        let frame = numbered(self.macs[1], self.macs[0], n, 60);
        let [x, y] = &mut self.bystanders;
        x.send_wait(0, &frame, NetHdr::default());
        let (_, _, got) = y.recv(0, deadline()).expect("a bystander's frame is lost");
        assert_eq!(number_of(&got), Some(n));
    }

    fn input(&mut self, bytes: &[u8]) {
        let mut u = Unstructured::new(bytes);
        let rdma = u.arbitrary().unwrap_or(false);
        let liar = format!("liar{}", self.turn % LIARS);
        self.turn += 1;
        let socket = if rdma {
            self.world.socket(&liar)
        } else {
            self.world.rig.socket(&liar)
        };
        let mut stream = UnixStream::connect(socket).expect("the adapter listens");
        for _ in 0..MESSAGES {
            if u.is_empty() || !self.say(&stream, &mut u).unwrap_or(false) {
                break;
            }
        }
        // What it answers is read until it has read all, or hung up.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.set_read_timeout(Some(Duration::from_secs(20)));
        let mut answers = [0; 4096];
        loop {
            match stream.read(&mut answers) {
                Ok(0) => break,
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::ConnectionReset => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => panic!("{liar} does not end the connection: {e}"),
            }
        }
        self.bystanders();
        assert_eq!(self.world.rig.core_counter("panics"), 0);
    }
}

/// See the module.
pub fn run(bytes: &[u8]) {
    thread_local! {
        static STAGE: RefCell<Option<Stage>> = const { RefCell::new(None) };
    }
    STAGE.with_borrow_mut(|stage| stage.get_or_insert_with(Stage::new).input(bytes));
}
