//! Logs on standard error: for people or as JSON, one object a line; lines for people are entries with fields if it is connected to
//! systemd's journal. A line that cannot be written (its reader is gone, a full disk) is lost and counted; it disturbs nothing else.

mod journal;

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt as _;

use journal::Journal;

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

/// Filter without `$VNIC_LOG`.
const DEFAULT: &str = "info";
/// Greatest length of a filter in bytes.
const FILTER_MAX: usize = 1000;

/// Filter of the log of this process.
struct Filter {
    text: String,
    /// Layer that filters; `None`: the log was not started here.
    layer: Option<reload::Handle<Targets, Registry>>,
}

static FILTER: Mutex<Filter> = Mutex::new(Filter {
    text: String::new(),
    layer: None,
});

/// Reads a filter: parts `LEVEL` or `TARGET=LEVEL` with commas between them. The error says what is wrong.
pub fn parse(text: &str) -> Result<Targets, String> {
    if text.len() > FILTER_MAX {
        return Err(format!("longer than {FILTER_MAX} bytes"));
    }
    for part in text.split(',') {
        let (target, level) = part.split_once('=').unwrap_or(("vnic", part));
        // (tracing-subscriber takes a word that is no level for a target, and no level for ERROR.)
        if level.is_empty() || level.parse::<LevelFilter>().is_err() {
            return Err(format!(
                "{level:?} is no level: off, error, warn, info, debug, trace"
            ));
        }
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '-');
        if target.is_empty() || !target.chars().all(fits) {
            return Err(format!(
                "{target:?} is no target, such as h2 or vnic_appliance::events"
            ));
        }
    }
    text.parse::<Targets>().map_err(|error| error.to_string())
}

fn locked() -> std::sync::MutexGuard<'static, Filter> {
    FILTER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Filter of the log now.
pub fn filter() -> String {
    let filter = locked();
    match filter.text.as_str() {
        "" => DEFAULT.to_owned(),
        text => text.to_owned(),
    }
}

/// Replaces the filter of the log until the process ends. The error says what is wrong with it.
pub fn set_filter(text: &str) -> Result<(), String> {
    let targets = parse(text)?;
    let mut filter = locked();
    let layer = filter.layer.as_ref();
    let layer = layer.ok_or("the log of this process is not the daemon's own")?;
    layer.reload(targets).map_err(|error| error.to_string())?;
    text.clone_into(&mut filter.text);
    Ok(())
}

/// Layer of the journal, if standard error is connected to it.
fn journal() -> Option<Journal> {
    let stream = std::env::var("JOURNAL_STREAM").ok()?;
    let path = Path::new(journal::SOCKET);
    Journal::of(&stream, io::stderr(), path, |line| say(line))
}

/// Starts logging. `$VNIC_LOG` is the filter, such as `debug` or `info,h2=warn`; default: `info`.
pub fn start(format: LogFormat) {
    let wanted = std::env::var("VNIC_LOG").unwrap_or_default();
    let default = || (DEFAULT, Targets::new().with_default(LevelFilter::INFO));
    let ((text, targets), wrong) = match parse(&wanted) {
        _ if wanted.is_empty() => (default(), None),
        Ok(targets) => ((wanted.as_str(), targets), None),
        Err(wrong) => (default(), Some(wrong)),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| Lines)
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false);
    let (layer, handle) = reload::Layer::new(targets);
    let registry = tracing_subscriber::registry().with(layer);
    // A second call (tests start several daemons in one process) keeps the first logger.
    let begun = match format {
        LogFormat::Human => match journal() {
            Some(journal) => registry.with(journal).try_init(),
            None => registry.with(lines).try_init(),
        },
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    };
    if begun.is_ok() {
        *locked() = Filter {
            text: text.to_owned(),
            layer: Some(handle),
        };
        if let Some(wrong) = wrong {
            tracing::warn!("VNIC_LOG={wanted} is not a filter ({wrong}): info is logged");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_levels_and_targets_and_nothing_else() {
        for good in [
            "info",
            "off",
            "WARN",
            "info,h2=warn",
            "vnic_appliance::events=trace",
            "tonic-x=off,error",
        ] {
            assert!(parse(good).is_ok(), "{good}");
        }
        for (wrong, why) in [
            ("", "no level"),
            ("inof", "\"inof\" is no level"),
            ("info,", "no level"),
            ("h2", "no level"),
            ("h2=", "no level"),
            ("=info", "no target"),
            ("info, h2=warn", "no target"),
            ("h2=warn=info", "no level"),
            ("a[span]=info", "no target"),
            ("ä=info", "no target"),
        ] {
            let said = parse(wrong).expect_err(wrong);
            assert!(said.contains(why), "{wrong}: {said}");
        }
        assert!(parse(&"info,".repeat(1000)).expect_err("long").contains("longer"));
    }
}
