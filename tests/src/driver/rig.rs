//! A NIC to test: sockets in a temporary directory, adapters with made-up addresses, and the books audited at the
//! end: each frame is delivered or counted as dropped.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use crossbeam_channel::Receiver;
use tempfile::TempDir;
use vnic_backend::{
    AdapterSpec, AttachState, DropReason, MacAddr, Nic, NicConfig, NicError, NicEvent, NicEventKind,
    SocketRole, SwitchConfig, VirtualClock, VlanMode,
};

use super::guest::pause;
use super::{Guest, Options};

/// How long anything may take before a test gives up. Never a statement about speed.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A moment after which a test gives up.
pub fn deadline() -> Instant {
    Instant::now() + PATIENCE
}

/// CPUs this process may use.
pub fn cpus() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).expect("a process knows its CPUs");
    (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|c| set.is_set(*c))
        .collect()
}

/// Waits until `done`, politely; says whether it came true.
pub fn wait_for(mut done: impl FnMut() -> bool) -> bool {
    let deadline = deadline();
    let mut tries = 0;
    while !done() {
        if Instant::now() > deadline {
            return false;
        }
        pause(tries);
        tries += 1;
    }
    true
}

/// Reasons that only a frame's sender is charged with.
const INGRESS: [DropReason; 14] = [
    DropReason::Runt,
    DropReason::MtuExceeded,
    DropReason::MalformedOffload,
    DropReason::InvalidSource,
    DropReason::SpoofedSource,
    DropReason::SpoofedAddress,
    DropReason::VlanNotAllowed,
    DropReason::Hairpin,
    DropReason::OwnAddress,
    DropReason::NoDestination,
    DropReason::MacControl,
    DropReason::StormControl,
    DropReason::SendQueueFull,
    DropReason::MirrorDestination,
];
/// Reasons that only a copy's receiver is charged with.
const EGRESS: [DropReason; 14] = [
    DropReason::Filtered,
    DropReason::NoRxBuffer,
    DropReason::RxBufferTooSmall,
    DropReason::ReceiverMtu,
    DropReason::RxRingBroken,
    DropReason::PortTransmit,
    DropReason::CoreExchangeFull,
    DropReason::FaultInjected,
    DropReason::EgressFull,
    DropReason::LosslessOverflow,
    DropReason::HeadOfQueue,
    DropReason::ClassStalled,
    DropReason::CongestionHint,
    DropReason::Wred,
];

/// How many copies the switch made of all forwarded frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copies {
    /// So many more than there were frames: each flooded frame has one copy for each receiver, each request cut
    /// into `n` segments counts as `n`.
    Extra(u64),
    /// The test cannot know, because receivers came and went: at least what was delivered.
    Unknown,
}

/// A NIC to test. Dropping it shuts the NIC down.
pub struct Rig {
    /// The NIC.
    pub nic: Nic,
    /// Its data cores.
    pub cores: Vec<usize>,
    dir: TempDir,
    news: Receiver<NicEvent>,
    /// Events so far.
    pub events: Vec<NicEvent>,
    adapters: u8,
}

impl Rig {
    /// A NIC with so many data cores, at most as many as there are CPUs.
    pub fn new(cores: usize) -> Result<Rig> {
        Rig::with_spin(cores, Duration::from_micros(50))
    }

    /// The same, with a given idle spin.
    pub fn with_spin(cores: usize, idle_spin: Duration) -> Result<Rig> {
        Rig::start(cores, idle_spin, Nic::start)
    }

    /// A NIC with one data core whose time passes by its rounds.
    pub fn with_clock(clock: Arc<VirtualClock>) -> Result<Rig> {
        Rig::start(1, Duration::ZERO, |config| Nic::start_virtual(config, clock))
    }

    fn start(
        cores: usize,
        idle_spin: Duration,
        start: impl FnOnce(NicConfig) -> Result<Nic, NicError>,
    ) -> Result<Rig> {
        let mut all = cpus();
        if cores == 1 && std::process::id() % 2 == 1 {
            all.reverse();
        }
        all.truncate(cores);
        ensure!(all.len() == cores, "{cores} CPUs are needed");
        let config = NicConfig {
            data_cores: all.clone(),
            idle_spin,
            confine: true,
            switch: SwitchConfig::default(),
        };
        let nic = start(config)?;
        let news = nic.subscribe();
        let dir = TempDir::with_prefix("vnic")?;
        Ok(Rig {
            nic,
            cores: all,
            dir,
            news,
            events: Vec::new(),
            adapters: 0,
        })
    }

