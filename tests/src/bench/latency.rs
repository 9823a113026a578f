//! How long a frame of 64 bytes takes from one guest to the other, one thread driving both guests.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::exchange::pin;
use super::machine::RealTime;
use super::report::{Outcome, Summary};
use super::testpmd::guest_mac;
use super::{Lab, Run};
use crate::driver::{Guest, NetHdr, Options};

/// Frames of one round when the NIC is awake, and when it has to be woken for each.
const POLLED: usize = 20_000;
const WOKEN: usize = 200;
/// A pause after which the poll loop sleeps for sure.
const PAUSE: Duration = Duration::from_millis(2);
/// A frame is there long before this, or never.
const PATIENCE: Duration = Duration::from_secs(5);

/// `eth-latency`.
pub fn run(lab: &Lab) -> Result<Run> {
    // The thread that drives the guests is pinned; what starts other threads stays where it is.
    let figures = std::thread::scope(|s| s.spawn(|| measure(lab)).join());
    Ok(Run::Measured(
        figures.map_err(|_| anyhow::anyhow!("the guests' thread panicked"))??,
    ))
}

fn measure(lab: &Lab) -> Result<Vec<Outcome>> {
    let dir = lab.part()?;
    let product = lab.product(dir.path(), 2, true)?;
    let mut a = Guest::attach(product.socket(0), Options::default())?;
    let mut b = Guest::attach(product.socket(1), Options::default())?;
    product.wait_up(2, Duration::from_secs(20))?;
    pin(lab.cpus[1])?;
    let (to_b, to_a) = (frame(1, 0)?, frame(0, 1)?);
    let mut exchanges = Vec::new();
    // p50 and p99, awake and woken.
    let mut found: [Vec<f64>; 4] = Default::default();
    for round in 0..lab.rounds {
        exchanges.push(lab.exchange()?);
        let _priority = lab
            .realtime
            .then(|| RealTime::raise(&[product.pid()]))
            .transpose()?;
        for (kind, (frames, pause)) in [(POLLED, None), (WOKEN, Some(PAUSE))].into_iter().enumerate() {
            let mut times = Vec::with_capacity(frames);
            for n in 0..frames {
                if let Some(pause) = pause {
                    lab.sleep(pause)?;
                }
                times.push(if n % 2 == 0 {
                    one_way(&mut a, &mut b, &to_b)?
                } else {
                    one_way(&mut b, &mut a, &to_a)?
                });
            }
            times.sort_by(f64::total_cmp);
            found[2 * kind].push(times[times.len() / 2]);
            found[2 * kind + 1].push(times[times.len() * 99 / 100]);
        }
        let last = |i: usize| found[i].last().copied().unwrap_or_default();
        eprintln!(
            "eth-latency round {}/{}: awake {:.2} µs (p99 {:.2}), woken {:.1} µs (p99 {:.1})",
            round + 1,
            lab.rounds,
            last(0),
            last(1),
            last(2),
            last(3)
        );
    }
    let exchange = Summary::of(&exchanges).context("no rounds")?.median;
    let names = [
        "eth-latency-p50",
        "eth-latency-p99",
        "eth-latency-woken-p50",
        "eth-latency-woken-p99",
    ];
    let outcome = |(name, values): (&&str, &Vec<f64>)| {
        Ok(Outcome {
            name: (*name).into(),
            unit: "µs one way",
            value: Summary::of(values).context("no rounds")?,
            peer: None,
            ratio: None,
            bare_exchange: Some(exchange),
            rounds: lab.rounds,
            details: Vec::new(),
            notes: vec![if name.contains("woken") {
                "the NIC slept before each frame: with the guest's kick and the poll loop's wake-up".into()
            } else {
                "the NIC was awake; with the drivers' own work for both guests".into()
            }],
        })
    };
    names.iter().zip(&found).map(outcome).collect()
}

/// A frame of 64 bytes (with the FCS that virtio leaves out: 60) from one guest to the other.
fn frame(to: usize, from: usize) -> Result<[u8; 60]> {
    let mut frame = [0u8; 60];
    for (at, guest) in [(0, to), (6, from)] {
        let mac: vnic_backend::MacAddr = guest_mac(guest).parse()?;
        frame[at..at + 6].copy_from_slice(&mac.0);
    }
    // Local experimental ethertype (IEEE 802, clause 9.2.4).
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    Ok(frame)
}

/// From before the sender's driver is called until the receiver's has the frame, in µs.
fn one_way(from: &mut Guest, to: &mut Guest, frame: &[u8]) -> Result<f64> {
    let mut got = Vec::with_capacity(64);
    let start = Instant::now();
    if !from.send(0, frame, NetHdr::default()) {
        bail!("the sender's ring is full");
    }
    let mut looks = 0u32;
    while to.try_recv_into(0, &mut got).is_none() {
        std::hint::spin_loop();
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(1 << 16) && start.elapsed() > PATIENCE {
            bail!("a frame was lost");
        }
    }
    let time = start.elapsed();
    from.reclaim(0);
    Ok(time.as_secs_f64() * 1e6)
}
