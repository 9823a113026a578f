//! `vnicctl fault`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vnic_backend::FaultSpec;
use vnic_backend::fault::{ALWAYS, Action, opcode_name};
use vnic_control::v1;
use vnic_control::v1::fault::Action as Wire;

use super::adapter::lifetime;
use super::args::{FaultAdd, FaultVerb};
use super::client::{Client, resource};
use super::output::Output;
use super::text::{self, Facts};
use super::{Failure, paging, recording, scenario, verbs_fault};
use crate::check::fault::{self as limits, AT_MOST_DEFAULT};
use crate::config::faults_from_text;
use crate::faults;
use crate::names::{self, FAULTS};

/// Runs a command.
pub async fn run(verb: FaultVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    let mut service = client.faults().await?;
    match verb {
        FaultVerb::Play(play) => scenario::play(play, client, out).await,
        FaultVerb::Stop { name } => scenario::stop(&name, client, out).await,
        FaultVerb::Scenarios => scenario::list(client, out).await,
        FaultVerb::List => {
            let all = list(client).await?;
            out.message("ListFaultsResponse", &all, || table(&all.faults))
        }
        FaultVerb::Show { name } => {
            let name = resource(FAULTS, &name);
            let fault = service.get_fault(v1::GetFaultRequest { name }).await?;
            out.answer("Fault", fault, facts)
        }
        FaultVerb::Add(add) => {
            let spec = spec(&add)?;
            let requests = requests(client, &[spec]).await?;
            let request = requests.into_iter().next().unwrap_or_default();
            out.answer("Fault", service.create_fault(request).await?, facts)
        }
        FaultVerb::Remove { names, all } => {
            let names: Vec<String> = if all {
                list(client).await?.faults.into_iter().map(|f| f.name).collect()
            } else {
                names.iter().map(|n| resource(FAULTS, n)).collect()
            };
            for name in names {
                service.delete_fault(v1::DeleteFaultRequest { name }).await?;
            }
            Ok(())
        }
        FaultVerb::Verbs(verb) => verbs_fault::run(verb, &mut service, out).await,
        FaultVerb::Record(verb) => recording::run(verb, &mut service, out).await,
        FaultVerb::Report { only, comparable } => {
            recording::report(only, comparable, &mut service, out).await
        }
        FaultVerb::Load { file } => {
            let requests = requests(client, &read(&file)?).await?;
            let request = v1::BatchCreateFaultsRequest { requests };
            let made = service.batch_create_faults(request).await?;
            out.answer("BatchCreateFaultsResponse", made, |made| table(&made.faults))
        }
    }
}

/// Reads the rules of a file.
fn read(file: &Path) -> Result<Vec<FaultSpec>, Failure> {
    let (shown, text) = content(file)?;
    faults_from_text(&shown, &text).map_err(|wrong| Failure::Usage(format!("nothing was made:\n{wrong}")))
}

/// Content of a file, or of standard input, and how the file is called.
pub fn content(file: &Path) -> Result<(PathBuf, String), Failure> {
    let (shown, text) = match file == Path::new("-") {
        true => (
            Path::new("(standard input)"),
            std::io::read_to_string(std::io::stdin()),
        ),
        false => (file, std::fs::read_to_string(file)),
    };
    let text = text.map_err(|e| Failure::Usage(format!("cannot read {}: {e}", shown.display())))?;
    Ok((shown.to_owned(), text))
}

/// Rule that the options describe.
fn spec(add: &FaultAdd) -> Result<FaultSpec, Failure> {
    let usage = |option: &str, problem| Failure::Usage(format!("{option}: {problem}"));
    let held = |option: &str, span: Duration| limits::held(span).map_err(|e| usage(option, e));
    let action = if let Some(by) = add.delay {
        let jitter = add.jitter.unwrap_or_default();
        held("--delay", by)?;
        held("--jitter", by.saturating_add(jitter))?;
        Action::Delay { by, jitter }
    } else if let Some(frames) = add.reorder {
        Action::Reorder {
            by: limits::reorder(i64::from(frames)).map_err(|e| usage("--reorder", e))?,
            at_most: held("--at-most", add.at_most.unwrap_or(AT_MOST_DEFAULT))?,
        }
    } else if let Some(copies) = add.duplicate {
        let copies = limits::copies(i64::from(copies)).map_err(|e| usage("--duplicate", e))?;
        Action::Duplicate { copies }
    } else if let Some(bits) = add.corrupt {
        let offset = add.offset;
        let bits = limits::bits(i64::from(bits), offset.is_some()).map_err(|e| usage("--corrupt", e))?;
        Action::Corrupt { bits, offset }
    } else if add.mark_ce {
        Action::MarkCe
    } else {
        Action::Drop
    };
    let owner = |name: &Option<String>| name.as_deref().map(|n| names::last(n).to_owned());
    Ok(FaultSpec {
        from: owner(&add.from),
        to: owner(&add.to),
        roce: add.roce,
        destination_qp: add.qp,
        opcodes: limits::opcodes(add.opcode.clone()),
        psn: add.psn,
        ethertype: add.ethertype,
        skip: add.skip,
        probability: add.probability.unwrap_or(ALWAYS),
        count: add.count,
        seed: add.seed,
        ..FaultSpec::new(&add.name, action)
    })
}

