//! From the tables of a file to a scenario.

use std::time::Duration;

use anyhow::{Result, anyhow};
use toml::{Spanned, Value};
use vnic_engine::congestion::named::Named;
use vnic_engine::congestion::notification::{self, CnpPriority, Scope};
use vnic_engine::congestion::zero_touch::{WAYS_MAX, WINDOW_MAX, ZeroTouch};
use vnic_fabric::qos::red::{MILLION, MarkAt};
use vnic_fabric::qos::{Curve, Red};

use super::*;
use crate::network::program;
use crate::network::scenario::{Control, Flow, HostSettings, Pfc, Record, SwitchSettings, Topology};
use crate::network::topology::{GBIT, US};
use crate::network::traffic::{self, Poisson, Sizes, Starts};

pub(super) fn build(file: File, place: &Place<'_>) -> Result<Loaded> {
    let topology = topology(&file.topology, place)?;
    let (control, algorithm) = control(file.control, place)?;
    let seed = file.seed.unwrap_or(1);
    let name = file.name.unwrap_or_else(|| match place.path.file_stem() {
        Some(stem) => stem.to_string_lossy().into_owned(),
        None => "scenario".to_owned(),
    });
    let mut scenario = Scenario::new(name, topology);
    scenario.seed = seed;
    scenario.duration = file.duration.0;
    if let Some(mtu) = file.mtu {
        if ![256, 512, 1024, 2048, 4096].contains(mtu.get_ref()) {
            return Err(place.wrong(&mtu, "mtu", "one of 256, 512, 1024, 2048, 4096"));
        }
        scenario.mtu = *mtu.get_ref();
    }
    if let Some(table) = file.switch {
        scenario.switch = switch(table, place)?;
    }
    if let Some(table) = file.host {
        scenario.host = host(&table, place)?;
    }
    scenario.control = control;
    for (number, table) in file.flows.iter().enumerate() {
        // Entries are independent of each other: each has random numbers of its own.
        let seed = seed.wrapping_mul(1_000_003).wrapping_add(number as u64);
        let flows = Entry {
            table: table.get_ref(),
            span: table.span().start,
            scenario: &scenario,
            place,
            seed,
        }
        .flows()?;
        scenario.flows.extend(flows);
    }
    if scenario.flows.is_empty() {
        return Err(place.at(0, "flows", "a scenario has at least one flow"));
    }
    if let Some(table) = file.record {
        scenario.record = record(table, &scenario, place)?;
    }
    Ok(Loaded { scenario, algorithm })
}

fn topology(table: &Spanned<TopologyTable>, place: &Place<'_>) -> Result<Topology> {
    let t = table.get_ref();
    let rate = t.rate.map_or(40 * GBIT, |r| r.0);
    let fabric = t.fabric_rate.map_or(rate, |r| r.0);
    let delay = t.delay.map_or(US, |d| d.0);
    let need = |value: Option<usize>, key: &str| match value {
        Some(0) | None => Err(place.at(
            table.span().start,
            &format!("topology.{key}"),
            "a number of at least 1 is needed",
        )),
        Some(n) => Ok(n),
    };
    Ok(match t.kind.get_ref().as_str() {
        "star" => Topology::star(need(t.hosts, "hosts")?, rate, delay),
        "dumbbell" => Topology::dumbbell(
            need(t.left, "left")?,
            need(t.right, "right")?,
            rate,
            fabric,
            delay,
        ),
        "clos3" => Topology::clos3(need(t.hosts_per_tor, "hosts_per_tor")?, rate, delay),
        "leaf-spine" => Topology::leaf_spine(
            need(t.leaves, "leaves")?,
            need(t.spines, "spines")?,
            need(t.hosts_per_tor, "hosts_per_tor")?,
            rate,
            fabric,
            delay,
        ),
        "fat-tree" => match &t.ports {
            Some(k) if *k.get_ref() < 2 || !k.get_ref().is_multiple_of(2) => {
                return Err(place.wrong(k, "topology.ports", "an even number of at least 2"));
            }
            Some(k) => Topology::fat_tree_of(*k.get_ref(), rate, delay),
            None => Topology::fat_tree(),
        },
        other => {
            let message = format!("{other:?} is none of star, dumbbell, clos3, leaf-spine, fat-tree");
            return Err(place.wrong(&t.kind, "topology.kind", message));
        }
    })
}

