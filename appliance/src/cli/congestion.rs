//! `vnicctl cc`.

mod args;
pub mod show;

use std::collections::HashMap;
use std::path::Path;

use vnic_control::v1;

use super::Failure;
use super::client::{Client, resource};
use super::output::Output;
use super::paging;
use crate::names::{self, ADAPTERS};
pub use args::CcVerb;
use args::Ends;

/// Runs a command.
pub async fn run(verb: CcVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    let done = match verb {
        CcVerb::Show { name } => get(client, &name).await?,
        CcVerb::List => {
            let mut service = client.congestion().await?;
            let all = paging::list(&mut service, v1::ListCongestionRequest::default()).await?;
            return out.message("ListCongestionResponse", &all, || show::table(&all.congestion));
        }
        CcVerb::Get { name, parameters } => {
            let mut now = get(client, &name).await?;
            if !parameters.is_empty() {
                now.parameters = parameters
                    .iter()
                    .map(|wanted| one(&now.parameters, wanted))
                    .collect::<Result<_, _>>()?;
            }
            return out.message("Congestion", &now, || show::values(&now.parameters));
        }
        CcVerb::Set(change) => {
            let request = v1::SetCongestionRequest {
                algorithm: change.algorithm,
                preset: change.preset,
                parameters: change.parameters.into_iter().collect(),
                ..request(&change.name)
            };
            set(client, request).await?
        }
        CcVerb::Load { name, file } => set(client, load(&name, &file)?).await?,
        CcVerb::Unload { name } => {
            let request = v1::SetCongestionRequest {
                program: Some(Vec::new()),
                ..request(&name)
            };
            set(client, request).await?
        }
        CcVerb::Enable(ends) => set(client, switch(&ends, true)).await?,
        CcVerb::Disable(ends) => set(client, switch(&ends, false)).await?,
        CcVerb::Defaults { name } => {
            let now = get(client, &name).await?;
            return out.message("Congestion", &now, || show::defaults(&now));
        }
        CcVerb::Restore { name } => reset(client, &name).await?,
        CcVerb::Presets => {
            let request = v1::ListCongestionPresetsRequest {};
            let mut service = client.congestion().await?;
            return out.answer(
                "ListCongestionPresetsResponse",
                service.list_congestion_presets(request).await?,
                show::presets,
            );
        }
        CcVerb::Flows { name } => {
            let adapter = name.map_or_else(String::new, |name| resource(ADAPTERS, &name));
            let mut service = client.congestion().await?;
            let request = v1::ListFlowsRequest {
                adapter,
                ..Default::default()
            };
            let all = paging::list(&mut service, request).await?;
            return out.message("ListFlowsResponse", &all, || show::flows(&all.flows));
        }
    };
    out.message("Congestion", &done, || show::text(&done))
}

fn name(adapter: &str) -> String {
    names::congestion(names::last(adapter))
}

fn request(adapter: &str) -> v1::SetCongestionRequest {
    v1::SetCongestionRequest {
        name: name(adapter),
        ..v1::SetCongestionRequest::default()
    }
}

/// Request that loads a program.
fn load(adapter: &str, file: &Path) -> Result<v1::SetCongestionRequest, Failure> {
    let failed = |what: String| Failure::Failed(format!("{}: {what}", file.display()));
    let program = std::fs::read(file).map_err(|e| failed(e.to_string()))?;
    if !program.starts_with(b"\0asm") {
        let cure = "not WebAssembly in binary form; of text `vnic-sim program FILE --out FILE.wasm` makes it";
        return Err(failed(cure.to_owned()));
    }
    Ok(v1::SetCongestionRequest {
        program: Some(program),
        ..request(adapter)
    })
}

/// Request that enables or disables priorities of the given ends.
fn switch(ends: &Ends, on: bool) -> v1::SetCongestionRequest {
    let mask = match ends.priorities.as_slice() {
        [] => 0xff,
        some => some.iter().fold(0, |mask, p| mask | 1 << p),
    };
    let (reaction, notification) = (if ends.np { 0 } else { mask }, if ends.rp { 0 } else { mask });
    priorities(&ends.name, on, reaction, notification)
}

/// Request that enables or disables these priorities.
pub fn priorities(adapter: &str, on: bool, reaction: u32, notification: u32) -> v1::SetCongestionRequest {
    let request = request(adapter);
    match on {
        true => v1::SetCongestionRequest {
            enable_reaction: reaction,
            enable_notification: notification,
            ..request
        },
        false => v1::SetCongestionRequest {
            disable_reaction: reaction,
            disable_notification: notification,
            ..request
        },
    }
}

/// Request that sets parameters.
pub fn parameters(adapter: &str, parameters: HashMap<String, String>) -> v1::SetCongestionRequest {
    v1::SetCongestionRequest {
        parameters,
        ..request(adapter)
    }
}

pub async fn get(client: &Client, adapter: &str) -> Result<v1::Congestion, Failure> {
    let request = v1::GetCongestionRequest { name: name(adapter) };
    let mut service = client.congestion().await?;
    Ok(service.get_congestion(request).await?.into_inner())
}

pub async fn set(client: &Client, request: v1::SetCongestionRequest) -> Result<v1::Congestion, Failure> {
    let mut service = client.congestion().await?;
    Ok(service.set_congestion(request).await?.into_inner())
}

pub async fn reset(client: &Client, adapter: &str) -> Result<v1::Congestion, Failure> {
    let request = v1::ResetCongestionRequest { name: name(adapter) };
    let mut service = client.congestion().await?;
    Ok(service.reset_congestion(request).await?.into_inner())
}

fn one(all: &[v1::CongestionParameter], wanted: &str) -> Result<v1::CongestionParameter, Failure> {
    let is = |known: &String| known.eq_ignore_ascii_case(wanted);
    let found = all.iter().find(|p| is(&p.name) || p.aliases.iter().any(is));
    found.cloned().ok_or_else(|| {
        Failure::Failed(format!(
            "there is no parameter {wanted:?}: `vnicctl cc get` lists them"
        ))
    })
}
