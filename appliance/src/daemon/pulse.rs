//! Do the data cores turn? A thread of its own asks them, for systemd's watchdog and for whoever wants to know: calls of
//! clients, however many there are, do not hold it up.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use sd_notify::NotifyState;
use tokio::sync::oneshot;
use vnic_backend::Nic;

use super::systemd::notify;

/// Data cores that do not answer within this time are stuck.
const LIVE_WITHIN: Duration = Duration::from_secs(1);

type Question = oneshot::Sender<bool>;

/// Asks the data cores.
pub struct Pulse(Mutex<Option<Sender<Question>>>);

impl Pulse {
    /// Starts the thread. If systemd asked for it, its watchdog is pinged as long as every data core answers.
    pub fn start(nic: Nic) -> io::Result<Pulse> {
        let (sender, questions) = unbounded();
        std::thread::Builder::new()
            .name("pulse".to_owned())
            .spawn(move || feel(&nic, &questions))?;
        Ok(Pulse(Mutex::new(Some(sender))))
    }

    /// Do all data cores answer? Those who ask at the same time share an answer.
    pub async fn beats(&self) -> bool {
        let (question, answer) = oneshot::channel();
        let asked = match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(sender) => sender.send(question).is_ok(),
            None => false,
        };
        asked && answer.await.unwrap_or(false)
    }

    /// The NIC ends: nobody asks any more.
    pub fn end(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

fn feel(nic: &Nic, questions: &Receiver<Question>) {
    let watchdog = sd_notify::watchdog_enabled().map(|limit| (limit / 3).max(Duration::from_millis(10)));
    let mut ping_at = Instant::now();
    loop {
        let first = match watchdog {
            Some(_) => questions.recv_deadline(ping_at),
            None => questions.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let mut asked: Vec<Question> = match first {
            Ok(question) => vec![question],
            Err(RecvTimeoutError::Timeout) => Vec::new(),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        asked.extend(questions.try_iter());
        let now = Instant::now();
        let ping = watchdog.filter(|_| now >= ping_at);
        let beats = nic.responsive(ping.unwrap_or(LIVE_WITHIN));
        for question in asked {
            // Who asked may have gone.
            let _ = question.send(beats);
        }
        if let Some(interval) = ping {
            ping_at = now + interval;
            if beats {
                notify(&[NotifyState::Watchdog]);
            } else {
                tracing::error!("a data core does not answer: systemd's watchdog gets no ping");
            }
        }
    }
}
