//! A guest that stops taking buffers, end to end: the real daemon, its command line, a Linux that is held in the middle of its
//! work (SIGSTOP), and a sender that fills its receive ring within microseconds.
//!
//! The clock is not judged. A pause that is told to last 4 ms may last longer on a busy machine; so it is tried until one was
//! short enough, which the daemon says itself: frames waited, and no timer ran out. Then nothing may be lost. The pauses that
//! must be too long last until the daemon has said that they were.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use vnic_backend::MacAddr;
use vnic_tests::driver::packets::{Number, numbered};
use vnic_tests::driver::{Guest as Driver, NetHdr, Options};
use vnic_tests::lab::{self, Daemon, Guest, GuestSpec, Lab, PATIENCE, wait_for};

/// One queue pair, as User-Mode-Linux wants it.
const CONFIG: &str = r#"
[[adapter]]
name = "vf0"
queue_pairs = 1
anti_spoofing = false

[[adapter]]
name = "vf1"
queue_pairs = 1
"#;

/// The OID of dropless mode, and what is written to switch it: a signature, and 1 (on, 5 ms) or 2 (off).
const OID: &str = "0xFFA0C932";
const ON: &str = "a21e0c0001";
const OFF: &str = "a21e0c0002";

/// Frames of a burst: more than the guest's receive ring (256) has room for.
const FRAMES: u64 = 900;
/// Windows' event numbers.
const TIMEOUT: u64 = 75;
const ENTERED: u64 = 77;
const EXITED: u64 = 78;

struct Scene<'a> {
    daemon: Daemon<'a>,
    guest: Guest,
    sender: Driver,
    to: MacAddr,
    from: MacAddr,
}

impl Scene<'_> {
    fn new(lab: &Lab) -> Result<Scene<'_>> {
        let daemon = Daemon::with_config(lab, CONFIG)?;
        let (from, to) = (daemon.mac("vf0")?, daemon.mac("vf1")?);
        let spec = GuestSpec::new("vm", &lab.path("vf1-eth.sock"), &to, "10.0.0.2/24");
        let mut guest = Guest::uml(lab, &spec)?;
        guest.wait_ready()?;
        guest.has_network()?;
        let options = Options {
            queue_size: 1024,
            ..Options::default()
        };
        let sender = Driver::attach(lab.path("vf0-eth.sock"), options)?;
        for adapter in ["vf0", "vf1"] {
            daemon.wait_up(adapter)?;
        }
        // Nothing but our frames from now on.
        guest.ok("sysctl -q -w net.ipv6.conf.all.disable_ipv6=1 || true")?;
        Ok(Scene {
            daemon,
            guest,
            sender,
            to: address(&to)?,
            from: address(&from)?,
        })
    }

    /// Queues a burst and tells the daemon of all at once.
    fn burst(&mut self) {
        for seq in 0..FRAMES {
            let n = Number {
                sender: 0,
                stream: 0,
                seq,
            };
            let f = numbered(self.to, self.from, n, 200);
            assert!(self.sender.stage(0, &f, NetHdr::default()), "room for all");
        }
        self.sender.ring(1).publish();
    }

    fn count(&self, name: &str) -> Result<u64> {
        self.daemon.counter("vf1", name)
    }

    /// Frames for the guest that were dropped.
    fn dropped(&self) -> Result<u64> {
        self.count("drops")
    }

    /// Frames that the guest's kernel has received.
    fn received(&mut self) -> Result<u64> {
        let text = self.guest.ok("cat /sys/class/net/eth0/statistics/rx_packets")?;
        text.trim().parse().with_context(|| format!("{text:?}"))
    }

    /// Waits until the guest has received so many more than `before`; answers when it has all of them.
    fn receives(&mut self, before: u64, frames: u64) -> Result<()> {
        wait_for("the guest's frames", PATIENCE, || {
            let got = self.received()? - before;
            ensure!(got >= frames, "{got} of {frames}");
            Ok(())
        })?;
        let got = self.received()? - before;
        ensure!(got == frames, "the guest got {got} frames, not {frames}");
        Ok(())
    }

    fn switch(&self, bytes: &str) -> Result<()> {
        self.daemon.ctl(&["oid", "set", "vf1", OID, "--hex", bytes])?;
        Ok(())
    }

    /// Stores values of keys of the adapter.
    fn store(&self, pairs: &[&str]) -> Result<()> {
        self.daemon.ctl(&[&["registry", "set", "vf1"], pairs].concat())?;
        Ok(())
    }

    /// What the OID says: 1 or 0 behind the signature.
    fn is_on(&self) -> Result<bool> {
        let answer = self.daemon.ctl(&["oid", "query", "vf1", OID])?;
        // Signature and mode, in base64, and what pads the structure.
        match answer["data"].as_str() {
            Some(data) if data.starts_with("oh4MAAE") => Ok(true),
            Some(data) if data.starts_with("oh4MAAA") => Ok(false),
            _ => bail!("the OID says {answer}"),
        }
    }

    /// Numbers of the events about dropless mode, in their order.
    fn events(&self) -> Result<Vec<u64>> {
        let list = self.daemon.ctl(&["event", "list"])?;
        let events = list["events"].as_array().context("no events")?;
        let ids = events.iter().filter(|e| e["adapter"] == "adapters/vf1");
        Ok(ids
            .filter_map(|e| e["id"].as_u64())
            .filter(|id| [TIMEOUT, ENTERED, EXITED].contains(id))
            .collect())
    }

    /// Waits until these events follow those that were there `before`.
    fn tells(&self, before: usize, wanted: &[u64]) -> Result<()> {
        wait_for("events", PATIENCE, || {
            let events = self.events()?;
            ensure!(events.get(before..) == Some(wanted), "{events:?}");
            Ok(())
        })
    }
}

