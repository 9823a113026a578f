//! What systemd wants to hear (sd_notify(3)): ready, alive, stopping. Without systemd nothing happens.

use sd_notify::NotifyState;

/// Tells that the daemon is ready.
pub fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Tells that the daemon ends.
pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Tells systemd.
pub fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("cannot notify systemd: {error}");
    }
}
