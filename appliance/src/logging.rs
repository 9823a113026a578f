//! Logs on standard error: for people or as JSON, one object a line.

use std::io::IsTerminal as _;

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

/// Starts logging. `$VNIC_LOG` is the filter, such as `debug` or `info,h2=warn`; default: `info`.
pub fn start(format: LogFormat) {
    let wanted = std::env::var("VNIC_LOG").unwrap_or_default();
    let (filter, wrong) = match wanted.parse::<Targets>() {
        _ if wanted.is_empty() => (Targets::new().with_default(LevelFilter::INFO), None),
        Ok(filter) => (filter, None),
        Err(wrong) => (Targets::new().with_default(LevelFilter::INFO), Some(wrong)),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
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
