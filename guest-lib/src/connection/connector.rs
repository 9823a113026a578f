//! The active side: how a connection is asked for.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::header::{self, Header};
use super::manager::{Link, Manager};
use super::pending::{Limits, Side};
use super::{Connecting, ConnectionManager, ConnectionMessage, Ece, Path, PathAnswer, PathQuery};
use crate::qp::ConnectOptions;
use crate::sync::lock;
use crate::{Access, AddressVector, Error, QpState, QueuePair, Rc};

/// Bytes of a program's private data that a request has room for beside the header of RDMA CM.
pub(super) const REQUEST_ROOM: usize = 92 - header::LEN;

/// How long subnet administration is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// What both ends of a connection choose; the defaults suit most programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// What the peer may do with the memory of a queue pair that is in RESET; in INIT, it has been said.
    pub access: Access,
    /// READs and atomics of the peer to hold resources for; `None`: as many as the device can have, at most 16. Never more than the peer
    /// wants.
    pub responder_resources: Option<u8>,
    /// READs and atomics to have outstanding; `None`: as many as the device can have, at most 16. Never more than the peer can take.
    pub initiator_depth: Option<u8>,
    /// Retries of the peer's queue pair and, who connects, of the own, 0 … 7.
    pub retry_count: u8,
    /// Retries of the peer's queue pair when there is no receive, 0 … 7; 7: without end.
    pub rnr_retry: u8,
    /// Code of the time that the peer waits when there is no receive, 0 … 31.
    pub min_rnr_timer: u8,
    /// Who connects: ACK timeout of the path, 4.096 µs · 2^n.
    pub ack_timeout: u8,
    /// Who connects: traffic class, DSCP and ECN.
    pub traffic_class: u8,
    /// Who connects: flow label, 20 bits.
    pub flow_label: u32,
    /// Who connects: service level, 0 … 15; `None`: that of the path, by the policy of the subnet, or else 0.
    pub service_level: Option<u8>,
    /// Who connects: hop limit.
    pub hop_limit: u8,
    /// Enhanced connection establishment to offer, or to accept.
    pub ece: Ece,
    /// For the peer's program: at most 56 bytes of who connects, 196 of who accepts.
    pub private_data: Vec<u8>,
}

impl Default for ConnectionOptions {
    fn default() -> ConnectionOptions {
        let (message, qp) = (ConnectionMessage::default(), ConnectOptions::default());
        ConnectionOptions {
            access: qp.access,
            responder_resources: None,
            initiator_depth: None,
            retry_count: message.retry_count,
            rnr_retry: message.rnr_retry,
            min_rnr_timer: qp.min_rnr_timer,
            ack_timeout: message.ack_timeout,
            traffic_class: 0,
            flow_label: 0,
            service_level: None,
            hop_limit: qp.hop_limit,
            ece: Ece::default(),
            private_data: Vec::new(),
        }
    }
}

impl ConnectionOptions {
    /// What a message says of the own end.
    pub(super) fn message(&self, qp: &QueuePair<Rc>) -> ConnectionMessage {
        let srq = qp.srq().is_some();
        ConnectionMessage {
            qp: qp.number(),
            psn: qp.psn(),
            retry_count: self.retry_count,
            rnr_retry: self.rnr_retry,
            ack_timeout: self.ack_timeout,
            // Credits are told for receives of the queue pair's own.
            flow_control: !srq,
            srq,
            ece: self.ece,
            ..ConnectionMessage::default()
        }
    }
}

/// Asks a peer for connections. Made by [`ConnectionManager::connector`](super::ConnectionManager::connector).
#[derive(Debug, Clone)]
pub struct Connector {
    manager: Arc<Manager>,
    to: SocketAddr,
    source: Option<IpAddr>,
    options: ConnectionOptions,
}

impl ConnectionManager {
    /// Prepares to connect to a peer's address and port.
    ///
    /// ```no_run
    /// # fn example(device: &vnic_verbs::Context, qp: &vnic_verbs::QueuePair<vnic_verbs::Rc>) -> Result<(), vnic_verbs::Error> {
    /// use vnic_verbs::connection::ConnectionManager;
    ///
    /// let manager = ConnectionManager::new(device)?;
    /// let to = ([10, 0, 0, 2], 20000).into();
    /// let connection = manager.connector(to).private_data(b"hello").connect(qp)?.wait()?;
    /// println!("{} answers {:?}", connection.peer(), connection.private_data());
    /// # Ok(())
    /// # }
    /// ```
    pub fn connector(&self, to: SocketAddr) -> Connector {
        Connector::new(&self.0, to)
    }
}

