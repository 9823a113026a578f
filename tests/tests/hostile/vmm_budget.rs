//! A VMM that wants more of the daemon than its adapter's budget allows (`vmm_regions`, `vmm_descriptors`): it is refused, the
//! event says by which key, and at no time does the daemon have more mappings and descriptors of it. What is counted is what
//! the kernel knows of this process, in which the daemon runs.

use std::fs::File;
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use vnic_backend::{AdapterStatus, AttachState, NicEventKind, VmmLimits};
use vnic_tests::driver::rig::{Copies, Dice, Rig, wait_for};
use vnic_tests::driver::{NetHdr, Options, feature};

const PAGE: u64 = 4096;
const PAGES: u64 = 64;
/// Regions and descriptors that fit into one message (`vhost` crate).
const TOGETHER: usize = 8;

const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_MEM_TABLE: u32 = 5;
const SET_LOG_BASE: u32 = 6;
const GET_VRING_BASE: u32 = 11;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_VRING_ERR: u32 = 14;
const GET_PROTOCOL_FEATURES: u32 = 15;
const SET_PROTOCOL_FEATURES: u32 = 16;
const SET_BACKEND_REQ_FD: u32 = 21;
const ADD_MEM_REG: u32 = 37;
const REM_MEM_REG: u32 = 38;

/// MQ, LOG_SHMFD, REPLY_ACK, BACKEND_REQ, CONFIGURE_MEM_SLOTS.
const PROTOCOL: u64 = 1 | 1 << 1 | 1 << 3 | 1 << 5 | 1 << 15;

/// A VMM on one socket of the adapter.
struct Vmm {
    stream: UnixStream,
    /// Memory, by a name of its own.
    memory: File,
    name: String,
    /// What it gives as calls (a socket, so that it can be told from all others) and as kicks.
    call: UnixStream,
    _call: UnixStream,
    kick: OwnedFd,
}

/// What became of a message.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Taken,
    /// Refused, and the connection is over.
    Refused,
}

impl Vmm {
    fn connect(socket: &Path, name: &str) -> Result<Vmm> {
        let name = format!("vnic-{name}-{}", std::process::id());
        let memory = File::from(memfd_create(&name, MemfdFlags::CLOEXEC)?);
        ftruncate(&memory, PAGES * PAGE)?;
        let (call, other) = UnixStream::pair()?;
        let mut vmm = Vmm {
            stream: UnixStream::connect(socket)?,
            memory,
            name,
            call,
            _call: other,
            kick: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        };
        let log = if name_of(socket).contains("rdma") {
            0
        } else {
            feature::LOG_ALL
        };
        let features = feature::PROTOCOL_FEATURES | feature::VERSION_1 | log;
        // No answer comes before REPLY_ACK is agreed on.
        vmm.ask(GET_FEATURES)?;
        vmm.send(SET_FEATURES, 0, &[features], &[])?;
        vmm.ask(GET_PROTOCOL_FEATURES)?;
        vmm.send(SET_PROTOCOL_FEATURES, 0, &[PROTOCOL], &[])?;
        Ok(vmm)
    }

