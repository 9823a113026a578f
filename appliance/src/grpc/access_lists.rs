//! `vnic.v1.AccessListService`.

use std::sync::Arc;

use tonic::{Request, Response};
use vnic_backend::AccessListStatus;
use vnic_control::v1;

use super::answer::{Answer, answer};
use super::errors::{form, invalid};
use super::paging::page;
use crate::access::{blocking, who};
use crate::check::Violations;
use crate::control::{self, Control};
use crate::names;
use crate::stored;

/// The service.
pub struct AccessLists(pub Arc<Control>);

fn message(status: &AccessListStatus) -> v1::AccessList {
    let [rx, tx] = status.unmatched;
    v1::AccessList {
        name: names::access_list(&status.adapter),
        unmatched_rx_frames: rx,
        unmatched_tx_frames: tx,
        etag: status.revision.to_string(),
        ..stored::access_lists::message(&status.rules, &status.hits)
    }
}

/// Adapter of the resource name of an access list.
fn adapter(field: &str, name: &str) -> Result<String, tonic::Status> {
    let adapter = names::access_list_adapter(name).map(str::to_owned);
    adapter.ok_or_else(|| invalid(field, form(name, "adapters/{adapter}/accessList")))
}

#[tonic::async_trait]
impl v1::access_list_service_server::AccessListService for AccessLists {
    async fn list_access_lists(
        &self,
        request: Request<v1::ListAccessListsRequest>,
    ) -> Answer<v1::ListAccessListsResponse> {
        let request = request.into_inner();
        let page = page!(request, "ListAccessLists", [20, 100])?;
        let control = self.0.clone();
        let all = blocking(move || control.nic.access_lists()).await?;
        let (all, next_page_token) = page.cut(all, |list| list.adapter.clone());
        Ok(Response::new(v1::ListAccessListsResponse {
            access_lists: all.iter().map(message).collect(),
            next_page_token,
        }))
    }

    async fn get_access_list(&self, request: Request<v1::GetAccessListRequest>) -> Answer<v1::AccessList> {
        let adapter = adapter("name", &request.into_inner().name)?;
        answer(&self.0, move |control| {
            Ok(message(&control::AccessLists(control).get(&adapter)?))
        })
        .await
    }

    async fn set_access_list(&self, request: Request<v1::SetAccessListRequest>) -> Answer<v1::AccessList> {
        let by = who(&request);
        let list = request.into_inner().access_list.unwrap_or_default();
        let adapter = adapter("access_list.name", &list.name)?;
        answer(&self.0, move |control| {
            let mut wrong = Violations::default();
            let revision = wrong.optional(
                "access_list.etag",
                Some(&list.etag).filter(|e| !e.is_empty()),
                |etag| {
                    etag.parse::<u64>()
                        .map_err(|_| format!("{etag:?} is no etag of an access list"))
                },
            );
            let rules = stored::access_lists::read(&list, &mut wrong);
            let (rules, revision) = wrong.finish(rules.zip(revision))?;
            let status = control::AccessLists(control).set(&by, &adapter, rules, revision)?;
            Ok(message(&status))
        })
        .await
    }
}
