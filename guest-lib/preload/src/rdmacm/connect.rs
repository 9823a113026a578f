//! Listening, connecting, accepting, and the end of connections.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use vnic_verbs::connection::{ConnectionMessage, Transport};

use super::address::{is_any, plain};
use super::devices::{CmDevice, Whom, all};
use super::header::Header;
use super::id::Id;
use super::resolve::bind;
use super::state::Phase;
use crate::abi::*;
use crate::errno::Errno;

/// Requests that may wait if the program names no number, and at most (as `rdma_cm`'s `max_backlog`).
const BACKLOG: u32 = 1024;
/// How long a peer may take to answer: 4.096 µs · 2^n, as Linux' `rdma_cm`.
const RESPONSE_TIMEOUT: u8 = 20;
/// How often a request is sent.
const MAX_RETRIES: u8 = 15;
/// Reasons of a rejection (IBTA 12.6.7.2, 12.11.2.1).
const BY_PROGRAM: u16 = 28;
const DATAGRAM_REFUSED: u16 = 2;
/// `IB_CM_REJ_VENDOR_OPTION_NOT_SUPPORTED`.
pub const NO_ECE: u16 = 35;

/// What a program says of a connection.
#[derive(Debug, Clone, Default)]
pub struct Said {
    pub private: Vec<u8>,
    /// `RDMA_MAX_RESP_RES`: as many as there may be.
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: bool,
    pub retry_count: u8,
    pub rnr_retry: u8,
    pub srq: bool,
    pub qp: u32,
    /// Of a datagram service; 0: that of all programs.
    pub qkey: u32,
}

impl Said {
    /// What is said if nothing is.
    pub fn nothing() -> Said {
        Said {
            responder_resources: RDMA_MAX_RESP_RES as u8,
            initiator_depth: RDMA_MAX_INIT_DEPTH as u8,
            retry_count: 7,
            rnr_retry: 7,
            ..Said::default()
        }
    }
}

/// Checks a number of READs and atomics; the largest number stands for as many as the device has.
fn depth(wanted: u8, most: u32, all: u32) -> Result<u8, Errno> {
    match u32::from(wanted) {
        n if n == all => Ok(u8::try_from(most).unwrap_or(u8::MAX)),
        n if n <= most => Ok(wanted),
        _ => Err(Errno::INVALID.because("more READs and atomics at a time than the device has")),
    }
}

/// Listens for requests.
pub fn listen(id: &Id, backlog: i32) -> Result<(), Errno> {
    let state = &id.state;
    if state.lock().phase == Phase::Idle {
        bind(id, SocketAddr::from(([0, 0, 0, 0], 0)))?;
    }
    let (devices, source, only_family) = {
        let inner = state.lock();
        if inner.phase != Phase::Bound {
            return Err(Errno::INVALID);
        }
        let source = inner.source.ok_or(Errno::INVALID)?;
        (inner.device.clone(), source, inner.options.only_family)
    };
    let devices = devices.map_or_else(|| all(true), |device| vec![device]);
    let whom = match source.ip() {
        ip if !is_any(ip) => Whom::One(plain(ip)),
        IpAddr::V4(_) => Whom::AnyV4,
        IpAddr::V6(_) => Whom::AnyV6 { both: !only_family },
    };
    let backlog = u32::try_from(backlog)
        .ok()
        .filter(|n| (1..=BACKLOG).contains(n))
        .unwrap_or(BACKLOG);
    let (service, party) = (state.service(source.port()), state.party());
    let mut failed = Errno(libc::ENODEV);
    let mut listens: Vec<Arc<CmDevice>> = Vec::new();
    for device in devices {
        match device.listen(service, whom, backlog, &party) {
            Ok(()) => listens.push(device),
            Err(e) => failed = e,
        }
    }
    if listens.is_empty() || failed.0 == libc::EADDRINUSE {
        for device in listens {
            device.unlisten(service, &party);
        }
        return Err(failed);
    }
    let mut inner = state.lock();
    inner.listens = listens;
    inner.phase = Phase::Listening;
    Ok(())
}

