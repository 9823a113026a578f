//! `vnic.v1.CongestionService`.
//!
//! ```text
//!  request ─ change ─▶ keys, CongestionSpec ─▶ the NIC would take it? ─▶ one transaction: registry keys, row of `congestion` ─▶ NIC
//! ```

mod change;
mod fields;
mod stored;

use std::sync::{Arc, PoisonError};

use tonic::{Code, Request, Response, Status};
use vnic_backend::{CongestionAlgorithm, CongestionFlow, CongestionSpec, CongestionStatus, Preset};
use vnic_control::v1;

use super::errors::{blocking, from_nic, invalid, status};
use crate::access;
use crate::daemon::Context;
use crate::events::{ControlEvent, Owner};
use crate::names;
use crate::registry::{Operation, RegistryError};
use crate::store::Batch;

use change::Change;
pub use stored::{forget, stored};

/// The service.
pub struct Slowing(pub Arc<Context>);

/// The name that events and the store have for this kind of settings.
const STORE: &str = "congestion";

/// The adapter that a name in a request means.
fn adapter(name: &str) -> Result<String, Status> {
    let of = name.strip_suffix("/congestion").unwrap_or_default();
    let id = names::id(names::ADAPTERS, of).map(str::to_owned);
    id.ok_or_else(|| {
        invalid(
            "name",
            format!("{name:?} is not of the form adapters/{{adapter}}/congestion"),
        )
    })
}

/// The path in a request of a field of the specification.
fn field(name: &str) -> String {
    match name {
        "algorithm" | "reaction" => name.to_owned(),
        other => format!("parameters[{other}]"),
    }
}

fn look(context: &Context, adapter: &str) -> Result<CongestionStatus, Status> {
    context
        .nic
        .congestion(adapter)
        .map_err(|e| from_nic(e, str::to_owned))
}

fn in_full(context: &Context, adapter: &str, now: &CongestionStatus) -> v1::Congestion {
    v1::Congestion {
        warnings: warnings(context, adapter, now),
        ..fields::message(adapter, now)
    }
}

/// What has no effect.
fn warnings(context: &Context, adapter: &str, now: &CongestionStatus) -> Vec<String> {
    let mut said = Vec::new();
    let (reaction, notification) = now.spec.enabled(&now.keys);
    let any = reaction | notification != 0;
    if any && !now.rdma && !now.acting.soft_roce {
        said.push("the adapter has no RDMA function, and soft_roce is 0".to_owned());
    }
    if any && now.spec.algorithm == CongestionAlgorithm::Hpcc {
        said.push(
            "hpcc: no queue of a running NIC writes telemetry; flows keep their first window".to_owned(),
        );
    }
    if reaction != 0 && now.spec.algorithm == CongestionAlgorithm::None {
        said.push("reaction: the algorithm is none".to_owned());
    }
    if reaction != 0 && now.acting.reaction.min_rate >= now.line_rate {
        said.push("DcqcnRpgMinRate is the line rate: nothing is limited".to_owned());
    }
    let pause = context.nic.qos(adapter).is_ok_and(|qos| {
        let pause = qos.acting.pause;
        pause.pfc != 0 || pause.global_tx || pause.global_rx
    });
    if any && !pause {
        said.push("no flow control: congestion control does not replace PFC or global pause".to_owned());
    }
    said
}

/// Stores and lets act what was checked.
fn carry_out(
    context: &Context,
    adapter: &str,
    before: &CongestionSpec,
    (spec, operations): (CongestionSpec, &[Operation]),
) -> Result<(), Status> {
    let mut row = Batch::new();
    if spec != *before {
        stored::put(&mut row, adapter, &spec);
    }
    if operations.is_empty() {
        context.store.commit(row).map_err(|e| stored::failed(&e))?;
    } else {
        let done = context.registry.transact_now(adapter, operations, row);
        done.map_err(|error| {
            if let RegistryError::Refused(_) = error {
                put_back(context, adapter, before);
            }
            super::registry::refused(context, "", error, |r| format!("parameters[{}]", r.key))
        })?;
    }
    context.nic.set_congestion(adapter, spec).map_err(|e| {
        put_back(context, adapter, before);
        from_nic(e, field)
    })
}

/// The row is again what it was.
fn put_back(context: &Context, adapter: &str, before: &CongestionSpec) {
    let mut batch = Batch::new();
    stored::put(&mut batch, adapter, before);
    if let Err(error) = context.store.commit(batch) {
        tracing::error!("congestion of {adapter}: what did not act stays stored: {error}");
    }
}

fn set(context: &Context, request: &v1::SetCongestionRequest) -> Result<(String, String), Status> {
    let adapter = adapter(&request.name)?;
    let now = look(context, &adapter)?;
    let etag = fields::message(&adapter, &now).etag;
    if !request.etag.is_empty() && request.etag != etag {
        let text = format!("it has changed meanwhile: its etag is {etag}");
        return Err(status(Code::Aborted, "ETAG_MISMATCH", text, [("etag", etag)]));
    }
    let Change {
        spec,
        operations,
        words,
        above,
    } = Change::read(&adapter, request, &now, context.nic.line_rate_mbps(&adapter))?;
    context
        .nic
        .check_congestion(&spec)
        .map_err(|e| from_nic(e, field))?;
    carry_out(context, &adapter, &now.spec, (spec, &operations))?;
    match above {
        None => Ok((adapter, words.join(", "))),
        Some(refused) => Err(refused),
    }
}

