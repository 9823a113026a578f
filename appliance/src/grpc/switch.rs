//! `vnic.v1.SwitchService`.

use std::sync::Arc;

use tonic::{Request, Response, Status};
use vnic_backend::FdbEntry;
use vnic_control::v1;

use super::answer::{Answer, answer};
use super::errors::{OWNER, form, invalid};
use super::paging::page;
use crate::access::{blocking, bug};
use crate::check::Violations;
use crate::control::Control;
use crate::names;
use crate::stored::values::{self, count};

/// The service.
pub struct EmbeddedSwitch(pub Arc<Control>);

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
