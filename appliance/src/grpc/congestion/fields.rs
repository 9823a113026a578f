//! Congestion control as messages.

use std::net::Ipv6Addr;

use vnic_backend::settings::{PARAMETERS, Parameter, Point, Value};
use vnic_backend::{CongestionFlow, GuestFlow, Points, Preset, Program, QpNumber, Tuned, TunedParameter};
use vnic_control::v1;

use crate::control::CongestionNow;
use crate::names::{self, PROGRAM};
use crate::same::same;
use crate::stored::values::bits;

fn parameter(p: &'static Parameter, acting: &Points, preset: &Points, set: bool) -> v1::CongestionParameter {
    let def = p.def;
    let value = Value::Dword(p.get(acting));
    let mut message = v1::CongestionParameter {
        name: def.name.to_owned(),
        aliases: def.aliases.iter().map(|a| (*a).to_owned()).collect(),
        value: def.format(&value),
        word: def.word(&value).unwrap_or_default().to_owned(),
        unit: def.unit.to_owned(),
        allowed: def.allowed(),
        preset_value: p.get(preset).to_string(),
        set,
        keyed: p.keyed,
        help: def.help.to_owned(),
        ..v1::CongestionParameter::default()
    };
    message.set_point(point(p.point));
    message
}

same! { fn point(Point) -> v1::congestion_parameter::Point { Reaction, Notification, Device } }

/// Message of the acting settings.
pub fn message(adapter: &str, all: &CongestionNow) -> v1::Congestion {
    let now = &all.status;
    let (reaction, notification) = now.spec.enabled(&now.keys);
    let nothing = vnic_backend::CongestionSpec {
        own: Default::default(),
        ..now.spec.clone()
    };
    let preset = nothing.points(&Default::default(), now.line_rate);
    let set = |p: &Parameter| now.keys.parameters.get(p).or(now.spec.own.get(p)).is_some();
    let parameters = PARAMETERS
        .iter()
        .map(|p| parameter(p, &now.acting, &preset, set(p)));
    v1::Congestion {
        name: names::congestion(adapter),
        algorithm: now.spec.algorithm.name().to_owned(),
        preset: now.spec.preset.name().to_owned(),
        reaction: bits(reaction),
        notification: bits(notification),
        parameters: parameters
            .chain(of_algorithms(&now.spec.tuned))
            .chain(of_program(now.spec.program.as_ref()))
            .collect(),
        line_rate_bps: now.line_rate,
        warnings: all.warnings.clone(),
        etag: all.etag.clone(),
        program: now.spec.program.as_ref().map(|program| v1::CongestionProgram {
            size: program.bytes().len() as u32,
            fingerprint: format!("{:016x}", program.fingerprint()),
            events: program.events().into_iter().map(str::to_owned).collect(),
            flow_bytes: program.flow_bytes() as u32,
            faults: now.faults.count,
            last_fault: now.faults.last.clone().unwrap_or_default(),
            stopped: now.faults.stopped,
            code: Vec::new(),
        }),
    }
}

/// Parameters of the algorithms that have no keys.
fn of_algorithms(tuned: &Tuned) -> Vec<v1::CongestionParameter> {
    let message = |p: TunedParameter| {
        let mut message = v1::CongestionParameter {
            name: p.name(),
            unit: p.now.unit.name().to_owned(),
            allowed: p.now.accepted.clone(),
            preset_value: p.default.clone(),
            set: p.is_set(),
            help: p.now.help.to_owned(),
            word: if p.now.value == p.now.number {
                String::new()
            } else {
                p.now.value
            },
            value: p.now.number,
            ..v1::CongestionParameter::default()
        };
        message.set_point(v1::congestion_parameter::Point::Algorithm);
        message
    };
    tuned.parameters().into_iter().map(message).collect()
}

/// Parameters of a program.
fn of_program(program: Option<&Program>) -> Vec<v1::CongestionParameter> {
    let Some(program) = program else {
        return Vec::new();
    };
    let rows = program.parameters().into_iter().zip(program.values());
    let message = |(row, (name, value, default)): (vnic_backend::ProgramParameter, (&str, u64, u64))| {
        let mut message = v1::CongestionParameter {
            name: format!("{PROGRAM}{name}"),
            value: value.to_string(),
            unit: match name.rsplit_once('_') {
                Some((_, "ns")) => "ns",
                Some((_, "bps")) => "bit/s",
                Some((_, "bytes")) => "bytes",
                _ => "",
            }
            .to_owned(),
            allowed: row.accepted,
            preset_value: default.to_string(),
            set: value != default,
            help: row.help.to_owned(),
            ..v1::CongestionParameter::default()
        };
        message.set_point(v1::congestion_parameter::Point::Program);
        message
    };
    rows.map(message).collect()
}

pub fn of_preset(preset: Preset) -> Vec<v1::CongestionParameter> {
    let points = preset.points();
    PARAMETERS
        .iter()
        .map(|p| parameter(p, &points, &points, false))
        .collect()
}

/// Message of a flow.
pub fn flow(adapter: &str, flow: &CongestionFlow) -> v1::CongestionFlow {
    let some = |limit: u64| (limit != u64::MAX).then_some(limit);
    v1::CongestionFlow {
        adapter: names::of(names::ADAPTERS, adapter),
        queue_pair: flow.qp.0,
        priority: flow.priority.into(),
        rate_bps: some(flow.limits.rate),
        window_bytes: some(flow.limits.window),
        target_bps: flow.state.target,
        alpha: flow.state.alpha,
        time_stage: flow.state.stages.map(|(time, _)| time),
        byte_stage: flow.state.stages.map(|(_, bytes)| bytes),
        cuts: flow.state.cuts,
        notifications: flow.notifications,
        peer: String::new(),
    }
}

/// Message of a flow of a guest's.
pub fn guest_flow(adapter: &str, flow: &GuestFlow) -> v1::CongestionFlow {
    let as_own = CongestionFlow {
        qp: QpNumber(flow.qp),
        priority: flow.priority,
        limits: flow.limits,
        state: flow.state,
        notifications: flow.notifications,
    };
    v1::CongestionFlow {
        peer: Ipv6Addr::from(flow.peer.0).to_canonical().to_string(),
        ..self::flow(adapter, &as_own)
    }
}
