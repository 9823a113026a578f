//! Two guests on the adapters `vf0` and `vf1`, as most cases want them.

use anyhow::{Result, ensure};

use super::{Daemon, Guest, GuestSpec, Iperf, Lab, Ping};

/// Two guests, ready: 10.0.0.1 (fd00::1) on `vf0` and 10.0.0.2 (fd00::2) on `vf1`.
#[derive(Debug)]
pub struct Pair {
    /// The guest on `vf0`.
    pub one: Guest,
    /// The guest on `vf1`.
    pub two: Guest,
}

impl Pair {
    /// Boots two machines side by side with `start` ([`Guest::qemu`] or [`Guest::uml`]); `shape` may change
    /// what number 1 and 2 are made from.
    pub fn boot(
        lab: &Lab,
        daemon: &Daemon,
        start: fn(&Lab, &GuestSpec) -> Result<Guest>,
        shape: impl Fn(u8, &mut GuestSpec),
    ) -> Result<Pair> {
        let spec = |n: u8| -> Result<GuestSpec> {
            let adapter = format!("vf{}", n - 1);
            let socket = lab.path(&format!("{adapter}-eth.sock"));
            let mac = daemon.mac(&adapter)?;
            let mut spec = GuestSpec::new(&format!("vm{n}"), &socket, &mac, &format!("10.0.0.{n}/24"));
            spec.ip6 = Some(format!("fd00::{n}/64"));
            shape(n, &mut spec);
            Ok(spec)
        };
        let pair = Pair::start(lab, &[spec(1)?, spec(2)?], start)?;
        daemon.wait_up("vf0")?;
        daemon.wait_up("vf1")?;
        Ok(pair)
    }

    /// Boots two machines side by side.
    pub fn start(
        lab: &Lab,
        [one, two]: &[GuestSpec; 2],
        start: fn(&Lab, &GuestSpec) -> Result<Guest>,
    ) -> Result<Pair> {
        let mut one = start(lab, one)?;
        let mut two = start(lab, two)?;
        one.wait_ready()?;
        two.wait_ready()?;
        one.has_network()?;
        two.has_network()?;
        lab.step("both machines have booted");
        Ok(Pair { one, two })
    }

    /// Both have never been reset since `before` ([`Pair::boot_ids`]).
    pub fn not_rebooted(&mut self, before: &[String; 2]) -> Result<()> {
        let now = self.boot_ids()?;
        ensure!(
            now == *before,
            "a guest has rebooted: {before:?} before, {now:?} now"
        );
        Ok(())
    }

    /// What differs after a reboot.
    pub fn boot_ids(&mut self) -> Result<[String; 2]> {
        Ok([self.one.boot_id()?, self.two.boot_id()?])
    }
}

/// `ping ARGUMENTS` in the guest: nothing lost, doubled or out of order.
pub fn ping(guest: &mut Guest, arguments: &str) -> Result<()> {
    let (_, text) = guest.run(&format!("ping {arguments}"))?;
    let ping = Ping::parse(&text)?;
    ensure!(ping.is_perfect(), "{}: ping {arguments}: {text}", guest.name());
    Ok(())
}

/// `iperf3 ARGUMENTS` in the guest: something arrived.
pub fn iperf(guest: &mut Guest, arguments: &str) -> Result<Iperf> {
    let (exit, text) = guest.run(&format!("iperf3 {arguments} -i 0 -J"))?;
    let report = Iperf::parse(&text)?;
    ensure!(
        exit == 0 && report.received > 0 && report.packets != Some(0),
        "{}: iperf3 {arguments} ended with {exit} and moved nothing: {text}",
        guest.name()
    );
    Ok(report)
}
