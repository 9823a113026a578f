//! Liveness of the data cores, and of the threads that the daemon needs. A thread of its own queries the data cores, for
//! systemd's watchdog and for probes, so that calls of clients do not delay it.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use sd_notify::NotifyState;
use tokio::sync::oneshot;
use vnic_backend::Nic;

use crate::panics;
use crate::systemd::notify;

/// Time within which a data core that turns responds.
const LIVE_WITHIN: Duration = Duration::from_secs(1);

enum Wish {
    /// Request for the liveness.
    Answer(oneshot::Sender<bool>),
    /// Request to ping systemd's watchdog at this interval.
    Pings(Duration),
}

/// Liveness of the data cores.
pub struct Pulse(Mutex<Option<Sender<Wish>>>);

impl Pulse {
    /// Starts the thread.
    pub fn start(nic: Nic) -> io::Result<Pulse> {
        let (sender, wishes) = unbounded();
        std::thread::Builder::new()
            .name("pulse".to_owned())
            .spawn(move || feel(&nic, &wishes))?;
        Ok(Pulse(Mutex::new(Some(sender))))
    }

    /// Whether all data cores respond and all threads that the daemon needs go on; the error says what does not. Concurrent
    /// callers share a result.
    pub async fn beats(&self) -> Result<(), String> {
        let ended = panics::ended();
        if !ended.is_empty() {
            let names = Vec::from_iter(ended).join(", ");
            return Err(format!("ended by a bug: {names}; restart vnicd"));
        }
        let (asker, answer) = oneshot::channel();
        self.wish(Wish::Answer(asker));
        match answer.await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err("a data core does not answer".to_owned()),
        }
    }

    /// Starts to ping systemd's watchdog, if there is one, while all data cores respond.
    pub fn ping_systemd(&self) {
        if let Some(limit) = sd_notify::watchdog_enabled() {
            self.wish(Wish::Pings((limit / 3).max(Duration::from_millis(10))));
        }
    }

    fn wish(&self, wish: Wish) {
        if let Some(sender) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            // The receiver lives as long as the sender.
            let _ = sender.send(wish);
        }
    }

    /// Ends the thread, when the NIC ends.
    pub fn end(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

fn feel(nic: &Nic, wishes: &Receiver<Wish>) {
    // Interval of pings, and time of the next one.
    let mut pings: Option<(Duration, Instant)> = None;
    loop {
        let first = match pings {
            Some((_, at)) => wishes.recv_deadline(at),
            None => wishes.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        if matches!(first, Err(RecvTimeoutError::Disconnected)) {
            return;
        }
        let mut asked = Vec::new();
        for wish in first.into_iter().chain(wishes.try_iter()) {
            match wish {
                Wish::Answer(asker) => asked.push(asker),
                Wish::Pings(interval) => pings = Some((interval, Instant::now())),
            }
        }
        let now = Instant::now();
        let due = pings.filter(|(_, at)| *at <= now).map(|(interval, _)| interval);
        let beats = nic.turning(due.unwrap_or(LIVE_WITHIN));
        for asker in asked {
            // The caller may be gone.
            let _ = asker.send(beats);
        }
        if let Some(interval) = due {
            pings = Some((interval, now + interval));
            if beats {
                notify(&[NotifyState::Watchdog]);
            } else {
                tracing::error!("a data core does not turn: systemd's watchdog gets no ping");
            }
        }
    }
}
