//! Queue pairs of `vnic.v1.RdmaService`.

use std::sync::Arc;
use std::time::SystemTime;

use tonic::Status;
use vnic_backend::{QpState, QpType};
use vnic_control::v1;
use vnic_control::v1::watch_queue_pairs_response::Change;

use super::answer::{Answer, Stream};
use super::congestion::fields::flow;
use super::errors::{form, id_or_all, invalid};
use super::paging::page;
use super::{convert, looks};
use crate::access::blocking;
use crate::control::{
    Control, Place, Process, QueuePairChange, QueuePairNow, QueuePairs, Refused, SeenQueuePairs,
};
use crate::names;
use crate::same::same;
use crate::stored::values::timestamp;

/// Queue pairs that a stream asks for at a time.
const AT_A_TIME: usize = 10_000;

same! { fn state(QpState) -> v1::queue_pair::State { Reset, Init, Rtr, Rts, Sqd, Sqe, Err } }

same! { fn kind(QpType) -> v1::queue_pair::Type { Rc, Uc, Ud, XrcInitiator, XrcTarget } }

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
        path_mtu: attributes.path_mtu.bytes(),
        priority: status.priority.into(),
        sends: (init.qp_type != QpType::XrcTarget).then(|| sends(pair)),
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

/// Returns one.
pub async fn get(control: &Arc<Control>, name: &str) -> Result<v1::QueuePair, Status> {
    let wrong = || invalid("name", form(name, "adapters/{adapter}/queuePairs/{number}"));
    let (adapter, number) = names::queue_pair_parts(name).ok_or_else(wrong)?;
    let (adapter, number) = (adapter.to_owned(), number.parse().map_err(|_| wrong())?);
    let control = control.clone();
    let pair = blocking(move || QueuePairs(&control).get(&adapter, number)).await??;
    Ok(message(&pair))
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
