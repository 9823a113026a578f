//! `vnic.v1.QosService`.
//!
//! ```text
//!  request ─ fields ─▶ QosSpec, QosKeys ─▶ the NIC would take it? ─▶ one transaction: registry keys, row of `qos` ─▶ NIC
//! ```

mod fields;
mod keys;
mod stored;

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, PoisonError};

use prost::Message as _;
use tonic::{Code, Request, Response, Status};
use vnic_backend::settings::QosKeys;
use vnic_backend::{Buffer, NotCapable, QosSpec, QosStatus, Tsa};
use vnic_control::v1;

use super::errors::{Violations, blocking, from_nic, invalid, status};
use super::registry;
use crate::access;
use crate::check::qos::message;
use crate::config::nearest;
use crate::daemon::Context;
use crate::events::{ControlEvent, Owner};
use crate::names;
use crate::store::Batch;

pub use stored::{bring_back, forget, forget_port, lives_without, stored};

/// The service.
pub struct Quality(pub Arc<Context>);

/// The name that events, the registry and this service have for this kind of settings.
const STORE: &str = "qos";

/// Is it a field of `vnic.v1.Qos`?
pub fn is_field(name: &str) -> bool {
    message::names().contains(&name)
}

/// `adapters/{adapter}` or `ports/{port}`.
fn resource(owner: &Owner) -> String {
    match owner {
        Owner::Adapter(name) => names::of(names::ADAPTERS, name),
        Owner::Port(name) => names::of(names::PORTS, name),
        Owner::Nic => String::new(),
    }
}

fn id(owner: &Owner) -> &str {
    match owner {
        Owner::Adapter(name) | Owner::Port(name) => name,
        Owner::Nic => "",
    }
}

/// Whose quality of service a name in a request means.
fn owner(field: &str, name: &str) -> Result<Owner, Status> {
    let of = name.strip_suffix("/qos").unwrap_or_default();
    let adapter = names::id(names::ADAPTERS, of).map(|id| Owner::Adapter(id.to_owned()));
    adapter
        .or_else(|| names::id(names::PORTS, of).map(|id| Owner::Port(id.to_owned())))
        .ok_or_else(|| {
            invalid(
                field,
                format!("{name:?} is not of the form adapters/{{adapter}}/qos or ports/{{port}}/qos"),
            )
        })
}

/// The path in a request of a field.
fn field(name: &str) -> String {
    match name {
        "name" => name.to_owned(),
        other => format!("qos.{other}"),
    }
}

/// Adapters and ports share their names, not their resource names.
fn look(context: &Context, owner: &Owner) -> Result<QosStatus, Status> {
    let found = match owner {
        Owner::Adapter(name) => context.nic.adapter(name).map(drop),
        _ => context.nic.port(id(owner)).map(drop),
    };
    found
        .and_then(|()| context.nic.qos(id(owner)))
        .map_err(|e| from_nic(e, field))
}

/// What is configured, with its name and its etag.
fn configured(owner: &Owner, spec: &QosSpec, keys: &QosKeys) -> v1::Qos {
    let mut message = fields::message(spec, keys);
    let hash = BuildHasherDefault::<DefaultHasher>::default();
    message.etag = format!("{:016x}", hash.hash_one(message.encode_to_vec()));
    message.name = names::qos(&resource(owner));
    message
}

fn in_full(context: &Context, owner: &Owner, now: &QosStatus) -> v1::Qos {
    v1::Qos {
        state: Some(fields::state(&now.queues)),
        warnings: warnings(context, owner, now),
        ..configured(owner, &now.spec, &now.keys)
    }
}

