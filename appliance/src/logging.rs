//! Logs on standard error: for people or as JSON, one object a line. A line that cannot be written (its reader is gone, a
//! full disk) is lost and counted; it disturbs nothing else.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Human,
    /// One JSON object a line.
    Json,
}

/// Number of log lines that could not be written.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Number of log lines since the start of the process that could not be written.
pub fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Writes a message to standard error, and a newline. `eprintln!` would panic if nobody reads it.
pub fn say(message: impl Display) {
    let line = format!("{message}\n");
    if io::stderr().write_all(line.as_bytes()).is_err() {
        LOST.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writer of log lines that never fails: its caller would report the failure on standard error, too, and panic there.
struct Lines;

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if io::stderr().write_all(line).is_err() {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts logging. `$VNIC_LOG` is the filter, such as `debug` or `info,h2=warn`; default: `info`.
pub fn start(format: LogFormat) {
    let wanted = std::env::var("VNIC_LOG").unwrap_or_default();
    let (filter, wrong) = match wanted.parse::<Targets>() {
        _ if wanted.is_empty() => (Targets::new().with_default(LevelFilter::INFO), None),
        Ok(filter) => (filter, None),
        Err(wrong) => (Targets::new().with_default(LevelFilter::INFO), Some(wrong)),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| Lines)
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false);
    let registry = tracing_subscriber::registry().with(filter);
    // A second call (tests start several daemons in one process) keeps the first logger.
    let begun = match format {
        LogFormat::Human => registry.with(lines).try_init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    };
    if let (Ok(()), Some(wrong)) = (begun, wrong) {
        tracing::warn!("VNIC_LOG={wanted} is not a filter ({wrong}): info is logged");
    }
}