fn switch(table: SwitchTable, place: &Place<'_>) -> Result<SwitchSettings> {
    let mut settings = match &table.preset {
        None => SwitchSettings::paper(),
        Some(name) => match name.get_ref().as_str() {
            "paper" => SwitchSettings::paper(),
            "dcqcn-plus" => SwitchSettings::dcqcn_plus(),
            "hpcc" => SwitchSettings::hpcc(),
            other => {
                let message = format!("{other:?} is none of paper, dcqcn-plus, hpcc");
                return Err(place.wrong(name, "switch.preset", message));
            }
        },
    };
    if let Some(size) = table.buffer {
        settings.buffer = size.0;
    }
    if let Some(red) = table.red {
        if let Some(scale) = red.scale {
            settings.red_scale = scale.0;
        }
        settings.red = red_of(settings.red, red, place)?;
    }
    settings.pfc = match table.pfc {
        None => settings.pfc,
        Some(PfcValue { off: Some(true), .. }) => Pfc::Off,
        Some(PfcValue {
            r#static: Some(size), ..
        }) => Pfc::Static(size.0),
        Some(PfcValue {
            dynamic: Some(part), ..
        }) => {
            let value = *part.get_ref();
            if !(value > 0.0 && value <= 128.0) {
                return Err(place.wrong(&part, "switch.pfc.dynamic", "more than 0, at most 128"));
            }
            Pfc::Dynamic(value)
        }
        Some(_) => settings.pfc,
    };
    if let Some(size) = table.xon_offset {
        settings.xon_offset = size.0;
    }
    settings.telemetry = table.telemetry.unwrap_or(settings.telemetry);
    Ok(settings)
}

fn red_of(from: Red, table: RedTable, place: &Place<'_>) -> Result<Red> {
    let size = |value: Option<Size>, old: u32| value.map_or(old, |s| u32::try_from(s.0).unwrap_or(u32::MAX));
    let mut red = Red {
        enable: table.enable.unwrap_or(true),
        green: Curve {
            kmin: size(table.kmin, from.green.kmin),
            kmax: size(table.kmax, from.green.kmax),
            ..from.green
        },
        ..from
    };
    if red.green.kmin > red.green.kmax {
        return Err(place.at(0, "switch.red.kmin", "it is at most kmax"));
    }
    if let Some(pmax) = table.pmax {
        if !(0.0..=1.0).contains(pmax.get_ref()) {
            return Err(place.wrong(&pmax, "switch.red.pmax", "a probability is 0 to 1"));
        }
        red.green.pmax = (pmax.get_ref() * f64::from(MILLION)).round() as u32;
    }
    if let Some(at) = table.at {
        red.at = match at.get_ref().as_str() {
            "dequeue" => MarkAt::Dequeue,
            "enqueue" => MarkAt::Enqueue,
            _ => return Err(place.wrong(&at, "switch.red.at", "dequeue or enqueue")),
        };
    }
    Ok(red)
}

fn host(table: &HostTable, place: &Place<'_>) -> Result<HostSettings> {
    let old = HostSettings::default();
    let loss = match &table.loss {
        None => old.loss,
        Some(part) if (0.0..=1.0).contains(part.get_ref()) => (part.get_ref() * f64::from(MILLION)) as u32,
        Some(part) => return Err(place.wrong(part, "host.loss", "0 to 1")),
    };
    let timeout = match &table.timeout {
        None => old.timeout,
        Some(n) if *n.get_ref() < 32 => *n.get_ref(),
        Some(n) => return Err(place.wrong(n, "host.timeout", "0 to 31")),
    };
    Ok(HostSettings {
        loss,
        timeout,
        zero_touch: match &table.zero_touch {
            None => old.zero_touch,
            Some(table) => zero_touch(table, place)?,
        },
        delay: table.delay.map_or(old.delay, |t| t.0),
        receive_rate: table.receive_rate.map_or(old.receive_rate, |r| r.0),
        receive_queue: table.receive_queue.unwrap_or(old.receive_queue),
        control_first: table.control_first.unwrap_or(old.control_first),
        ..old
    })
}