fn address(text: &str) -> Result<MacAddr> {
    let bytes: Result<Vec<u8>, _> = text.split(':').map(|b| u8::from_str_radix(b, 16)).collect();
    match bytes?.try_into() {
        Ok(six) => Ok(MacAddr(six)),
        Err(_) => bail!("{text} is no address"),
    }
}

#[test]
fn a_guest_that_stops_taking_buffers() {
    lab::case("uml-dropless", |lab| {
        let mut scene = Scene::new(lab)?;
        without_the_mode(&mut scene)?;
        lab.step("off: what finds no buffer is lost");
        let tries = in_time(&mut scene)?;
        lab.step(&format!(
            "on: nothing is lost ({tries} pauses until one was short enough)"
        ));
        too_late(&mut scene)?;
        lab.step("on: who waits too long ends the mode");
        by_hand(&scene)?;
        lab.step("on and off by hand, by the OID and by the key");
        the_reserve(&mut scene)?;
        lab.step("a burst waits in the reserve");
        ensure!(scene.daemon.stop()?.success(), "vnicd did not end well");
        Ok(())
    });
}

/// The mode is off, as it is until somebody switches it on: the sender is never held up, and its frames are lost.
fn without_the_mode(scene: &mut Scene<'_>) -> Result<()> {
    ensure!(
        !scene.is_on()? && scene.events()?.is_empty(),
        "nobody has switched it on"
    );
    let (before, lost) = (scene.received()?, scene.dropped()?);
    scene.guest.freeze()?;
    scene.burst();
    scene.sender.drain();
    std::thread::sleep(Duration::from_millis(4));
    scene.guest.thaw()?;
    let lost = scene.dropped()? - lost;
    ensure!(lost > 0 && lost < FRAMES, "{lost} of {FRAMES} frames were lost");
    scene.receives(before, FRAMES - lost)?;
    ensure!(scene.count("rx_waited")? == 0, "frames waited");
    Ok(())
}

