//! Two drivers in one thread, and the connections between them.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vnic_verbs::connection::ConnectionEventKind as Kind;
use vnic_verbs::{
    Access, AddressVector, CompletionQueue, ConnectionMessage, Connections, Context, Data, Device,
    DeviceAddress, MemoryRegion, ProtectionDomain, QpAttributes, QpMask, QpState, QueuePair, Rc, SendWr,
    WorkCompletion,
};

/// The service that is asked for: RDMA_PS_TCP, port 20000.
const SERVICE: u64 = 0x0106_4e20;
/// The own RoCEv2 GID of every adapter.
const GID: u16 = 1;
/// Connections that are asked for and not there yet.
const UNDER_WAY: usize = 256;

/// A device and what connections need of it.
pub(super) struct End {
    device: Context,
    connections: Connections,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    region: MemoryRegion,
}

impl End {
    /// Opens a device for so many connections.
    pub fn open(socket: &Path, count: usize) -> Result<End> {
        let device = Device::open(&DeviceAddress::Socket(socket.to_path_buf()))?;
        let pd = device.alloc_pd()?;
        Ok(End {
            connections: device.connections()?,
            cq: device.create_cq(u32::try_from(2 * count)?)?,
            region: pd.allocate(8 * count, Access::REMOTE_ALL)?,
            pd,
            device,
        })
    }

    /// How many objects of each kind there are, but doorbell rings, of which each thread has one from its first doorbell on.
    pub fn resources(&self) -> Result<Vec<(String, u32)>> {
        let all = self.device.resources()?.into_iter();
        let made = all.filter(|one| !["doorbells", "ring_extents"].contains(&one.name.as_str()));
        Ok(made.map(|one| (one.name, one.used)).collect())
    }

    fn qp(&self) -> Result<QueuePair<Rc>> {
        let qp = self
            .pd
            .qp::<Rc>(&self.cq, &self.cq)
            .max_send_wr(1)
            .max_recv_wr(1)
            .max_inline(8)
            .build()?;
        qp.to_init(Access::REMOTE_ALL)?;
        Ok(qp)
    }

    /// Brings a queue pair to RTR and RTS with what the device knows of a connection.
    fn bring_up(&self, qp: &QueuePair<Rc>, connection: u32) -> Result<()> {
        let known = QpAttributes {
            // It says in replies that there is an address; in commands it is zero.
            has_address: 0,
            ..self.connections.query(connection)?.attributes
        };
        let attributes = QpAttributes {
            state: QpState::Rtr.number(),
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
            rq_psn: qp.psn(),
            ..known
        };
        let mask = QpMask::STATE
            | QpMask::ADDRESS
            | QpMask::PATH_MTU
            | QpMask::DESTINATION_QP
            | QpMask::RQ_PSN
            | QpMask::MAX_DEST_RD_ATOMIC
            | QpMask::MIN_RNR_TIMER;
        qp.modify(&attributes, mask)?;
        let attributes = QpAttributes {
            state: QpState::Rts.number(),
            timeout: 19,
            retry_count: 7,
            rnr_retry: 7,
            max_rd_atomic: 1,
            ..known
        };
        let mask = QpMask::STATE
            | QpMask::SQ_PSN
            | QpMask::TIMEOUT
            | QpMask::RETRY_COUNT
            | QpMask::RNR_RETRY
            | QpMask::MAX_RD_ATOMIC;
        Ok(qp.modify(&attributes, mask)?)
    }
}

/// What a queue pair's end says.
fn message(qp: &QueuePair<Rc>) -> ConnectionMessage {
    ConnectionMessage {
        qp: qp.number(),
        psn: qp.psn(),
        responder_resources: 1,
        initiator_depth: 1,
        flow_control: true,
        ..ConnectionMessage::default()
    }
}

/// A side's connections: of the `i`-th queue pair the `i`-th.
#[derive(Default)]
struct Side {
    qps: Vec<QueuePair<Rc>>,
    ids: Vec<u32>,
    /// Places in both, by connection.
    places: HashMap<u32, usize>,
    there: usize,
    ended: usize,
}

impl Side {
    fn place(&self, id: u32) -> Result<usize> {
        self.places
            .get(&id)
            .copied()
            .context("an event of an unknown connection")
    }

    fn add(&mut self, id: u32) {
        self.places.insert(id, self.ids.len());
        self.ids.push(id);
    }
}

/// Many connections from the first to the second end.
pub(super) struct Many<'a> {
    ends: &'a [End; 2],
    sides: [Side; 2],
    request: ConnectionMessage,
}

