//! What comes and goes meanwhile: a little in each turn, seldom what is dear.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use vnic_backend::MacAddr;
use vnic_verbs::{
    Access, CompletionQueue, ConnectOptions, Context, Device, DeviceAddress, MemoryRegion, ProtectionDomain,
    QueuePair, Rc, RecvWr, SendWr, WorkCompletion,
};

use super::super::product::{self, Product};
use super::super::testpmd::guest_mac;
use crate::driver::packets::{Number, numbered};
use crate::driver::{Guest, NetHdr, Options};

/// Two with lasting drivers, one whose guest comes and goes, one whose RDMA driver does.
pub(super) const ADAPTERS: usize = 4;
/// Frames that each lasting guest sends in a turn.
const FRAMES: u64 = 16;
/// Bytes of a message, and messages of a turn by each verb.
const MESSAGE: usize = 8192;
const MESSAGES: usize = 4;
/// Turns after which all is done again.
const CYCLE: u64 = 100;
/// A lost packet is sent again long before this.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was done.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Done {
    frames: u64,
    messages: u64,
    queue_pairs: u64,
    guests: u64,
    drivers: u64,
    scrapes: u64,
    captures: u64,
    faults: u64,
    adapters: u64,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} frames arrived, {} RDMA messages; made and removed: {} queue pairs with regions and queues, {} guests, \
             {} RDMA drivers, {} adapters, {} fault rules; {} scrapes, {} captures",
            self.frames,
            self.messages,
            self.queue_pairs,
            self.guests,
            self.drivers,
            self.adapters,
            self.faults,
            self.scrapes,
            self.captures
        )
    }
}

/// Ends with its owner.
struct Follower(Child);

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One adapter's RDMA driver.
struct Driver {
    /// Before the device it belongs to.
    region: MemoryRegion,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    device: Context,
}

impl Driver {
    fn open(socket: PathBuf) -> Result<Driver> {
        let device = Device::open(&DeviceAddress::Socket(socket))?;
        let pd = device.alloc_pd()?;
        Ok(Driver {
            cq: device.create_cq(64)?,
            region: pd.allocate(2 * MESSAGE, Access::REMOTE_ALL | Access::LOCAL_WRITE)?,
            pd,
            device,
        })
    }
}

type Ends = [QueuePair<Rc>; 2];

fn connect(drivers: &[Driver; 2], queues: [&CompletionQueue; 2]) -> Result<Ends> {
    let make = |i: usize| {
        let builder = drivers[i].pd.qp::<Rc>(queues[i], queues[i]);
        builder.max_send_wr(16).max_recv_wr(16).build()
    };
    let ends = [make(0)?, make(1)?];
    let options = ConnectOptions {
        gid_index: 1,
        ..ConnectOptions::default()
    };
    ends[0].connect(&ends[1].endpoint(1)?, &options)?;
    ends[1].connect(&ends[0].endpoint(1)?, &options)?;
    Ok(ends)
}

