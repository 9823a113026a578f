//! Paths to peers, as subnet administration tells them (IBTA volume 1, chapter 15): what an operator's policy says of a service.
//!
//! The questions are datagrams from a queue pair of the process to queue pair 1 of its own device. One is on its way at a time. Without a
//! policy nothing is asked but whether there is one, once a second at most; what is told is believed for a second, too.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use vnic_wire::gid::Gid as WireGid;
use vnic_wire::mad::{GSI_QKEY, GSI_QP, LEN};
use vnic_wire::sa::{ClassPortInfo, MultiPathRecord, PathRecord, SaMad, attribute, method, status};

use crate::cq::{CompletionChannel, CqBuilder, WorkCompletion};
use crate::{
    Access, AddressVector, CompletionQueue, Context, Error, Gid, MemoryRegion, ProtectionDomain, QueuePair,
    RecvWr, SendWr, Ud,
};

/// What is asked about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PathQuery {
    /// Index of the own GID from which the path begins.
    pub sgid_index: u16,
    /// GID of the peer.
    pub dgid: Gid,
    /// Service that is asked for there (of RDMA CM: port space and port).
    pub service: u64,
    /// QoS class, 12 bits; RDMA CM's is the type of service.
    pub qos_class: u16,
    /// P_Key that the path shall have; `None`: any that both ends share.
    pub pkey: Option<u16>,
}

/// A path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// Service level, 0 … 15.
    pub service_level: u8,
    /// Path MTU, as `ibv_mtu` has it.
    pub mtu: u8,
    /// P_Key.
    pub pkey: u16,
    /// Packet lifetime, 4.096 µs · 2^n.
    pub packet_life: u8,
}

/// What a policy says of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathAnswer {
    /// There is no policy.
    NoPolicy,
    /// Nobody says in time.
    Silence,
    /// The path.
    Path(Path),
    /// The policy allows none.
    NoPath,
    /// The peer is no port of the subnet, or of none of the own partitions: it is on another wire, perhaps.
    Stranger,
}

/// What the subnet administration of a device has said of paths.
#[derive(Default)]
pub struct Paths {
    administration: Option<Administration>,
    /// Whether there is a policy, and how long that is believed.
    policy: Option<(bool, Instant)>,
    known: HashMap<PathQuery, (PathAnswer, Instant)>,
}

/// How long an answer is believed.
const BELIEVED: Duration = Duration::from_secs(1);
/// A device whose administration says nothing (that of an older daemon) is not asked again before.
const SILENT: Duration = Duration::from_secs(10);
/// How long it is waited whether there is a policy.
const PATIENCE: Duration = Duration::from_millis(500);
/// Answers that are known.
const KNOWN: usize = 256;

impl Paths {
    /// What the policy of the device's subnet says of a path. `patience`: how long it is waited for.
    ///
    /// # Errors
    /// The device is gone, or has no objects left for the questions. The next call begins anew.
    pub fn find(
        &mut self,
        context: &Context,
        query: &PathQuery,
        patience: Duration,
    ) -> Result<PathAnswer, Error> {
        self.asked(context, query, patience, Instant::now())
            .inspect_err(|_| (self.administration, self.policy) = (None, None))
    }

    fn asked(
        &mut self,
        context: &Context,
        query: &PathQuery,
        patience: Duration,
        now: Instant,
    ) -> Result<PathAnswer, Error> {
        let there = match self.policy {
            Some((there, until)) if now < until => there,
            _ => self.look(context, query.sgid_index, now)?,
        };
        if let Some((answer, until)) = self.known.get(query)
            && now < *until
            && there
        {
            return Ok(*answer);
        }
        let Some(administration) = self.administration.as_mut().filter(|_| there) else {
            return Ok(PathAnswer::NoPolicy);
        };
        let answer = administration.path(query, patience)?;
        if self.known.len() >= KNOWN {
            self.known.retain(|_, (_, until)| now < *until);
        }
        if answer != PathAnswer::Silence && self.known.len() < KNOWN {
            self.known.insert(*query, (answer, now + BELIEVED));
        }
        Ok(answer)
    }

    /// Looks whether there is a policy.
    fn look(&mut self, context: &Context, sgid_index: u16, now: Instant) -> Result<bool, Error> {
        let administration = match &mut self.administration {
            Some(administration) => administration,
            none => none.insert(Administration::new(context)?),
        };
        let said = administration.has_policy(sgid_index, PATIENCE)?;
        let there = said.unwrap_or(false);
        self.policy = Some((there, now + said.map_or(SILENT, |_| BELIEVED)));
        Ok(there)
    }
}

/// Asks subnet administration.
struct Administration {
    pd: ProtectionDomain,
    channel: CompletionChannel,
    cq: CompletionQueue,
    qp: QueuePair<Ud>,
    memory: MemoryRegion,
    transaction: u64,
}

/// Receives that are posted, and bytes of each: behind a network header of 40 bytes.
const RECEIVES: usize = 4;
const HEAD: usize = 40;
const SLOT: usize = 512;
/// Id of the send; receives have their place.
const SENT: u64 = u64::MAX;
/// A question without an answer is asked again: datagrams may be lost, and a device answers so many in a second.
const ASK_AGAIN: Duration = Duration::from_millis(50);