fn zero_touch(table: &ZeroTouchTable, place: &Place<'_>) -> Result<ZeroTouch> {
    let old = ZeroTouch::OFF;
    let multipath = match &table.multipath_ways {
        Some(n) if !(1..=WAYS_MAX).contains(n.get_ref()) => {
            return Err(place.wrong(n, "host.zero_touch.multipath_ways", format!("1 to {WAYS_MAX}")));
        }
        Some(n) => *n.get_ref(),
        None => old.multipath,
    };
    let window = match &table.tx_window {
        Some(n) if !(1..=WINDOW_MAX).contains(n.get_ref()) => {
            return Err(place.wrong(n, "host.zero_touch.tx_window", format!("1 to {WINDOW_MAX}")));
        }
        window => window.as_ref().map(|n| *n.get_ref()),
    };
    Ok(ZeroTouch {
        adaptive: table.adp_retrans.unwrap_or(old.adaptive),
        floor: table
            .adp_retrans_floor
            .map_or(old.floor, |t| Duration::from_nanos(t.0)),
        limited: window.is_some(),
        window: window.unwrap_or(old.window),
        slow_restart: table.slow_restart.unwrap_or(old.slow_restart),
        slow_restart_idle: table.slow_restart_idle.unwrap_or(old.slow_restart_idle),
        selective: table.selective_repeat.unwrap_or(old.selective),
        multipath,
        ..old
    })
}

/// How marked packets are answered where the file says nothing: as the algorithm's paper has it.
pub(super) fn usual_point(algorithm: &str) -> Option<notification::Settings> {
    match algorithm {
        "dcqcn" => Some(notification::Settings::default()),
        "dcqcn+" | "dcqcn-plus" | "dcqcn_plus" => Some(notification::Settings::dcqcn_plus()),
        _ => None,
    }
}

fn control(table: Option<ControlTable>, place: &Place<'_>) -> Result<(Control, Named)> {
    let Some(table) = table else {
        return Ok((Control::none(), Named::None));
    };
    let name = &table.algorithm;
    let mut named = program::named(name.get_ref()).map_err(|e| place.wrong(name, "control.algorithm", e))?;
    for (key, value) in &table.parameters {
        let text = match value.get_ref() {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        named
            .set(key, &text)
            .map_err(|e| place.wrong(value, &format!("control.parameters.{key}"), e.to_string()))?;
    }
    let mut point = match &named {
        Named::Program(program) if program.events().contains(&"on_notification") => usual_point("dcqcn"),
        named => usual_point(named.name()),
    };
    if let Some(table) = table.notification {
        point = match table.enable {
            Some(false) => None,
            _ => Some(notification_of(point.unwrap_or_default(), table, place)?),
        };
    }
    let control = Control {
        algorithm: named.build(),
        point,
    };
    Ok((control, named))
}

fn notification_of(
    from: notification::Settings,
    table: NotificationTable,
    place: &Place<'_>,
) -> Result<notification::Settings> {
    let mut settings = from;
    if let Some(scope) = table.scope {
        settings.scope = match scope.get_ref().as_str() {
            "qp" => Scope::Qp,
            "ip-pair" => Scope::IpPair,
            "destination-ip" => Scope::DestinationIp,
            "port" => Scope::Port,
            _ => {
                let message = "one of qp, ip-pair, destination-ip, port";
                return Err(place.wrong(&scope, "control.notification.scope", message));
            }
        };
    }
    if let Some(time) = table.spacing {
        settings.spacing = Duration::from_nanos(time.0);
    }
    settings.trailing = table.trailing.unwrap_or(settings.trailing);
    if let Some(time) = table.told {
        settings.told = Some(Duration::from_nanos(time.0));
    }
    if let Some(priority) = table.priority {
        if *priority.get_ref() > 7 {
            return Err(place.wrong(&priority, "control.notification.priority", "0 to 7"));
        }
        settings.priority = CnpPriority::Fixed(*priority.get_ref());
    }
    Ok(settings)
}

/// One `[[flows]]`.
struct Entry<'a> {
    table: &'a FlowsTable,
    span: usize,
    scenario: &'a Scenario,
    place: &'a Place<'a>,
    seed: u64,
}