    /// The directory of the sockets.
    pub fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// An adapter's settings: trunk of all VLANs, MTU 1500, one queue pair, cores in turn.
    pub fn spec(&mut self, name: &str) -> AdapterSpec {
        self.adapters += 1;
        let core = usize::from(self.adapters - 1) % self.cores.len();
        AdapterSpec {
            name: name.into(),
            macs: vec![MacAddr([2, 0, 0, 0, 0, self.adapters])],
            mtu: 1500,
            queue_pairs: 1,
            vlan: VlanMode::default(),
            anti_spoofing: false,
            control_queue: false,
            rdma_flows: true,
            pkeys: Default::default(),
            data_core: Some(self.cores[core]),
            eth_socket: self.socket(name),
            rdma_socket: None,
            socket_role: SocketRole::Listen,
            allowed_addresses: Vec::new(),
            socket_access: Default::default(),
            rdma_memory_mib: vnic_backend::RDMA_MEMORY_DEFAULT,
            wake: None,
            wake_patterns: Vec::new(),
            moving: None,
            vmm: Default::default(),
        }
    }

    /// An adapter's socket.
    pub fn socket(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.sock"))
    }

    /// Adds an adapter; answers its address.
    pub fn add(&mut self, name: &str) -> Result<MacAddr> {
        self.add_with(name, |_| {})
    }

    /// Adds an adapter with settings changed.
    pub fn add_with(&mut self, name: &str, change: impl FnOnce(&mut AdapterSpec)) -> Result<MacAddr> {
        let mut spec = self.spec(name);
        change(&mut spec);
        let mac = spec.macs[0];
        self.nic.add_adapter(spec)?;
        Ok(mac)
    }

    /// Attaches a guest, when one before it has left, and waits until its link is up on all cores.
    pub fn attach(&mut self, name: &str, options: Options) -> Result<Guest> {
        let nic = self.nic.clone();
        let taken = |state| matches!(state, AttachState::Attached | AttachState::Up);
        wait_for(|| !nic.adapter(name).is_ok_and(|a| taken(a.state)));
        let guest = Guest::attach(self.socket(name), options)?;
        self.up(name)?;
        Ok(guest)
    }

    /// Waits until an adapter's link is up on all cores.
    pub fn up(&mut self, name: &str) -> Result<()> {
        self.state(name, AttachState::Up)
    }

    /// Waits until an adapter is in this state and all cores know.
    pub fn state(&mut self, name: &str, want: AttachState) -> Result<()> {
        let nic = self.nic.clone();
        let there = || nic.adapter(name).is_ok_and(|a| a.state == want);
        ensure!(
            wait_for(there),
            "{name} is not {want:?} but {:?}",
            self.nic.adapter(name)?.state
        );
        // The state is visible a moment before the cores are told.
        std::thread::sleep(Duration::from_millis(1));
        self.settle()
    }

    /// Waits until each core has done what it was told, twice, so that what one told the other is done, too.
    pub fn settle(&self) -> Result<()> {
        for _ in 0..2 {
            ensure!(self.nic.responsive(PATIENCE), "a data core does not answer");
        }
        Ok(())
    }

    /// A counter, summed over queues, or over drop reasons.
    pub fn counter(&self, owner: &str, name: &str) -> u64 {
        let all = self.nic.counters();
        all.iter()
            .filter(|s| s.owner == owner && s.def.name == name && s.priority.is_none())
            .map(|s| s.value)
            .sum()
    }

    /// A counter of one priority.
    pub fn priority_counter(&self, owner: &str, priority: u8, name: &str) -> u64 {
        let all = self.nic.counters();
        let mine = |s: &&vnic_backend::Sample| {
            s.owner == owner && s.def.name == name && s.priority == Some(priority)
        };
        all.iter().filter(mine).map(|s| s.value).sum()
    }

    /// A counter of one queue pair.
    pub fn queue_counter(&self, owner: &str, queue: u16, name: &str) -> u64 {
        let all = self.nic.counters();
        let mine =
            |s: &&vnic_backend::Sample| s.owner == owner && s.def.name == name && s.queue == Some(queue);
        all.iter().filter(mine).map(|s| s.value).sum()
    }

    /// A counter of all data cores together.
    pub fn core_counter(&self, name: &str) -> u64 {
        let cores: Vec<String> = self.cores.iter().map(usize::to_string).collect();
        let all = self.nic.counters();
        all.iter()
            .filter(|s| cores.contains(&s.owner) && s.def.name == name)
            .map(|s| s.value)
            .sum()
    }

    /// Drops of an adapter or port for one reason.
    pub fn drops(&self, owner: &str, reason: DropReason) -> u64 {
        let all = self.nic.counters();
        let mine = |s: &&vnic_backend::Sample| {
            s.owner == owner && s.def.name == "drops" && s.reason == Some(reason.name())
        };
        all.iter().filter(mine).map(|s| s.value).sum()
    }

    /// Takes the events that have come.
    pub fn poll_events(&mut self) -> &[NicEvent] {
        self.events.extend(self.news.try_iter());
        &self.events
    }

