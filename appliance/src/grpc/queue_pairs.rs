//! Queue pairs of `vnic.v1.RdmaService`.

mod fields;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tonic::Status;
use vnic_backend::{NicError, QpState, QpType};
use vnic_control::v1;
use vnic_control::v1::watch_queue_pairs_response::Change;

use super::answer::{Answer, Stream};
use super::congestion::fields::flow;
use super::counters::span;
use super::errors::{form, id_or_all, invalid, not_found};
use super::paging::page;
use super::{convert, looks};
use crate::access::blocking;
use crate::control::{
    Control, Place, Process, QueuePairChange, QueuePairNow, QueuePairs, Refused, SeenQueuePairs,
};
use crate::names;
use crate::same::same;
use crate::stored::values::{duration, timestamp};

/// How long a look may ask for an observation.
const OBSERVE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60);
/// Time between two looks at one queue pair.
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);
const INTERVAL_DEFAULT: Duration = Duration::from_secs(1);
/// How late a look of a stream may be: its client may be slow.
const LATE: Duration = Duration::from_secs(10);
/// Queue pairs that a stream asks for at a time.
const AT_A_TIME: usize = 10_000;

same! { fn state(QpState) -> v1::queue_pair::State { Reset, Init, Rtr, Rts, Sqd, Sqe, Err } }

same! { fn kind(QpType) -> v1::queue_pair::Type { Rc, Uc, Ud, RawPacket, XrcInitiator, XrcTarget, DcInitiator, DcTarget } }

fn process(process: &Process) -> v1::Process {
    convert::process(process.caller, process.command.as_deref())
}

fn sends(pair: &QueuePairNow) -> v1::QueuePairSends {
    let (status, attributes) = (&pair.status, &pair.status.attributes);
    v1::QueuePairSends {
        posted: status.sends.posted,
        limit: status.init.max_send_wr,
        next_psn: attributes.sq_psn.value(),
        oldest_psn: status.sends.oldest.value(),
        end_psn: status.sends.end.value(),
        in_flight: status.sends.in_flight,
        window: status.sends.window,
        retries_left: status.sends.retries_left.into(),
        retries: attributes.retry_count.into(),
        rnr_retries_left: status.sends.rnr_retries_left.into(),
        rnr_retries: attributes.rnr_retry.into(),
        waits_for_receiver: status.sends.waits_for_receiver,
        credits: status.sends.credits,
        timers: Some(fields::timers(&status.sends.timers)),
    }
}

fn message(pair: &QueuePairNow) -> v1::QueuePair {
    let (status, attributes, init) = (&pair.status, &pair.status.attributes, &pair.status.init);
    let errors = &status.errors;
    let bps = |kbps: u32| u64::from(kbps) * 1000;
    v1::QueuePair {
        name: names::queue_pair(&pair.adapter, status.number.0),
        number: status.number.0,
        r#type: kind(init.qp_type).into(),
        state: state(attributes.state).into(),
        owner: pair.owner.as_ref().map(process),
        peer: attributes.address.map(|to| {
            let (gid, ipv4) = convert::gid_text(to.dgid.0);
            v1::QueuePairPeer {
                gid,
                ipv4,
                mac: to.dmac.to_string(),
                queue_pair: attributes.destination_qp.0,
                gid_index: to.sgid_index.into(),
            }
        }),
        pkey: status.pkey.map(u32::from),
        path_mtu: attributes.path_mtu.bytes(),
        priority: status.priority.into(),
        sends: init.send_cq.is_some().then(|| sends(pair)),
        expected_psn: attributes.rq_psn.value(),
        receives_posted: status.receives,
        receives_limit: init.max_recv_wr,
        errors: Some(v1::QueuePairErrors {
            out_of_sequence: errors.out_of_sequence,
            duplicate_request: errors.duplicate_request,
            out_of_buffer: errors.out_of_buffer,
            packet_seq_err: errors.packet_seq_err,
            implied_nak_seq_err: errors.implied_nak_seq_err,
            local_ack_timeout_err: errors.local_ack_timeout_err,
            rnr_nak_retry_err: errors.rnr_nak_retry_err,
        }),
        flow: status.flow.as_ref().map(|of| flow(&pair.adapter, of)),
        driver_rate_bps: bps(status.rate.rate),
        rate_bps: bps(status.ceiling),
        pd: init.pd.map(|pd| pd.0),
        send_cq: init.send_cq.map(|cq| cq.0),
        receive_cq: init.recv_cq.map(|cq| cq.0),
        srq: init.srq.map(|srq| srq.0),
        xrcd: init.xrcd.map(|xrcd| xrcd.0),
        path: status.path.as_ref().map(fields::path),
        ways: fields::ways(&status.ways),
        response_ways: fields::ways(&status.response_ways),
        observation: pair.observation.as_ref().map(fields::observation),
    }
}

