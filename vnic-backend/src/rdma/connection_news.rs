//! What has become of a driver's connections, for the event log: a report of each kind a second at most.

use std::time::Duration;

use vnic_engine::rdma::cm::{Event, Status};
use vnic_fabric::Instant;

use crate::types::{ConnectionOutcome, ConnectionReport};

/// Time between two reports of a kind.
const EVERY: Duration = Duration::from_secs(1);

/// Reports that are due.
#[derive(Debug, Default)]
pub struct ConnectionNews {
    untold: [Option<ConnectionReport>; ConnectionOutcome::ALL.len()],
    /// No report of a kind before this time.
    after: [Instant; ConnectionOutcome::ALL.len()],
}

impl ConnectionNews {
    /// Notes an event that the driver takes. `status`: its connection.
    pub fn note_event(&mut self, event: &Event, status: Option<&Status>) {
        let (outcome, reason) = match event {
            Event::Established { .. } => (ConnectionOutcome::Established, None),
            Event::Rejected { reject, .. } => (ConnectionOutcome::Rejected, Some(reject.reason.to_string())),
            Event::Unreachable { .. } => (ConnectionOutcome::TimedOut, None),
            Event::Disconnected { .. } => (ConnectionOutcome::Disconnected, None),
            _ => return,
        };
        if let Some(status) = status {
            self.note(outcome, reason, status);
        }
    }

    /// Notes what has become of a connection.
    pub fn note(&mut self, outcome: ConnectionOutcome, reason: Option<String>, status: &Status) {
        let Some(untold) = self.untold.get_mut(outcome as usize) else {
            return;
        };
        *untold = Some(ConnectionReport {
            outcome,
            count: untold.as_ref().map_or(0, |before| before.count) + 1,
            peer: status.peer.dgid.0,
            service: status.terms.service_id,
            reason: reason.unwrap_or_default(),
        });
    }

    /// Takes over what another driver of the function has noted.
    pub fn gather(&mut self, other: &mut ConnectionNews) {
        for (ours, theirs) in self.untold.iter_mut().zip(&mut other.untold) {
            if let Some(mut report) = theirs.take() {
                report.count += ours.as_ref().map_or(0, |ours| ours.count);
                *ours = Some(report);
            }
        }
    }

    /// Whether something was noted that was not reported.
    pub fn is_waiting(&self) -> bool {
        self.untold.iter().any(Option::is_some)
    }

    /// The reports that are due.
    pub fn take(&mut self, now: Instant) -> Vec<ConnectionReport> {
        let due = self.untold.iter_mut().zip(&mut self.after);
        let due = due.filter(|(untold, after)| untold.is_some() && now >= **after);
        due.filter_map(|(untold, after)| {
            *after = now + EVERY;
            untold.take()
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use vnic_engine::rdma::AddressVector;
    use vnic_engine::rdma::cm::{ConnectionId, State};
    use vnic_wire::cm::{PortSpace, Reason, Rej, ServiceId};

    use super::*;

    fn status(port: u16) -> Status {
        let mut status = Status {
            id: 1,
            remote_id: 0,
            state: State::Idle,
            passive: false,
            qp: 0,
            remote_qp: 0,
            peer: AddressVector::default(),
            terms: Default::default(),
        };
        status.terms.service_id = ServiceId::of_port(PortSpace::Tcp, port);
        status
    }

    #[test]
    fn reports_count_and_name_the_last() {
        let id = ConnectionId(1);
        let rejected = |reason| Event::Rejected {
            id,
            reject: Box::new(Rej {
                reason,
                ..Rej::default()
            }),
        };
        let mut news = ConnectionNews::default();
        let start = Instant::default();
        assert!(!news.is_waiting() && news.take(start).is_empty());
        news.note_event(&Event::TimewaitExit { id }, Some(&status(1)));
        assert!(!news.is_waiting());
        news.note_event(&rejected(Reason::STALE), Some(&status(1)));
        news.note_event(&rejected(Reason::CONSUMER), Some(&status(2)));
        news.note_event(&Event::Established { id }, Some(&status(3)));
        let told: Vec<_> = news
            .take(start)
            .into_iter()
            .map(|r| (r.outcome, r.count, r.service, r.reason))
            .collect();
        let of = |port| ServiceId::of_port(PortSpace::Tcp, port);
        assert_eq!(
            told,
            [
                (ConnectionOutcome::Established, 1, of(3), String::new()),
                (
                    ConnectionOutcome::Rejected,
                    2,
                    of(2),
                    Reason::CONSUMER.to_string()
                ),
            ]
        );
        // Of a kind one a second; what comes meanwhile is in the next one.
        news.note_event(&rejected(Reason::STALE), Some(&status(1)));
        let mut other = ConnectionNews::default();
        other.note_event(&rejected(Reason::CONSUMER), Some(&status(4)));
        news.gather(&mut other);
        assert!(news.take(start).is_empty() && news.is_waiting() && !other.is_waiting());
        let told = news.take(start + EVERY);
        assert_eq!((told.len(), told[0].count, told[0].service), (1, 2, of(4)));
        assert!(!news.is_waiting());
    }
}
