//! VMMs that lie. A guest's own lies are in `hostile.rs`. Whatever a VMM says or takes away, it loses its connection and
//! nothing else: another pair of guests still exchanges every frame.

use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, ensure};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use vhost::vhost_user::VhostUserFrontend;
use vhost::{VhostBackend, VhostUserDirtyLogRegion, VhostUserMemoryRegionInfo};
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};
use vmm_sys_util::eventfd::EventFd;
use vnic_backend::{AttachState, MacAddr, NicEventKind};
use vnic_tests::driver::attacks::full_call;
use vnic_tests::driver::packets::{Number, number_of, numbered};
use vnic_tests::driver::rig::{Copies, Rig, deadline, wait_for};
use vnic_tests::driver::{Guest, Log, NetHdr, Options};

/// A liar and two bystanders.
struct Stage {
    rig: Rig,
    liar: Guest,
    x: Guest,
    y: Guest,
    macs: [MacAddr; 3],
    seq: u64,
}

impl Stage {
    fn new() -> Result<Stage> {
        let mut rig = Rig::new(1)?;
        let macs = [rig.add("liar")?, rig.add("x")?, rig.add("y")?];
        let liar = rig.attach("liar", Options::default())?;
        let x = rig.attach("x", Options::default())?;
        let y = rig.attach("y", Options::default())?;
        Ok(Stage {
            rig,
            liar,
            x,
            y,
            macs,
            seq: 0,
        })
    }

    /// The liar starts over.
    fn again(&mut self) -> Result<()> {
        self.liar.hang_up();
        self.rig.state("liar", AttachState::Detached)?;
        self.liar = self.rig.attach("liar", Options::default())?;
        Ok(())
    }

    /// The next frame from `x`.
    fn frame(&mut self, to: MacAddr) -> (Number, Vec<u8>) {
        let n = Number {
            sender: 1,
            stream: 0,
            seq: self.seq,
        };
        self.seq += 1;
        (n, numbered(to, self.macs[1], n, 60 + self.seq as usize % 1000))
    }

    /// The bystanders talk, all of it arrives.
    fn bystanders(&mut self, what: &str) {
        for _ in 0..10 {
            let (n, f) = self.frame(self.macs[2]);
            self.x.send_wait(0, &f, NetHdr::default());
            let (_, _, got) = self
                .y
                .recv(0, deadline())
                .unwrap_or_else(|| panic!("{what}: a bystander's frame is lost"));
            assert_eq!(number_of(&got), Some(n), "{what}");
        }
    }

    /// Somebody sends the liar a frame.
    fn touch(&mut self) {
        let (_, f) = self.frame(self.macs[0]);
        self.x.send_wait(0, &f, NetHdr::default());
    }