/// Lists a page.
pub async fn list(
    control: &Arc<Control>,
    request: v1::ListQueuePairsRequest,
) -> Result<v1::ListQueuePairsResponse, Status> {
    let page = page!(request, "ListQueuePairs", [1000, 10_000])?;
    let after: Option<Place> = page.after(|key| {
        let (adapter, place) = key.split_once('/')?;
        Some((adapter.to_owned(), place.parse().ok()?))
    })?;
    for (i, wanted) in request.states.iter().enumerate() {
        if matches!(
            v1::queue_pair::State::try_from(*wanted),
            Err(_) | Ok(v1::queue_pair::State::Unspecified)
        ) {
            return Err(invalid(format!("states[{i}]"), format!("{wanted} is no state")));
        }
    }
    let (only, size, states) = (
        id_or_all(names::ADAPTERS, "parent", &request.parent)?,
        page.size(),
        request.states,
    );
    let control = control.clone();
    let (pairs, next) = blocking(move || {
        QueuePairs(&control).page(only.as_deref(), after.as_ref(), size, |status| {
            states.is_empty() || states.contains(&state(status.attributes.state).into())
        })
    })
    .await??;
    Ok(v1::ListQueuePairsResponse {
        queue_pairs: pairs.iter().map(message).collect(),
        next_page_token: next.map_or_else(String::new, |(adapter, place)| {
            page.token(format_args!("{adapter}/{place}"))
        }),
    })
}

/// Adapter and number of the resource name of a queue pair.
fn parts(name: &str) -> Result<(String, u32), Status> {
    let wrong = || invalid("name", form(name, "adapters/{adapter}/queuePairs/{number}"));
    let (adapter, number) = names::queue_pair_parts(name).ok_or_else(wrong)?;
    Ok((adapter.to_owned(), number.parse().map_err(|_| wrong())?))
}

/// Returns one.
pub async fn get(control: &Arc<Control>, request: v1::GetQueuePairRequest) -> Result<v1::QueuePair, Status> {
    let (adapter, number) = parts(&request.name)?;
    let keep = span("observe", request.observe, &OBSERVE)?;
    let control = control.clone();
    let pair = blocking(move || QueuePairs(&control).get(&adapter, number, keep)).await??;
    Ok(message(&pair))
}

/// A queue pair that is followed.
struct Followed {
    adapter: String,
    number: u32,
    /// How long its observation lasts without a look.
    keep: Duration,
    /// How long ago the observation began, at the last look.
    span: Duration,
}

impl Followed {
    /// Looks at it. May block.
    fn look(&mut self, control: &Control, first: bool) -> Result<QueuePairNow, Status> {
        let pair = QueuePairs(control).get(&self.adapter, self.number, Some(self.keep));
        let pair = pair.map_err(|refused| match refused {
            Refused::Nic(NicError::NotFound { kind, name }) if !first => self.ended(kind, name),
            refused => refused.into(),
        })?;
        let span = pair.observation.as_ref().map_or(Duration::ZERO, |seen| seen.span);
        if span < self.span {
            let text = format!(
                "another queue pair has the number {} of adapter {} now, or the stream was not read for {:?}",
                self.number, self.adapter, self.keep
            );
            return Err(not_found(text, []));
        }
        self.span = span;
        Ok(pair)
    }

