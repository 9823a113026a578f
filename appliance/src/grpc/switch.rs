//! `vnic.v1.SwitchService`.

use std::sync::Arc;

use tonic::{Request, Response, Status};
use vnic_backend::{DropReason, FdbEntry, TraceReceiver};
use vnic_control::v1;

use super::answer::{Answer, answer};
use super::errors::{OWNER, form, invalid};
use super::paging::page;
use crate::access::{blocking, bug};
use crate::check::Violations;
use crate::control::{Control, Refused};
use crate::names;
use crate::stored::values::{self, count};

/// The service.
pub struct EmbeddedSwitch(pub Arc<Control>);

/// First bytes of a frame to be traced.
const HEAD: std::ops::RangeInclusive<usize> = 14..=512;
/// Lengths of frames without the FCS: the shortest of Ethernet, and the longest that a guest can send.
const FRAME_MIN: usize = 60;
const FRAME_MAX: usize = 65_550;

/// Resource name of the only switch.
const NAME: &str = "switch";

/// Address table of the switch. Reading it takes a request to each data core; the result is paced.
async fn table(control: &Arc<Control>) -> Result<Arc<[FdbEntry]>, Status> {
    let nic = control.nic.clone();
    control
        .fdb
        .get(move || nic.fdb().into())
        .await
        .map_err(|e| bug(&e))
}

#[tonic::async_trait]
impl v1::switch_service_server::SwitchService for EmbeddedSwitch {
    async fn get_switch(&self, request: Request<v1::GetSwitchRequest>) -> Answer<v1::Switch> {
        let name = request.into_inner().name;
        if !name.is_empty() && name != NAME {
            return Err(invalid("name", format!("{name:?}: {NAME:?} is allowed")));
        }
        let fdb = table(&self.0).await?;
        answer(&self.0, move |control| {
            let fixed = fdb.iter().filter(|e| e.is_static).count();
            let config = &control.settings.nic.switch;
            Ok(v1::Switch {
                name: NAME.to_owned(),
                mac_ageing: Some(values::duration(config.ageing)),
                learn_limit_per_port: count(config.learn_limit_per_port),
                ports: count(control.nic.adapters().len() + control.nic.ports().len()),
                static_entries: count(fixed),
                learned_entries: count(fdb.len() - fixed),
            })
        })
        .await
    }

    async fn trace_frame(&self, request: Request<v1::TraceFrameRequest>) -> Answer<v1::TraceFrameResponse> {
        let v1::TraceFrameRequest { owner, head, length } = request.into_inner();
        let mut wrong = Violations::default();
        let ids = [names::ADAPTERS, names::PORTS].map(|c| names::id(c, &owner));
        let id = ids.into_iter().flatten().next().map(str::to_owned);
        if id.is_none() {
            wrong.add("owner", form(&owner, OWNER));
        }
        if !HEAD.contains(&head.len()) {
            let (lo, hi) = (HEAD.start(), HEAD.end());
            wrong.add("head", format!("{} bytes; allowed are {lo} to {hi}", head.len()));
        }
        let len = match length {
            0 => head.len().max(FRAME_MIN),
            length => usize::try_from(length).unwrap_or(usize::MAX),
        };
        if !(head.len()..=FRAME_MAX).contains(&len) {
            let lo = head.len();
            wrong.add(
                "length",
                format!("{len}; allowed are {lo} (the head's) to {FRAME_MAX}"),
            );
        }
        let id = wrong.finish(id)?;
        answer(&self.0, move |control| {
            let trace = control.nic.trace(&id, &head, len);
            let trace = trace.map_err(Refused::nic(|_| "owner".to_owned()))?;
            let ports = control.port_names();
            let named = |reason: Option<DropReason>| reason.map(|r| r.name().to_owned()).unwrap_or_default();
            let receiver = |r: &TraceReceiver| v1::TraceReceiver {
                owner: match control.nic.bond(&r.owner) {
                    Ok(_) => names::of(names::TEAMS, &r.owner),
                    Err(_) => names::owner(&ports, &r.owner),
                },
                function: r.function.name().to_owned(),
                tag: r.tag.clone(),
                dropped: named(r.dropped),
                fault_rules: r.fault_rules.clone(),
            };
            let step = |(name, text): &(&str, String)| v1::TraceStep {
                name: (*name).to_owned(),
                text: text.clone(),
            };
            Ok(v1::TraceFrameResponse {
                steps: trace.steps.iter().map(step).collect(),
                dropped: named(trace.dropped),
                receivers: trace.receivers.iter().map(receiver).collect(),
            })
        })
        .await
    }

    async fn list_fdb_entries(
        &self,
        request: Request<v1::ListFdbEntriesRequest>,
    ) -> Answer<v1::ListFdbEntriesResponse> {
        let request = request.into_inner();
        let page = page!(request, "ListFdbEntries", [1000, 10_000])?;
        let mut wrong = Violations::default();
        let owner = request.owner.as_str();
        let collections = [names::ADAPTERS, names::PORTS];
        if !owner.is_empty() && collections.iter().all(|c| names::id(c, owner).is_none()) {
            wrong.add("owner", form(owner, OWNER));
        }
        if request.vlan > 4094 {
            wrong.add("vlan", format!("{} is out of range: 0 to 4094", request.vlan));
        }
        wrong.finish(Some(()))?;
        let control = self.0.clone();
        let fdb = table(&control).await?;
        let ports = blocking(move || control.port_names()).await?;
        let entries = fdb
            .iter()
            .map(|entry| v1::FdbEntry {
                vlan: u32::from(entry.vlan),
                mac: entry.mac.to_string(),
                owner: names::owner(&ports, &entry.owner),
                r#static: entry.is_static,
                age: Some(values::duration(entry.age)),
            })
            .filter(|e| owner.is_empty() || e.owner == owner)
            .filter(|e| request.vlan == 0 || e.vlan == request.vlan)
            .collect();
        let (fdb_entries, next_page_token) = page.cut(entries, |e: &v1::FdbEntry| {
            format!("{:04} {} {}", e.vlan, e.mac, e.owner)
        });
        Ok(Response::new(v1::ListFdbEntriesResponse {
            fdb_entries,
            next_page_token,
        }))
    }
}