fn reset(context: &Context, adapter: &str) -> Result<(), Status> {
    let now = look(context, adapter)?;
    let operations = change::forget_keys(adapter);
    carry_out(
        context,
        adapter,
        &now.spec,
        (CongestionSpec::default(), &operations),
    )
}

impl Slowing {
    /// Runs a change with nothing between its look and its act, and tells what came of it.
    async fn change(
        &self,
        by: String,
        asked: Option<String>,
        work: impl FnOnce(&Context) -> Result<(String, String), Status> + Send + 'static,
    ) -> Result<Response<v1::Congestion>, Status> {
        let context = self.0.clone();
        blocking(move || {
            let _order = context.qos_order.lock().unwrap_or_else(PoisonError::into_inner);
            let (adapter, what) = work(&context).inspect_err(|refused| {
                let wrong = matches!(refused.code(), Code::InvalidArgument | Code::OutOfRange);
                if let (Some(adapter), true) = (asked, wrong) {
                    context.hub.record(ControlEvent::SettingsRefused {
                        owner: Owner::Adapter(adapter),
                        store: STORE,
                        what: refused.message().to_owned(),
                        by: by.clone(),
                    });
                }
            })?;
            context.hub.record(ControlEvent::SettingsChanged {
                owner: Owner::Adapter(adapter.clone()),
                store: STORE,
                what,
                by,
            });
            let now = look(&context, &adapter)?;
            Ok(Response::new(in_full(&context, &adapter, &now)))
        })
        .await?
    }
}

#[tonic::async_trait]
impl v1::congestion_service_server::CongestionService for Slowing {
    async fn get_congestion(
        &self,
        request: Request<v1::GetCongestionRequest>,
    ) -> Result<Response<v1::Congestion>, Status> {
        let adapter = adapter(&request.into_inner().name)?;
        let context = self.0.clone();
        blocking(move || {
            let now = look(&context, &adapter)?;
            Ok(Response::new(in_full(&context, &adapter, &now)))
        })
        .await?
    }

    async fn list_congestion(
        &self,
        _request: Request<v1::ListCongestionRequest>,
    ) -> Result<Response<v1::ListCongestionResponse>, Status> {
        let context = self.0.clone();
        blocking(move || {
            // One that has been removed meanwhile is left out.
            let one = |name: String| Some(in_full(&context, &name, &look(&context, &name).ok()?));
            let adapters = context.nic.adapters().into_iter().map(|a| a.spec.name);
            let congestion = adapters.filter_map(one).collect();
            Ok(Response::new(v1::ListCongestionResponse { congestion }))
        })
        .await?
    }

    async fn set_congestion(
        &self,
        request: Request<v1::SetCongestionRequest>,
    ) -> Result<Response<v1::Congestion>, Status> {
        let by = access::who(&request);
        let request = request.into_inner();
        let asked = adapter(&request.name).ok();
        self.change(by, asked, move |context| set(context, &request))
            .await
    }

    async fn reset_congestion(
        &self,
        request: Request<v1::ResetCongestionRequest>,
    ) -> Result<Response<v1::Congestion>, Status> {
        let by = access::who(&request);
        let adapter = adapter(&request.into_inner().name)?;
        self.change(by, None, move |context| {
            reset(context, &adapter)?;
            Ok((adapter, "everything is as while nothing is configured".to_owned()))
        })
        .await
    }

    async fn list_congestion_presets(
        &self,
        _request: Request<v1::ListCongestionPresetsRequest>,
    ) -> Result<Response<v1::ListCongestionPresetsResponse>, Status> {
        let algorithm = |a: CongestionAlgorithm| v1::CongestionAlgorithm {
            name: a.name().to_owned(),
            help: a.help().to_owned(),
        };
        let preset = |p: Preset| v1::CongestionPreset {
            name: p.name().to_owned(),
            help: p.help().to_owned(),
            parameters: fields::of_preset(p),
        };
        Ok(Response::new(v1::ListCongestionPresetsResponse {
            algorithms: CongestionAlgorithm::ALL.map(algorithm).to_vec(),
            presets: Preset::ALL.map(preset).to_vec(),
        }))
    }

    async fn list_flows(
        &self,
        request: Request<v1::ListFlowsRequest>,
    ) -> Result<Response<v1::ListFlowsResponse>, Status> {
        let asked = request.into_inner().adapter;
        let one = match asked.as_str() {
            "" => None,
            name => Some(
                names::id(names::ADAPTERS, name)
                    .map(str::to_owned)
                    .ok_or_else(|| {
                        invalid(
                            "adapter",
                            format!("{name:?} is not of the form adapters/{{adapter}}"),
                        )
                    })?,
            ),
        };
        let context = self.0.clone();
        blocking(move || {
            let mut flows = Vec::new();
            let mut take = |name: &str, mut limited: Vec<CongestionFlow>| {
                limited.sort_by_key(|f| f.qp.0);
                flows.extend(limited.iter().map(|f| fields::flow(name, f)));
            };
            match one {
                Some(name) => {
                    let limited = context.nic.congestion_flows(&name);
                    take(&name, limited.map_err(|e| from_nic(e, str::to_owned))?);
                }
                None => {
                    for adapter in context.nic.adapters() {
                        let name = adapter.spec.name;
                        // One that has no RDMA function, or has been removed meanwhile, has no flows.
                        take(&name, context.nic.congestion_flows(&name).unwrap_or_default());
                    }
                }
            }
            Ok(Response::new(v1::ListFlowsResponse { flows }))
        })
        .await?
    }
}