    fn send(&self, request: u32, flags: u32, payload: &[u64], files: &[BorrowedFd<'_>]) -> Result<()> {
        let words = [request, 1 | flags, 8 * payload.len() as u32];
        let mut message: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        message.extend(payload.iter().flat_map(|w| w.to_ne_bytes()));
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(TOGETHER))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            ensure!(control.push(SendAncillaryMessage::ScmRights(files)));
        }
        let flags = SendFlags::NOSIGNAL;
        sendmsg(&self.stream, &[IoSlice::new(&message)], &mut control, flags)?;
        Ok(())
    }

    fn ask(&mut self, request: u32) -> Result<()> {
        self.send(request, 0, &[], &[])?;
        Ok(self.stream.read_exact(&mut [0; 20])?)
    }

    /// Says something, and waits for what comes of it.
    fn say(&mut self, request: u32, payload: &[u64], files: &[BorrowedFd<'_>]) -> Result<Answer> {
        if self.send(request, 1 << 3, payload, files).is_err() {
            return Ok(Answer::Refused);
        }
        let mut head = [0; 12];
        if self.stream.read_exact(&mut head).is_err() {
            return Ok(Answer::Refused);
        }
        let size = u32::from_ne_bytes([head[8], head[9], head[10], head[11]]);
        let mut body = vec![0; size as usize];
        self.stream.read_exact(&mut body)?;
        let acknowledges = ![SET_LOG_BASE, GET_VRING_BASE].contains(&request);
        if acknowledges && body.iter().any(|b| *b != 0) {
            // Then it ends; by then all is given back.
            ensure!(
                self.stream.read(&mut [0])? == 0,
                "it goes on after it has refused"
            );
            return Ok(Answer::Refused);
        }
        Ok(Answer::Taken)
    }

    /// A region of one page.
    fn region(page: u64) -> [u64; 4] {
        let at = (1 << 40) + PAGE * page;
        [at, PAGE, at, PAGE * (page % PAGES)]
    }

    fn table(&mut self, first: u64, count: usize) -> Result<Answer> {
        let mut payload = vec![count as u64];
        for page in first..first + count as u64 {
            payload.extend(Vmm::region(page));
        }
        let memory = self.memory.try_clone()?;
        let files = vec![memory.as_fd(); count];
        self.say(SET_MEM_TABLE, &payload, &files)
    }

    fn add(&mut self, page: u64) -> Result<Answer> {
        let memory = self.memory.try_clone()?;
        let payload = [&[0], &Vmm::region(page)[..]].concat();
        self.say(ADD_MEM_REG, &payload, &[memory.as_fd()])
    }

    fn remove(&mut self, page: u64) -> Result<Answer> {
        let payload = [&[0], &Vmm::region(page)[..]].concat();
        self.say(REM_MEM_REG, &payload, &[])
    }

    fn log(&mut self) -> Result<Answer> {
        let memory = self.memory.try_clone()?;
        self.say(SET_LOG_BASE, &[PAGE, 0], &[memory.as_fd()])
    }

    fn call(&mut self, ring: u64) -> Result<Answer> {
        let call = self.call.try_clone()?;
        self.say(SET_VRING_CALL, &[ring], &[call.as_fd()])
    }

    fn kick(&mut self, ring: u64) -> Result<Answer> {
        let kick = self.kick.try_clone()?;
        self.say(SET_VRING_KICK, &[ring], &[kick.as_fd()])
    }

    /// Mappings of its memory that this process has.
    fn mappings(&self) -> Result<usize> {
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        Ok(maps.lines().filter(|l| l.contains(&self.name)).count())
    }

    /// Descriptors of what it gave that this process has, without its own.
    fn descriptors(&self) -> Result<usize> {
        let own = format!("/proc/self/fd/{}", self.call.as_raw_fd());
        let call = std::fs::read_link(own)?;
        let id = eventfd_id(self.kick.as_raw_fd()).context("an eventfd has a number")?;
        let mut found = 0;
        for entry in std::fs::read_dir("/proc/self/fd")? {
            let path = entry?.path();
            // (One that is closed meanwhile is none.)
            let link = std::fs::read_link(&path).unwrap_or_default();
            let number: i32 = name_of(&path).parse()?;
            let kick = link == Path::new("anon_inode:[eventfd]") && eventfd_id(number).as_ref() == Some(&id);
            let memory = link.to_string_lossy().contains(&self.name);
            found += usize::from(link == call || kick || memory);
        }
        Ok(found - 3)
    }
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// The number of an eventfd (`eventfd-id` of proc(5)).
fn eventfd_id(fd: i32) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    let row = text.lines().find(|l| l.starts_with("eventfd-id"))?;
    Some(row.to_owned())
}