/// What has no effect, or promises too much.
fn warnings(context: &Context, owner: &Owner, now: &QosStatus) -> Vec<String> {
    let (spec, keys) = (&now.spec, &now.keys);
    let mut said = Vec::new();
    let shares: u32 = spec.classes.share.iter().map(|s| u32::from(*s)).sum();
    if spec.classes.tsa.contains(&Tsa::Ets) && shares < 100 {
        said.push(format!(
            "tc_bandwidth_percent: the shares add up to {shares} %: they count as weights"
        ));
    }
    if keys.untagged_to_lossless && spec.pfc == 0 {
        said.push("untagged_to_lossless has no effect: no priority has flow control (pfc)".to_owned());
    }
    for (p, tc) in spec.classes.of_priority.iter().enumerate() {
        let drops = spec.ecn[usize::from(*tc & 7)].not_capable == NotCapable::Drop;
        if drops && spec.pfc & 1 << p != 0 {
            said.push(format!(
                "ecn: traffic class {tc} drops nothing of priority {p}, which has flow control (pfc)"
            ));
        }
    }
    if let Some(queue) = &spec.queue {
        let limited = queue.limit.iter().any(|l| *l != 0);
        if !keys.offload {
            said.push("schedule_queue does not act: *QoSOffload is 0".to_owned());
        } else if limited && !keys.send_queue_per_priority {
            said.push(
                "schedule_queue: a traffic class at its maximum holds up the others of the guest, unless \
                 send_queue_per_priority (SendQueuePerPrio) is set"
                    .to_owned(),
            );
        }
    }
    promises(context, owner, spec, &mut said);
    said
}

/// Guarantees of all adapters that a limited port cannot keep.
fn promises(context: &Context, owner: &Owner, spec: &QosSpec, said: &mut Vec<String>) {
    if spec.queue.is_none() && matches!(owner, Owner::Adapter(_)) {
        return;
    }
    let all = context.nic.qos_specs();
    let promised: u64 = all
        .iter()
        .filter_map(|(_, spec)| spec.queue.as_ref())
        .flat_map(|queue| queue.guarantee)
        .fold(0, u64::saturating_add);
    let is_port = |name: &String| context.nic.port(name).is_ok();
    let concerned = |name: &String| match owner {
        Owner::Port(own) => name == own,
        _ => is_port(name),
    };
    for (name, port) in &all {
        if port.rate != 0 && promised > port.rate && concerned(name) {
            said.push(format!(
                "schedule_queue: the minima of all adapters add up to {promised} bit/s, more than port {name} has \
                 (rate_bps {}): they are kept in proportion",
                port.rate
            ));
        }
    }
}

/// The fields that a mask names, each once.
fn mask(request: &v1::UpdateQosRequest) -> Result<Vec<&'static str>, Status> {
    let paths = request.update_mask.as_ref().map(|m| m.paths.as_slice());
    let paths = paths.filter(|p| !p.is_empty()).ok_or_else(|| {
        invalid(
            "update_mask",
            "the fields to change are missing, such as \"trust\"",
        )
    })?;
    let mut wrong = Violations::default();
    let mut named = Vec::new();
    for path in paths {
        match message::names().iter().find(|f| *f == path) {
            Some(field) if named.contains(field) => {}
            Some(field) => named.push(*field),
            None => {
                let meant = nearest(path, message::names())
                    .map_or_else(String::new, |n| format!("; did you mean {n:?}?"));
                wrong.add(
                    "update_mask",
                    format!("{path:?} is no field that can be written{meant}"),
                );
            }
        }
    }
    wrong.finish(Some(named))
}

fn update(context: &Context, request: &v1::UpdateQosRequest) -> Result<(Owner, String), Status> {
    let none = v1::Qos::default();
    let asked = request.qos.as_ref().unwrap_or(&none);
    let owner = owner("qos.name", &asked.name)?;
    let paths = mask(request)?;
    let now = look(context, &owner)?;
    let etag = configured(&owner, &now.spec, &now.keys).etag;
    if !asked.etag.is_empty() && asked.etag != etag {
        let text = format!("it has changed meanwhile: its etag is {etag}");
        return Err(status(Code::Aborted, "ETAG_MISMATCH", text, [("etag", etag)]));
    }
    let (mut spec, mut keys) = (now.spec.clone(), now.keys.clone());
    // What acts counts, not what the registry would say of it.
    keys.guard = keys.acting_watermarks();
    let mut wrong = Violations::default();
    fields::take(&paths, asked, (&mut spec, &mut keys), &mut wrong);
    wrong.finish(Some(()))?;
    if paths.contains(&"cable_length_m") && !paths.contains(&"buffer_headroom") {
        let mtu = mtu(context, &owner)?;
        let needed = Buffer::headroom_for(spec.rate, spec.buffer.cable_len, mtu);
        // Guests send more at a time than a wire holds.
        spec.buffer.headroom = needed.max(Buffer::default().headroom);
    }
    if paths.contains(&"storm_critical_ms") && !paths.contains(&"storm_minor_ms") {
        // As Linux has it: the minor one follows.
        keys.guard.minor_ms = keys.acting_watermarks().minor_ms;
    }
    if let Owner::Port(_) = owner {
        spec.keys = keys.clone();
    }
    let paths = match paths.contains(&"storm_critical_ms") {
        true => paths.into_iter().chain(["storm_minor_ms"]).collect(),
        false => paths,
    };
    let checked = context.nic.check_qos(id(&owner), &spec, &keys);
    checked.map_err(|e| from_nic(e, field))?;
    let operations = match &owner {
        Owner::Adapter(name) => keys::write(name, &paths, &keys),
        _ => Vec::new(),
    };
    let mut row = Batch::new();
    if spec != now.spec {
        stored::put(&mut row, &owner, &spec, &keys);
    }
    carry_out(context, &owner, &now, (spec, row), &operations)?;
    let done = fields::message(&look(context, &owner)?.spec, &keys);
    let words: Vec<String> = paths.iter().map(|path| message::text(path, &done)).collect();
    Ok((owner, words.join(", ")))
}

