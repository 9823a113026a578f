//! `vnicctl capture check`: what reliable connections did in a capture.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use serde_json::{Value, json};
use vnic_backend::conformance::{Checker, Flow, Notifications, Spread};

use super::super::output::Output;
use super::super::{Failure, text};

/// Interface of a capture.
struct Interface {
    name: String,
    checker: Checker,
    /// RoCE packets, and frames that were dropped there.
    packets: u64,
    dropped: u64,
}

/// What is asked of congestion notifications.
pub struct Asked {
    /// Marked packets are answered by some.
    pub any: bool,
    /// A queue pair is notified no sooner again, in nanoseconds.
    pub interval: u64,
}

/// Checks a file, prints what was found, and fails if a rule is broken.
pub fn run(file: &Path, at: Option<&str>, asked: &Asked, out: &Output) -> Result<(), Failure> {
    let shown = file.display();
    let source: Box<dyn Read> = match file.to_str() {
        Some("-") => Box::new(std::io::stdin()),
        _ => Box::new(File::open(file).map_err(|e| Failure::Failed(format!("cannot read {shown}: {e}")))?),
    };
    let interfaces = read(source).map_err(|why| Failure::Failed(format!("{shown}: {why}")))?;
    let one = choose(interfaces, at).map_err(|why| Failure::Usage(format!("{shown}: {why}")))?;
    let Interface {
        name,
        packets,
        dropped,
        checker,
    } = one;
    let (flows, notifications) = checker.finish(asked.any);
    let early = |n: &Notifications| n.are_early(asked.interval);
    let broken: usize = flows.iter().map(|f| f.findings.len()).sum();
    let broken = broken + notifications.iter().filter(|n| early(n)).count();
    let value = json!({
        "at": name, "roce_packets": packets, "dropped_frames": dropped, "broken_rules": broken,
        "flows": flows.iter().map(flow).collect::<Vec<_>>(),
        "notifications": notifications.iter().map(|n| notified(n, early(n))).collect::<Vec<_>>(),
    });
    out.value(&value, || {
        let head = format!("at {name}: {packets} RoCE packets, {dropped} frames dropped on the way\n\n");
        head + &table(&flows) + &findings(&flows) + &notices(&notifications, early)
    })?;
    match broken {
        0 => Ok(()),
        _ => Err(Failure::Differs),
    }
}

fn read(source: impl Read) -> Result<Vec<Interface>, String> {
    let broken = |e: pcap_file::PcapError| format!("is no sound pcapng file: {e}");
    let mut reader = PcapNgReader::new(BufReader::new(source)).map_err(broken)?;
    let mut all: Vec<Interface> = Vec::new();
    while let Some(block) = reader.next_block() {
        match block.map_err(broken)? {
            Block::InterfaceDescription(interface) => {
                let name = interface.options.iter().find_map(|option| match option {
                    InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                    _ => None,
                });
                all.push(Interface {
                    name: name.unwrap_or_else(|| format!("interface {}", all.len())),
                    checker: Checker::default(),
                    packets: 0,
                    dropped: 0,
                });
            }
            Block::EnhancedPacket(packet) => {
                let i = usize::try_from(packet.interface_id).unwrap_or(usize::MAX);
                let Some(interface) = all.get_mut(i) else {
                    return Err(format!("a frame of interface {i}, which it does not describe"));
                };
                let dropped = packet.options.iter().any(|option| {
                    matches!(option, EnhancedPacketOption::Comment(text) if text.starts_with("dropped: "))
                });
                if dropped {
                    interface.dropped += 1;
                    continue;
                }
                let at = u64::try_from(packet.timestamp.as_nanos()).unwrap_or(u64::MAX);
                let len = usize::try_from(packet.original_len).unwrap_or(usize::MAX);
                interface.packets += u64::from(interface.checker.frame(at, &packet.data, len));
            }
            _ => {}
        }
    }
    Ok(all)
}

