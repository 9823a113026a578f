//! The NIC's process is killed under traffic and started again; guests reconnect with their rings as they are. No
//! frame comes twice or out of order; not twice either when fault rules hold frames back.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::Result;
use vnic_backend::fault::Action;
use vnic_backend::{AdapterSpec, FaultSpec, MacAddr, Nic, NicConfig, SocketRole, SwitchConfig, VlanMode};
use vnic_tests::driver::packets::{BROADCAST, Number, number_of, numbered};
use vnic_tests::driver::rig::{Dice, cpus, deadline, wait_for};
use vnic_tests::driver::{Guest, Layout, NetHdr, Options, feature};
use vnic_tests::lab::own_process::with_test;

const GUESTS: usize = 3;
const DIR: &str = "VNIC_CRASH_DIR";
const CORES: &str = "VNIC_CRASH_CORES";
const FAULTS: &str = "VNIC_CRASH_FAULTS";

fn mac(i: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 1, i as u8])
}

/// Not a test of its own: the process that gets killed.
#[test]
fn nic_child() -> Result<()> {
    let Some(dir) = std::env::var_os(DIR) else {
        return Ok(());
    };
    // Whatever happens to the test, this process does not outlive it.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let cores: usize = std::env::var(CORES)?.parse()?;
    let data_cores: Vec<usize> = cpus().into_iter().take(cores).collect();
    let idle_spin = Duration::from_micros(100);
    let nic = Nic::start(NicConfig {
        data_cores: data_cores.clone(),
        idle_spin,
        confine: true,
        switch: SwitchConfig::default(),
    })?;
    for i in 0..GUESTS {
        nic.add_adapter(AdapterSpec {
            name: format!("g{i}"),
            macs: vec![mac(i)],
            mtu: 9216,
            queue_pairs: 1,
            vlan: VlanMode::default(),
            anti_spoofing: false,
            control_queue: false,
            rdma_flows: true,
            pkeys: Default::default(),
            data_core: Some(data_cores[i % data_cores.len()]),
            eth_socket: Path::new(&dir).join(format!("g{i}")),
            rdma_socket: None,
            socket_role: SocketRole::Listen,
            allowed_addresses: Vec::new(),
            socket_access: Default::default(),
            rdma_memory_mib: vnic_backend::RDMA_MEMORY_DEFAULT,
            wake: None,
            wake_patterns: Vec::new(),
            moving: None,
            vmm: Default::default(),
        })?;
    }
    if std::env::var_os(FAULTS).is_some() {
        let us = Duration::from_micros;
        let (by, jitter, at_most) = (us(200), us(500), us(1000));
        let delay = FaultSpec::new("delay", Action::Delay { by, jitter });
        let reorder = FaultSpec::new("reorder", Action::Reorder { by: 3, at_most });
        for rule in [delay, reorder] {
            nic.add_fault(FaultSpec {
                probability: 200_000,
                ..rule
            })?;
        }
    }
    loop {
        std::thread::park();
    }
}

struct Killed(Child);

impl Killed {
    fn start(dir: &Path, cores: usize, faults: bool) -> Result<Killed> {
        let child = with_test("crash::nic_child")?
            .env(DIR, dir)
            .env(CORES, cores.to_string())
            .envs(faults.then_some((FAULTS, "1")))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Killed(child))
    }

    fn kill(&mut self) {
        // SIGKILL; it may have ended by itself only if it is broken, and then the guests find out.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Scene {
    g: Vec<Guest>,
    next: Vec<HashMap<u32, u64>>,
    /// What each guest got, when frames may come in any order.
    seen: Option<Vec<HashSet<(u32, u64)>>>,
    seq: u64,
    received: u64,
}

impl Scene {
    fn send(&mut self, dice: &mut Dice) {
        for i in 0..GUESTS {
            for _ in 0..dice.below(40) {
                let to = match dice.below(6) {
                    0 => BROADCAST,
                    1 => MacAddr([2, 0xee, 0, 0, 0, 1]),
                    _ => mac((i + 1 + dice.below(GUESTS as u64 - 1) as usize) % GUESTS),
                };
                // Now and then one that takes several receive buffers.
                let most = if dice.below(10) == 0 { 8000 } else { 200 };
                let len = 60 + dice.below(most) as usize;
                let n = Number {
                    sender: i as u32,
                    stream: 0,
                    seq: self.seq,
                };
                self.seq += u64::from(self.g[i].send(0, &numbered(to, mac(i), n, len), NetHdr::default()));
            }
        }
    }

    fn receive(&mut self) {
        for (j, guest) in self.g.iter_mut().enumerate() {
            while let Some((_, _, f)) = guest.try_recv(0) {
                let n = number_of(&f).expect("a numbered frame");
                let next = self.next[j].entry(n.sender).or_default();
                match &mut self.seen {
                    Some(seen) => assert!(seen[j].insert((n.sender, n.seq)), "guest {j} got {n:?} twice"),
                    None => assert!(n.seq >= *next, "guest {j} got {n:?}, after {}", *next - 1),
                }
                *next = (*next).max(n.seq + 1);
                self.received += 1;
            }
        }
    }
}

