//! `vnic.v1.MirrorService`.

use std::collections::BTreeSet;
use std::sync::Arc;

use tonic::{Request, Response};
use vnic_backend::MirrorStatus;
use vnic_control::v1;

use super::answer::{Answer, answer};
use super::errors::id;
use super::paging::page;
use crate::access::{blocking, who};
use crate::check::Violations;
use crate::control::{self, Control};
use crate::names::{self, MIRRORS};
use crate::stored::{self, values};

/// The service.
pub struct Mirrors(pub Arc<Control>);

/// Message of a session; `ports` are the names of all ports.
fn message(ports: &BTreeSet<String>, status: &MirrorStatus) -> v1::Mirror {
    v1::Mirror {
        name: names::of(MIRRORS, &status.spec.name),
        mirrored_frames: status.mirrored,
        dropped_frames: status.dropped,
        problem: status.problem.clone().unwrap_or_default(),
        create_time: Some(values::timestamp(status.created)),
        lifetime: v1::Lifetime::Stored.into(),
        ..stored::mirrors::message(&status.spec, |name| names::owner(ports, name))
    }
}

#[tonic::async_trait]
impl v1::mirror_service_server::MirrorService for Mirrors {
    async fn list_mirrors(
        &self,
        request: Request<v1::ListMirrorsRequest>,
    ) -> Answer<v1::ListMirrorsResponse> {
        let request = request.into_inner();
        let page = page!(request, "ListMirrors", [100, 1000])?;
        let control = self.0.clone();
        let all: Vec<v1::Mirror> = blocking(move || {
            let ports = control.port_names();
            let all = control.nic.mirrors();
            all.iter().map(|status| message(&ports, status)).collect()
        })
        .await?;
        let (mirrors, next_page_token) = page.cut(all, |m| m.name.clone());
        Ok(Response::new(v1::ListMirrorsResponse {
            mirrors,
            next_page_token,
        }))
    }

    async fn get_mirror(&self, request: Request<v1::GetMirrorRequest>) -> Answer<v1::Mirror> {
        let id = id(MIRRORS, "name", &request.into_inner().name)?;
        answer(&self.0, move |control| {
            let status = control::Mirrors(control).get(&id)?;
            Ok(message(&control.port_names(), &status))
        })
        .await
    }

    async fn create_mirror(&self, request: Request<v1::CreateMirrorRequest>) -> Answer<v1::Mirror> {
        let by = who(&request);
        let request = request.into_inner();
        answer(&self.0, move |control| {
            let mut wrong = Violations::default();
            let mirror = request.mirror.unwrap_or_default();
            let spec = stored::mirrors::read(&request.mirror_id, &mirror, &mut wrong);
            let status = control::Mirrors(control).create(&by, wrong.finish(spec)?)?;
            Ok(message(&control.port_names(), &status))
        })
        .await
    }

    async fn delete_mirror(&self, request: Request<v1::DeleteMirrorRequest>) -> Answer<v1::Mirror> {
        let by = who(&request);
        let id = id(MIRRORS, "name", &request.into_inner().name)?;
        answer(&self.0, move |control| {
            let last = control::Mirrors(control).remove(&by, &id)?;
            Ok(message(&control.port_names(), &last))
        })
        .await
    }
}
