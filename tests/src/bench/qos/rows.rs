//! The mixes.

use std::time::Duration;

use anyhow::{Result, ensure};
use vnic_backend::{DropReason, Nic, QosSpec, Tsa};

use super::super::Lab;
use super::super::exchange::pin;
use super::super::hugepages::HugePages;
use super::super::machine::CpuTime;
use super::super::product::Product;
use super::super::report::{Outcome, Summary};
use super::super::testpmd::MEMORY_BYTES;
use super::series::Series;
use super::traffic::{Extra, Load, Nobody, Sink, Source, drain, drive};
use super::{
    Row, Stream, Threads, WARM_UP, dpdk, ets, house, machine, outcome, outcomes, rounds, set, stream, time,
};

/// A frame of a full-sized packet, without FCS.
const FULL: usize = 1514;
const GIGA: f64 = 1e9;
/// Name of the thread of guests in this process.
const GUESTS: &str = "qos-guests";

pub(super) const ALL: &[Row] = &[
    Row {
        name: "ets-50-50-dpdk",
        needs_testpmd: true,
        run: |lab| ets_dpdk(lab, "ets-50-50-dpdk", [50, 50]),
    },
    Row {
        name: "ets-16-80-dpdk",
        needs_testpmd: true,
        run: |lab| ets_dpdk(lab, "ets-16-80-dpdk", [16, 80]),
    },
    Row {
        name: "ets-16-80",
        needs_testpmd: false,
        run: ets_sizes,
    },
    Row {
        name: "strict",
        needs_testpmd: false,
        run: strict,
    },
    Row {
        name: "vm-1g-dpdk",
        needs_testpmd: true,
        run: |lab| limit_dpdk(lab, "vm-1g-dpdk", 1.0),
    },
    Row {
        name: "vm-5g-dpdk",
        needs_testpmd: true,
        run: |lab| limit_dpdk(lab, "vm-5g-dpdk", 5.0),
    },
    Row {
        name: "vm-10g-dpdk",
        needs_testpmd: true,
        run: |lab| limit_dpdk(lab, "vm-10g-dpdk", 10.0),
    },
    Row {
        name: "class-1g",
        needs_testpmd: false,
        run: |lab| limit_class(lab, "class-1g", 1.0),
    },
    Row {
        name: "class-5g",
        needs_testpmd: false,
        run: |lab| limit_class(lab, "class-5g", 5.0),
    },
    Row {
        name: "class-10g",
        needs_testpmd: false,
        run: |lab| limit_class(lab, "class-10g", 10.0),
    },
    Row {
        name: "guarantee",
        needs_testpmd: false,
        run: guarantee,
    },
    Row {
        name: "queues-64",
        needs_testpmd: false,
        run: queues,
    },
    Row {
        name: "rdma-ets",
        needs_testpmd: false,
        run: |lab| rdma_ets(lab, "rdma-ets", 0, [50, 50]),
    },
    Row {
        name: "rdma-ets-sender",
        needs_testpmd: false,
        run: |lab| rdma_ets(lab, "rdma-ets-sender", 1, [30, 70]),
    },
    Row {
        name: "rdma-8-writers",
        needs_testpmd: false,
        run: rdma_writers,
    },
    Row {
        name: "incast",
        needs_testpmd: false,
        run: incast,
    },
];

/// Guests in this process through a house whose sink is `vf0`.
struct Setting<'a> {
    lab: &'a Lab,
    product: Product,
    nic: Nic,
    sink: Sink,
    sources: Vec<Source>,
    _dir: tempfile::TempDir,
}

