//! A bump in the wire between two hosts with the real daemon: what the scenarios of `deploy/scenarios` put in is found in a capture at
//! the responder, and the engines at both ends do as the standard says.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use vnic_tests::lab::hosts::two_cpus;
use vnic_tests::lab::load::Pairs;
use vnic_tests::lab::{Host, Namespace, checkout};

/// Two ports that are one wire.
const BUMP: &str = "[[port]]\nname = \"p0\"\ntype = \"packet\"\nifname = \"eth0\"\nbridge = \"p1\"\n\
    [[port]]\nname = \"p1\"\ntype = \"packet\"\nifname = \"eth1\"\n";

/// The two hosts, and the one between them.
struct Wire {
    ends: [Host; 2],
    bump: Host,
}

fn wire() -> Result<Option<Wire>> {
    let (near, bump, far) = match (Namespace::new()?, Namespace::new()?, Namespace::new()?) {
        (Ok(near), Ok(bump), Ok(far)) => (near, bump, far),
        (Err(why), ..) | (_, Err(why), _) | (.., Err(why)) => {
            println!("skipped: {why}");
            return Ok(None);
        }
    };
    near.veth("eth0", &bump, "eth0", 1500)?;
    far.veth("eth0", &bump, "eth1", 1500)?;
    let [first, last] = two_cpus()?;
    let end = |mac| {
        format!(
            "[[adapter]]\nname = \"vf0\"\nmac = \"{mac}\"\n[[port]]\nname = \"p0\"\ntype = \"packet\"\nifname = \"eth0\"\n"
        )
    };
    Ok(Some(Wire {
        ends: [
            Host::start("near", near, first, &end("02:00:00:00:0b:01"))?,
            Host::start("far", far, last, &end("02:00:00:00:0b:02"))?,
        ],
        bump: Host::start("bump", bump, first, BUMP)?,
    }))
}

impl Wire {
    /// What is found of writes under a scenario.
    fn run(&self, scenario: &str) -> Result<Value> {
        let rules = checkout().join(format!("deploy/scenarios/{scenario}.toml"));
        let file = self.bump.path("scenario.toml");
        std::fs::write(&file, BUMP.to_owned() + &std::fs::read_to_string(rules)?)?;
        self.bump
            .ctl(&["apply", "-f", file.to_str().context("a name")?])?;
        let capture = self.bump.ctl(&["capture", "start", "--name", scenario, "p1"])?;
        // New queue pairs: their numbers begin anew.
        Pairs::connect([&self.ends[0], &self.ends[1]], 2)?.write(60)?;
        self.bump.ctl(&["capture", "stop", scenario])?;
        let path = Path::new(capture["path"].as_str().context("a path")?)
            .display()
            .to_string();
        let found = self.bump.ctl(&["capture", "check", &path, "--at", "p1"])?;
        self.bump.ctl(&["fault", "remove", "--all"])?;
        println!("{scenario}: {found}");
        ensure!(found["broken_rules"] == 0, "{scenario}: {found}");
        let flows = found["flows"].as_array().context("flows")?;
        ensure!(flows.len() == 2, "{scenario}: {found}");
        Ok(found)
    }
}

fn sum(found: &Value, field: &str) -> u64 {
    let flows = found["flows"].as_array().into_iter().flatten();
    flows.filter_map(|flow| flow[field].as_u64()).sum()
}

#[test]
fn what_is_put_into_the_wire_is_found() -> Result<()> {
    let Some(wire) = wire()? else {
        return Ok(());
    };
    // Both ends react to marks.
    for end in &wire.ends {
        end.ctl(&["cc", "enable", "vf0", "0"])?;
    }
    let found = wire.run("drop-one")?;
    ensure!(found["dropped_frames"] == 1 && sum(&found, "gaps") >= 1 && sum(&found, "naks") >= 1);
    let found = wire.run("drop-twice")?;
    ensure!(found["dropped_frames"] == 2);
    let found = wire.run("corrupt-one")?;
    ensure!(sum(&found, "corrupt") == 1 && sum(&found, "naks") >= 1);
    let found = wire.run("mark-some")?;
    ensure!(sum(&found, "marked") > 0 && found["notifications"] != json!([]));
    wire.run("lose-acks")?;
    let found = wire.run("swap-some")?;
    ensure!(sum(&found, "gaps") > 0 && sum(&found, "naks") > 0);
    Ok(())
}
