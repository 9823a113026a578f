//! Connections of `vnic.v1.RdmaService`.

use std::sync::Arc;

use tonic::Status;
use vnic_backend::{ConnectionService, ConnectionState, ConnectionTerms};
use vnic_control::v1;
use vnic_control::v1::rdma_connection::{Ece, State, Type};

use super::convert;
use super::errors::id_or_all;
use super::paging::page;
use crate::access::blocking;
use crate::control::{ConnectionNow, Connections, Control, Place};
use crate::names;
use crate::same::same;

same! { fn state(ConnectionState) -> State {
    Idle, ReqSent, MraReqReceived, RepReceived, MraRepSent, ReqReceived, MraReqSent, RepSent, MraRepReceived, Established, DreqSent,
    DreqReceived, Timewait, SidrReqSent, SidrReqReceived, Listen
} }

fn kind(of: &ConnectionTerms) -> Type {
    match (of.state, of.terms.service.0) {
        (ConnectionState::Listen, _) => Type::Unspecified,
        (ConnectionState::SidrReqSent | ConnectionState::SidrReqReceived, _) => Type::Ud,
        _ if of.terms.is_xrc() => Type::Xrc,
        (_, ConnectionService::Uc) => Type::Uc,
        _ => Type::Rc,
    }
}

fn message(connection: &ConnectionNow) -> v1::RdmaConnection {
    let (of, terms) = (&connection.of, &connection.of.terms);
    let (gid, ipv4) = convert::gid_text(of.peer.dgid.0);
    let port = terms.service_id.port();
    let ece = terms.ece();
    v1::RdmaConnection {
        adapter: names::of(names::ADAPTERS, &connection.adapter),
        number: of.id,
        state: state(of.state).into(),
        r#type: kind(of).into(),
        passive: of.passive,
        service: terms.service_id.0,
        port_space: port.map_or_else(String::new, |(space, _)| space.to_string()),
        port: port.map_or(0, |(_, port)| port.into()),
        peer: (of.state != ConnectionState::Listen).then(|| v1::QueuePairPeer {
            gid,
            ipv4,
            mac: of.peer.dmac.to_string(),
            queue_pair: of.remote_qp,
            gid_index: of.peer.sgid_index.into(),
        }),
        peer_number: of.remote_id,
        queue_pair: of.qp,
        ece: (ece.vendor != 0).then_some(Ece {
            vendor: ece.vendor,
            options: ece.options,
        }),
        owner: connection
            .owner
            .as_ref()
            .map(|owner| convert::process(owner.caller, owner.command.as_deref())),
    }
}

/// Lists a page.
pub async fn list(
    control: &Arc<Control>,
    request: v1::ListRdmaConnectionsRequest,
) -> Result<v1::ListRdmaConnectionsResponse, Status> {
    let page = page!(request, "ListRdmaConnections", [1000, 10_000])?;
    let after: Option<Place> = page.after(|key| {
        let (adapter, place) = key.split_once('/')?;
        Some((adapter.to_owned(), place.parse().ok()?))
    })?;
    let (only, size) = (
        id_or_all(names::ADAPTERS, "parent", &request.parent)?,
        page.size(),
    );
    let control = control.clone();
    let (rows, next) =
        blocking(move || Connections(&control).page(only.as_deref(), after.as_ref(), size)).await??;
    Ok(v1::ListRdmaConnectionsResponse {
        connections: rows.iter().map(message).collect(),
        next_page_token: next.map_or_else(String::new, |(adapter, place)| {
            page.token(format_args!("{adapter}/{place}"))
        }),
    })
}
