//! `vnic.v1.OidService`.

use std::sync::Arc;

use tonic::{Request, Response};
use vnic_backend::oid::{self, OidDef};
use vnic_control::v1;

use super::answer::{Answer, answer};
use super::errors::id;
use crate::access::who;
use crate::control::{self, Control};
use crate::names::ADAPTERS;

/// The service.
pub struct Oids(pub Arc<Control>);

fn status(status: oid::Status) -> v1::NdisStatus {
    v1::NdisStatus {
        code: status.0,
        status_name: status.name().to_owned(),
        meaning: status.meaning().to_owned(),
    }
}

fn row(def: &OidDef) -> v1::Oid {
    v1::Oid {
        code: def.code,
        oid_name: def.name.to_owned(),
        settable: def.settable,
        unit: def.unit.to_owned(),
        help: def.help.to_owned(),
        source: def.source.to_owned(),
    }
}

#[tonic::async_trait]
impl v1::oid_service_server::OidService for Oids {
    async fn list_oids(&self, _: Request<v1::ListOidsRequest>) -> Answer<v1::ListOidsResponse> {
        Ok(Response::new(v1::ListOidsResponse {
            oids: oid::OIDS.iter().map(row).collect(),
        }))
    }

    async fn query_oid(&self, request: Request<v1::QueryOidRequest>) -> Answer<v1::QueryOidResponse> {
        let request = request.into_inner();
        let id = id(ADAPTERS, "adapter", &request.adapter)?;
        answer(&self.0, move |control| {
            let room = request
                .buffer_length
                .map_or(usize::MAX, |length| usize::try_from(length).unwrap_or(usize::MAX));
            let control::Queried { answer, text } = control::Oids(control).query(&id, request.code, room)?;
            Ok(v1::QueryOidResponse {
                status: Some(status(answer.status)),
                data: answer.data,
                bytes_needed: u32::try_from(answer.needed).unwrap_or(u32::MAX),
                text,
            })
        })
        .await
    }

    async fn set_oid(&self, request: Request<v1::SetOidRequest>) -> Answer<v1::SetOidResponse> {
        let by = who(&request);
        let request = request.into_inner();
        let id = id(ADAPTERS, "adapter", &request.adapter)?;
        answer(&self.0, move |control| {
            let set = control::Oids(control).set(&by, &id, request.code, &request.data)?;
            let answer = match set {
                Ok(read) => v1::SetOidResponse {
                    status: Some(status(oid::Status::SUCCESS)),
                    bytes_read: u32::try_from(read).unwrap_or(u32::MAX),
                    bytes_needed: 0,
                },
                Err(failure) => v1::SetOidResponse {
                    status: Some(status(failure.status)),
                    bytes_read: 0,
                    bytes_needed: u32::try_from(failure.needed).unwrap_or(u32::MAX),
                },
            };
            Ok(answer)
        })
        .await
    }
}
