//! Beginning and end of most tools: a protection domain, a completion queue, queue pairs that are connected to the peer's;
//! and waits for completions.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use vnic_verbs::{
    CompletionStatus, ConnectOptions, Context, Data, Endpoint, MacAddress, MemoryRegion, Mtu,
    ProtectionDomain, QpType, SendWr, SharedReceiveQueue, WorkCompletion,
};

use crate::exchange::{self, Account, Area, Link, Offer};
use crate::failure::{Failure, Result};
use crate::options::{mtu_of, own_gid, path_mtu, type_name};
use crate::queue::{Depths, QKEY, Queue};
use crate::report::{Report, Verified};
use crate::seat::Seat;
use crate::slots::Layout;
use crate::wait::{Completions, Waiter};

/// Time without a completion after which a tool checks whether the peer is still there.
const QUIET: Duration = Duration::from_millis(500);
/// Times that a peer whose exchange broke off is asked.
const ASKS: u32 = 5;
/// `wr_id` of such a question.
const PROBE: u64 = u64::MAX;
/// Settings of a session.
pub struct Plan<'a> {
    /// Name of the tool.
    pub tool: &'static str,
    /// Type of the queue pairs.
    pub kind: QpType,
    /// Number of queue pairs.
    pub qps: u32,
    /// Sizes of their queues.
    pub depths: Depths,
    /// Service level of the queue pairs.
    pub service_level: u8,
    /// Shared receive queue, if there is one.
    pub srq: Option<&'a SharedReceiveQueue>,
    /// Options that must be equal on both sides.
    pub run: Vec<(&'static str, String)>,
    /// Memory for the peer, with its places for each queue pair.
    pub area: Option<(&'a MemoryRegion, u64, u64)>,
}

/// Queue pairs that are connected to a peer's.
pub struct Session {
    waiter: Waiter,
    /// The queue pairs.
    pub queues: Vec<Queue>,
    /// Line of the peer.
    pub peer: Offer,
    /// Path MTU.
    pub mtu: Mtu,
    /// Outstanding sends, without questions.
    pub outstanding: u64,
    kind: QpType,
    probing: bool,
    /// Time that a question to the peer may take.
    answer: Duration,
    by_number: HashMap<u32, usize>,
}

impl Session {
    /// Makes queue pairs, exchanges lines with the peer, and connects them. Then receives can be posted; after that both
    /// sides say [`Link::ready`].
    pub fn connect(seat: &mut Seat<'_>, pd: &ProtectionDomain, plan: &Plan<'_>) -> Result<Session> {
        let context = &seat.context;
        let Plan { kind, depths, .. } = *plan;
        // One more send, for a question whether the peer is there.
        let depths = Depths {
            sends: depths.sends + 1,
            ..depths
        };
        let entries = u64::from(depths.sends + depths.receives) * u64::from(plan.qps);
        let waiter = Waiter::new(
            context,
            u32::try_from(entries).unwrap_or(u32::MAX),
            seat.options.events,
        )?;
        let mut queues = Vec::new();
        for _ in 0..plan.qps {
            queues.push(Queue::new(kind, pd, &waiter.cq, depths, plan.srq)?);
        }

        let gid = own_gid(context, seat.options.gid_index)?;
        let mtu = path_mtu(context, seat.options.mtu)?;
        let mine = offer(plan, context, &queues, seat.seed(), &gid, mtu)?;
        let peer = seat.link.swap(&mine)?;

        let mtu = peer.mtu.map_or(mtu, |bytes| mtu.min(mtu_of(bytes)));
        let options = ConnectOptions {
            gid_index: gid.index,
            path_mtu: Some(mtu),
            service_level: plan.service_level,
            traffic_class: seat.options.tclass,
            timeout: seat.options.qp_timeout,
            ..ConnectOptions::default()
        };
        for (queue, theirs) in queues.iter_mut().zip(&peer.queues) {
            let end = Endpoint {
                qpn: theirs.number,
                psn: theirs.psn,
                gid: peer.gid,
                mac: peer.mac,
            };
            queue.connect(pd, &end, peer.qkey.unwrap_or(QKEY), &options)?;
            if let Some(rate) = seat.options.rate() {
                queue.set_rate_limit(rate)?;
            }
        }
        let by_number = queues.iter().enumerate().map(|(n, q)| (q.number(), n)).collect();
        Ok(Session {
            waiter,
            queues,
            peer,
            mtu,
            outstanding: 0,
            kind,
            probing: false,
            answer: seat.options.answer(),
            by_number,
        })
    }

    /// Index of a completion's queue pair.
    #[inline]
    pub fn queue_of(&self, completion: &WorkCompletion) -> usize {
        match self.queues.len() {
            1 => 0,
            _ => self.by_number.get(&completion.qp()).copied().unwrap_or(0),
        }
    }

    /// The peer's memory, and its places for messages of `size` bytes.
    pub fn target(&self, size: u32) -> Result<(Area, Layout)> {
        let area = self
            .peer
            .area
            .ok_or_else(|| Failure::Peer("the peer says no addr and rkey of memory".into()))?;
        let layout = Layout::of_peer(&area, self.queues.len() as u32, size).ok_or_else(|| {
            Failure::Peer(format!(
                "the peer's memory of {} bytes has no room for messages of {size}",
                area.len
            ))
        })?;
        Ok((area, layout))
    }

    /// Whether a lost message stays lost.
    pub fn is_lossy(&self) -> bool {
        self.kind != QpType::Rc
    }

    /// Waits for completions. `into` is empty if nothing came for half a second; a reliable peer that is gone is an error.
    pub fn take(&mut self, into: &mut Completions) -> Result {
        self.wait(into, QUIET)?;
        if into.is_empty() && !self.is_lossy() {
            self.probe()?;
        }
        Ok(())
    }

    /// Waits until at most so many sends are outstanding; nothing is received meanwhile.
    pub fn drain(&mut self, into: &mut Completions, left: u64) -> Result {
        while self.outstanding > left {
            self.take(into)?;
            self.outstanding -= into.iter().count() as u64;
        }
        Ok(())
    }

    /// Makes a request of a queue pair, and waits until it is complete.
    pub fn complete(&mut self, queue: usize, request: SendWr<'_>, into: &mut Completions) -> Result {
        self.queues[queue].send(request.signaled())?;
        self.outstanding = 1;
        self.drain(into, 0)
    }

    /// Takes the completions that are there.
    pub fn take_now(&mut self, into: &mut Completions) -> Result {
        self.wait(into, Duration::ZERO)
    }

    /// Waits for completions other than answers to questions. A bad one is an error.
    fn wait(&mut self, into: &mut Completions, patience: Duration) -> Result {
        loop {
            self.waiter.take(into, patience)?;
            if into.is_empty() {
                return Ok(());
            }
            into.retain(|completion| {
                let is_answer = !completion.is_receive() && completion.id() == PROBE;
                if !completion.is_success() {
                    let what = match (completion.is_receive(), is_answer) {
                        (true, _) => format!("receive {}", completion.id()),
                        (false, true) => "the question whether the peer is there".to_owned(),
                        (false, false) => format!("request {}", completion.id()),
                    };
                    if completion.status() == CompletionStatus::FlushError
                        && let Some(gone) = self.waiter.gone()
                    {
                        return Err(gone.into());
                    }
                    return Err(Failure::completion(completion, what));
                }
                if is_answer {
                    self.probing = false;
                }
                Ok(!is_answer)
            })?;
            if !into.is_empty() {
                return Ok(());
            }
        }
    }

    /// Asks whether the peer is there, by a WRITE of no bytes, which needs no key (IBTA C9-88) and changes nothing. If the
    /// peer is not there, this ends in RETRY_EXC_ERR, as any request would.
    fn probe(&mut self) -> Result {
        if self.kind == QpType::Rc && self.outstanding == 0 && !self.probing {
            let question = SendWr::write(Data::NONE, 0, 0).id(PROBE).signaled();
            if let Some(queue) = self.queues.first() {
                queue.send(question)?;
                self.probing = true;
            }
        }
        Ok(())
    }

    /// Waits for the peer to say that its work is complete. `None` if it does not say.
    pub fn wait_done(&mut self, link: &mut Link) -> Result<Option<Account>> {
        if !link.hears_done() {
            return Ok(None);
        }
        loop {
            match link.done_within(QUIET) {
                Ok(None) => {}
                Ok(done) => return Ok(done),
                Err(failure) => return Err(self.cause(failure)),
            }
            self.probe()?;
            // Only answers to questions complete here.
            self.take_now(&mut Completions::new())?;
        }
    }

    /// The cause when the exchange with the peer broke off, as the queue pair knows it.
    pub fn cause(&mut self, failure: Failure) -> Failure {
        if matches!(failure, Failure::GaveUp(_)) || self.is_lossy() {
            return failure;
        }
        // An answer may be from before the end, or the peer's device has not noticed its end yet.
        for _ in 0..ASKS {
            if let Err(cause) = self.probe() {
                return cause;
            }
            // Outstanding requests show as much as a question.
            let end = Instant::now() + self.answer;
            let mut taken = Completions::new();
            while (self.probing || self.outstanding > 0) && Instant::now() < end {
                if let Err(cause) = self.wait(&mut taken, QUIET / 4) {
                    return cause;
                }
                let sends = taken.iter().filter(|completion| !completion.is_receive()).count() as u64;
                self.outstanding = self.outstanding.saturating_sub(sends);
            }
        }
        failure
    }

    /// Ends a part of the run: both sides say that their work is complete, `check` looks at what the peer did here, and
    /// both sides compare. Notes what every report begins with. Returns messages that did not arrive, on both sides.
    pub fn settle(
        &mut self,
        seat: &mut Seat<'_>,
        report: &mut Report,
        sent: &[u64],
        check: impl FnOnce(&mut Session, Option<Account>) -> Result<Account>,
    ) -> Result<u64> {
        seat.link.say_done(sent)?;
        self.settle_said(seat, report, check)
    }

    /// As [`settle`](Session::settle), when this side has said so already.
    pub fn settle_said(
        &mut self,
        seat: &mut Seat<'_>,
        report: &mut Report,
        check: impl FnOnce(&mut Session, Option<Account>) -> Result<Account>,
    ) -> Result<u64> {
        let done = self.wait_done(&mut seat.link)?;
        let here = check(self, done)?;
        let there = seat.link.compare(&here)?.unwrap_or_default();
        if here.bad > 0 {
            return Err(Failure::Data(format!("{} messages from the peer", here.bad)));
        }
        if there.bad > 0 {
            return Err(Failure::Data(format!(
                "the peer got {} wrong messages",
                there.bad
            )));
        }
        self.facts(report, seat);
        Ok(here.lost + there.lost)
    }

    /// Adds the facts that every report begins with.
    fn facts(&self, report: &mut Report, seat: &Seat<'_>) {
        report.word("role", seat.role().name());
        report.fact("device", seat.context.name());
        report.fact("type", type_name(self.kind));
        report.fact("qps", self.queues.len());
        report.fact("mtu", self.mtu.bytes());
        report.fact("peer", self.peer.gid.ip().to_string());
        report.word("seed", seat.seed());
        report.word("peer_seed", self.peer.seed);
        report.word("events", seat.options.events);
    }
}

/// Who has checked the data. `here`: this side did, of what it received or can read; `there`: the peer has something to
/// check.
pub fn who_verified(seat: &Seat<'_>, here: bool, there: bool) -> Verified {
    match (seat.options.no_verify, here, there && seat.link.is_talkative()) {
        (true, ..) => Verified::Off,
        (_, true, true) => Verified::Both,
        (_, true, false) => Verified::Here,
        (_, false, true) => Verified::ByPeer,
        (_, false, false) => Verified::Unknown,
    }
}

/// This side's line.
fn offer(
    plan: &Plan<'_>,
    context: &Context,
    queues: &[Queue],
    seed: u64,
    gid: &vnic_verbs::GidEntry,
    mtu: Mtu,
) -> Result<Offer> {
    let mac = match gid.mac {
        mac if mac == MacAddress::default() => context.query_port()?.mac(),
        mac => mac,
    };
    let mut run = vec![
        ("tool".to_owned(), plan.tool.to_owned()),
        ("type".to_owned(), type_name(plan.kind).to_owned()),
    ];
    run.extend(
        plan.run
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.clone())),
    );
    Ok(Offer {
        run,
        queues: queues
            .iter()
            .map(|q| exchange::Queue {
                number: q.number(),
                psn: q.psn(),
            })
            .collect(),
        gid: gid.gid,
        mac: Some(mac),
        mtu: Some(mtu.bytes()),
        qkey: (plan.kind == QpType::Ud).then_some(QKEY),
        area: plan.area.map(|(region, slots, step)| Area {
            addr: region.addr(),
            rkey: region.rkey(),
            len: region.length(),
            slots: Some(slots),
            step: Some(step),
        }),
        seed: Some(seed),
    })
}