    /// Why it is not there any more.
    fn ended(&self, kind: &'static str, name: String) -> Status {
        let Followed { adapter, number, .. } = self;
        let text = match kind {
            "queue pair" => format!("queue pair {number} of adapter {adapter} was destroyed"),
            _ => format!("adapter {adapter}, with queue pair {number}, was removed"),
        };
        not_found(text, [("kind", kind.to_owned()), ("name", name)])
    }
}

/// Follows one.
pub async fn watch_one(
    control: Arc<Control>,
    request: v1::WatchQueuePairRequest,
) -> Answer<Stream<v1::WatchQueuePairResponse>> {
    let (adapter, number) = parts(&request.name)?;
    let interval = span("interval", request.interval, &INTERVAL)?.unwrap_or(INTERVAL_DEFAULT);
    let mut followed = Followed {
        adapter,
        number,
        keep: 2 * interval + LATE,
        span: Duration::ZERO,
    };
    let looked = control.clone();
    let look = move |first: bool| {
        let pair = followed.look(&looked, first)?;
        let change = if first {
            v1::Change::Existing
        } else {
            v1::Change::Updated
        };
        Ok(vec![v1::WatchQueuePairResponse {
            change: change.into(),
            queue_pair: Some(message(&pair)),
            time: Some(timestamp(SystemTime::now())),
        }])
    };
    looks::start(&control, Some(duration(interval)), look).await
}

/// Queue pairs of one adapter or of all, and those of the last look.
struct Watch {
    only: Option<String>,
    seen: SeenQueuePairs,
}

impl Watch {
    /// Looks at all queue pairs. May block.
    fn look(&mut self, control: &Control) -> Result<Vec<QueuePairChange>, Refused> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let (pairs, next) =
                QueuePairs(control).page(self.only.as_deref(), after.as_ref(), AT_A_TIME, |_| true)?;
            all.extend(pairs);
            after = next;
            if after.is_none() {
                return Ok(self.seen.look(all));
            }
        }
    }
}

/// Message of a change. `first`: of the first look.
fn told(change: &QueuePairChange, first: bool, time: SystemTime) -> v1::WatchQueuePairsResponse {
    let (change, queue_pair) = match change {
        QueuePairChange::Added(pair) if first => (Change::Existing, message(pair)),
        QueuePairChange::Added(pair) => (Change::Added, message(pair)),
        QueuePairChange::Changed(pair) => (Change::Changed, message(pair)),
        QueuePairChange::Removed(adapter, number) => {
            let gone = v1::QueuePair {
                name: names::queue_pair(adapter, *number),
                number: *number,
                ..v1::QueuePair::default()
            };
            (Change::Removed, gone)
        }
    };
    v1::WatchQueuePairsResponse {
        change: change.into(),
        queue_pair: Some(queue_pair),
        time: Some(timestamp(time)),
    }
}

pub async fn watch(
    control: Arc<Control>,
    request: v1::WatchQueuePairsRequest,
) -> Answer<Stream<v1::WatchQueuePairsResponse>> {
    let mut watch = Watch {
        only: id_or_all(names::ADAPTERS, "parent", &request.parent)?,
        seen: SeenQueuePairs::default(),
    };
    let looked = control.clone();
    let look = move |first: bool| {
        // An adapter that is not known, or was removed, ends the stream.
        let changes = watch.look(&looked)?;
        let now = SystemTime::now();
        let synced = first.then(|| v1::WatchQueuePairsResponse {
            change: Change::Synced.into(),
            queue_pair: None,
            time: Some(timestamp(now)),
        });
        let messages = changes.iter().map(|change| told(change, first, now));
        Ok(messages.chain(synced).collect())
    };
    looks::start(&control, request.interval, look).await
}