/// Waits for so many completions. It sleeps between looks: this bench has to leave others the CPU.
fn complete(cq: &CompletionQueue, mut left: usize) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    let mut done = [WorkCompletion::default(); 16];
    while left > 0 {
        let n = cq.poll(&mut done)?;
        for c in &done[..n] {
            c.ok()?;
        }
        left = left.saturating_sub(n);
        if n == 0 {
            ensure!(Instant::now() < end, "{left} work requests do not complete");
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    Ok(())
}

/// The mix.
pub(super) struct Mix {
    vnicctl: PathBuf,
    endpoint: String,
    guests: [Guest; 2],
    ends: Ends,
    drivers: [Driver; 2],
    capture: Option<Follower>,
    faulty: bool,
    turns: u64,
    seq: u64,
    /// What was done so far.
    pub(super) done: Done,
}

impl Mix {
    pub(super) fn start(product: &Product, dir: &Path, vnicctl: PathBuf) -> Result<Mix> {
        let guest = |i| Guest::attach(product.socket(i), Options::default());
        let guests = [guest(0)?, guest(1)?];
        product.wait_up(2, PATIENCE)?;
        let driver = |i| Driver::open(product.rdma_socket(i));
        let drivers = [driver(0)?, driver(1)?];
        let ends = connect(&drivers, [&drivers[0].cq, &drivers[1].cq])?;
        Ok(Mix {
            vnicctl,
            endpoint: format!("unix:{}", dir.join("control.sock").display()),
            guests,
            ends,
            drivers,
            capture: None,
            faulty: false,
            turns: 0,
            seq: 0,
            done: Done::default(),
        })
    }

    /// A turn: a bit of everything that is frequent, and one thing that is not.
    pub(super) fn turn(&mut self, product: &Product) -> Result<()> {
        self.turns += 1;
        self.ethernet()?;
        self.messages()?;
        self.queue_pair()?;
        // Seldom, and not all in one turn.
        match self.turns % CYCLE {
            n if n % 10 == 1 => {
                product.counters()?;
                let metrics = product.metrics().context("a daemon has metrics")?;
                product::scrape(metrics)?;
                self.done.scrapes += 2;
            }
            n if n % 10 == 3 => self.guest(product)?,
            n if n % 10 == 5 => self.driver(product)?,
            7 => self.capture = Some(self.follow()?),
            37 => {
                // Its client dies, as clients do.
                self.capture = None;
                self.done.captures += 1;
            }
            17 | 57 => self.fault()?,
            67 => self.adapter()?,
            _ => {}
        }
        Ok(())
    }

    /// What comes and goes seldom is not there now.
    pub(super) fn is_at_rest(&self) -> bool {
        self.turns.is_multiple_of(CYCLE)
    }

    fn ethernet(&mut self) -> Result<()> {
        let macs: [MacAddr; 2] = [guest_mac(0).parse()?, guest_mac(1).parse()?];
        for _ in 0..FRAMES {
            for (from, to) in [(0, 1), (1, 0)] {
                let number = Number {
                    sender: from as u32,
                    stream: 0,
                    seq: self.seq,
                };
                self.seq += 1;
                let frame = numbered(macs[to], macs[from], number, 64 + (self.seq % 1400) as usize);
                self.guests[from].send_wait(0, &frame, NetHdr::default());
            }
        }
        std::thread::sleep(Duration::from_millis(1));
        for guest in &mut self.guests {
            while guest.try_recv(0).is_some() {
                self.done.frames += 1;
            }
            guest.reclaim(0);
        }
        Ok(())
    }

    /// WRITE, READ and SEND over the lasting connection.
    fn messages(&mut self) -> Result<()> {
        let [near, far] = &self.drivers;
        let local = || near.region.slice(0..MESSAGE);
        let (remote, rkey) = (far.region.addr(), far.region.rkey());
        for _ in 0..MESSAGES {
            self.ends[1].post_recv(&[RecvWr::new(far.region.slice(MESSAGE..))])?;
            self.ends[0].post_send(&[
                SendWr::write(local(), remote, rkey).signaled(),
                SendWr::read(local(), remote, rkey).signaled(),
                SendWr::send(local()).signaled(),
            ])?;
            complete(&near.cq, 3)?;
            complete(&far.cq, 1)?;
            self.done.messages += 3;
        }
        Ok(())
    }

    /// A connection with queues and regions of its own, used once.
    fn queue_pair(&mut self) -> Result<()> {
        let make = |d: &Driver| -> Result<(CompletionQueue, MemoryRegion)> {
            let region = d.pd.allocate(MESSAGE, Access::REMOTE_ALL | Access::LOCAL_WRITE)?;
            Ok((d.device.create_cq(32)?, region))
        };
        let (near, far) = (make(&self.drivers[0])?, make(&self.drivers[1])?);
        let ends = connect(&self.drivers, [&near.0, &far.0])?;
        let write = SendWr::write(near.1.slice(..), far.1.addr(), far.1.rkey()).signaled();
        ends[0].post_send(&[write])?;
        complete(&near.0, 1)?;
        self.done.queue_pairs += 2;
        Ok(())
    }

    /// A guest comes, says something and goes: politely, or not.
    fn guest(&mut self, product: &Product) -> Result<()> {
        let mut guest = Guest::attach(product.socket(2), Options::default())?;
        let (from, to): (MacAddr, MacAddr) = (guest_mac(2).parse()?, guest_mac(0).parse()?);
        for seq in 0..FRAMES {
            let number = Number {
                sender: 2,
                stream: 0,
                seq,
            };
            guest.send_wait(0, &numbered(to, from, number, 200), NetHdr::default());
        }
        if self.turns.is_multiple_of(20) {
            guest.detach()?;
        } else {
            guest.hang_up();
        }
        self.done.guests += 1;
        Ok(())
    }

    /// A driver comes, makes objects and goes; every other time without taking them away.
    fn driver(&mut self, product: &Product) -> Result<()> {
        let driver = Driver::open(product.rdma_socket(3))?;
        let ends = [(); 2].map(|()| driver.pd.qp::<Rc>(&driver.cq, &driver.cq).build());
        let made = ends.into_iter().collect::<Result<Vec<_>, _>>()?;
        driver.device.gids()?;
        if self.done.drivers.is_multiple_of(2) {
            driver.device.reset()?;
        }
        drop(made);
        self.done.drivers += 1;
        Ok(())
    }

    /// A rule is there for 4 s of 10.
    fn fault(&mut self) -> Result<()> {
        if self.faulty {
            self.control(&["fault", "remove", "--all"])?;
        } else {
            let seed = self.turns.to_string();
            let rule = [
                "fault",
                "add",
                "lossy",
                "--from",
                "vf0",
                "--to",
                "vf1",
                "--seed",
                &seed,
                "--probability",
                "1%",
                "--drop",
            ];
            self.control(&rule)?;
            self.done.faults += 1;
        }
        self.faulty = !self.faulty;
        Ok(())
    }

    fn adapter(&mut self) -> Result<()> {
        self.control(&["adapter", "add", "passing"])?;
        self.control(&["adapter", "remove", "passing"])?;
        self.control(&["adapter", "restart", "vf2"])?;
        self.done.adapters += 1;
        Ok(())
    }

    fn follow(&self) -> Result<Follower> {
        let child = self
            .command(&["capture", "live", "-w", "/dev/null", "vf0", "vf1"])
            .spawn()?;
        Ok(Follower(child))
    }

    fn control(&self, arguments: &[&str]) -> Result<()> {
        let output = self.command(arguments).stderr(Stdio::piped()).output()?;
        if !output.status.success() {
            bail!(
                "vnicctl {arguments:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.vnicctl);
        command.args(["--endpoint", &self.endpoint]).args(arguments);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }
}
