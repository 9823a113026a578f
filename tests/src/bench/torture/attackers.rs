//! Attackers: processes, so that they may be killed in the middle of what they do.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::bench::testpmd::guest_mac;
use crate::driver::attacks::{ATTACKS, Kind, Place};
use crate::driver::rig::Dice;

/// Set for a process that attacks: the kind, a seed, the first of its two adapters, the directory of the sockets.
const ATTACKER: &str = "VNIC_TORTURE_ATTACKER";
/// Attackers leave the CPU to others.
const NICE: i32 = 10;

/// An attacker at work.
pub(super) struct Attacker {
    /// What it does.
    pub(super) kind: &'static Kind,
    /// The first of its adapters.
    pub(super) first: usize,
    child: Child,
    /// How often it ended by itself: an attack that the daemon has had enough of begins again.
    pub(super) again: u64,
    dice: Dice,
}

/// One of the attacks.
pub(super) fn any(dice: &mut Dice, only: Option<&str>) -> &'static Kind {
    let wanted = ATTACKS
        .iter()
        .filter(|k| only.is_none_or(|o| o == k.name))
        .collect::<Vec<&'static Kind>>();
    wanted[dice.below(wanted.len() as u64) as usize]
}

fn start(kind: &Kind, first: usize, dir: &Path, seed: u64) -> Result<Child> {
    let child = Command::new(std::env::current_exe()?)
        .arg("torture")
        .env(
            ATTACKER,
            format!("{} {seed} {first} {}", kind.name, dir.display()),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    child.context("starting an attacker")
}

impl Attacker {
    pub(super) fn start(kind: &'static Kind, first: usize, dir: &Path, mut dice: Dice) -> Result<Attacker> {
        Ok(Attacker {
            kind,
            first,
            child: start(kind, first, dir, dice.bits())?,
            again: 0,
            dice,
        })
    }

    /// Sees to it that it goes on.
    pub(super) fn tend(&mut self, dir: &Path) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            self.again += 1;
            self.child = start(self.kind, self.first, dir, self.dice.bits())?;
        }
        Ok(())
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In an attacker's process: attacks until it is killed.
pub(super) fn be_one() -> Option<Result<()>> {
    let words = std::env::var(ATTACKER).ok()?;
    Some(attack(&words))
}

fn attack(words: &str) -> Result<()> {
    // Whatever happens to the run, its attackers do not outlive it.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    rustix::process::nice(NICE)?;
    let mut words = words.splitn(4, ' ');
    let mut word = || words.next().context("four words");
    let (kind, seed, first, dir) = (word()?, word()?, word()?, Path::new(word()?));
    let kind = Kind::named(kind).context("no such attack")?;
    let (mut dice, first): (_, usize) = (Dice::new(seed.parse()?), first.parse()?);
    let socket = |function: &str| [0, 1].map(|i| dir.join(format!("vf{}-{function}.sock", first + i)));
    let place = Place {
        eth: socket("eth"),
        rdma: socket("rdma"),
        macs: [guest_mac(first).parse()?, guest_mac(first + 1).parse()?],
    };
    let mut attack = kind.open(&place, Dice::new(dice.bits()))?;
    loop {
        attack()?;
        if dice.below(16) == 0 {
            std::thread::sleep(Duration::from_micros(dice.below(200)));
        }
    }
}