    /// A new connection of the liar's, on which it says this, with a descriptor.
    fn say(&mut self, words: [u32; 3], payload: &[u64], file: impl AsFd) -> Result<UnixStream> {
        self.liar.hang_up();
        self.rig.state("liar", AttachState::Detached)?;
        let stream = UnixStream::connect(self.rig.socket("liar"))?;
        let mut message: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        message.extend(payload.iter().flat_map(|w| w.to_ne_bytes()));
        let files = [file.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        ensure!(control.push(SendAncillaryMessage::ScmRights(&files)));
        let none = SendFlags::empty();
        sendmsg(&stream, &[IoSlice::new(&message)], &mut control, none)?;
        Ok(stream)
    }

    /// The liar's other connection ends.
    fn said(&mut self, stream: UnixStream) -> Result<()> {
        drop(stream);
        self.rig.state("liar", AttachState::Detached)?;
        self.liar = self.rig.attach("liar", Options::default())?;
        Ok(())
    }

    /// The liar says a memory table in which there is room for one more region, as User-Mode-Linux does. Is it taken?
    fn long_table(&mut self, r: &VhostUserMemoryRegionInfo) -> Result<bool> {
        let map = self.liar.mem().map().clone();
        let mut files = map.iter().filter_map(|r| r.file_offset()).map(|f| f.file());
        let file = files.find(|f| f.as_raw_fd() == r.mmap_handle);
        let mut payload = vec![
            1,
            r.guest_phys_addr,
            r.memory_size,
            r.userspace_addr,
            r.mmap_offset,
        ];
        payload.resize(1 + 2 * 4, 0);
        // SET_MEM_TABLE, version 1 and an answer wanted.
        let words = [5, 1 | 8, 8 * payload.len() as u32];
        let mut stream = self.say(words, &payload, file.context("the region has no file")?)?;
        let mut answer = [0; 20];
        stream.read_exact(&mut answer)?;
        let good = answer[12..] == [0; 8];
        if !good {
            ensure!(stream.read(&mut answer)? == 0, "the connection was not closed");
        }
        self.said(stream)?;
        Ok(good)
    }

    /// The liar gives a descriptor for its first ring. Is it taken?
    fn give(&mut self, request: u32, file: impl AsFd) -> Result<bool> {
        let mut stream = self.say([request, 1, 8], &[0], file)?;
        // GET_FEATURES: a connection that was closed answers nothing more.
        let question: Vec<u8> = [1u32, 1, 0].iter().flat_map(|w| w.to_ne_bytes()).collect();
        let asked = stream.write_all(&question);
        let taken = asked.is_ok() && stream.read_exact(&mut [0; 20]).is_ok();
        self.said(stream)?;
        Ok(taken)
    }
}

/// A VMM that says impossible things about memory is refused, by all three ways.
#[test]
fn impossible_memory() -> Result<()> {
    let mut s = Stage::new()?;
    // (Each liar has a memory of its own.)
    type Change = fn(&mut VhostUserMemoryRegionInfo);
    let cases: &[(&str, bool, Change)] = &[
        ("as it is", true, |_| ()),
        ("one byte", true, |r| (r.guest_phys_addr, r.memory_size) = (0, 1)),
        ("an odd place", true, |r| r.mmap_offset = 1),
        ("the last byte of a page", true, |r| r.mmap_offset = 4095),
        ("up to the last address", true, |r| {
            r.guest_phys_addr = u64::MAX - r.memory_size;
        }),
        // lead + length is 1, modulo 2^64.
        ("a length that wraps", false, |r| {
            *r = at_zero(*r, 4095, u64::MAX - 4093);
        }),
        ("a length that wraps to nothing", false, |r| {
            *r = at_zero(*r, 4095, u64::MAX - 4094);
        }),
        ("one address too many", false, |r| {
            r.guest_phys_addr = u64::MAX - r.memory_size + 1;
        }),
        ("one address of the VMM too many", false, |r| {
            r.userspace_addr = u64::MAX - r.memory_size + 1;
        }),
        ("all but one", false, |r| *r = at_zero(*r, 0, u64::MAX - 1)),
        ("all but a page", false, |r| *r = at_zero(*r, 0, u64::MAX - 4096)),
        ("half of all", false, |r| *r = at_zero(*r, 0, 1 << 63)),
        ("a quarter of all", false, |r| *r = at_zero(*r, 0, 1 << 62)),
        ("more than the file has", false, |r| r.memory_size += 1 << 20),
        ("behind the file", false, |r| r.mmap_offset = 1 << 40),
        ("an offset that wraps", false, |r| {
            r.mmap_offset = u64::MAX - r.memory_size + 1;
        }),
        ("an offset beyond all files", false, |r| {
            r.mmap_offset = u64::MAX - 2 * r.memory_size;
        }),
    ];
    for &(what, legal, change) in cases {
        let region = |s: &Stage| {
            let mut region = s.liar.mem().regions()[1];
            change(&mut region);
            region
        };
        let r = region(&s);
        let taken = s.liar.frontend()?.add_mem_region(&r).is_ok();
        assert_eq!(taken, legal, "{what}: ADD_MEM_REG");
        s.bystanders(what);
        s.again()?;
        let r = region(&s);
        let taken = s.liar.frontend()?.set_mem_table(&[r]).is_ok();
        assert_eq!(taken, legal, "{what}: SET_MEM_TABLE");
        s.bystanders(what);
        s.again()?;
        let r = region(&s);
        assert_eq!(s.long_table(&r)?, legal, "{what}: a long SET_MEM_TABLE");
        s.bystanders(what);
    }
    let unknown = at_zero(s.liar.mem().regions()[1], 0, 4096);
    assert!(s.liar.frontend()?.remove_mem_region(&unknown).is_err());
    s.bystanders("memory that was never there is removed");
    s.again()?;
    for (mmap_size, mmap_offset, legal) in [
        (1, 0, true),
        (4096, 4095, true),
        (0, 0, false),
        (u64::MAX, 0, false),
        (u64::MAX - 4093, 4095, false),
        (u64::MAX - 4096, 4096, false),
        (1 << 40, 0, false),
        (4096, u64::MAX - 4096, false),
    ] {
        let region = VhostUserDirtyLogRegion {
            mmap_size,
            mmap_offset,
            mmap_handle: s.liar.mem().regions()[1].mmap_handle,
        };
        let taken = s.liar.frontend()?.set_log_base(0, Some(region)).is_ok();
        assert_eq!(taken, legal, "a log of {mmap_size:#x} bytes at {mmap_offset:#x}");
        s.bystanders("impossible log");
        s.again()?;
    }
    s.rig.finish(Copies::Unknown)
}

fn at_zero(r: VhostUserMemoryRegionInfo, mmap_offset: u64, memory_size: u64) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: 0,
        userspace_addr: 0,
        memory_size,
        mmap_offset,
        ..r
    }
}