/// Asks the peer for a connection, or for the queue pair of its service.
pub fn connect(id: &Id, said: Said) -> Result<(), Errno> {
    let state = &id.state;
    let device = state.device()?;
    let limits = device.device().query_device();
    let message = {
        let mut inner = state.lock();
        if inner.phase != Phase::RouteResolved {
            return Err(Errno::INVALID);
        }
        let (Some(source), Some(peer)) = (inner.source, inner.peer) else {
            return Err(Errno::INVALID);
        };
        let header = Header {
            source: SocketAddr::new(plain(source.ip()), source.port()),
            destination: plain(peer.ip()),
        };
        let mut private = header.write().to_vec();
        private.extend_from_slice(&said.private);
        inner.responder_resources = depth(said.responder_resources, limits.max_rd_atomic, RDMA_MAX_RESP_RES)?;
        inner.initiator_depth = depth(said.initiator_depth, limits.max_rd_atomic, RDMA_MAX_INIT_DEPTH)?;
        inner.phase = Phase::Connecting;
        ConnectionMessage {
            qp: said.qp,
            service: state.service(peer.port()),
            psn: inner.psn,
            responder_resources: inner.responder_resources,
            initiator_depth: inner.initiator_depth,
            retry_count: said.retry_count.min(7),
            rnr_retry: said.rnr_retry.min(7),
            path_mtu: inner.path_mtu,
            transport: inner.transport,
            flow_control: said.flow_control,
            srq: said.srq,
            ack_timeout: inner.ack_timeout(),
            response_timeout: RESPONSE_TIMEOUT,
            max_retries: MAX_RETRIES,
            pkey: inner.path.map_or_else(|| device.pkey(), |path| path.pkey),
            ece: inner.own_ece,
            address: inner.way,
            private_data: private,
            ..ConnectionMessage::default()
        }
    };
    let begun = |connection| state.lock().connection = Some(connection);
    let asked = device.connect(&message, state.party(), begun);
    if asked.is_err() {
        state.lock().phase = Phase::RouteResolved;
    }
    asked
}

/// Accepts a request: what is said to the peer. The queue pair is ready.
pub fn accept(id: &Id, said: &Said) -> Result<(), Errno> {
    let (device, connection) = id.state.connected()?;
    let reply = {
        let inner = id.state.lock();
        ConnectionMessage {
            qp: said.qp,
            psn: inner.psn,
            qkey: said.qkey,
            responder_resources: said.responder_resources,
            initiator_depth: said.initiator_depth,
            rnr_retry: said.rnr_retry.min(7),
            flow_control: said.flow_control,
            srq: said.srq,
            transport: inner.transport,
            ece: inner.own_ece,
            private_data: said.private.clone(),
            ..ConnectionMessage::default()
        }
    };
    Ok(device.connections()?.accept(connection, &reply)?)
}

/// READs and atomics of a request's answer: what the program names, or what the peer asks for and the device has.
pub fn depths(id: &Id, said: &mut Said) -> Result<(), Errno> {
    let limits = id.state.device()?.device().query_device();
    let inner = id.state.lock();
    let most = u8::try_from(limits.max_rd_atomic).unwrap_or(u8::MAX);
    for (wanted, asked, all) in [
        (
            &mut said.responder_resources,
            inner.responder_resources,
            RDMA_MAX_RESP_RES,
        ),
        (
            &mut said.initiator_depth,
            inner.initiator_depth,
            RDMA_MAX_INIT_DEPTH,
        ),
    ] {
        *wanted = match u32::from(*wanted) {
            n if n == all => asked.min(most),
            _ => depth(*wanted, limits.max_rd_atomic, all)?,
        };
    }
    Ok(())
}

/// Completes a connection whose queue pair the program has brought to RTS by itself.
pub fn establish(id: &Id) -> Result<(), Errno> {
    let (device, connection) = id.state.connected()?;
    let transport = id.state.lock().transport;
    let rtu = ConnectionMessage {
        transport,
        ..ConnectionMessage::default()
    };
    Ok(device.connections()?.accept(connection, &rtu)?)
}

/// Rejects a request, or a reply.
pub fn reject(id: &Id, reason: Option<u16>, private: &[u8]) -> Result<(), Errno> {
    let (device, connection) = id.state.connected()?;
    let transport = id.state.lock().transport;
    let usual = if transport == Transport::Ud {
        DATAGRAM_REFUSED
    } else {
        BY_PROGRAM
    };
    let reject = ConnectionMessage {
        reason: reason.unwrap_or(usual),
        transport,
        private_data: private.to_vec(),
        ..ConnectionMessage::default()
    };
    Ok(device.connections()?.reject(connection, &reject)?)
}

/// Ends a connection. What is over already is over.
pub fn disconnect(id: &Id) -> Result<(), Errno> {
    let (device, connection) = id.state.connected()?;
    let transport = id.state.lock().transport;
    if transport == Transport::Ud {
        return Err(Errno::INVALID);
    }
    let last = ConnectionMessage {
        transport,
        ..ConnectionMessage::default()
    };
    match device.connections()?.disconnect(connection, &last) {
        Err(e) if e.status() != Some(vnic_verbs::CommandStatus::WrongState) => Err(e.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_are_the_devices_at_most() {
        assert_eq!(depth(3, 16, RDMA_MAX_RESP_RES), Ok(3));
        assert_eq!(depth(0, 16, RDMA_MAX_RESP_RES), Ok(0));
        assert_eq!(depth(255, 16, RDMA_MAX_RESP_RES), Ok(16), "as many as there are");
        assert_eq!(depth(17, 16, RDMA_MAX_RESP_RES), Err(Errno::INVALID));
    }
}
