//! Panics of the daemon: each is counted and told, and so is the end of a thread or task that the daemon needs.
//!
//! ```text
//!  panic ─▶ hook: counted ─┬▶ channel ─▶ daemon: event, health
//!  end of its thread ──────┘             ended() ─▶ /livez, GetServerInfo, metrics
//! ```
//!
//! A hook sees the panics of all threads, those of libraries too; nothing has to be done where a thread is started.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Threads and tasks that the daemon needs as long as it runs, by name, sorted. A thread of one adapter, port, capture or
/// client is not among them, because its panic costs only that one.
pub const NEEDED: [&str; 12] = [
    "event-log",
    "events",
    "expiry",
    "grpc-tcp",
    "grpc-unix",
    "metrics",
    "pulse",
    "store",
    "vnic-dpc",
    "vnic-lacp",
    "vnic-links",
    "vnic-news",
];

/// Number of notices that wait for the daemon; those beyond are counted only.
const WAITING: usize = 64;
/// Greatest length of a panic's message in a notice, in bytes.
const MESSAGE_MAX: usize = 500;

static COUNT: AtomicU64 = AtomicU64::new(0);
static ENDED: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
static NOTICES: OnceLock<mpsc::Sender<Notice>> = OnceLock::new();

thread_local! {
    /// Dropped at the end of a needed thread that has panicked.
    static PANICKED: Cell<Option<Mourned>> = const { Cell::new(None) };
}

/// Notice for the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A thread panicked.
    Panicked {
        /// Name of the thread.
        thread: String,
        /// Place in the source, such as `src/store.rs:7:9`.
        place: String,
        /// Message of the panic.
        message: String,
    },
    /// A needed thread or task ended by a panic.
    Ended(&'static str),
}

/// Name of a thread whose end is noted when this is dropped.
struct Mourned(&'static str);

impl Drop for Mourned {
    fn drop(&mut self) {
        end(self.0);
    }
}

/// Error of a future that panicked.
#[derive(Debug, thiserror::Error)]
#[error("it panicked: {0}")]
pub struct Panicked(String);

fn ended_now() -> MutexGuard<'static, BTreeSet<&'static str>> {
    ENDED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of panics since [`watch`].
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Names of [`NEEDED`] that ended by a panic.
pub fn ended() -> BTreeSet<&'static str> {
    ended_now().clone()
}

/// Begins to watch the panics of this process; returns the notices. A later call returns none: the first one gets them.
pub fn watch() -> mpsc::Receiver<Notice> {
    let (sender, notices) = mpsc::channel(WAITING);
    if NOTICES.set(sender).is_ok() {
        // The hook before prints the message, and a backtrace if it is wanted.
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            before(info);
            note(info);
        }));
    }
    notices
}

fn note(info: &PanicHookInfo<'_>) {
    COUNT.fetch_add(1, Ordering::Relaxed);
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("without a name");
    if let Some(name) = NEEDED.into_iter().find(|name| *name == thread) {
        // A mark of an earlier panic, which was caught, stays. An error means that the thread is at its very end.
        let _ = PANICKED.try_with(|mark| mark.set(Some(mark.take().unwrap_or_else(|| Mourned(name)))));
    }
    tell(Notice::Panicked {
        thread: thread.to_owned(),
        place: info.location().map(ToString::to_string).unwrap_or_default(),
        message: words(info.payload()),
    });
}

fn tell(notice: Notice) {
    if let Some(notices) = NOTICES.get() {
        // A panic must not wait: notices beyond the limit are left out.
        let _ = notices.try_send(notice);
    }
}

fn end(name: &'static str) {
    if ended_now().insert(name) {
        tell(Notice::Ended(name));
    }
}

/// Message of a panic, at most [`MESSAGE_MAX`] bytes of it.
fn words(payload: &(dyn Any + Send)) -> String {
    let text = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text.as_str(),
        (None, None) => "a value that is no text",
    };
    text[..text.floor_char_boundary(MESSAGE_MAX)].to_owned()
}

/// Awaits a future; a panic of it is an error.
pub async fn caught<F: Future>(future: F) -> Result<F::Output, Panicked> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        // A future that panicked is not polled again.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(payload) => Poll::Ready(Err(Panicked(words(&*payload)))),
        }
    })
    .await
}

/// Spawns a task that the daemon needs, with its name in [`NEEDED`]. Must be called in a tokio runtime.
pub fn spawn(name: &'static str, future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(async move {
        if caught(future).await.is_err() {
            end(name);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(text: &str) {
        panic!("{text}");
    }

    /// The only test of this program that watches: what it sees is of the whole process.
    #[tokio::test]
    async fn panics_are_counted_and_the_end_of_a_needed_thread_or_task_is_told() {
        let mut notices = watch();
        assert!(NEEDED.is_sorted());
        let thread = |name: &str, what: fn()| {
            let thread = std::thread::Builder::new().name(name.to_owned());
            thread.spawn(what).expect("a thread").join()
        };
        let before = count();
        assert!(thread("vhost-vf0", || panic!("of one adapter")).is_err());
        assert!(thread("vnic-lacp", || panic!("of {} ports", 2)).is_err());
        // Panics that the thread survives; then it ends.
        let survived = thread("vnic-dpc", || {
            for _ in 0..2 {
                assert!(catch_unwind(|| fail("survived")).is_err());
            }
            assert!(!ended().contains("vnic-dpc"));
        });
        assert!(survived.is_ok());
        let task = spawn("expiry", async { panic!("of a task") });
        task.await.expect("an end");
        assert!(count() >= before + 5);
        let ended = ended();
        assert!(
            ended.contains("vnic-lacp") && ended.contains("expiry"),
            "{ended:?}"
        );
        assert!(!ended.contains("vhost-vf0"));

        let mut panicked = Vec::new();
        let mut over = Vec::new();
        while let Ok(notice) = notices.try_recv() {
            match notice {
                Notice::Panicked {
                    thread,
                    place,
                    message,
                } => {
                    assert!(place.contains(".rs:"), "{place}");
                    panicked.push((thread, message));
                }
                Notice::Ended(name) => over.push(name),
            }
        }
        for (thread, message) in [("vhost-vf0", "of one adapter"), ("vnic-lacp", "of 2 ports")] {
            let told = (thread.to_owned(), message.to_owned());
            assert!(panicked.contains(&told), "{panicked:?}");
        }
        assert_eq!(over, ["vnic-lacp", "vnic-dpc", "expiry"]);
    }

    #[tokio::test]
    async fn a_panic_of_a_future_is_an_error() {
        assert_eq!(caught(async { 7 }).await.expect("a value"), 7);
        let error = caught(async { fail("at once") }).await.expect_err("a panic");
        assert_eq!(error.to_string(), "it panicked: at once");
        let long = "ä".repeat(MESSAGE_MAX);
        let Panicked(text) = caught(async { fail(&long) }).await.expect_err("a panic");
        assert!(text.len() <= MESSAGE_MAX && text.ends_with('ä'));
    }
}
