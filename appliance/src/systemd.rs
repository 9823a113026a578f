//! Notifications of systemd (sd_notify(3)): ready, watchdog, stopping. Without systemd they do nothing.

use sd_notify::NotifyState;

/// Notifies that the daemon is ready.
pub fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Notifies that the daemon ends.
pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Notifies systemd of a state.
pub fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("cannot notify systemd: {error}");
    }
}