/// The interface of this name, or the only one with RoCE packets.
fn choose(mut all: Vec<Interface>, at: Option<&str>) -> Result<Interface, String> {
    all.retain(|i| at.map_or(i.packets > 0, |at| i.name == at));
    let names: Vec<&str> = all.iter().map(|i| i.name.as_str()).collect();
    match (all.len(), at) {
        (1, _) => all.pop().ok_or_else(String::new),
        (0, Some(at)) => Err(format!("it has no interface {at}")),
        (0, None) => Err("it has no RoCE packets".to_owned()),
        (_, _) => Err(format!(
            "it has frames of {}: --at names the one at the responder",
            names.join(", ")
        )),
    }
}

fn spread(spread: Spread) -> Value {
    match spread.0 {
        None => Value::Null,
        Some((least, most)) => json!({ "least_ns": least, "most_ns": most }),
    }
}

fn flow(f: &Flow) -> Value {
    let findings: Vec<Value> = f
        .findings
        .iter()
        .map(|one| json!({ "rule": one.broken.name(), "psn": one.psn.value(), "time_ns": one.at }))
        .collect();
    json!({
        "source": f.source.to_ip().to_string(), "destination": f.destination.to_ip().to_string(), "qp": f.qp,
        "packets": f.packets, "sent_again": f.again, "corrupt": f.corrupt, "marked": f.marked, "gaps": f.gaps, "naks": f.naks,
        "timeouts": f.timeouts, "nak_after": spread(f.told_after), "back_after": spread(f.back_after), "findings": findings,
    })
}

fn notified(n: &Notifications, early: bool) -> Value {
    json!({
        "source": n.source.to_ip().to_string(), "destination": n.destination.to_ip().to_string(), "qp": n.qp, "count": n.count,
        "interval": spread(n.interval), "early": early,
    })
}

fn times(spread: Spread) -> String {
    let us = |ns: u64| format!("{}.{:03}", ns / 1000, ns % 1000);
    match spread.0 {
        None => String::new(),
        Some((least, most)) if least == most => us(least),
        Some((least, most)) => format!("{} to {}", us(least), us(most)),
    }
}

fn table(flows: &[Flow]) -> String {
    text::table! { f in flows, "no requests of reliable connections";
        "FROM": f.source.to_ip().to_string(),
        "TO": f.destination.to_ip().to_string(),
        ">QP": format!("{:#x}", f.qp),
        ">PACKETS": text::count(f.packets),
        ">AGAIN": text::count(f.again),
        ">CORRUPT": text::count(f.corrupt),
        ">MARKED": text::count(f.marked),
        ">GAPS": text::count(f.gaps),
        ">NAKS": text::count(f.naks),
        ">TIMEOUTS": text::count(f.timeouts),
        ">NAK AFTER US": times(f.told_after),
        ">BACK AFTER US": times(f.back_after),
        ">BROKEN": text::count(f.findings.len() as u64),
    }
}

fn findings(flows: &[Flow]) -> String {
    let mut text = String::new();
    for f in flows {
        for one in &f.findings {
            let _ = writeln!(
                text,
                "{} > {} qp {:#x} psn {}: {}",
                f.source.to_ip(),
                f.destination.to_ip(),
                f.qp,
                one.psn.value(),
                one.broken.name().replace('_', " ")
            );
        }
    }
    match text.is_empty() {
        true => text,
        false => format!("\nbroken rules\n{text}"),
    }
}

fn notices(all: &[Notifications], early: impl Fn(&Notifications) -> bool) -> String {
    let mut text = String::new();
    for n in all {
        let _ = writeln!(
            text,
            "{} notifies qp {:#x} of {} {} times{}{}",
            n.source.to_ip(),
            n.qp,
            n.destination.to_ip(),
            n.count,
            match n.interval.0 {
                None => String::new(),
                Some(_) => format!(", {} µs apart", times(n.interval)),
            },
            if early(n) { ": too early" } else { "" }
        );
    }
    match text.is_empty() {
        true => text,
        false => format!("\n{text}"),
    }
}