struct Stage {
    rig: Rig,
    limits: VmmLimits,
    eth: PathBuf,
    rdma: PathBuf,
}

fn stage(limits: VmmLimits) -> Result<Stage> {
    let mut rig = Rig::new(1)?;
    let (eth, rdma) = (rig.socket("tight"), rig.socket("tight-rdma"));
    let rdma_socket = Some(rdma.clone());
    rig.add_with("tight", |spec| {
        (spec.vmm, spec.queue_pairs, spec.rdma_socket) = (limits, 2, rdma_socket);
    })?;
    Ok(Stage {
        rig,
        limits,
        eth,
        rdma,
    })
}

impl Stage {
    fn status(&self) -> Result<AdapterStatus> {
        Ok(self.rig.nic.adapter("tight")?)
    }

    fn used(&self) -> Result<(u64, u64)> {
        let status = self.status()?;
        Ok((status.regions.used, status.descriptors.used))
    }

    /// The event that names this key.
    fn told(&mut self, key: &str) -> Result<()> {
        let named =
            |k: &NicEventKind| matches!(k, NicEventKind::ProtocolError { what } if what.contains(key));
        self.rig.wait_event("tight", named)?;
        self.rig.forget_events();
        Ok(())
    }

    /// An honest guest fits, and nothing is left of those before it.
    fn ends_well(mut self) -> Result<()> {
        ensure!(
            wait_for(|| self.used().is_ok_and(|used| used == (0, 0))),
            "{:?}",
            self.used()?
        );
        let mut guest = self.rig.attach("tight", Options::default())?;
        guest.send_wait(0, &[0xff; 60], NetHdr::default());
        guest.hang_up();
        self.rig.state("tight", AttachState::Detached)?;
        self.rig.finish(Copies::Unknown)
    }
}

#[test]
fn regions_end_at_the_budget_of_the_adapter() -> Result<()> {
    let limits = VmmLimits {
        regions: 5,
        ..VmmLimits::default()
    };
    let mut s = stage(limits)?;
    let mut vmm = Vmm::connect(&s.eth, "regions")?;
    for page in 0..4 {
        assert_eq!(vmm.add(2 * page)?, Answer::Taken);
    }
    assert_eq!(vmm.log()?, Answer::Taken);
    assert_eq!((s.used()?.0, vmm.mappings()?), (5, 5));
    // One for another, and as many at once.
    assert_eq!(vmm.log()?, Answer::Taken);
    assert_eq!((vmm.remove(6)?, vmm.add(8)?), (Answer::Taken, Answer::Taken));
    assert_eq!(vmm.table(10, 4)?, Answer::Taken);
    assert_eq!(s.used()?.0, 5);
    // The adapter's other VMM has what is left: nothing.
    let mut driver = Vmm::connect(&s.rdma, "driver")?;
    assert_eq!(driver.add(0)?, Answer::Refused);
    s.told("5 memory regions (vmm_regions), and would have 6")?;
    assert_eq!((s.used()?.0, driver.mappings()?), (5, 0));
    assert_eq!(vmm.add(20)?, Answer::Refused);
    s.told("vmm_regions")?;
    assert_eq!((s.used()?.0, vmm.mappings()?, vmm.descriptors()?), (0, 0, 0));
    let mut driver = Vmm::connect(&s.rdma, "driver")?;
    assert_eq!(driver.table(0, 6)?, Answer::Refused);
    s.told("vmm_regions")?;
    let mut driver = Vmm::connect(&s.rdma, "driver")?;
    assert_eq!(driver.table(0, 5)?, Answer::Taken);
    drop(driver);
    s.ends_well()
}

