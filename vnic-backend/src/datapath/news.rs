//! From the data cores to the control plane: two queues, so that what guests can cause in any number takes no room of what
//! must be heard. A core that finds its queue full drops the news, never waits.

use crossbeam_channel::{Receiver, Sender, bounded, select_biased};

use super::core::CoreEvent;

/// Signals that may wait: control frames are limited at their uplink, the others are rare.
const SIGNALS: usize = 1024;
/// Other news that may wait.
const EVENTS: usize = 4096;

/// The cores' end.
#[derive(Clone)]
pub struct Reporter {
    signals: Sender<CoreEvent>,
    events: Sender<CoreEvent>,
}

/// The other end. Gives signals before other news, and ends when no core is left.
pub struct News {
    signals: Receiver<CoreEvent>,
    events: Receiver<CoreEvent>,
}

/// Two ends.
pub fn news() -> (Reporter, News) {
    let ((signals, heard), (events, told)) = (bounded(SIGNALS), bounded(EVENTS));
    let news = News {
        signals: heard,
        events: told,
    };
    (Reporter { signals, events }, news)
}

impl Reporter {
    /// Tells the control plane; false when it does not listen.
    pub fn tell(&self, event: CoreEvent) -> bool {
        let queue = if event.is_signal() {
            &self.signals
        } else {
            &self.events
        };
        queue.try_send(event).is_ok()
    }
}

impl Iterator for News {
    type Item = CoreEvent;

    fn next(&mut self) -> Option<CoreEvent> {
        select_biased! {
            recv(self.signals) -> event => event.ok().or_else(|| self.events.recv().ok()),
            recv(self.events) -> event => event.ok().or_else(|| self.signals.recv().ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vnic_fabric::switch::PortId;
    use vnic_wire::MacAddr;

    #[test]
    fn what_guests_cause_takes_no_room_of_signals() {
        let (reporter, mut news) = news();
        let spoof = || CoreEvent::Spoof {
            port: PortId(1),
            source: MacAddr([2; 6]),
        };
        while reporter.tell(spoof()) {}
        let port = PortId(2);
        let frame = Box::default();
        for signal in [
            CoreEvent::Panic { port },
            CoreEvent::RdmaPanic { port },
            CoreEvent::PortGone { port, index: 7 },
            CoreEvent::SlowFrame { port, frame },
            CoreEvent::BondMoved { port },
        ] {
            let text = format!("{signal:?}");
            assert!(reporter.tell(signal), "{text} is lost");
            // It is heard before what waits.
            assert_eq!(format!("{:?}", news.next()), format!("Some({text})"));
        }
        drop(reporter);
        assert_eq!(news.by_ref().count(), EVENTS);
        assert!(news.next().is_none());
    }
}
