//! What guests, VMMs and drivers do to take time or room from others. Tests, `vnic-bench hostile` and the torture run share
//! it: an attack is made at a pair of adapters of its own, and goes on a piece at a time.

mod ethernet;
pub mod evil;
mod rdma;
mod vmm;

use std::path::PathBuf;

use anyhow::Result;
use vnic_backend::MacAddr;

use super::rig::Dice;

pub use evil::Evil;
pub use rdma::dead_qp;
pub use vmm::full_call;

/// The attacker's adapters, both of them.
#[derive(Debug, Clone)]
pub struct Place {
    /// Sockets of their Ethernet functions.
    pub eth: [PathBuf; 2],
    /// Sockets of their RDMA functions.
    pub rdma: [PathBuf; 2],
    /// Their addresses.
    pub macs: [MacAddr; 2],
}

/// The next piece of an attack. It ends with an error when the daemon has had enough of it, or is gone.
pub type Attack = Box<dyn FnMut() -> Result<()>>;

/// A kind of attack.
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// What is done.
    pub what: &'static str,
    /// A piece of it waits for the daemon, or reaches everybody in its VLAN: no latency can be measured beside it.
    pub apart: bool,
    open: fn(&Place, Dice) -> Result<Attack>,
}

impl Kind {
    /// The attack of this name.
    pub fn named(name: &str) -> Option<&'static Kind> {
        ATTACKS.iter().find(|k| k.name == name)
    }

    /// Begins it.
    pub fn open(&self, place: &Place, dice: Dice) -> Result<Attack> {
        (self.open)(place, dice)
    }
}

const fn quick(name: &'static str, what: &'static str, open: fn(&Place, Dice) -> Result<Attack>) -> Kind {
    Kind {
        name,
        what,
        apart: false,
        open,
    }
}

const fn apart(name: &'static str, what: &'static str, open: fn(&Place, Dice) -> Result<Attack>) -> Kind {
    Kind {
        name,
        what,
        apart: true,
        open,
    }
}

/// All attacks.
pub static ATTACKS: &[Kind] = &[
    quick("kicks", "kicks of all rings, without a frame", ethernet::kicks),
    quick(
        "chains",
        "frames of 1024 descriptors, nearly all empty",
        ethernet::chains,
    ),
    quick(
        "pieces",
        "frames and buffers in pieces of 2 bytes",
        ethernet::pieces,
    ),
    quick(
        "segments",
        "60 KB to be cut into segments of 8 bytes",
        ethernet::segments,
    ),
    quick(
        "full-calls",
        "interrupts for each frame, to counters that are full",
        ethernet::full_calls,
    ),
    apart("floods", "frames to addresses that nobody has", ethernet::floods),
    quick("connects", "connections that end after a word", vmm::connects),
    quick(
        "dead-bells",
        "doorbells for queue pairs in ERR, 4096 requests each",
        rdma::dead_bells,
    ),
    quick(
        "full-cq",
        "completions for a queue that nobody takes from",
        rdma::full_cq,
    ),
    quick(
        "rings",
        "64 doorbell rings, full of bells for nobody",
        rdma::rings,
    ),
    quick("arms", "queues that are armed again and again", rdma::arms),
    quick("commands", "64 commands at a time", rdma::commands),
    quick(
        "registers",
        "REGISTER_MR with 2^18 extents, refused at the last",
        rdma::registers,
    ),
    quick("gids", "addresses that come and go", rdma::gids),
    quick(
        "rnr",
        "512 queue pairs that send to where nothing is posted",
        rdma::rnr,
    ),
    quick("atomics", "atomics, 16 queue pairs", rdma::atomics),
    quick("reads", "READs of 8 bytes, 16 queue pairs", rdma::reads),
    quick(
        "large-reads",
        "READs of 128 KiB, 16 queue pairs",
        rdma::large_reads,
    ),
    quick(
        "spans",
        "WRITEs between regions of the least extents",
        rdma::spans,
    ),
    apart(
        "lies",
        "descriptors by the dice, and a new connection for each",
        vmm::lies,
    ),
    apart("memory", "memory that is told anew under traffic", vmm::memory),
    apart("shrinks", "memory that is taken away under traffic", vmm::shrinks),
    apart("deaths", "RDMA drivers that die under traffic", rdma::deaths),
    apart("evil", "an RDMA driver that breaks every rule", rdma::evil),
];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::rdma::World;
    use super::super::rig::{Copies, wait_for};
    use super::*;

    #[test]
    fn each_attack_is_carried_out_and_the_nic_lives() -> Result<()> {
        for kind in ATTACKS {
            let world = World::new(1, &["a", "b"])?;
            let mac = |name: &str| world.rig.nic.adapter(name).map(|a| a.spec.macs[0]);
            let place = Place {
                eth: ["a", "b"].map(|name| world.rig.socket(name)),
                rdma: ["a", "b"].map(|name| world.socket(name)),
                macs: [mac("a")?, mac("b")?],
            };
            let mut attack = kind.open(&place, Dice::new(1))?;
            for _ in 0..100 {
                attack()?;
            }
            std::thread::sleep(Duration::from_millis(2));
            attack()?;
            drop(attack);
            let panics = world.rig.core_counter("panics");
            assert!(wait_for(|| world.objects("a").is_empty()), "{}", kind.name);
            assert_eq!(panics, 0, "{}", kind.name);
            world.rig.finish(Copies::Unknown)?;
        }
        Ok(())
    }
}