/// `packed`: how many of the guests have packed rings.
fn crash(cores: usize, times: u32, faults: bool, packed: usize) -> Result<()> {
    let mut dice = Dice::thrown();
    let dir = tempfile::TempDir::with_prefix("vnic")?;
    let mut child = Killed::start(dir.path(), cores, faults)?;
    let mut g = vec![];
    for i in 0..GUESTS {
        let mut o = Options {
            tx_buffer: 9300,
            rx_buffer: 2048,
            queue_size: 256,
            ..Options::default()
        };
        o.start_at = dice.bits() as u16;
        if i == 1 {
            o = o.with(feature::RING_EVENT_IDX | feature::IN_ORDER);
            (o.tx_layout, o.rx_layout) = (Layout::Split(4), Layout::Separate);
        }
        if i + packed >= GUESTS {
            o = o.with(feature::RING_PACKED);
        }
        g.push(Guest::attach(dir.path().join(format!("g{i}")), o)?);
    }
    let mut s = Scene {
        g,
        next: vec![HashMap::new(); GUESTS],
        seen: faults.then(|| vec![HashSet::new(); GUESTS]),
        seq: 0,
        received: 0,
    };
    for kill in 0..times {
        let until = Instant::now() + Duration::from_micros(dice.below(8000));
        let before = s.received;
        while Instant::now() < until {
            s.send(&mut dice);
            s.receive();
        }
        // Sometimes the guests go on while there is no NIC.
        s.send(&mut dice);
        child.kill();
        if dice.below(2) == 0 {
            s.receive();
            s.send(&mut dice);
        }
        child = Killed::start(dir.path(), cores, faults)?;
        for (i, guest) in s.g.iter_mut().enumerate() {
            guest.hang_up();
            guest.connect(dir.path().join(format!("g{i}")))?;
        }
        // It works again, in both directions of each pair.
        for i in 0..GUESTS {
            let j = (i + 1) % GUESTS;
            let got = s.next[j].get(&(i as u32)).copied().unwrap_or(0);
            let deadline = deadline();
            while s.next[j].get(&(i as u32)).copied().unwrap_or(0) <= got {
                assert!(
                    Instant::now() < deadline,
                    "kill {kill}: nothing from guest {i} to {j} any more"
                );
                let n = Number {
                    sender: i as u32,
                    stream: 0,
                    seq: s.seq,
                };
                s.seq += u64::from(s.g[i].send(0, &numbered(mac(j), mac(i), n, 60), NetHdr::default()));
                std::thread::sleep(Duration::from_micros(50));
                s.receive();
            }
        }
        assert!(s.received > before);
    }
    for guest in &mut s.g {
        guest.drain();
        guest.mem().check_canaries()?;
    }
    assert!(wait_for(|| {
        let before = s.received;
        s.receive();
        s.received == before
    }));
    println!("{} frames sent, {} received, {times} kills", s.seq, s.received);
    Ok(())
}

#[test]
fn killed_on_one_core() -> Result<()> {
    crash(1, 40, false, 0)?;
    crash(1, 40, false, 3)
}

#[test]
fn killed_on_two_cores() -> Result<()> {
    crash(2, 40, false, 2)?;
    crash(2, 40, false, 1)
}

#[test]
fn killed_while_fault_rules_hold_frames_back() -> Result<()> {
    crash(1, 40, true, 2)?;
    crash(2, 40, true, 1)
}

/// A VMM that shrinks the file of its memory must not take the others down.
#[test]
fn a_vmm_shrinks_its_memory() -> Result<()> {
    use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};
    let dir = tempfile::TempDir::with_prefix("vnic")?;
    let mut child = Killed::start(dir.path(), 1, false)?;
    let attach = |i: usize| Guest::attach(dir.path().join(format!("g{i}")), Options::default());
    let (liar, mut x, mut y) = (attach(0)?, attach(1)?, attach(2)?);
    for region in liar.mem().map().iter().filter(|r| r.start_addr().0 > 0) {
        region.file_offset().expect("a file").file().set_len(0)?;
    }
    let f = |to: usize, seq| {
        numbered(
            mac(to),
            mac(1),
            Number {
                sender: 1,
                stream: 0,
                seq,
            },
            60,
        )
    };
    x.send_wait(0, &f(0, 0), NetHdr::default());
    x.send_wait(0, &f(2, 1), NetHdr::default());
    let got = y.recv(0, deadline()).map(|(_, _, f)| f);
    assert_eq!(child.0.try_wait()?, None, "the daemon is dead");
    assert_eq!(got, Some(f(2, 1)));
    Ok(())
}