impl Administration {
    fn new(context: &Context) -> Result<Administration, Error> {
        let pd = context.alloc_pd()?;
        let channel = context.create_completion_channel()?;
        let cq = context.create_cq_with(CqBuilder::new(2 * RECEIVES as u32).channel(&channel))?;
        let memory = pd.allocate((1 + RECEIVES) * SLOT, Access::LOCAL_WRITE)?;
        let qp = pd.qp::<Ud>(&cq, &cq).max_recv_wr(RECEIVES as u32).build()?;
        qp.activate(GSI_QKEY)?;
        let asks = Administration {
            pd,
            channel,
            cq,
            qp,
            memory,
            transaction: u64::from(std::process::id()) << 32,
        };
        for slot in 1..=RECEIVES {
            asks.receive(slot)?;
        }
        Ok(asks)
    }

    fn receive(&self, slot: usize) -> Result<(), Error> {
        let into = self.memory.slice(slot * SLOT..slot * SLOT + HEAD + LEN);
        self.qp.post_recv(&[RecvWr::new(into).id(slot as u64)])?;
        Ok(())
    }

    /// Whether an operator's policy says which quality of service a path has. `None`: nobody answers in time.
    fn has_policy(&mut self, sgid_index: u16, patience: Duration) -> Result<Option<bool>, Error> {
        let question = SaMad::new(method::GET, attribute::CLASS_PORT_INFO, 0);
        let answer = self.ask(sgid_index, question, patience)?;
        let info = answer.and_then(|answer| ClassPortInfo::parse(&answer.data).ok());
        Ok(info.map(|info| info.capabilities2 & ClassPortInfo::QOS != 0))
    }

    /// The path to a peer.
    fn path(&mut self, query: &PathQuery, patience: Duration) -> Result<PathAnswer, Error> {
        use MultiPathRecord as Multi;
        let own = self.qp.endpoint(query.sgid_index)?.gid;
        let mut wanted = Multi {
            service_id: query.service,
            qos_class: query.qos_class,
            pkey: query.pkey.unwrap_or_default(),
            reversible: true,
            paths: 1,
            counts: [1, 1],
            ..Multi::default()
        };
        wanted.gids[..2].copy_from_slice(&[own, query.dgid].map(|gid| WireGid(gid.0)));
        let pkey = if query.pkey.is_some() { Multi::PKEY } else { 0 };
        let named = Multi::SERVICE_ID | Multi::QOS_CLASS | Multi::REVERSIBLE | Multi::PATHS | pkey;
        let question = SaMad {
            component_mask: named | Multi::SOURCES | Multi::DESTINATIONS,
            ..SaMad::new(method::GET_MULTI, attribute::MULTI_PATH_RECORD, 0).with(wanted.emit())
        };
        let Some(answer) = self.ask(query.sgid_index, question, patience)? else {
            return Ok(PathAnswer::Silence);
        };
        if answer.status == status::REQ_INVALID_GID {
            return Ok(PathAnswer::Stranger);
        }
        let path = PathRecord::parse(&answer.data).ok();
        // (A table without records has zeros there.)
        let path = path.filter(|path| answer.status == status::OK && path.dgid.0 == query.dgid.0);
        Ok(path.map_or(PathAnswer::NoPath, |path| {
            PathAnswer::Path(Path {
                service_level: path.sl,
                mtu: path.mtu.value,
                pkey: path.pkey,
                packet_life: path.packet_life.value,
            })
        }))
    }

    /// The answer to a question from this GID, which is asked again until `patience` is over.
    fn ask(&mut self, sgid_index: u16, question: SaMad, patience: Duration) -> Result<Option<SaMad>, Error> {
        self.transaction += 1;
        let question = SaMad {
            transaction: self.transaction,
            ..question
        };
        let own = self.qp.endpoint(sgid_index)?;
        let to = self.pd.create_ah(&AddressVector {
            dgid: own.gid,
            dmac: own.mac,
            sgid_index,
            ..AddressVector::default()
        })?;
        let end = Instant::now() + patience;
        loop {
            self.memory.write_at(0, &question.emit());
            let from = self.memory.slice(..LEN);
            self.qp
                .post_send(&[SendWr::send(from).to(&to, GSI_QP, GSI_QKEY).id(SENT).signaled()])?;
            let again = end.min(Instant::now() + ASK_AGAIN);
            while let Some(left) = again.checked_duration_since(Instant::now()) {
                if let Some(answer) = self.answer()? {
                    return Ok(Some(answer));
                }
                self.cq.req_notify(false)?;
                match self.answer()? {
                    Some(answer) => return Ok(Some(answer)),
                    None => self.channel.wait_event(Some(left))?,
                };
            }
            if again == end {
                return Ok(None);
            }
        }
    }

    /// The answer to the last question, if it has come. Others are too late.
    fn answer(&self) -> Result<Option<SaMad>, Error> {
        let mut found = None;
        let mut done = [WorkCompletion::default()];
        while self.cq.poll(&mut done)? > 0 {
            let slot = match usize::try_from(done[0].id()) {
                Ok(slot) if (1..=RECEIVES).contains(&slot) => slot,
                _ => continue,
            };
            if done[0].is_success() {
                let datagram = self.memory.read_vec(slot * SLOT + HEAD, LEN);
                found = SaMad::parse(&datagram)
                    .ok()
                    .filter(|answer| answer.transaction == self.transaction)
                    .or(found);
            }
            self.receive(slot)?;
        }
        Ok(found)
    }
}