impl Entry<'_> {
    fn flows(&self) -> Result<Vec<Flow>> {
        let t = self.table;
        let bytes = t.bytes.map(|b| b.0.max(1));
        let mut flows = match t.kind.get_ref().as_str() {
            "one" => {
                let from = self.from(None)?;
                let [from] = from.as_slice() else {
                    return Err(self.wrong("from", "one host"));
                };
                let to = self.to()?;
                let count = t.flows.unwrap_or(1);
                traffic::incast(&[*from], to, count, bytes, self.starts(), self.seed)
            }
            "incast" => {
                let to = self.to()?;
                let senders = self.from(Some(to))?;
                let count = t.flows.unwrap_or(senders.len());
                traffic::incast(&senders, to, count, bytes, self.starts(), self.seed)
            }
            "permutation" => traffic::permutation(&self.from(None)?, bytes, self.starts(), self.seed),
            kind @ ("poisson" | "incasts") => {
                let hosts = self.from(None)?;
                let poisson = Poisson {
                    hosts: &hosts,
                    load: self.load()?,
                    rate: self.scenario.topology.rate_of(0),
                    from: t.start.map_or(0, |s| s.0),
                    until: t.until.map_or(self.scenario.duration, |u| u.0),
                };
                if kind == "poisson" {
                    poisson.flows(&self.sizes()?, self.seed)
                } else {
                    let fan_in = t.fan_in.ok_or_else(|| self.wrong("fan_in", "it is needed"))?;
                    let bytes = bytes.ok_or_else(|| self.wrong("bytes", "they are needed"))?;
                    poisson.incasts(fan_in, bytes, self.seed)
                }
            }
            "file" => {
                let path = t.path.as_ref();
                let path = path.ok_or_else(|| self.wrong("path", "it is needed"))?;
                let file = self.place.resolve(path.get_ref());
                traffic::from_file(&file, self.scenario.topology.hosts)
                    .map_err(|e| self.place.wrong(path, "flows.path", format!("{e:#}")))?
            }
            other => {
                let message =
                    format!("{other:?} is none of one, incast, permutation, poisson, incasts, file");
                return Err(self.place.wrong(&t.kind, "flows.kind", message));
            }
        };
        let priority = match &t.priority {
            Some(p) if *p.get_ref() > 7 => return Err(self.place.wrong(p, "flows.priority", "0 to 7")),
            Some(p) => *p.get_ref(),
            None => 3,
        };
        for flow in &mut flows {
            flow.priority = priority;
            flow.group = t.group.unwrap_or(0);
            flow.stop = t.stop.map(|s| s.0);
        }
        if let Some(flow) = flows.iter().find(|f| f.from == f.to) {
            let name = self.scenario.topology.name(flow.from);
            return Err(self.wrong("from", &format!("{name} cannot send to itself")));
        }
        Ok(flows)
    }

    fn wrong(&self, key: &str, message: &str) -> anyhow::Error {
        self.place.at(self.span, &format!("flows.{key}"), message)
    }

    fn host(&self, node: &Node) -> Result<usize, String> {
        let topology = &self.scenario.topology;
        let found = match node {
            Node::Number(number) => Some(*number),
            Node::Name(name) => topology.node(name),
        };
        found.filter(|n| *n < topology.hosts).ok_or_else(|| {
            let name = match node {
                Node::Number(number) => number.to_string(),
                Node::Name(name) => format!("{name:?}"),
            };
            let last = topology.hosts.saturating_sub(1);
            format!(
                "{name} is not a host: there are {} to {}",
                topology.name(0),
                topology.name(last)
            )
        })
    }

    /// Hosts that send: all (but the one that receives) where the entry says nothing.
    fn from(&self, but: Option<usize>) -> Result<Vec<usize>> {
        let Some(from) = &self.table.from else {
            let all = 0..self.scenario.topology.hosts;
            return Ok(all.filter(|h| Some(*h) != but).collect());
        };
        let hosts: Result<Vec<usize>, String> = match from.get_ref() {
            Nodes::One(node) => self.host(node).map(|h| vec![h]),
            Nodes::List(list) => list.iter().map(|n| self.host(n)).collect(),
        };
        match hosts {
            Ok(list) if list.is_empty() => Err(self.place.wrong(from, "flows.from", "at least one host")),
            Ok(list) => Ok(list),
            Err(message) => Err(self.place.wrong(from, "flows.from", message)),
        }
    }

    fn to(&self) -> Result<usize> {
        let to = self.table.to.as_ref();
        let to = to.ok_or_else(|| self.wrong("to", "it is needed"))?;
        self.host(to.get_ref())
            .map_err(|message| self.place.wrong(to, "flows.to", message))
    }

    fn starts(&self) -> Starts {
        let start = self.table.start.map_or(0, |t| t.0);
        match (self.table.spread, self.table.every) {
            (Some(spread), _) => Starts::Within(start, start + spread.0),
            (None, Some(every)) => Starts::Every(start, every.0),
            (None, None) => Starts::At(start),
        }
    }

    fn load(&self) -> Result<f64> {
        let load = self.table.load.as_ref();
        let load = load.ok_or_else(|| self.wrong("load", "it is needed"))?;
        match *load.get_ref() {
            value if value > 0.0 && value <= 1.0 => Ok(value),
            _ => Err(self.place.wrong(load, "flows.load", "more than 0, at most 1")),
        }
    }

    fn sizes(&self) -> Result<Sizes> {
        let Some(sizes) = &self.table.sizes else {
            return match self.table.bytes {
                Some(bytes) => Ok(Sizes::fixed(bytes.0)),
                None => Err(self.wrong("sizes", "it is needed, or bytes")),
            };
        };
        let read = match sizes.get_ref() {
            SizesValue::Name(name) => Sizes::by_name(name).ok_or_else(|| {
                let names = Sizes::NAMES.join(", ");
                anyhow!("{name:?} is none of {names}; or a list of [bytes, percent]")
            }),
            SizesValue::Points(points) => Sizes::from_points(points).map_err(|e| anyhow!(e)),
        };
        read.map_err(|e| self.place.wrong(sizes, "flows.sizes", e.to_string()))
    }
}

