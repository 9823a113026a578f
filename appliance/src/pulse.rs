//! Do the data cores turn? A thread of its own asks them, for systemd's watchdog and for whoever wants to know: calls of
//! clients, however many there are, do not hold it up.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use sd_notify::NotifyState;
use tokio::sync::oneshot;
use vnic_backend::Nic;

use crate::systemd::notify;

/// Data cores that make no round within this time are stuck.
const LIVE_WITHIN: Duration = Duration::from_secs(1);

enum Wish {
    /// An answer.
    Answer(oneshot::Sender<bool>),
    /// Pings for systemd's watchdog from now on, so often.
    Pings(Duration),
}

/// Asks the data cores.
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

    /// Do all data cores answer? Those who ask at the same time share an answer.
    pub async fn beats(&self) -> bool {
        let (asker, answer) = oneshot::channel();
        self.wish(Wish::Answer(asker));
        answer.await.unwrap_or(false)
    }

    /// From now on systemd's watchdog, if there is one, is pinged as long as every data core answers.
    pub fn ping_systemd(&self) {
        if let Some(limit) = sd_notify::watchdog_enabled() {
            self.wish(Wish::Pings((limit / 3).max(Duration::from_millis(10))));
        }
    }

    fn wish(&self, wish: Wish) {
        if let Some(sender) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            // The thread ends after the sender.
            let _ = sender.send(wish);
        }
    }

    /// The NIC ends: nobody asks any more.
    pub fn end(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

fn feel(nic: &Nic, wishes: &Receiver<Wish>) {
    // How often systemd is pinged, and when next.
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
            // Who asked may have gone.
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
