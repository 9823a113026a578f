//! `vnic.v1.RdmaService`.

use std::sync::Arc;

use tonic::{Request, Response, Status};
use vnic_backend::RdmaStatus;
use vnic_control::v1;

use super::answer::{Answer, Stream, answer};
use super::errors::{form, id_or_all, invalid};
use super::looks::{self, resource};
use super::{connections, convert, paging::page, queue_pairs};
use crate::access::blocking;
use crate::check::{self, Violations};
use crate::control::{self, Control};
use crate::names;
use crate::stored::values;

/// The service.
pub struct Rdma(pub Arc<Control>);

/// RDMA functions of one adapter or of all, with the adapter's name.
async fn functions(control: &Arc<Control>, of: &str) -> Result<Vec<(String, RdmaStatus)>, Status> {
    let only = id_or_all(names::ADAPTERS, "parent", of)?;
    let control = control.clone();
    let found = blocking(move || control::Rdma(&control).functions(only.as_deref())).await?;
    Ok(found?)
}

/// Adapter and index of the resource name of a GID.
fn gid_name(name: &str) -> Result<(&str, u16), Status> {
    let wrong = || invalid("name", form(name, "adapters/{adapter}/gids/{index}"));
    let (adapter, index) = names::gid_parts(name).ok_or_else(wrong)?;
    let mut wrong = Violations::default();
    let index = wrong.check("name", check::gid_index(index.parse().unwrap_or(i64::MAX)));
    Ok((adapter, wrong.finish(index)?))
}

resource!(Gid, WatchGidsResponse { gid }: |control| {
    let functions = control::Rdma(control).functions(None).unwrap_or_default();
    let gids = functions.iter().flat_map(|(adapter, status)| status.gids.iter().map(|row| convert::gid(adapter, row)));
    gids.collect()
});

#[tonic::async_trait]
impl v1::rdma_service_server::RdmaService for Rdma {
    async fn list_gids(&self, request: Request<v1::ListGidsRequest>) -> Answer<v1::ListGidsResponse> {
        let request = request.into_inner();
        let page = page!(request, "ListGids", [1000, 10_000])?;
        let mut gids = Vec::new();
        for (adapter, status) in functions(&self.0, &request.parent).await? {
            gids.extend(status.gids.iter().map(|row| convert::gid(&adapter, row)));
        }
        // A space sorts before all characters of names.
        let key = |g: &v1::Gid| {
            let adapter = names::gid_parts(&g.name).map_or("", |(adapter, _)| adapter);
            format!("{adapter} {:05}", g.index)
        };
        let (gids, next_page_token) = page.cut(gids, key);
        Ok(Response::new(v1::ListGidsResponse {
            gids,
            next_page_token,
        }))
    }

    async fn set_gid(&self, request: Request<v1::SetGidRequest>) -> Answer<v1::Gid> {
        let request = request.into_inner();
        let mut wrong = Violations::default();
        let adapter = names::id(names::ADAPTERS, &request.parent).map(str::to_owned);
        if adapter.is_none() {
            wrong.add("parent", form(&request.parent, "adapters/{adapter}"));
        }
        let index = wrong.optional("index", request.index, |i| check::gid_index(i64::from(i)));
        let gid = values::gid_setting(&request.gid.unwrap_or_default(), &mut wrong);
        let all = adapter.zip(index).zip(gid);
        let ((adapter, index), gid) = wrong.finish(all)?;
        answer(&self.0, move |control| {
            let row = control::Rdma(control).set_gid(&adapter, index, gid)?;
            Ok(convert::gid(&adapter, &row))
        })
        .await
    }

    async fn delete_gid(&self, request: Request<v1::DeleteGidRequest>) -> Answer<v1::DeleteGidResponse> {
        let name = request.into_inner().name;
        let (adapter, index) = gid_name(&name)?;
        let adapter = adapter.to_owned();
        answer(&self.0, move |control| {
            let last = control::Rdma(control).clear_gid(&adapter, index)?;
            let gid = last.map(|row| convert::gid(&adapter, &row));
            Ok(v1::DeleteGidResponse { gid })
        })
        .await
    }

    async fn list_rdma_resources(
        &self,
        request: Request<v1::ListRdmaResourcesRequest>,
    ) -> Answer<v1::ListRdmaResourcesResponse> {
        let request = request.into_inner();
        let page = page!(request, "ListRdmaResources", [1000, 10_000])?;
        let mut rows = Vec::new();
        for (adapter, status) in functions(&self.0, &request.parent).await? {
            let numbered = (0..).zip(&status.resources);
            rows.extend(numbered.map(|(i, row)| (i, convert::rdma_resource(&adapter, row))));
        }
        let key = |(i, row): &(u32, v1::RdmaResource)| format!("{} {i:05}", names::last(&row.adapter));
        let (rows, next_page_token) = page.cut(rows, key);
        Ok(Response::new(v1::ListRdmaResourcesResponse {
            resources: rows.into_iter().map(|(_, row)| row).collect(),
            next_page_token,
        }))
    }

    async fn list_queue_pairs(
        &self,
        request: Request<v1::ListQueuePairsRequest>,
    ) -> Answer<v1::ListQueuePairsResponse> {
        let list = queue_pairs::list(&self.0, request.into_inner()).await;
        list.map(Response::new)
    }

    async fn get_queue_pair(&self, request: Request<v1::GetQueuePairRequest>) -> Answer<v1::QueuePair> {
        let pair = queue_pairs::get(&self.0, request.into_inner()).await?;
        Ok(Response::new(pair))
    }

    type WatchQueuePairStream = Stream<v1::WatchQueuePairResponse>;

    async fn watch_queue_pair(
        &self,
        request: Request<v1::WatchQueuePairRequest>,
    ) -> Answer<Self::WatchQueuePairStream> {
        queue_pairs::watch_one(self.0.clone(), request.into_inner()).await
    }

    async fn list_rdma_connections(
        &self,
        request: Request<v1::ListRdmaConnectionsRequest>,
    ) -> Answer<v1::ListRdmaConnectionsResponse> {
        let list = connections::list(&self.0, request.into_inner()).await;
        list.map(Response::new)
    }

    type WatchQueuePairsStream = Stream<v1::WatchQueuePairsResponse>;

    async fn watch_queue_pairs(
        &self,
        request: Request<v1::WatchQueuePairsRequest>,
    ) -> Answer<Self::WatchQueuePairsStream> {
        queue_pairs::watch(self.0.clone(), request.into_inner()).await
    }

    type WatchGidsStream = Stream<v1::WatchGidsResponse>;

    async fn watch_gids(&self, request: Request<v1::WatchRequest>) -> Answer<Self::WatchGidsStream> {
        looks::watch::<v1::Gid>(&self.0, request.into_inner(), |name| gid_name(name).map(drop)).await
    }
}
