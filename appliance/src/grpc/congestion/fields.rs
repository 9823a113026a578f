//! Congestion control as messages.

use vnic_backend::settings::{PARAMETERS, Parameter, Point, Value};
use vnic_backend::{CongestionFlow, Points, Preset};
use vnic_control::v1;

use crate::control::CongestionNow;
use crate::names;
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
        ..now.spec
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
        parameters: parameters.collect(),
        line_rate_bps: now.line_rate,
        warnings: all.warnings.clone(),
        etag: all.etag.clone(),
    }
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
    }
}
