//! `torture`: honest guests, attackers and operators at one daemon, which is killed every ten seconds and started again.
//!
//! What may be lost: Ethernet frames that the daemon had taken when it was killed, or that were sent before both guests were
//! attached again; RDMA requests that had not completed. Everything else arrives, once, in order and whole; adapters and
//! settings that were acknowledged are there again. A daemon never ends by itself, answers /livez, and takes no more memory,
//! descriptors and files than the one before.

mod attackers;
mod control;
mod ethernet;
mod rdma;
mod stage;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde_json::{Value, json};

use super::Lab;
use super::product::{self, Product};
use super::soak::Sample;
use super::testpmd::guest_mac;
use crate::driver::attacks::ATTACKS;
use crate::driver::rig::Dice;
use crate::driver::{Layout, Options, feature};
use attackers::Attacker;
use control::Operator;
use ethernet::Pair;
use stage::{Books, Count, PATIENCE, Stage, State};

/// How long a daemon lives.
const GENERATION: Duration = Duration::from_secs(10);
/// Between two looks at the daemon.
const LOOK: Duration = Duration::from_millis(250);
/// Adapters of honest guests: two pairs of Ethernet, two of RDMA. Attackers have pairs of their own behind them.
const HONEST: usize = 8;
const ATTACKERS: usize = 4;
const ADAPTERS: usize = HONEST + 2 * ATTACKERS;
/// VLANs of the honest pairs; the second pair of RDMA is in one with the attackers.
const VLANS: [Option<u16>; 4] = [Some(10), Some(11), Some(12), None];
/// /livez may say that a data core does not answer for so long: other programs want the CPUs, too.
const DEAF: Duration = Duration::from_secs(10);

/// Threads that the daemon starts for calls, and keeps for a while.
const POOL: f64 = 16.0;

/// The wishes of the command line.
pub(super) struct Wishes<'a> {
    /// How long.
    pub(super) minutes: u16,
    /// Of all dice.
    pub(super) seed: u64,
    /// For scripts.
    pub(super) json: bool,
    /// One attack instead of all.
    pub(super) only: Option<&'a str>,
}

/// `torture`.
pub(super) fn run(lab: &Lab, wishes: &Wishes<'_>) -> Result<ExitCode> {
    let Some(vnicd) = &lab.vnicd else {
        bail!("it kills a daemon: none is beside this program, name one with --vnicd PATH");
    };
    if let Some(only) = wishes.only {
        let known = || ATTACKS.iter().map(|kind| kind.name);
        ensure!(
            known().any(|name| name == only),
            "there is no attack {only}; there are {}",
            known().collect::<Vec<_>>().join(", ")
        );
    }
    let ended = Torture::new(lab, vnicd, wishes).and_then(|mut t| match t.run() {
        Ok(()) => Ok(()),
        Err(e) => {
            let log = fs::read_to_string(t.dir.path().join("vnicd.log")).unwrap_or_default();
            let last: Vec<&str> = log.lines().rev().take(40).collect();
            for line in last.iter().rev() {
                eprintln!("vnicd: {line}");
            }
            Err(e.context(format!("generation {}", t.generation)))
        }
    });
    let Err(e) = ended else {
        return Ok(ExitCode::SUCCESS);
    };
    eprintln!("torture: FAILED: {e:#}");
    let only = wishes.only.map(|o| format!(" --only {o}")).unwrap_or_default();
    eprintln!(
        "again: {} torture --vnicd {} --minutes {} --seed {}{only}",
        std::env::current_exe()?.display(),
        vnicd.display(),
        wishes.minutes,
        wishes.seed
    );
    Ok(ExitCode::from(1))
}

/// Another one each time.
pub(super) fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |d| d.as_millis() as u64 % 1_000_000)
}

/// In a process that a run has started as one of its attackers.
pub(super) fn attacker() -> Option<ExitCode> {
    attackers::be_one().map(|ended| ExitCode::from(u8::from(ended.is_err())))
}

/// An honest pair, in a thread of its own.
struct Honest {
    name: String,
    books: std::sync::Arc<Books>,
    thread: Option<JoinHandle<Result<()>>>,
    /// At the last line, and at the last second.
    told: Count,
    before: Count,
    /// Time in which something arrived, in which a daemon was started, in which nothing arrived.
    seconds: [Duration; 3],
    still: Duration,
    stillest: Duration,
}

/// One of those.
type Part = fn(&Size) -> f64;

/// What of a daemon may grow.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    anonymous: f64,
    files: f64,
    threads: f64,
    state_kib: f64,
    state_files: f64,
}