impl<'a> Many<'a> {
    /// Makes the queue pairs for `count` connections, and listens.
    pub fn new(ends: &'a [End; 2], count: usize) -> Result<Many<'a>> {
        let [active, passive] = ends;
        passive.connections.listen(SERVICE, u32::try_from(count)?)?;
        let side = |end: &End| -> Result<Side> {
            Ok(Side {
                qps: (0..count).map(|_| end.qp()).collect::<Result<_>>()?,
                ..Side::default()
            })
        };
        let gids = passive.device.gids()?;
        let to = gids.iter().find(|entry| entry.index == GID).context("GID 1")?;
        let request = ConnectionMessage {
            service: SERVICE,
            path_mtu: active.device.query_port()?.active_mtu().number(),
            address: AddressVector {
                dgid: to.gid,
                dmac: Some(to.mac),
                sgid_index: GID,
                ..AddressVector::default()
            },
            ..ConnectionMessage::default()
        };
        Ok(Many {
            ends,
            sides: [side(active)?, side(passive)?],
            request,
        })
    }

    /// How many connections there are in the end.
    pub fn count(&self) -> usize {
        self.sides[0].qps.len()
    }

    /// Asks for the next connection.
    pub fn ask(&mut self) -> Result<()> {
        let side = &mut self.sides[0];
        let qp = side.qps.get(side.ids.len()).context("a queue pair")?;
        let request = ConnectionMessage {
            service: self.request.service,
            path_mtu: self.request.path_mtu,
            address: self.request.address,
            ..message(qp)
        };
        side.add(self.ends[0].connections.connect(&request)?);
        Ok(())
    }

    /// Whether both ends of all connections that were asked for are there.
    pub fn all_asked_are_there(&self) -> bool {
        self.sides
            .iter()
            .all(|side| side.there == self.sides[0].ids.len())
    }

    /// Makes all connections.
    pub fn connect_all(&mut self, patience: Duration) -> Result<()> {
        while self.sides.iter().any(|side| side.there < self.count()) {
            let there = self.sides[1].there.min(self.sides[0].there);
            let asked = self.count().min(there + UNDER_WAY);
            while self.sides[0].ids.len() < asked {
                self.ask()?;
            }
            self.events(patience)?;
        }
        Ok(())
    }

    /// Waits for events, and does what they ask for.
    pub fn events(&mut self, patience: Duration) -> Result<()> {
        let readable = {
            let patience = Timespec::try_from(patience)?;
            let [a, b] = self.ends;
            let mut fds = [&a.connections, &b.connections].map(|c| PollFd::new(c, PollFlags::IN));
            let n = poll(&mut fds, Some(&patience)).context("waiting for events")?;
            ensure!(n > 0, "nothing has happened for {patience:?}");
            fds.map(|fd| !fd.revents().is_empty())
        };
        for (i, readable) in readable.into_iter().enumerate() {
            if !readable {
                continue;
            }
            for event in self.ends[i].connections.take_events()? {
                self.event(i, event.kind, event.connection, &event.message)?;
            }
        }
        Ok(())
    }

    fn event(&mut self, i: usize, kind: Kind, id: u32, message_of: &ConnectionMessage) -> Result<()> {
        let (end, side) = (&self.ends[i], &mut self.sides[i]);
        match kind {
            Kind::Request => {
                let qp = side.qps.get(side.ids.len()).context("a request too many")?;
                end.bring_up(qp, id)?;
                end.connections.accept(id, &message(qp))?;
                side.add(id);
            }
            Kind::Response => {
                let qp = &side.qps[side.place(id)?];
                end.bring_up(qp, id)?;
                end.connections.accept(id, &message(qp))?;
                side.there += 1;
            }
            Kind::Established => side.there += 1,
            Kind::Disconnected => {
                if i == 1 {
                    side.qps[side.place(id)?].to_error()?;
                    end.connections.disconnect(id, &ConnectionMessage::default())?;
                }
                side.ended += 1;
            }
            Kind::TimewaitExit => {}
            Kind::Rejected | Kind::Unreachable => {
                bail!("connection {id:#x}: {kind:?}, reason {}", message_of.reason)
            }
        }
        Ok(())
    }

    /// Writes a word by each connection, and looks whether it is there.
    pub fn write_all(&mut self, patience: Duration) -> Result<()> {
        let far = &self.ends[1].region;
        let deadline = Instant::now() + patience;
        let mut done = [WorkCompletion::default(); 64];
        let mut left = 0;
        let mut poll = |left: &mut usize, at_most: usize| -> Result<()> {
            while *left > at_most {
                let n = self.ends[0].cq.poll(&mut done)?;
                for one in &done[..n] {
                    one.ok()?;
                }
                *left -= n;
                ensure!(n > 0 || Instant::now() < deadline, "a WRITE does not complete");
            }
            Ok(())
        };
        for (i, qp) in self.sides[0].qps.iter().enumerate() {
            let word = (i as u64 + 1).to_ne_bytes();
            let at = far.addr() + 8 * i as u64;
            qp.post_send(&[SendWr::write(Data::inline(&word), at, far.rkey()).signaled()])?;
            left += 1;
            poll(&mut left, UNDER_WAY)?;
        }
        poll(&mut left, 0)?;
        let wrong = (0..self.count()).find(|i| far.load(8 * i) != *i as u64 + 1);
        ensure!(
            wrong.is_none(),
            "the WRITE of connection {wrong:?} has not arrived"
        );
        (0..self.count()).for_each(|i| far.store(8 * i, 0));
        Ok(())
    }

    /// Ends all connections, and their queue pairs.
    pub fn end(mut self, patience: Duration) -> Result<()> {
        for i in 0..self.count() {
            self.sides[0].qps[i].to_error()?;
            let id = self.sides[0].ids[i];
            self.ends[0]
                .connections
                .disconnect(id, &ConnectionMessage::default())?;
            while self.sides[1].ended + UNDER_WAY < i {
                self.events(patience)?;
            }
        }
        while self.sides.iter().any(|side| side.ended < self.count()) {
            self.events(patience)?;
        }
        for (end, side) in self.ends.iter().zip(&self.sides) {
            for id in &side.ids {
                end.connections.destroy(*id)?;
            }
        }
        Ok(self.ends[1].connections.unlisten(SERVICE)?)
    }
}