/// Requests for rules, with resource names of adapters and ports.
async fn requests(client: &Client, specs: &[FaultSpec]) -> Result<Vec<v1::CreateFaultRequest>, Failure> {
    let mut owners = BTreeMap::new();
    for name in specs.iter().flat_map(|s| [&s.from, &s.to]).flatten() {
        if !owners.contains_key(name) {
            owners.insert(name.clone(), client.owner(name).await?);
        }
    }
    let owner = |name: &str| owners.get(name).cloned().unwrap_or_default();
    let request = |spec: &FaultSpec| v1::CreateFaultRequest {
        fault_id: spec.name.clone(),
        fault: Some(faults::message(spec, owner)),
    };
    Ok(specs.iter().map(request).collect())
}

/// All rules, page by page.
pub async fn list(client: &Client) -> Result<v1::ListFaultsResponse, Failure> {
    let mut service = client.faults().await?;
    paging::list(&mut service, v1::ListFaultsRequest::default()).await
}

pub fn span(d: Option<prost_types::Duration>) -> String {
    d.and_then(|d| Duration::try_from(d).ok())
        .map_or_else(String::new, |d| format!("{d:?}"))
}

/// Action of a rule in words.
pub fn action(fault: &v1::Fault) -> String {
    match &fault.action {
        None => String::new(),
        Some(Wire::Drop(_)) => "drop".to_owned(),
        Some(Wire::Delay(d)) => {
            let jitter = d.jitter.filter(|j| j.seconds > 0 || j.nanos > 0);
            let jitter = jitter.map_or_else(String::new, |j| format!(" +0..{}", span(Some(j))));
            format!("delay {}{jitter}", span(d.delay))
        }
        Some(Wire::Reorder(r)) => format!("reorder by {}, at most {}", r.frames, span(r.at_most)),
        Some(Wire::Duplicate(d)) => format!("duplicate {}", d.copies),
        Some(Wire::Corrupt(c)) => {
            let at = c.offset.map_or_else(String::new, |at| format!(" in byte {at}"));
            format!("corrupt {} bit{}{at}", c.bits, if c.bits == 1 { "" } else { "s" })
        }
        Some(Wire::MarkCe(_)) => "mark CE".to_owned(),
    }
}

/// Match of a rule in words, without `from` and `to`.
pub fn condition(m: &v1::FaultMatch) -> String {
    let mut parts = Vec::new();
    if m.roce {
        parts.push("RoCE".to_owned());
    }
    if let Some(qp) = m.destination_qp {
        parts.push(format!("QP {qp}"));
    }
    if !m.opcodes.is_empty() {
        let name = |o: &u32| u8::try_from(*o).map(opcode_name).unwrap_or_default();
        let names: Vec<String> = m.opcodes.iter().map(name).collect();
        parts.push(names.join(" or "));
    }
    if let Some(psn) = &m.psn {
        parts.push(if psn.first == psn.last {
            format!("PSN {}", psn.first)
        } else {
            format!("PSN {}-{}", psn.first, psn.last)
        });
    }
    if let Some(ethertype) = m.ethertype {
        parts.push(format!("EtherType 0x{ethertype:04x}"));
    }
    parts.join(", ")
}

fn any(text: &str) -> &str {
    text::or(names::last(text), "any")
}

pub fn percent(probability: Option<f64>) -> String {
    // A millionth is a ten thousandth of a per cent.
    let text = format!("{:.4}", probability.unwrap_or(1.0) * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

fn table(all: &[v1::Fault]) -> String {
    text::table! { f in all, "no faults";
        let m = f.r#match.clone().unwrap_or_default();
        ">ID": f.id,
        "NAME": names::last(&f.name),
        "FROM": any(&m.from),
        "TO": any(&m.to),
        "FRAMES": any(&condition(&m)),
        ">PROBABILITY": percent(f.probability),
        "ACTION": action(f),
        ">MATCHED": text::count(f.matched),
        ">INJECTED": text::count(f.injected),
        "STATE": if f.spent { "spent" } else { "active" },
    }
}

fn facts(f: &v1::Fault) -> String {
    let m = f.r#match.clone().unwrap_or_default();
    let number = |n: Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
    let skip = Some(f.skip).filter(|n| *n > 0);
    let mut facts = Facts::default();
    facts
        .add("name", names::last(&f.name))
        .add("id", f.id.to_string())
        .add("action", action(f))
        .add("from", any(&m.from))
        .add("to", any(&m.to))
        .add("frames", any(&condition(&m)))
        .add("probability", percent(f.probability))
        .add("skip", number(skip))
        .add("count", number(f.count))
        .add("seed", number(f.seed))
        .add("matched", format!("{} frames", f.matched))
        .add("injected", format!("{} frames", f.injected))
        .add("state", if f.spent { "spent" } else { "active" })
        .add("created", text::time(f.create_time))
        .add("lifetime", lifetime(f.lifetime()));
    facts.finish()
}
