//! How long a message waits for its answer. Times in messages are exponents: 4.096 µs · 2^n, taken as 2^(n - 8) ms, as Linux
//! does (`cm_convert_to_ms`).

use core::time::Duration;

/// The longest exponent that counts, about a minute: a peer cannot keep a connection under way for hours.
const EXPONENT_MAX: u8 = 24;

/// What a device assumes of its network and of its driver. The defaults are those of the worked examples in the documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long a packet may be under way: 4.096 µs · 2^n.
    pub packet_lifetime: u8,
    /// How long a peer may take to answer: 4.096 µs · 2^n.
    pub response_timeout: u8,
    /// How long the own driver may take to answer: 4.096 µs · 2^n. An MRA says so.
    pub service_timeout: u8,
    /// How often a message is sent before its sender gives up; 0 counts as 1.
    pub retries: u8,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            packet_lifetime: 18,
            response_timeout: 22,
            service_timeout: 24,
            retries: 15,
        }
    }
}

impl Timing {
    /// How long an answer is waited for that may take `response_timeout`: there, the answer, and back.
    pub fn wait(&self, response_timeout: u8) -> Duration {
        2 * time(self.packet_lifetime) + time(response_timeout)
    }

    /// How long an answer is waited for once the peer has sent an MRA with this service timeout.
    pub fn wait_longer(&self, service_timeout: u8) -> Duration {
        time(service_timeout) + self.ack_timeout()
    }

    /// How long a connection stays in [`Timewait`](super::State::Timewait) whose queue pair has this ACK timeout (0: none).
    pub fn timewait(&self, ack_timeout: u8) -> Duration {
        match ack_timeout {
            0 => self.ack_timeout(),
            exponent => time(exponent).min(self.ack_timeout()),
        }
    }

    /// ACK timeout of the path; also how long a connection stays in [`Timewait`](super::State::Timewait): nothing of it is under
    /// way then.
    pub fn ack_timeout(&self) -> Duration {
        time(self.packet_lifetime.saturating_add(1))
    }
}

/// The time of an exponent.
fn time(exponent: u8) -> Duration {
    Duration::from_millis(1 << exponent.min(EXPONENT_MAX).saturating_sub(8))
}
