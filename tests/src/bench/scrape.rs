//! What a scrape of the metrics costs: its own time, and what a guest's traffic loses by a scraper once a second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::ethernet::{self, LOOP, PATIENCE};
use super::hugepages::HugePages;
use super::machine::RealTime;
use super::product::{self, Product, Setup};
use super::report::{Outcome, Summary, percentile};
use super::testpmd::{MEMORY_BYTES, Testpmd};
use super::{Lab, Run, WARM_UP};

/// A host full of virtual machines. Each adapter has its RDMA function.
const ADAPTERS: usize = 64;
/// As Prometheus is often told to.
const EVERY: Duration = Duration::from_secs(1);

/// Frames that the guest has received, all ports together.
fn received(guest: &mut Testpmd) -> Result<u64> {
    let mut sum = 0;
    for port in 0..2 {
        sum += guest.stats(port)?.received;
    }
    Ok(sum)
}

/// Scrapes in the middle of each second until told to stop; answers how long each took, in milliseconds.
fn scraper(address: &str, stop: &AtomicBool) -> Result<Vec<f64>> {
    let mut times = Vec::new();
    let mut due = Instant::now() + EVERY / 2;
    while !stop.load(Ordering::Relaxed) {
        if Instant::now() < due {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        due += EVERY;
        let start = Instant::now();
        let page = product::scrape(address)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        ensure!(
            page.contains("vnic_rdma_up{adapter=\"vf63\"}"),
            "an adapter is missing from the page"
        );
    }
    Ok(times)
}

/// Million frames a second.
fn rate(lab: &Lab, guest: &mut Testpmd, window: Duration) -> Result<f64> {
    let (start, first) = (Instant::now(), received(guest)?);
    lab.sleep(window)?;
    let (elapsed, last) = (start.elapsed(), received(guest)?);
    ensure!(last > first, "no frame went through the NIC");
    Ok((last - first) as f64 / elapsed.as_secs_f64() / 1e6)
}

/// The same with a scraper beside it.
fn rate_scraped(
    lab: &Lab,
    guest: &mut Testpmd,
    window: Duration,
    address: &str,
    times: &mut Vec<f64>,
) -> Result<f64> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let scraper = s.spawn(|| scraper(address, &stop));
        let rate = rate(lab, guest, window);
        stop.store(true, Ordering::Relaxed);
        let scraped = scraper
            .join()
            .map_err(|_| anyhow::anyhow!("the scraper panicked"))?;
        times.extend(scraped?);
        rate
    })
}

/// `scrape`.
pub fn run(lab: &Lab) -> Result<Run> {
    let Some(vnicd) = &lab.vnicd else {
        return Ok(Run::Skipped(
            "it scrapes a daemon: none is beside this program, name one with --vnicd PATH".into(),
        ));
    };
    if !Testpmd::present(&lab.testpmd) {
        let program = lab.testpmd.display();
        return Ok(Run::Skipped(format!(
            "{program} cannot be run (Debian: package dpdk-dev)"
        )));
    }
    let _pages = HugePages::reserve(2 * MEMORY_BYTES)?;
    let dir = lab.part()?;
    let product = Product::start(&Setup {
        dir: dir.path(),
        cpu: lab.cpus[0],
        adapters: ADAPTERS,
        queue_pairs: 1,
        control_queue: false,
        anti_spoofing: false,
        mtu: 1500,
        vnicd: Some(vnicd),
        first_guest: 0,
        uplinks: &[],
    })?;
    let address = product.metrics().context("a daemon has metrics")?.to_owned();
    let sockets = [product.socket(0), product.socket(1)];
    let mut guest = ethernet::guest(lab, &LOOP, dir.path(), &sockets)?;
    product.wait_up(2, PATIENCE)?;
    ethernet::go(&mut guest, &LOOP)?;
    lab.sleep(WARM_UP)?;

    // Shorter than a second, a window would be scraped more often than once a second.
    let window = lab.window.max(EVERY);
    let (mut times, mut with, mut without) = (Vec::new(), Vec::new(), Vec::new());
    {
        let pids = [product.pid(), guest.pid()];
        let _priority = lab.realtime.then(|| RealTime::raise(&pids)).transpose()?;
        for round in 0..lab.rounds {
            // Whoever goes first in one round goes second in the next.
            if round % 2 == 0 {
                with.push(rate_scraped(lab, &mut guest, window, &address, &mut times)?);
                without.push(rate(lab, &mut guest, window)?);
            } else {
                without.push(rate(lab, &mut guest, window)?);
                with.push(rate_scraped(lab, &mut guest, window, &address, &mut times)?);
            }
            eprintln!(
                "scrape round {}/{}: {:.2} Mpps with a scraper, {:.2} Mpps without, ratio {:.3}",
                round + 1,
                lab.rounds,
                with[round],
                without[round],
                with[round] / without[round]
            );
        }
    }
    guest.quit()?;
    let ratios: Vec<f64> = with.iter().zip(&without).map(|(a, b)| a / b).collect();
    let what = format!("{ADAPTERS} adapters with RDMA functions; a guest behind two of them forwards frames");
    let summary = |values: &[f64]| Summary::of(values).context("no value");
    Ok(Run::Measured(vec![
        Outcome {
            name: "scrape".into(),
            unit: "ms",
            value: summary(&times)?,
            peer: None,
            ratio: None,
            bare_exchange: None,
            rounds: times.len(),
            details: Vec::new(),
            notes: vec![
                format!(
                    "99 of 100 took at most {:.1} ms",
                    percentile(&sorted(&times), 0.99)
                ),
                what.clone(),
            ],
        },
        Outcome {
            name: "scrape-eth-loop".into(),
            unit: "Mpps",
            value: summary(&with)?,
            peer: Some(("without a scraper", summary(&without)?)),
            ratio: Some(summary(&ratios)?),
            bare_exchange: None,
            rounds: lab.rounds,
            details: Vec::new(),
            notes: vec![format!("one scrape a second; {what}")],
        },
    ]))
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}
