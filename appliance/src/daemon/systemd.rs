//! What systemd wants to hear (sd_notify(3)): ready, alive, stopping. Without systemd nothing happens.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;

use super::Context;

/// Tells that the daemon is ready.
pub fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Tells that the daemon ends.
pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("cannot notify systemd: {error}");
    }
}

/// Pings the watchdog as long as every data core answers; never returns when systemd asked for that.
pub async fn watchdog(context: Arc<Context>) {
    let Some(limit) = sd_notify::watchdog_enabled() else {
        return;
    };
    let mut ticks = tokio::time::interval((limit / 3).max(Duration::from_millis(10)));
    loop {
        ticks.tick().await;
        let nic = context.nic.clone();
        let within = limit / 3;
        match tokio::task::spawn_blocking(move || nic.responsive(within)).await {
            Ok(true) => notify(&[NotifyState::Watchdog]),
            _ => tracing::error!("a data core does not answer: systemd's watchdog gets no ping"),
        }
    }
}