    /// How many events so far are like this.
    pub fn count_events(&mut self, owner: &str, like: impl Fn(&NicEventKind) -> bool) -> usize {
        self.poll_events()
            .iter()
            .filter(|e| e.owner == owner && like(&e.kind))
            .count()
    }

    /// Forgets the events so far; says how many there were.
    pub fn forget_events(&mut self) -> usize {
        self.poll_events();
        std::mem::take(&mut self.events).len()
    }

    /// Waits for an event like this.
    pub fn wait_event(&mut self, owner: &str, like: impl Fn(&NicEventKind) -> bool) -> Result<()> {
        if wait_for(|| self.count_events(owner, &like) > 0) {
            return Ok(());
        }
        bail!("the event did not come; there were {:?}", self.events)
    }

    /// Audits the books and shuts down. Frames must not be under way any more.
    pub fn finish(mut self, copies: Copies) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            self.settle()?;
            match self.audit(copies) {
                Ok(()) => break,
                Err(e) if Instant::now() > deadline => return Err(e),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        ensure!(self.core_counter("panics") == 0, "the data path panicked");
        for a in self.nic.adapters() {
            ensure!(a.state != AttachState::Failed, "{} has failed", a.spec.name);
        }
        let errors = self.events_of_bugs();
        ensure!(errors.is_empty(), "{errors:?}");
        Ok(())
    }

    fn events_of_bugs(&mut self) -> Vec<NicEvent> {
        let failed = |e: &&NicEvent| matches!(e.kind, NicEventKind::AdapterState(AttachState::Failed));
        self.poll_events().iter().filter(failed).cloned().collect()
    }

    /// Each frame taken was forwarded or dropped; each copy made (those of fault rules and mirror sessions, too) was delivered or dropped.
    ///
    /// "Receiver down" is charged to the sender when the switch knows, to the receiver when it has just happened, and "access
    /// list" to the adapter of the list: the first balance tells how many of them are the sender's.
    pub fn audit(&self, copies: Copies) -> Result<()> {
        let mut adapters: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        let (mut orphans, mut duplicates) = (0, 0);
        for s in self.nic.counters() {
            match s.def.name {
                // The same frames, by priority.
                _ if s.priority.is_some() => {}
                "orphans" => orphans += s.value,
                "fault_copies" | "mirrored" => duplicates += s.value,
                name => {
                    let key = s.reason.unwrap_or(name).to_string();
                    *adapters.entry(s.owner).or_default().entry(key).or_default() += s.value;
                }
            }
        }
        let (mut forwarded, mut delivered, mut lost) = (duplicates, 0, orphans);
        for a in self.nic.adapters() {
            let name = &a.spec.name;
            let c = adapters
                .get(name)
                .with_context(|| format!("{name} has no counters"))?;
            let get = |k: &str| c.get(k).copied().unwrap_or(0);
            let ingress: u64 = INGRESS.iter().map(|r| get(r.name())).sum();
            let down = get(DropReason::ReceiverDown.name()) + get(DropReason::AccessList.name());
            let rest = get("tx_frames").checked_sub(get("tx_forwarded") + get("tx_nic_answers") + ingress);
            let Some(down_in) = rest.filter(|r| *r <= down) else {
                bail!("{name}: frames taken are not frames forwarded and dropped: {c:?}")
            };
            forwarded += get("tx_forwarded");
            // What was coalesced is one frame from there on.
            delivered += get("rx_frames") + get("rx_rsc_packets") - get("rx_rsc_events");
            lost += down - down_in + EGRESS.iter().map(|r| get(r.name())).sum::<u64>();
        }
        for p in self.nic.ports() {
            let c = adapters.get(&p.spec.name).context("a port has no counters")?;
            let get = |k: &str| c.get(k).copied().unwrap_or(0);
            forwarded += get("rx_forwarded");
            delivered += get("tx_frames");
            lost += EGRESS.iter().map(|r| get(r.name())).sum::<u64>();
        }
        match copies {
            Copies::Extra(extra) => ensure!(
                forwarded + extra == delivered + lost,
                "{forwarded} frames forwarded and {extra} copies, {delivered} delivered, {lost} dropped: {adapters:?}"
            ),
            Copies::Unknown => {}
        }
        Ok(())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.nic.shutdown();
    }
}

/// A small generator of random numbers with a seed that can be printed.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// From a seed.
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(2).wrapping_add(1))
    }

    /// From `VNIC_SEED`, or else from the time; the seed is printed.
    pub fn thrown() -> Dice {
        let env = std::env::var("VNIC_SEED").ok().and_then(|s| s.parse().ok());
        let now = || {
            std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(1, |d| d.as_nanos() as u64)
        };
        let seed = env.unwrap_or_else(now);
        println!("VNIC_SEED={seed}");
        Dice::new(seed)
    }

    /// 64 random bits (splitmix64).
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n.max(1)
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}