impl Connector {
    pub(super) fn new(manager: &Arc<Manager>, to: SocketAddr) -> Connector {
        Connector {
            manager: Arc::clone(manager),
            to,
            source: None,
            options: ConnectionOptions::default(),
        }
    }

    /// The own address to connect from. By default it is the one whose beginning is most like the peer's.
    pub fn source(self, source: IpAddr) -> Connector {
        Connector {
            source: Some(source),
            ..self
        }
    }

    /// What the connection shall have.
    pub fn options(self, options: ConnectionOptions) -> Connector {
        Connector { options, ..self }
    }

    /// What the peer's program is told: at most 56 bytes.
    pub fn private_data(mut self, private_data: &[u8]) -> Connector {
        self.options.private_data = private_data.to_vec();
        self
    }

    /// Asks for a connection of a queue pair, which is brought from RESET to INIT. [`Connecting::wait`] waits for the peer's answer, and
    /// brings the queue pair to RTS.
    pub fn connect(&self, qp: &QueuePair<Rc>) -> Result<Connecting, Error> {
        let Connector {
            manager, to, options, ..
        } = self;
        manager.check()?;
        let said = options.private_data.len();
        if said > REQUEST_ROOM {
            return Err(Error::Invalid(format!(
                "{said} bytes of private data; a request has room for {REQUEST_ROOM}"
            )));
        }
        let own = manager.source(to.ip(), self.source)?;
        if qp.state() == QpState::Reset {
            qp.to_init(options.access)?;
        }
        let local = SocketAddr::new(own.gid.ip(), manager.port());
        let header = Header {
            source: local,
            destination: to.ip(),
        };
        let limits = Limits::own(&manager.context, options);
        let port = manager.context.query_port()?;
        let dgid = match to.ip() {
            IpAddr::V4(ip) => ip.into(),
            IpAddr::V6(ip) => ip.into(),
        };
        let service = header::service(to.port());
        let path = self.path(&PathQuery {
            sgid_index: own.index,
            dgid,
            service,
            qos_class: options.traffic_class.into(),
            pkey: None,
        })?;
        let mtu = port.active_mtu().number();
        let pkey = path
            .map(|path| path.pkey)
            .or_else(|| port.pkeys().first().copied());
        let message = options.message(qp);
        let request = ConnectionMessage {
            service,
            responder_resources: limits.responder,
            initiator_depth: limits.initiator,
            path_mtu: path.map_or(mtu, |path| mtu.min(path.mtu)),
            pkey: pkey.unwrap_or(message.pkey),
            address: AddressVector {
                dgid,
                dmac: None,
                sgid_index: own.index,
                flow_label: options.flow_label,
                traffic_class: options.traffic_class,
                hop_limit: options.hop_limit,
                service_level: options
                    .service_level
                    .or(path.map(|path| path.service_level))
                    .unwrap_or(0),
            },
            private_data: [&header.emit()[..], &options.private_data].concat(),
            ..message
        };
        let (id, news) = manager
            .router
            .begin(|| manager.router.connections.connect(&request))?;
        let link = Link {
            manager: Arc::clone(manager),
            id,
            news,
        };
        Ok(Connecting::new(link, qp, options, Side::Active, (*to, local)))
    }

    /// The path that the subnet's policy has; `None`: there is no policy about it.
    fn path(&self, query: &PathQuery) -> Result<Option<Path>, Error> {
        let Connector { manager, to, .. } = self;
        match lock(&manager.paths).find(&manager.context, query, PATIENCE)? {
            PathAnswer::Path(path) => Ok(Some(path)),
            PathAnswer::NoPolicy | PathAnswer::Stranger => Ok(None),
            PathAnswer::NoPath => Err(Error::Setup(format!(
                "the subnet's policy has no path to {to} (vnicctl subnet path)"
            ))),
            PathAnswer::Silence => Err(Error::NoAnswer(*to)),
        }
    }
}