fn mtu(context: &Context, owner: &Owner) -> Result<u16, Status> {
    let mtu = match owner {
        Owner::Adapter(name) => context.nic.adapter(name).map(|a| a.spec.mtu),
        _ => context.nic.port(id(owner)).map(|p| p.spec.mtu),
    };
    mtu.map_err(|e| from_nic(e, field))
}

/// Stores and lets act what was checked.
fn carry_out(
    context: &Context,
    owner: &Owner,
    before: &QosStatus,
    (spec, row): (QosSpec, Batch),
    operations: &[crate::registry::Operation],
) -> Result<(), Status> {
    match owner {
        Owner::Adapter(name) if !operations.is_empty() => {
            let of = |r: &crate::registry::Refusal| field(keys::field(&r.key).unwrap_or("name"));
            let done = context.registry.transact_now(name, operations, row);
            if let Err(error) = done {
                put_back(context, owner, before);
                return Err(registry::refused(context, "", error, of));
            }
        }
        _ => context.store.commit(row).map_err(|e| stored::failed(&e))?,
    }
    if spec == before.spec {
        return Ok(());
    }
    context.nic.set_qos(id(owner), spec).map_err(|e| {
        put_back(context, owner, before);
        from_nic(e, field)
    })
}

/// The row of `qos` is again what it was.
fn put_back(context: &Context, owner: &Owner, before: &QosStatus) {
    let mut batch = Batch::new();
    stored::put(&mut batch, owner, &before.spec, &before.keys);
    if let Err(error) = context.store.commit(batch) {
        tracing::error!(
            "qos of {}: what did not act stays stored: {error}",
            resource(owner)
        );
    }
}

fn reset(context: &Context, owner: &Owner) -> Result<(), Status> {
    let now = look(context, owner)?;
    let operations = match owner {
        Owner::Adapter(name) => keys::forget(name),
        _ => Vec::new(),
    };
    // Whatever is stored goes.
    let mut row = Batch::new();
    forget(&mut row, owner);
    carry_out(context, owner, &now, (QosSpec::default(), row), &operations)
}

impl Quality {
    /// Runs a change with nothing between its look and its act, and tells what came of it.
    async fn change(
        &self,
        by: String,
        asked: Option<Owner>,
        work: impl FnOnce(&Context) -> Result<(Owner, String), Status> + Send + 'static,
    ) -> Result<Response<v1::Qos>, Status> {
        let context = self.0.clone();
        blocking(move || {
            let _order = context.qos_order.lock().unwrap_or_else(PoisonError::into_inner);
            let (owner, what) = work(&context).inspect_err(|refused| {
                if let (Some(owner), Code::InvalidArgument) = (asked, refused.code()) {
                    context.hub.record(ControlEvent::SettingsRefused {
                        owner,
                        store: STORE,
                        what: refused.message().to_owned(),
                        by: by.clone(),
                    });
                }
            })?;
            context.hub.record(ControlEvent::SettingsChanged {
                owner: owner.clone(),
                store: STORE,
                what,
                by,
            });
            let now = look(&context, &owner)?;
            Ok(Response::new(in_full(&context, &owner, &now)))
        })
        .await?
    }
}

#[tonic::async_trait]
impl v1::qos_service_server::QosService for Quality {
    async fn get_qos(&self, request: Request<v1::GetQosRequest>) -> Result<Response<v1::Qos>, Status> {
        let owner = owner("name", &request.into_inner().name)?;
        let context = self.0.clone();
        blocking(move || {
            let now = look(&context, &owner)?;
            Ok(Response::new(in_full(&context, &owner, &now)))
        })
        .await?
    }