struct Torture<'a> {
    lab: &'a Lab,
    vnicd: &'a Path,
    wishes: &'a Wishes<'a>,
    dice: Dice,
    stage: std::sync::Arc<Stage>,
    honest: Vec<Honest>,
    operator: Operator,
    generation: u64,
    begin: Instant,
    looked: Instant,
    /// When /livez said something else for the first time in a row, and how often it did at all.
    deaf_since: Option<Instant>,
    deaf: u64,
    scrapes: u64,
    restarts_ms: Vec<f64>,
    /// Each daemon when honest traffic flows and nobody attacks.
    sizes: Vec<Size>,
    began_again: u64,
    dir: tempfile::TempDir,
}

impl<'a> Torture<'a> {
    fn new(lab: &'a Lab, vnicd: &'a Path, wishes: &'a Wishes<'a>) -> Result<Torture<'a>> {
        let vnicctl = vnicd.with_file_name("vnicctl");
        ensure!(vnicctl.is_file(), "there is no {}", vnicctl.display());
        let dir = lab.part()?;
        let mut dice = Dice::new(wishes.seed);
        let operator = Operator::new(vnicctl, dir.path(), Dice::new(dice.bits()));
        eprintln!("torture: seed {}, {} minutes", wishes.seed, wishes.minutes);
        Ok(Torture {
            lab,
            vnicd,
            wishes,
            dice,
            stage: Stage::new(dir.path()).into(),
            honest: Vec::new(),
            operator,
            generation: 0,
            begin: Instant::now(),
            looked: Instant::now(),
            deaf_since: None,
            deaf: 0,
            scrapes: 0,
            restarts_ms: Vec::new(),
            sizes: Vec::new(),
            began_again: 0,
            dir,
        })
    }

    fn configuration(&mut self) -> String {
        // One data core or the other, sometimes both.
        let cores = match self.dice.below(4) {
            0 => self.lab.cpus.to_vec(),
            n => vec![self.lab.cpus[n as usize % 2]],
        };
        let dir = self.dir.path().display();
        let mut text = format!(
            "[nic]\ndata_cores = {cores:?}\nsocket_dir = \"{dir}\"\nstate_dir = \"{dir}/state\"\n\n\
             [metrics]\nlisten = \"127.0.0.1:0\"\n"
        );
        for i in 0..ADAPTERS {
            let vlan = VLANS.get(i / 2).copied().flatten();
            let vlan = vlan
                .map(|v| format!("vlan = {{ access = {v} }}\n"))
                .unwrap_or_default();
            text += &format!(
                "\n[[adapter]]\nname = \"vf{i}\"\nmac = \"{}\"\nqueue_pairs = 1\n{vlan}",
                guest_mac(i)
            );
        }
        text
    }

    fn run(&mut self) -> Result<()> {
        let length = Duration::from_secs(60 * u64::from(self.wishes.minutes));
        let ended = loop {
            match self.generation() {
                Err(e) => break Err(e),
                Ok(product) if self.begin.elapsed() >= length || self.lab.interrupted() => {
                    break self.end(product);
                }
                Ok(mut product) => {
                    if let Err(e) = self.kill(&mut product) {
                        break Err(e);
                    }
                }
            }
        };
        if ended.is_err() {
            // Whoever has the cause says it; the others only find the daemon gone.
            self.stage.set(self.generation, State::Down);
            return ended.and_then(|()| self.well());
        }
        self.totals()
    }

    /// A daemon's life, up to the moment at which it is killed.
    fn generation(&mut self) -> Result<Product> {
        self.generation += 1;
        let started = Instant::now();
        let text = self.configuration();
        let mut product = Product::configured(self.vnicd, self.dir.path(), &text)?;
        self.deaf_since = None;
        self.stage.set(self.generation, State::Up);
        if self.honest.is_empty() {
            self.begin_honest()?;
        }
        while !self.honest.iter().all(|h| h.books.flows_in(self.generation)) {
            ensure!(
                started.elapsed() < PATIENCE,
                "honest traffic does not flow again {:?} after a crash",
                started.elapsed()
            );
            self.look(&mut product, true)?;
            sleep(Duration::from_millis(1));
        }
        self.restarts_ms.push(started.elapsed().as_secs_f64() * 1e3);
        self.operator.check()?;
        self.sizes.push(self.size(&product)?);
        let come = self.operator.come();
        let mut attackers = self.attackers()?;
        let calm = self.dice.below(2) == 0;
        while started.elapsed() < GENERATION && !self.lab.interrupted() {
            if self.look(&mut product, false)? {
                self.operator.act(HONEST, ADAPTERS)?;
                for attacker in &mut attackers {
                    attacker.tend(self.dir.path())?;
                }
            }
            sleep(Duration::from_millis(10));
        }
        // No daemon is killed while it keeps somebody waiting: that would hide it.
        let marks: Vec<Count> = self.honest.iter().map(|h| h.books.count()).collect();
        let since = Instant::now();
        while self
            .honest
            .iter()
            .zip(&marks)
            .any(|(h, m)| h.books.count().done == m.done)
        {
            ensure!(
                since.elapsed() < PATIENCE,
                "honest traffic stands still: {}",
                self.counts()
            );
            self.look(&mut product, false)?;
            sleep(Duration::from_millis(1));
        }
        self.began_again += attackers.iter().map(|a| a.again).sum::<u64>();
        let attacks: Vec<(&str, u64)> = attackers.iter().map(|a| (a.kind.name, a.again)).collect();
        if calm {
            drop(attackers);
            self.operator.leave(&come)?;
            self.calms(&mut product)?;
        }
        self.tell(&attacks, calm)?;
        Ok(product)
    }

    fn begin_honest(&mut self) -> Result<()> {
        let odd = Options {
            tx_layout: Layout::Split(4),
            rx_layout: Layout::Separate,
            start_at: self.dice.bits() as u16,
            ..Options::default().with(feature::RING_EVENT_IDX | feature::IN_ORDER)
        };
        for (pair, options) in [Some(Options::default()), Some(odd), None, None]
            .into_iter()
            .enumerate()
        {
            let (stage, books) = (self.stage.clone(), std::sync::Arc::<Books>::default());
            let (first, kept) = (2 * pair, books.clone());
            let name = if options.is_some() { "ethernet" } else { "rdma" };
            let macs = [guest_mac(first).parse()?, guest_mac(first + 1).parse()?];
            let thread = std::thread::Builder::new()
                .name(format!("{name}{pair}"))
                .spawn(move || match options {
                    Some(options) => Pair { first, macs, options }.run(&stage, &kept),
                    None => rdma::run(first, &stage, &kept),
                })?;
            self.honest.push(Honest {
                name: format!("{name}{pair}"),
                books,
                thread: Some(thread),
                told: Count::default(),
                before: Count::default(),
                seconds: [Duration::ZERO; 3],
                still: Duration::ZERO,
                stillest: Duration::ZERO,
            });
        }
        Ok(())
    }

    /// Two or more of them, each at its own adapters.
    fn attackers(&mut self) -> Result<Vec<Attacker>> {
        let mut all = Vec::new();
        for i in 0..ATTACKERS {
            if i < 2 || self.dice.below(2) == 0 {
                let kind = attackers::any(&mut self.dice, self.wishes.only);
                let dice = Dice::new(self.dice.bits());
                all.push(Attacker::start(kind, HONEST + 2 * i, self.dir.path(), dice)?);
            }
        }
        Ok(all)
    }

    /// Is everybody well? Once a second it answers yes: the time for what is not done all the time.
    fn look(&mut self, product: &mut Product, restarting: bool) -> Result<bool> {
        self.well()?;
        if let Some(status) = product.ended()? {
            bail!("the daemon ended by itself: {status}");
        }
        let metrics = product.metrics().context("a daemon has metrics")?;
        if product::get(metrics, "/livez").is_ok_and(|page| page.starts_with("HTTP/1.1 200")) {
            self.deaf_since = None;
        } else {
            self.deaf += 1;
            let since = *self.deaf_since.get_or_insert_with(Instant::now);
            ensure!(
                since.elapsed() < DEAF,
                "/livez has been something else than 200 for {:?}",
                since.elapsed()
            );
        }
        if self.looked.elapsed() < Duration::from_secs(1) {
            sleep(LOOK.min(Duration::from_millis(if restarting { 1 } else { 250 })));
            return Ok(false);
        }
        let passed = std::mem::replace(&mut self.looked, Instant::now()).elapsed();
        for h in &mut self.honest {
            let now = h.books.count();
            let row = match (now.since(h.before).done > 0, restarting) {
                (true, _) => 0,
                (false, true) => 1,
                (false, false) => 2,
            };
            h.seconds[row] += passed;
            h.still = if row == 2 {
                h.still + passed
            } else {
                Duration::ZERO
            };
            h.stillest = h.stillest.max(h.still);
            h.before = now;
            ensure!(h.still < PATIENCE, "{} stands still for {:?}", h.name, h.still);
        }
        if !restarting {
            let page = product::scrape(metrics)?;
            let panics = |l: &&str| l.starts_with("vnic_core_panics_total") && !l.ends_with(" 0");
            if let Some(line) = page.lines().find(panics) {
                bail!("a data core panicked: {line}");
            }
            self.scrapes += 1;
        }
        Ok(true)
    }

    /// What the threads of honest guests have to say.
    fn well(&mut self) -> Result<()> {
        for h in &mut self.honest {
            if !h.thread.as_ref().is_some_and(JoinHandle::is_finished) {
                continue;
            }
            match h.thread.take().map(JoinHandle::join) {
                None | Some(Ok(Ok(()))) => {}
                Some(Ok(Err(e))) => return Err(e.context(h.name.clone())),
                Some(Err(panic)) => {
                    let text = panic.downcast_ref::<String>().cloned();
                    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
                    bail!("{}: {}", h.name, text.unwrap_or_else(|| "a panic".into()));
                }
            }
        }
        Ok(())
    }

    /// Nobody attacks any more: nothing of the attackers is left.
    fn calms(&mut self, product: &mut Product) -> Result<()> {
        let begin = *self.sizes.last().context("a daemon has a size")?;
        let since = Instant::now();
        loop {
            let now = self.size(product)?;
            if now.files <= begin.files && now.threads <= begin.threads + POOL {
                return Ok(());
            }
            ensure!(
                since.elapsed() < PATIENCE,
                "attackers are gone, and the daemon has {} descriptors and {} threads, before them {} and {}",
                now.files,
                now.threads,
                begin.files,
                begin.threads
            );
            self.look(product, false)?;
            sleep(Duration::from_millis(10));
        }
    }

    fn kill(&mut self, product: &mut Product) -> Result<()> {
        self.stage.set(self.generation, State::Ending);
        sleep(Duration::from_micros(self.dice.below(5000)));
        if let Some(status) = product.ended()? {
            bail!("the daemon ended by itself: {status}");
        }
        product.kill()?;
        self.stage.set(self.generation, State::Down);
        Ok(())
    }

    /// Honest guests end what they have begun; then the daemon, politely.
    fn end(&mut self, product: Product) -> Result<()> {
        self.stage.set(self.generation, State::Over);
        let since = Instant::now();
        while self.honest.iter().any(|h| h.thread.is_some()) {
            self.well()?;
            ensure!(
                since.elapsed() < 2 * PATIENCE,
                "honest guests do not end: {}",
                self.counts()
            );
            sleep(Duration::from_millis(10));
        }
        drop(product);
        for h in &self.honest {
            let count = h.books.count();
            ensure!(count.under_way() == 0, "{}: {count:?}", h.name);
        }
        self.grows()
    }

    fn size(&self, product: &Product) -> Result<Size> {
        let sample = Sample::take(product.pid(), self.begin)?;
        let (mut bytes, mut files) = (0, 0);
        for entry in fs::read_dir(self.dir.path().join("state"))? {
            // (One that was renamed meanwhile is none.)
            bytes += entry?.metadata().map_or(0, |m| m.len());
            files += 1;
        }
        Ok(Size {
            anonymous: sample.anonymous,
            files: sample.files,
            threads: sample.threads,
            state_kib: bytes as f64 / 1024.0,
            state_files: f64::from(files),
        })
    }

    /// Of the daemons of a run the later ones are as large as the earlier ones.
    fn grows(&self) -> Result<()> {
        let third = self.sizes.len() / 3;
        if third < 3 {
            return Ok(());
        }
        let rows: [(&str, Part, f64); 5] = [
            ("anonymous memory in KiB", |s| s.anonymous, 16.0 * 1024.0),
            ("descriptors", |s| s.files, 32.0),
            ("threads", |s| s.threads, 16.0),
            ("KiB of state", |s| s.state_kib, 64.0 * 1024.0),
            ("files of state", |s| s.state_files, 8.0),
        ];
        for (what, of, most) in rows {
            let middle = |sizes: &[Size]| {
                let values: Vec<f64> = sizes.iter().map(of).collect();
                super::report::Summary::of(&values).map_or(0.0, |s| s.median)
            };
            let (early, late) = (
                middle(&self.sizes[..third]),
                middle(&self.sizes[self.sizes.len() - third..]),
            );
            ensure!(
                late - early <= most,
                "{what}: {early} in the first third of the daemons, {late} in the last"
            );
        }
        Ok(())
    }

    fn counts(&self) -> String {
        let each = self
            .honest
            .iter()
            .map(|h| format!("{} {:?}", h.name, h.books.count()));
        each.collect::<Vec<_>>().join(", ")
    }

    /// A line for the daemon that ends now; attacks with how often they began again.
    fn tell(&mut self, attacks: &[(&str, u64)], calm: bool) -> Result<()> {
        let size = self.sizes.last().copied().unwrap_or_default();
        let mut line = json!({
            "seconds": self.begin.elapsed().as_secs(),
            "generation": self.generation,
            "restart_ms": self.restarts_ms.last().map(|ms| ms.round()),
            "attacks": attacks.iter().map(|a| json!({ "name": a.0, "begun_again": a.1 })).collect::<Value>(),
            "attackers_gone_before": calm,
            "livez_not_ok": self.deaf,
            "scrapes": self.scrapes,
            "calls": self.operator.calls,
            "anonymous_kib": size.anonymous,
            "descriptors": size.files,
            "threads": size.threads,
            "state_kib": size.state_kib.round(),
            "state_files": size.state_files,
        });
        let mut words = Vec::new();
        for h in &mut self.honest {
            let now = h.books.count();
            let fresh = now.since(std::mem::replace(&mut h.told, now));
            line[&h.name] = row(fresh, now);
            words.push(format!(
                "{} {} +{} lost {}",
                h.name, fresh.begun, fresh.done, fresh.lost
            ));
        }
        self.show(&line, || {
            format!(
                "{:5} s: daemon {}, up in {:.0} ms, {}; {}{}; {:.0} KiB, {} descriptors",
                self.begin.elapsed().as_secs(),
                self.generation,
                self.restarts_ms.last().unwrap_or(&0.0),
                words.join(", "),
                attacks
                    .iter()
                    .map(|(name, again)| match again {
                        0 => (*name).to_owned(),
                        n => format!("{name} (begun again {n} times)"),
                    })
                    .collect::<Vec<_>>()
                    .join(", "),
                if calm { ", gone before" } else { "" },
                size.anonymous,
                size.files
            )
        })
    }

    fn totals(&self) -> Result<()> {
        let restarts = super::report::Summary::of(&self.restarts_ms).context("no daemon")?;
        let mut line = json!({
            "total": true,
            "seconds": self.begin.elapsed().as_secs(),
            "seed": self.wishes.seed,
            "daemons": self.generation,
            "killed": self.generation - 1,
            "restart_ms": [restarts.median.round(), restarts.max.round()],
            "livez_not_ok": self.deaf,
            "scrapes": self.scrapes,
            "calls": self.operator.calls,
            "attacks_begun_again": self.began_again,
        });
        let mut words = vec![format!(
            "{} s, {} daemons, {} killed; up in {:.0} ms (at most {:.0}); {} calls, {} scrapes, /livez not 200 {} times",
            self.begin.elapsed().as_secs(),
            self.generation,
            self.generation - 1,
            restarts.median,
            restarts.max,
            self.operator.calls,
            self.scrapes,
            self.deaf
        )];
        for h in &self.honest {
            let count = h.books.count();
            let [carried, restarting, still] = h.seconds.map(|s| s.as_secs());
            let mut of = row(count, count);
            of["seconds"] = json!({ "carried": carried, "restart": restarting, "still": still });
            of["still_s"] = h.stillest.as_secs().into();
            line[&h.name] = of;
            words.push(format!(
                "{}: {} begun = {} arrived + {} lost with a daemon; {} MB compared; {carried} s with traffic, {restarting} s of \
                 restarts, {still} s still",
                h.name,
                count.begun,
                count.done,
                count.lost,
                count.bytes / 1_000_000
            ));
        }
        self.show(&line, || words.join("\n"))
    }

    fn show(&self, line: &Value, text: impl Fn() -> String) -> Result<()> {
        use std::io::Write as _;
        let mut out = std::io::stdout().lock();
        if self.wishes.json {
            writeln!(out, "{line}")?;
        } else {
            writeln!(out, "{}", text())?;
        }
        out.flush().map_err(|e| anyhow!("writing a line: {e}"))
    }
}

fn row(fresh: Count, whole: Count) -> Value {
    json!({
        "begun": fresh.begun,
        "arrived": fresh.done,
        "lost_with_a_daemon": fresh.lost,
        "under_way": whole.under_way(),
        "bytes_compared": fresh.bytes,
    })
}