/// The mode is on, and the guest stands still for less than a frame may wait: nothing is lost. Answers how many tries that
/// took.
fn in_time(scene: &mut Scene<'_>) -> Result<u32> {
    let end = Instant::now() + PATIENCE;
    for attempt in 1.. {
        ensure!(
            Instant::now() < end,
            "no pause was short enough in {attempt} tries"
        );
        if !scene.is_on()? {
            let events = scene.events()?.len();
            scene.switch(ON)?;
            scene.tells(events, &[ENTERED])?;
        }
        let before = scene.received()?;
        let (lost, waited, late) = (
            scene.dropped()?,
            scene.count("rx_waited")?,
            scene.count("dropless_timeouts")?,
        );
        scene.guest.freeze()?;
        scene.burst();
        std::thread::sleep(Duration::from_millis(4));
        scene.guest.thaw()?;
        scene.sender.drain();
        let lost = wait_for("all frames", PATIENCE, || {
            let lost = scene.dropped()? - lost;
            let got = scene.received()? - before;
            ensure!(got + lost == FRAMES, "{got} came and {lost} were lost");
            Ok(lost)
        })?;
        ensure!(scene.count("rx_waited")? > waited, "no frame waited");
        if scene.count("dropless_timeouts")? == late {
            ensure!(lost == 0, "{lost} frames were lost, and no timer ran out");
            ensure!(scene.is_on()?, "the mode is off");
            return Ok(attempt);
        }
    }
    bail!("never reached")
}

/// The mode is on, and the guest stands still until the daemon has had enough.
fn too_late(scene: &mut Scene<'_>) -> Result<()> {
    let before = scene.received()?;
    let (lost, late, events) = (
        scene.dropped()?,
        scene.count("dropless_timeouts")?,
        scene.events()?.len(),
    );
    ensure!(scene.is_on()?, "the mode is on");
    scene.guest.freeze()?;
    scene.burst();
    scene.tells(events, &[TIMEOUT])?;
    // The sender is let go while the guest still stands still.
    scene.sender.drain();
    ensure!(!scene.is_on()?, "the mode is on");
    ensure!(scene.count("dropless_timeouts")? == late + 1, "one timer ran out");
    scene.guest.thaw()?;
    let lost = scene.dropped()? - lost;
    ensure!(lost > 0 && lost < FRAMES, "{lost} of {FRAMES} frames were lost");
    scene.receives(before, FRAMES - lost)?;
    // It stays off, and that is all that was told.
    scene.tells(events, &[TIMEOUT])
}

fn by_hand(scene: &Scene<'_>) -> Result<()> {
    let events = scene.events()?.len();
    scene.switch(ON)?;
    ensure!(scene.is_on()?, "switched on");
    scene.switch(OFF)?;
    ensure!(!scene.is_on()?, "switched off");
    scene.tells(events, &[ENTERED, EXITED])?;
    // An illegal value falls back to the default, which is on.
    scene.store(&["DelayDropTimeout", "101"])?;
    ensure!(scene.is_on()?, "switched on by the key");
    scene.store(&["DelayDropTimeout", "0"])?;
    ensure!(!scene.is_on()?, "switched off by the key");
    scene.tells(events, &[ENTERED, EXITED, ENTERED, EXITED])?;
    let list = scene.daemon.ctl(&["event", "list"])?;
    let said = |id: u64, text: &str| {
        let all = list["events"].as_array().into_iter().flatten();
        let mut ours = all.filter(|e| e["id"].as_u64() == Some(id));
        ours.any(|e| e["message"].as_str().is_some_and(|m| m.contains(text)))
    };
    ensure!(said(ENTERED, "Dropless mode entered"), "{list}");
    ensure!(said(EXITED, "Dropless mode exited"), "{list}");
    ensure!(said(TIMEOUT, "timed out for RQ Index 0"), "{list}");
    Ok(())
}

/// The mode is off, but bursts wait in a reserve: nothing is lost, however long the guest stands still.
fn the_reserve(scene: &mut Scene<'_>) -> Result<()> {
    scene.store(&["RfdReservationFactor", "10000"])?;
    for mode in ["1", "2"] {
        scene.store(&["AsyncReceiveIndicate", mode])?;
        let before = scene.received()?;
        let (lost, waited) = (scene.dropped()?, scene.count("rx_waited")?);
        scene.guest.freeze()?;
        scene.burst();
        scene.sender.drain();
        ensure!(scene.count("rx_waited")? > waited, "no frame waited");
        ensure!(scene.dropped()? == lost, "frames were lost");
        scene.guest.thaw()?;
        scene.receives(before, FRAMES)?;
    }
    // Off again, and frames are lost again.
    scene.store(&["AsyncReceiveIndicate", "0"])?;
    let lost = scene.dropped()?;
    scene.guest.freeze()?;
    scene.burst();
    scene.sender.drain();
    ensure!(scene.dropped()? > lost, "no frame was lost");
    scene.guest.thaw()
}