    async fn list_qos(
        &self,
        _request: Request<v1::ListQosRequest>,
    ) -> Result<Response<v1::ListQosResponse>, Status> {
        let context = self.0.clone();
        blocking(move || {
            let adapters = context
                .nic
                .adapters()
                .into_iter()
                .map(|a| Owner::Adapter(a.spec.name));
            let ports = context.nic.ports().into_iter().map(|p| Owner::Port(p.spec.name));
            // One that has been removed meanwhile is left out.
            let one = |owner: Owner| Some(in_full(&context, &owner, &look(&context, &owner).ok()?));
            let qos = adapters.chain(ports).filter_map(one).collect();
            Ok(Response::new(v1::ListQosResponse { qos }))
        })
        .await?
    }

    async fn update_qos(&self, request: Request<v1::UpdateQosRequest>) -> Result<Response<v1::Qos>, Status> {
        let by = access::who(&request);
        let request = request.into_inner();
        let name = request.qos.as_ref().map(|q| q.name.clone()).unwrap_or_default();
        let asked = owner("qos.name", &name).ok();
        self.change(by, asked, move |context| update(context, &request))
            .await
    }

    async fn reset_qos(&self, request: Request<v1::ResetQosRequest>) -> Result<Response<v1::Qos>, Status> {
        let by = access::who(&request);
        let owner = owner("name", &request.into_inner().name)?;
        self.change(by, None, move |context| {
            reset(context, &owner)?;
            Ok((owner, "everything is as while nothing is configured".to_owned()))
        })
        .await
    }

    async fn set_queue_pair_rate(
        &self,
        request: Request<v1::SetQueuePairRateRequest>,
    ) -> Result<Response<v1::SetQueuePairRateResponse>, Status> {
        let request = request.into_inner();
        let adapter = adapter(&request.adapter)?;
        let mut wrong = Violations::default();
        if request.queue_pair > 0xff_ffff {
            let problem = format!("{} is out of range: 0 to 16777215", request.queue_pair);
            wrong.add("queue_pair", problem);
        }
        let (rate, range) = (request.rate_bps, vnic_backend::QOS_RATE_RANGE);
        if rate != 0 && (!range.contains(&rate) || rate % 1000 != 0) {
            let (lo, hi) = (range.start(), range.end());
            let problem =
                format!("{rate} is out of range: 0 (no limit), or {lo} to {hi} bit/s in steps of 1000");
            wrong.add("rate_bps", problem);
        }
        // The range fits.
        let kbps = wrong.finish(u32::try_from(rate / 1000).ok())?;
        let context = self.0.clone();
        blocking(move || {
            let done = context.nic.set_qp_rate(&adapter, request.queue_pair, kbps);
            done.map_err(|e| from_nic(e, |_| "rate_bps".to_owned()))?;
            Ok(Response::new(v1::SetQueuePairRateResponse {}))
        })
        .await?
    }

    async fn list_queue_pair_rates(
        &self,
        request: Request<v1::ListQueuePairRatesRequest>,
    ) -> Result<Response<v1::ListQueuePairRatesResponse>, Status> {
        let adapter = adapter(&request.into_inner().adapter)?;
        let context = self.0.clone();
        blocking(move || {
            let mut rates = context.nic.qp_rates(&adapter).map_err(|e| from_nic(e, field))?;
            rates.sort_by_key(|r| r.qp);
            let rate = |r: &vnic_backend::QpRate| v1::QueuePairRate {
                queue_pair: r.qp,
                rate_bps: u64::from(r.ceiling_kbps) * 1000,
                driver_rate_bps: u64::from(r.rate_kbps) * 1000,
            };
            let rates = rates.iter().map(rate).collect();
            Ok(Response::new(v1::ListQueuePairRatesResponse { rates }))
        })
        .await?
    }
}

/// The adapter of a request about queue pairs.
fn adapter(name: &str) -> Result<String, Status> {
    let wrong = || {
        invalid(
            "adapter",
            format!("{name:?} is not of the form adapters/{{adapter}}"),
        )
    };
    names::id(names::ADAPTERS, name)
        .map(str::to_owned)
        .ok_or_else(wrong)
}