#[test]
fn descriptors_end_at_the_budget_of_the_adapter() -> Result<()> {
    // Two connections, and three more.
    let limits = VmmLimits {
        descriptors: 11,
        ..VmmLimits::default()
    };
    let mut s = stage(limits)?;
    let mut vmm = Vmm::connect(&s.eth, "descriptors")?;
    let mut driver = Vmm::connect(&s.rdma, "driver")?;
    assert_eq!((vmm.call(0)?, vmm.kick(0)?), (Answer::Taken, Answer::Taken));
    assert_eq!(driver.call(0)?, Answer::Taken);
    // One for another, as a VMM does it whose guest masks an interrupt.
    for _ in 0..3 {
        assert_eq!((vmm.call(0)?, driver.call(0)?), (Answer::Taken, Answer::Taken));
    }
    assert_eq!(
        (s.used()?.1, vmm.descriptors()?, driver.descriptors()?),
        (11, 2, 1)
    );
    assert_eq!(vmm.say(GET_VRING_BASE, &[0], &[])?, Answer::Taken);
    assert_eq!((s.used()?.1, vmm.descriptors()?), (9, 0));
    for ring in 1..3 {
        assert_eq!(driver.call(ring)?, Answer::Taken);
    }
    assert_eq!(driver.kick(0)?, Answer::Refused);
    s.told("11 descriptors (vmm_descriptors), and would have 12")?;
    assert_eq!((s.used()?.1, driver.descriptors()?), (4, 0));
    drop(vmm);
    s.ends_well()
}

/// Whatever a VMM says, in whatever order, on both sockets.
#[test]
fn nothing_that_a_vmm_says_goes_beyond_the_budget() -> Result<()> {
    let limits = VmmLimits {
        regions: 6,
        descriptors: 12,
    };
    let mut s = stage(limits)?;
    let mut dice = Dice::thrown();
    let (mut vmms, mut taken, mut refused) = ([None, None], 0, 0);
    for _ in 0..600 {
        let i = dice.below(2) as usize;
        let socket = [&s.eth, &s.rdma][i];
        let vmm = match &mut vmms[i] {
            Some(vmm) => vmm,
            none => none.insert(Vmm::connect(socket, &format!("any{i}"))?),
        };
        let (page, ring) = (dice.below(PAGES), dice.below([5, 4][i]));
        let answer = match dice.below(12) {
            0..3 => vmm.add(page)?,
            3 => vmm.table(page, 1 + dice.below(TOGETHER as u64) as usize)?,
            4 => vmm.remove(page)?,
            5 => vmm.log()?,
            6 | 7 => vmm.call(ring)?,
            8 => vmm.kick(ring)?,
            9 => vmm.say(GET_VRING_BASE, &[ring], &[])?,
            10 => {
                let kick = vmm.kick.try_clone()?;
                vmm.say(SET_VRING_ERR, &[ring], &[kick.as_fd()])?
            }
            _ => {
                let call = vmm.call.try_clone()?;
                vmm.say(SET_BACKEND_REQ_FD, &[], &[call.as_fd()])?
            }
        };
        match answer {
            Answer::Taken => taken += 1,
            Answer::Refused => {
                (refused, vmms) = (refused + 1, [None, None]);
                // Nobody waits until a VMM that was of no use may come again.
                s.rig.nic.restart_adapter("tight")?;
            }
        }
        let used = s.used()?;
        let most = (u64::from(s.limits.regions), u64::from(s.limits.descriptors));
        assert!(used.0 <= most.0 && used.1 <= most.1, "{used:?} of {most:?}");
        let (mut mapped, mut open) = (0, 0);
        for vmm in vmms.iter().flatten() {
            mapped += vmm.mappings()?;
            open += vmm.descriptors()?;
        }
        assert!(mapped <= s.limits.regions as usize, "{mapped} mappings");
        // (Two connections take 8; the channel that a VMM gives is one of these.)
        assert!(
            open <= s.limits.descriptors as usize - 8 + 2,
            "{open} descriptors"
        );
        s.rig.forget_events();
    }
    println!("{taken} messages were taken, {refused} refused");
    assert!(taken > 100 && refused > 50);
    drop(vmms);
    s.ends_well()
}