impl<'a> Setting<'a> {
    fn new(lab: &'a Lab, loads: &[Load], streams: usize, ring: u16) -> Result<Setting<'a>> {
        let dir = lab.part()?;
        let adapters = 1 + loads.iter().map(|l| l.adapter).max().unwrap_or(0);
        let (product, nic) = house(lab, &dir, adapters)?;
        let sink = Sink::attach(&product, 0, streams)?;
        let sources = loads
            .iter()
            .map(|load| Source::attach(&product, 0, *load, ring))
            .collect::<Result<Vec<_>>>()?;
        product.wait_up(1 + sources.len(), Duration::from_secs(20))?;
        Ok(Setting {
            lab,
            product,
            nic,
            sink,
            sources,
            _dir: dir,
        })
    }

    /// All rounds; the guests' thread is pinned to the sending side's CPU.
    fn run(&mut self, extra: &mut (dyn Extra + Send)) -> Result<Vec<Series>> {
        let (cpu, count, time) = (self.lab.cpus[1], rounds(self.lab), time(self.lab));
        let lab = self.lab;
        let (sources, sink) = (&mut self.sources, &mut self.sink);
        let guests = || CpuTime::of(std::process::id(), GUESTS);
        let body = move || -> Result<Vec<Series>> {
            pin(cpu)?;
            let mut all = Vec::with_capacity(count);
            for _ in 0..count {
                let before = Threads::now(guests());
                let mut series = drive(sources, sink, extra, WARM_UP, time)?;
                series.share = before.share(&Threads::now(guests()));
                all.push(series);
                ensure!(!lab.interrupted(), "interrupted");
            }
            drain(sources, sink, Duration::from_millis(200));
            Ok(all)
        };
        let done = std::thread::scope(|s| {
            let thread = std::thread::Builder::new().name(GUESTS.to_owned());
            Ok::<_, std::io::Error>(thread.spawn_scoped(s, body)?.join())
        })?;
        done.map_err(|_| anyhow::anyhow!("the guests' thread panicked"))?
    }
}

/// A source of full-sized frames.
fn load(adapter: usize, stream: u16, priority: u8, rate: f64) -> Load {
    Load {
        adapter,
        stream,
        dscp: 8 * priority,
        frame: FULL,
        rate,
    }
}

/// Two ports of a DPDK guest send into the third, whose rate is limited. Their packets have no DSCP: the priority is that
/// of the sender's port, which the switch writes into the tag that the receiver sees.
fn ets_dpdk(lab: &Lab, row: &str, shares: [u8; 2]) -> Result<Vec<Outcome>> {
    const RATE: f64 = 5.0 * GIGA;
    let _pages = HugePages::reserve(MEMORY_BYTES)?;
    let dir = lab.part()?;
    let (product, nic) = dpdk::house(lab, &dir, 3)?;
    for (adapter, priority) in [(0, 0), (1, 3)] {
        dpdk::mark(&nic, adapter, priority)?;
    }
    let spec = QosSpec {
        rate: RATE as u64,
        classes: ets(&[(0, shares[0]), (3, shares[1])]),
        ..QosSpec::default()
    };
    set(&nic, 2, spec)?;
    let all = dpdk::rounds(lab, dir.path(), &product, 3, &[Some(0), Some(3)])?;
    let sum: f64 = shares.iter().map(|s| f64::from(*s)).sum();
    let streams = shares.map(|s| RATE * f64::from(s) / sum);
    let streams = [stream("priority-0", streams[0]), stream("priority-3", streams[1])];
    outcomes(
        row,
        &streams,
        &all,
        "two DPDK virtio_user ports (flowgen, 1514 B, as fast as they can) into one of 5 Gb/s",
    )
}

/// A DPDK guest sends as fast as it can; its adapter's schedule queue limits it.
fn limit_dpdk(lab: &Lab, row: &str, limit: f64) -> Result<Vec<Outcome>> {
    let _pages = HugePages::reserve(MEMORY_BYTES)?;
    let dir = lab.part()?;
    let (product, nic) = dpdk::house(lab, &dir, 2)?;
    set(&nic, 0, machine(limit * GIGA, 0.0))?;
    let all = dpdk::rounds(lab, dir.path(), &product, 2, &[None])?;
    outcomes(
        row,
        &[stream("sent", limit * GIGA)],
        &all,
        "a DPDK virtio_user port (flowgen, 1514 B, as fast as it can), a schedule queue of its virtual machine",
    )
}

/// Shares are of bytes on the wire: small frames against large ones.
fn ets_sizes(lab: &Lab) -> Result<Vec<Outcome>> {
    const RATE: f64 = 2.0 * GIGA;
    let small = Load {
        frame: 256,
        ..load(1, 0, 0, 1.5 * GIGA)
    };
    let mut s = Setting::new(lab, &[small, load(2, 1, 3, 3.0 * GIGA)], 2, 256)?;
    let spec = QosSpec {
        rate: RATE as u64,
        classes: ets(&[(0, 16), (3, 80)]),
        ..QosSpec::default()
    };
    set(&s.nic, 0, spec)?;
    let all = s.run(&mut Nobody)?;
    let streams = [stream("16", RATE * 16.0 / 96.0), stream("80", RATE * 80.0 / 96.0)];
    outcomes(
        "ets-16-80",
        &streams,
        &all,
        "guests in this process into one of 2 Gb/s: 256 B frames against 1514 B frames",
    )
}

/// A strict class that wants 1 of 5 Gb/s, and two ETS classes that want more than there is.
fn strict(lab: &Lab) -> Result<Vec<Outcome>> {
    const RATE: f64 = 5.0 * GIGA;
    let loads = [
        load(1, 0, 6, GIGA),
        load(2, 1, 0, 4.0 * GIGA),
        load(3, 2, 3, 4.0 * GIGA),
    ];
    let mut s = Setting::new(lab, &loads, 3, 256)?;
    let mut classes = ets(&[(0, 50), (3, 50)]);
    classes.tsa[6] = Tsa::Strict;
    let spec = QosSpec {
        rate: RATE as u64,
        classes,
        ..QosSpec::default()
    };
    set(&s.nic, 0, spec)?;
    let all = s.run(&mut Nobody)?;
    let streams = [
        stream("strict", GIGA),
        stream("ets-a", 2.0 * GIGA),
        stream("ets-b", 2.0 * GIGA),
    ];
    outcomes(
        "strict",
        &streams,
        &all,
        "guests in this process into one of 5 Gb/s: strict wants 1, two ETS classes of 50 % want 4 each; 1514 B",
    )
}

/// The receiving port's limit of a traffic class; another class is not limited.
fn limit_class(lab: &Lab, row: &str, limit: f64) -> Result<Vec<Outcome>> {
    let loads = [load(1, 0, 3, 1.2 * limit * GIGA), load(2, 1, 0, 0.2 * GIGA)];
    let mut s = Setting::new(lab, &loads, 2, 256)?;
    let mut classes = super::classes();
    classes.limit[3] = (limit * GIGA) as u64;
    set(
        &s.nic,
        0,
        QosSpec {
            classes,
            ..QosSpec::default()
        },
    )?;
    let all = s.run(&mut Nobody)?;
    outcomes(
        row,
        &[stream("limited", limit * GIGA), stream("other", 0.2 * GIGA)],
        &all,
        "a guest in this process offers 1.2 times the limit of its traffic class, another 0.2 Gb/s without a limit; 1514 B",
    )
}

/// Virtual machines that are sure of something in an overloaded class.
fn guarantee(lab: &Lab) -> Result<Vec<Outcome>> {
    const RATE: f64 = 4.0 * GIGA;
    const SURE: [(&str, f64); 4] = [("2g", 2.0), ("1g", 1.0), ("750m", 0.75), ("250m", 0.25)];
    let loads: Vec<Load> = (0..4u16)
        .map(|i| load(usize::from(i) + 1, i, 0, 2.5 * GIGA))
        .collect();
    let mut s = Setting::new(lab, &loads, 4, 256)?;
    let spec = QosSpec {
        rate: RATE as u64,
        classes: super::classes(),
        ..QosSpec::default()
    };
    set(&s.nic, 0, spec)?;
    for (i, (_, sure)) in SURE.iter().enumerate() {
        set(&s.nic, i + 1, machine(0.0, sure * GIGA))?;
    }
    let all = s.run(&mut Nobody)?;
    let streams: Vec<Stream> = SURE
        .iter()
        .map(|(name, sure)| stream(name, sure * GIGA))
        .collect();
    outcomes(
        "guarantee",
        &streams,
        &all,
        "four guests in this process offer 2.5 Gb/s each to one of 4 Gb/s; what they are sure of adds up to it; 1514 B",
    )
}

/// A schedule queue for each of 64 virtual machines.
fn queues(lab: &Lab) -> Result<Vec<Outcome>> {
    const COUNT: u16 = 63;
    const EACH: f64 = 0.05 * GIGA;
    let loads: Vec<Load> = (0..COUNT)
        .map(|i| load(usize::from(i) + 1, i, 0, 2.0 * EACH))
        .collect();
    let mut s = Setting::new(lab, &loads, usize::from(COUNT), 64)?;
    for i in 0..=usize::from(COUNT) {
        // The sink has one as well; it does not send.
        set(&s.nic, i, machine(EACH, 0.0))?;
    }
    let all = s.run(&mut Nobody)?;
    let streams = 0..usize::from(COUNT);
    let rates: Vec<f64> = all
        .iter()
        .flat_map(|series| streams.clone().map(|i| series.rate(i)))
        .collect();
    let windows: Vec<f64> = all
        .iter()
        .flat_map(|series| streams.clone().flat_map(|i| series.windows(i)))
        .collect();
    let note = "64 schedule queues of 50 Mb/s: 63 guests in this process offer twice that to the 64th; all rates \
                together, the error is that of the worst; 1514 B";
    let mut found = outcome("qos-queues-64".into(), EACH, &rates, &windows, note)?;
    found.rounds = all.len();
    found.notes.extend(super::disturbed(&all));
    Ok(vec![found])
}

/// Bit/s of the port that RDMA and Ethernet share.
const SHARED: f64 = 4.0 * GIGA;

/// A class for Ethernet and a lossless one for RDMA, with these shares.
fn both(rate: f64, [ethernet, rdma]: [u8; 2]) -> QosSpec {
    QosSpec {
        rate: rate as u64,
        classes: ets(&[(0, ethernet), (3, rdma)]),
        pfc: 1 << 3,
        ..QosSpec::default()
    }
}

/// Shares of Ethernet and of RDMA.
fn two_streams([ethernet, rdma]: [u8; 2]) -> [Stream; 2] {
    let part = |percent: u8| SHARED * f64::from(percent) / 100.0;
    [stream("ethernet", part(ethernet)), stream("rdma", part(rdma))]
}

/// An RDMA writer against an Ethernet guest of the same adapter, `vf1`, into `vf0`. `limited`: the adapter whose rate they share.
fn rdma_ets(lab: &Lab, name: &str, limited: usize, shares: [u8; 2]) -> Result<Vec<Outcome>> {
    let mut s = Setting::new(lab, &[load(1, 0, 0, SHARED)], 2, 256)?;
    for adapter in 0..2 {
        let rate = if adapter == limited { SHARED } else { 0.0 };
        set(&s.nic, adapter, both(rate, shares))?;
    }
    let mut writer = super::rdma::Writer::new(&s.product, &s.nic, 1, 0, 1)?;
    let all = s.run(&mut writer)?;
    let note = format!(
        "an RDMA writer (64 KiB WRITEs, MTU 1024, lossless priority 3) and a guest in this process (1514 B), ETS {} : {}, {} has 4 \
         Gb/s",
        shares[0],
        shares[1],
        ["the receiver", "the sender"][limited],
    );
    outcomes(name, &two_streams(shares), &all, &note)
}

/// Eight RDMA writers, each of an adapter of its own, against an Ethernet guest of a ninth.
fn rdma_writers(lab: &Lab) -> Result<Vec<Outcome>> {
    const WRITERS: usize = 8;
    let shares = [20, 80];
    let mut s = Setting::new(lab, &[load(1 + WRITERS, 0, 0, SHARED)], 1 + WRITERS, 256)?;
    for adapter in 0..2 + WRITERS {
        let rate = if adapter == 0 { SHARED } else { 0.0 };
        set(&s.nic, adapter, both(rate, shares))?;
    }
    let writer = |i: usize| super::rdma::Writer::new(&s.product, &s.nic, i, 0, i);
    let mut writers = (1..=WRITERS).map(writer).collect::<Result<Vec<_>>>()?;
    let all = s.run(&mut writers)?;
    let [ethernet, rdma] = two_streams(shares);
    let each = rdma.configured / WRITERS as f64;
    let names = [
        "rdma-1", "rdma-2", "rdma-3", "rdma-4", "rdma-5", "rdma-6", "rdma-7", "rdma-8",
    ];
    let streams: Vec<Stream> = std::iter::once(ethernet)
        .chain(names.map(|name| stream(name, each)))
        .collect();
    outcomes(
        "rdma-8-writers",
        &streams,
        &all,
        "eight RDMA writers (64 KiB WRITEs, MTU 1024, lossless priority 3), each of its own adapter, and a guest in this process \
         (1514 B) into one of 4 Gb/s, ETS 20 : 80",
    )
}

/// Eight lossless senders and four lossy ones into one port that has room for none of it.
fn incast(lab: &Lab) -> Result<Vec<Outcome>> {
    const RATE: f64 = 2.0 * GIGA;
    const LOSSLESS: u16 = 8;
    const LOSSY: u16 = 4;
    let lossless = (0..LOSSLESS).map(|i| load(usize::from(i) + 1, i, 3, 1.0 * GIGA));
    let lossy = (LOSSLESS..LOSSLESS + LOSSY).map(|i| load(usize::from(i) + 1, i, 0, 0.5 * GIGA));
    let loads: Vec<Load> = lossless.chain(lossy).collect();
    let mut s = Setting::new(lab, &loads, loads.len(), 256)?;
    for adapter in 0..=loads.len() {
        let rate = if adapter == 0 { RATE } else { 0.0 };
        let spec = QosSpec {
            rate: rate as u64,
            classes: ets(&[(0, 50), (3, 50)]),
            pfc: 1 << 3,
            ..QosSpec::default()
        };
        set(&s.nic, adapter, spec)?;
    }
    let all = s.run(&mut Nobody)?;
    let sum = |range: std::ops::Range<u16>| {
        let of = |source: &&Source| range.contains(&(source.stream() as u16));
        let sent: u64 = s.sources.iter().filter(of).map(|source| source.sent).sum();
        let got: u64 = s.sink.frames[usize::from(range.start)..usize::from(range.end)]
            .iter()
            .sum();
        (sent, got)
    };
    let (sent, got) = sum(0..LOSSLESS);
    let (lossy_sent, lossy_got) = sum(LOSSLESS..LOSSLESS + LOSSY);
    let values = s.nic.counter_values().adapters;
    let drops = |reason: DropReason| -> u64 {
        let all = values.iter().flat_map(|a| &a.drops);
        all.filter(|(r, _)| *r == reason.name()).map(|(_, n)| n).sum()
    };
    let seconds: f64 = all.iter().map(|s| s.time().as_secs_f64()).sum();
    let exact = |value: f64| Summary {
        median: value,
        min: value,
        max: value,
    };
    let figure = |name: &str, sent: u64, got: u64, ok: bool, note: String| Outcome {
        name: format!("qos-incast-{name}"),
        unit: "frames lost",
        value: exact(sent as f64 - got as f64),
        peer: None,
        ratio: None,
        bare_exchange: None,
        rounds: all.len(),
        details: vec![
            ("sent", sent as f64),
            ("received", got as f64),
            ("lossless_overflow", drops(DropReason::LosslessOverflow) as f64),
            ("egress_full", drops(DropReason::EgressFull) as f64),
        ],
        notes: [note]
            .into_iter()
            .chain((!ok).then(|| "MISSED".to_owned()))
            .collect(),
    };
    let note = format!(
        "8 senders of 1 Gb/s on priority 3 with PFC and 4 of 0.5 Gb/s on priority 0 into 2 Gb/s, {seconds:.1} s"
    );
    Ok(vec![
        figure("lossless", sent, got, sent == got && sent > 0, note.clone()),
        figure(
            "lossy",
            lossy_sent,
            lossy_got,
            lossy_got <= lossy_sent && lossy_got > 0,
            note,
        ),
    ])
}
