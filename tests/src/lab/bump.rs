//! A bump in the wire: two hosts, each with a daemon, and one between them whose daemon has two ports that are one wire.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::hosts::two_cpus;
use super::{Host, Namespace, checkout};

/// Two ports that are one wire.
const BUMP: &str = "[[port]]\nname = \"p0\"\ntype = \"packet\"\nifname = \"eth0\"\nbridge = \"p1\"\n\
    [[port]]\nname = \"p1\"\ntype = \"packet\"\nifname = \"eth1\"\n";

/// The two hosts, each with an adapter `vf0` and a port to the wire, and the one between them.
pub struct Wire {
    /// The hosts at its ends.
    pub ends: [Host; 2],
    /// The host between them.
    pub bump: Host,
}

impl Wire {
    /// Starts the three daemons. The inner error says why this machine cannot.
    pub fn new() -> Result<Result<Wire, String>> {
        let (near, bump, far) = match (Namespace::new()?, Namespace::new()?, Namespace::new()?) {
            (Ok(near), Ok(bump), Ok(far)) => (near, bump, far),
            (Err(why), ..) | (_, Err(why), _) | (.., Err(why)) => return Ok(Err(why)),
        };
        near.veth("eth0", &bump, "eth0", 1500)?;
        far.veth("eth0", &bump, "eth1", 1500)?;
        let [first, last] = two_cpus()?;
        let end = |mac| {
            format!(
                "[[adapter]]\nname = \"vf0\"\nmac = \"{mac}\"\n[[port]]\nname = \"p0\"\ntype = \"packet\"\nifname = \"eth0\"\n"
            )
        };
        Ok(Ok(Wire {
            ends: [
                Host::start("near", near, first, &end("02:00:00:00:0b:01"))?,
                Host::start("far", far, last, &end("02:00:00:00:0b:02"))?,
            ],
            bump: Host::start("bump", bump, first, BUMP)?,
        }))
    }

    /// What is found, in a capture at the far end, of what `traffic` does under a scenario of `deploy/scenarios`. No rule is broken, as
    /// far as those of `more` say which count.
    pub fn run(&self, scenario: &str, more: &[&str], traffic: impl FnOnce() -> Result<()>) -> Result<Value> {
        let rules = checkout().join(format!("deploy/scenarios/{scenario}.toml"));
        let file = self.bump.path("scenario.toml");
        std::fs::write(&file, BUMP.to_owned() + &std::fs::read_to_string(rules)?)?;
        self.bump
            .ctl(&["apply", "-f", file.to_str().context("a name")?])?;
        let capture = self.bump.ctl(&["capture", "start", "--name", scenario, "p1"])?;
        traffic().with_context(|| scenario.to_owned())?;
        self.bump.ctl(&["capture", "stop", scenario])?;
        let path = capture["path"].as_str().context("a path")?;
        let found = self
            .bump
            .ctl(&[&["capture", "check", path, "--at", "p1"], more].concat())?;
        self.bump.ctl(&["fault", "remove", "--all"])?;
        println!("{scenario}: {found}");
        ensure!(found["broken_rules"] == 0, "{scenario}: {found}");
        Ok(found)
    }
}

/// The sum of a field over the flows that were found.
pub fn sum(found: &Value, field: &str) -> u64 {
    let flows = found["flows"].as_array().into_iter().flatten();
    flows.filter_map(|flow| flow[field].as_u64()).sum()
}
