//! `vnic.v1.NvConfigService`.

use std::sync::Arc;

use tonic::{Code, Request, Response, Status};
use vnic_control::v1;

use super::errors::{Violations, blocking, from_nic, invalid, status};
use crate::access;
use crate::daemon::Context;
use crate::events::{ControlEvent, Owner};
use crate::names;
use crate::nv::{NvDef, NvKind, NvScope, NvView, NvWhy, PARAMETERS, parameter};
use crate::store::StoreError;

/// The service.
pub struct NvConfig(pub Arc<Context>);

fn message(view: &NvView) -> v1::NvParameter {
    use v1::nv_parameter::{Choice, Scope, Type};
    let def = view.def;
    let (min, max, choices, kind) = match def.kind {
        NvKind::Number { min, max } => (min, max, &[][..], Type::Number),
        NvKind::Enum(choices) => (0, 0, choices, Type::Enum),
        NvKind::Bool => (0, 1, &[][..], Type::Bool),
    };
    let scope = match def.scope {
        NvScope::Device => Scope::Device,
        NvScope::Port => Scope::Port,
    };
    let choice = |(value, word): &(u32, &str)| Choice {
        value: *value,
        word: (*word).to_owned(),
    };
    v1::NvParameter {
        name: def.name.to_owned(),
        r#type: kind.into(),
        scope: scope.into(),
        min,
        max,
        choices: choices.iter().map(choice).collect(),
        unit: def.unit.to_owned(),
        default_value: def.default,
        current_value: view.current,
        next_value: view.next,
        built: def.waits_for.is_none(),
        waits_for: def.waits_for.unwrap_or_default().to_owned(),
        help: def.help.to_owned(),
        source: def.source.to_owned(),
    }
}

fn refused(context: &Context, by: &str, field: &str, why: &NvWhy) -> Status {
    let text = why.to_string();
    match why {
        NvWhy::Unknown { .. } => status(Code::NotFound, "UNKNOWN_PARAMETER", text, []),
        NvWhy::NotBuilt { waits_for, .. } => {
            let more = [("waits_for", (*waits_for).to_owned())];
            status(Code::Unimplemented, "PARAMETER_NOT_BUILT", text, more)
        }
        NvWhy::NotAllowed { .. } => {
            context.hub.record(ControlEvent::SettingsRefused {
                owner: Owner::Nic,
                store: "nvconfig",
                what: text.clone(),
                by: by.to_owned(),
            });
            invalid(field, text)
        }
    }
}

fn failed(error: &StoreError) -> Status {
    status(Code::Unavailable, "STORE_FAILED", error.to_string(), [])
}

impl NvConfig {
    fn messages(context: &Context, all: &[&'static NvDef]) -> Vec<v1::NvParameter> {
        all.iter().map(|def| message(&context.nv.view(def))).collect()
    }

    fn told(context: &Context, by: &str, what: String) {
        context.hub.record(ControlEvent::SettingsChanged {
            owner: Owner::Nic,
            store: "nvconfig",
            what,
            by: by.to_owned(),
        });
    }
}

#[tonic::async_trait]
impl v1::nv_config_service_server::NvConfigService for NvConfig {
    async fn list_nv_parameters(
        &self,
        _request: Request<v1::ListNvParametersRequest>,
    ) -> Result<Response<v1::ListNvParametersResponse>, Status> {
        let all: Vec<&'static NvDef> = PARAMETERS.iter().collect();
        Ok(Response::new(v1::ListNvParametersResponse {
            parameters: Self::messages(&self.0, &all),
        }))
    }

    async fn set_nv_parameters(
        &self,
        request: Request<v1::SetNvParametersRequest>,
    ) -> Result<Response<v1::SetNvParametersResponse>, Status> {
        let by = access::who(&request);
        let request = request.into_inner();
        if request.assignments.is_empty() {
            return Err(invalid("assignments", "at least one is required"));
        }
        let mut assignments = Vec::new();
        for (i, a) in request.assignments.iter().enumerate() {
            let refuse =
                |part: &str, why: NvWhy| refused(&self.0, &by, &format!("assignments[{i}].{part}"), &why);
            let def = parameter(&a.name).map_err(|why| refuse("name", why))?;
            let value = def.check(a.value.trim()).map_err(|why| refuse("value", why))?;
            assignments.push((def, value));
        }
        let context = self.0.clone();
        blocking(move || {
            context.nv.set(&assignments).map_err(|e| failed(&e))?;
            let words: Vec<String> = assignments
                .iter()
                .map(|(d, v)| format!("{} = {v}", d.name))
                .collect();
            Self::told(
                &context,
                &by,
                format!("{} after the next reset", words.join(", ")),
            );
            let mut named: Vec<&'static NvDef> = assignments.iter().map(|(d, _)| *d).collect();
            named.sort_by_key(|d| d.name);
            named.dedup_by_key(|d| d.name);
            let parameters = Self::messages(&context, &named);
            Ok(Response::new(v1::SetNvParametersResponse { parameters }))
        })
        .await?
    }

    async fn reset_nv_parameters(
        &self,
        request: Request<v1::ResetNvParametersRequest>,
    ) -> Result<Response<v1::ResetNvParametersResponse>, Status> {
        let by = access::who(&request);
        let request = request.into_inner();
        let mut wanted: Vec<&'static NvDef> = Vec::new();
        for (i, name) in request.names.iter().enumerate() {
            let refuse = |why: NvWhy| refused(&self.0, &by, &format!("names[{i}]"), &why);
            wanted.push(parameter(name).map_err(refuse)?);
        }
        if wanted.is_empty() {
            wanted = PARAMETERS.iter().collect();
        }
        let context = self.0.clone();
        blocking(move || {
            let changed = context.nv.reset(&wanted).map_err(|e| failed(&e))?;
            if !changed.is_empty() {
                let names: Vec<&str> = changed.iter().map(|d| d.name).collect();
                Self::told(
                    &context,
                    &by,
                    format!("{}: default after the next reset", names.join(", ")),
                );
            }
            let parameters = Self::messages(&context, &changed);
            Ok(Response::new(v1::ResetNvParametersResponse { parameters }))
        })
        .await?
    }

    async fn reset_device(
        &self,
        request: Request<v1::ResetDeviceRequest>,
    ) -> Result<Response<v1::ResetDeviceResponse>, Status> {
        let by = access::who(&request);
        let context = self.0.clone();
        blocking(move || {
            let changed = context.nv.reset_device();
            context.registry.set_roce_off(context.nv.roce_off());
            let mut adapters = Vec::new();
            let mut wrong = Violations::default();
            for adapter in context.nic.adapters() {
                let name = adapter.spec.name;
                match context.registry.restart(&name) {
                    Ok(_) => adapters.push(names::of(names::ADAPTERS, &name)),
                    // Removed meanwhile.
                    Err(vnic_backend::NicError::NotFound { .. }) => {}
                    Err(vnic_backend::NicError::ShuttingDown) => {
                        return Err(from_nic(vnic_backend::NicError::ShuttingDown, str::to_owned));
                    }
                    Err(error) => wrong.add(names::of(names::ADAPTERS, &name), error.to_string()),
                }
            }
            context.hub.record(ControlEvent::SettingsChanged {
                owner: Owner::Nic,
                store: "nvconfig",
                what: "device reset".to_owned(),
                by,
            });
            wrong.finish(Some(()))?;
            let parameters = Self::messages(&context, &changed);
            Ok(Response::new(v1::ResetDeviceResponse { parameters, adapters }))
        })
        .await?
    }
}
