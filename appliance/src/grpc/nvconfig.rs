//! `vnic.v1.NvConfigService`.

use std::sync::Arc;

use tonic::{Request, Response};
use vnic_control::v1;

use super::answer::{Answer, answer};
use crate::access::{self};
use crate::control::{self, Control};
use crate::names;
use crate::nv::{NvDef, NvKind, NvScope, NvView, PARAMETERS};
use crate::same::same;

/// The service.
pub struct NvConfig(pub Arc<Control>);

same! { fn scope(NvScope) -> v1::nv_parameter::Scope { Device, Port } }

fn message(view: &NvView) -> v1::NvParameter {
    use v1::nv_parameter::{Choice, Type};
    let def = view.def;
    let (min, max, choices, kind) = match def.kind {
        NvKind::Number { min, max } => (min, max, &[][..], Type::Number),
        NvKind::Enum(choices) => (0, 0, choices, Type::Enum),
        NvKind::Bool => (0, 1, &[][..], Type::Bool),
    };
    let choice = |(value, word): &(u32, &str)| Choice {
        value: *value,
        word: (*word).to_owned(),
    };
    v1::NvParameter {
        name: def.name.to_owned(),
        r#type: kind.into(),
        scope: scope(def.scope).into(),
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

fn messages(control: &Control, all: &[&'static NvDef]) -> Vec<v1::NvParameter> {
    all.iter().map(|def| message(&control.nv.view(def))).collect()
}

#[tonic::async_trait]
impl v1::nv_config_service_server::NvConfigService for NvConfig {
    async fn list_nv_parameters(
        &self,
        _request: Request<v1::ListNvParametersRequest>,
    ) -> Answer<v1::ListNvParametersResponse> {
        let all: Vec<&'static NvDef> = PARAMETERS.iter().collect();
        Ok(Response::new(v1::ListNvParametersResponse {
            parameters: messages(&self.0, &all),
        }))
    }

    async fn set_nv_parameters(
        &self,
        request: Request<v1::SetNvParametersRequest>,
    ) -> Answer<v1::SetNvParametersResponse> {
        let by = access::who(&request);
        let asked = request.into_inner().assignments;
        answer(&self.0, move |control| {
            let asked = asked.iter().map(|a| (a.name.as_str(), a.value.as_str()));
            let named = control::NvConfig(control).set(&by, asked)?;
            let parameters = messages(control, &named);
            Ok(v1::SetNvParametersResponse { parameters })
        })
        .await
    }

    async fn reset_nv_parameters(
        &self,
        request: Request<v1::ResetNvParametersRequest>,
    ) -> Answer<v1::ResetNvParametersResponse> {
        let by = access::who(&request);
        let names = request.into_inner().names;
        answer(&self.0, move |control| {
            let changed = control::NvConfig(control).reset(&by, &names)?;
            let parameters = messages(control, &changed);
            Ok(v1::ResetNvParametersResponse { parameters })
        })
        .await
    }

    async fn reset_device(
        &self,
        request: Request<v1::ResetDeviceRequest>,
    ) -> Answer<v1::ResetDeviceResponse> {
        let by = access::who(&request);
        answer(&self.0, move |control| {
            let (changed, restarted) = control::NvConfig(control).reset_device(&by)?;
            let parameters = messages(control, &changed);
            let adapters = restarted
                .iter()
                .map(|name| names::of(names::ADAPTERS, name))
                .collect();
            Ok(v1::ResetDeviceResponse { parameters, adapters })
        })
        .await
    }
}