fn record(table: RecordTable, scenario: &Scenario, place: &Place<'_>) -> Result<Record> {
    let mut queues = Vec::new();
    for queue in &table.queues {
        let found = queue_of(&scenario.topology, queue.get_ref());
        let message = "a queue is \"NODE > NODE\", with a link between the two";
        queues.push(found.ok_or_else(|| place.wrong(queue, "record.queues", message))?);
    }
    let all = scenario.flows.len();
    let flows = match table.flows.as_ref().map(|f| (f, f.get_ref())) {
        None => Vec::new(),
        Some((_, FlowNumbers::Word(word))) if word == "all" => (0..all).collect(),
        Some((_, FlowNumbers::List(list))) if list.iter().all(|n| *n < all) => list.clone(),
        Some((at, _)) => {
            let message = format!("\"all\", or a list of numbers below {all}");
            return Err(place.wrong(at, "record.flows", message));
        }
    };
    Ok(Record {
        from: table.from.map_or(0, |t| t.0),
        interval: table.interval.map_or(0, |t| t.0),
        queues,
        flows,
    })
}

/// `switch > h8`: the egress of the first towards the second.
fn queue_of(topology: &Topology, text: &str) -> Option<(usize, usize)> {
    let (from, to) = text.split_once('>')?;
    let node = |name: &str| topology.node(name.trim());
    let (from, to) = (node(from)?, node(to)?);
    let joins = |l: &crate::network::scenario::Link| (l.a, l.b) == (from, to) || (l.b, l.a) == (from, to);
    let link = topology.links.iter().position(joins)?;
    Some((from, link))
}