/// Memory is a file, and one of which the kernel has the pages.
#[test]
fn memory_that_is_no_file() -> Result<()> {
    let mut s = Stage::new()?;
    let (pipe, _end) = std::io::pipe()?;
    let zero = File::options().read(true).write(true).open("/dev/zero")?;
    for handle in [pipe.as_raw_fd(), zero.as_raw_fd()] {
        let region = VhostUserMemoryRegionInfo {
            mmap_handle: handle,
            mmap_offset: 0,
            ..s.liar.mem().regions()[1]
        };
        assert!(s.liar.frontend()?.add_mem_region(&region).is_err());
        s.bystanders("memory that is no file");
        s.again()?;
    }
    s.rig.finish(Copies::Unknown)
}

/// A VMM that takes memory away which it has lent loses its connection.
#[test]
fn memory_that_goes_away() -> Result<()> {
    let mut s = Stage::new()?;
    for what in ["rings", "buffers", "log"] {
        if what == "log" {
            Log::start(&mut s.liar)?.cut_short()?;
        } else {
            let wanted = usize::from(what == "buffers");
            let region = s.liar.mem().map().iter().nth(wanted).context("no such memory")?;
            let file = region.file_offset().context("memory without a file")?;
            ftruncate(file.file(), 0)?;
        }
        s.touch();
        s.bystanders(what);
        let lost =
            |k: &NicEventKind| matches!(k, NicEventKind::ProtocolError { what } if what.contains("SIGBUS"));
        s.rig.wait_event("liar", lost)?;
        s.rig.forget_events();
        s.again()?;
        s.touch();
        assert!(wait_for(|| s.liar.try_recv(0).is_some()), "{what}");
    }
    s.rig.finish(Copies::Unknown)
}

/// Memory takes no descriptors, however many regions it has.
#[test]
fn regions_keep_no_descriptors() -> Result<()> {
    let mut s = Stage::new()?;
    let name = format!("vnic-regions-{}", std::process::id());
    let file = File::from(memfd_create(&name, MemfdFlags::CLOEXEC)?);
    ftruncate(&file, 64 * 4096)?;
    let slots = s.liar.frontend()?.get_max_mem_slots()?.min(60);
    for i in 0..slots {
        s.liar.frontend()?.add_mem_region(&VhostUserMemoryRegionInfo {
            guest_phys_addr: (1 << 40) + 4096 * i,
            memory_size: 4096,
            userspace_addr: (1 << 40) + 4096 * i,
            mmap_offset: 4096 * i,
            mmap_handle: file.as_raw_fd(),
        })?;
    }
    let mut open = 0;
    for entry in std::fs::read_dir("/proc/self/fd")? {
        // (One that another test has closed meanwhile is none.)
        let target = std::fs::read_link(entry?.path()).unwrap_or_default();
        open += usize::from(target.to_string_lossy().contains(&name));
    }
    assert_eq!(open, 1, "the test's own, and none of {slots} regions'");
    s.bystanders("many regions");
    s.rig.finish(Copies::Unknown)
}

/// Full until the end; a failed test shall not wait for a data core that waits for room.
struct Full(EventFd);

impl Drop for Full {
    fn drop(&mut self) {
        let _ = self.0.read();
    }
}

/// An interrupt that there is no room for keeps no data core waiting.
#[test]
fn calls_that_are_full() -> Result<()> {
    let mut s = Stage::new()?;
    s.liar.hang_up();
    s.rig.state("liar", AttachState::Detached)?;
    let o = Options {
        calls: true,
        ..Options::default()
    };
    s.liar = s.rig.attach("liar", o)?;
    let _full = Full(full_call(&mut s.liar)?);
    for _ in 0..3 {
        s.touch();
        s.bystanders("a full call");
        assert!(wait_for(|| s.liar.try_recv(0).is_some()));
        let (_, f) = s.frame(s.macs[1]);
        s.liar.send_wait(0, &f, NetHdr::default());
        s.liar.drain();
        s.bystanders("a full call");
    }
    s.again()?;
    s.rig.finish(Copies::Unknown)
}

/// Kicks and calls are of kinds for which nobody can keep a data core waiting.
#[test]
fn descriptors_of_other_kinds() -> Result<()> {
    const KICK: u32 = 12;
    const CALL: u32 = 13;
    let mut s = Stage::new()?;
    let event = eventfd(0, EventfdFlags::CLOEXEC)?;
    let (_end, pipe) = std::io::pipe()?;
    let (unix, _other) = UnixStream::pair()?;
    let udp = std::net::UdpSocket::bind("127.0.0.1:0")?;
    assert!(s.give(KICK, &event)? && s.give(CALL, &event)?);
    assert!(!s.give(KICK, &unix)? && s.give(CALL, &unix)?);
    assert!(!s.give(KICK, &pipe)? && !s.give(CALL, &pipe)?);
    assert!(!s.give(KICK, &udp)? && !s.give(CALL, &udp)?);
    s.bystanders("descriptors of other kinds");
    s.rig.finish(Copies::Unknown)
}
