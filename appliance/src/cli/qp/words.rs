//! Words for queue pairs.

use std::fmt::Write as _;

use vnic_control::v1;
use vnic_control::v1::queue_pair::Type;

use super::super::text;

/// Transport service of a queue pair for a column.
pub fn kind(pair: &v1::QueuePair) -> &'static str {
    match pair.r#type() {
        Type::Unspecified => "",
        Type::Rc => "RC",
        Type::Uc => "UC",
        Type::Ud => "UD",
        Type::XrcInitiator => "XRC-INI",
        Type::XrcTarget => "XRC-TGT",
        Type::DcInitiator => "DC-INI",
        Type::DcTarget => "DC-TGT",
        Type::RawPacket => "RAW",
    }
}

/// State of a queue pair for a column.
pub fn state(pair: &v1::QueuePair) -> &'static str {
    text::word(pair.state().as_str_name(), "STATE_")
}

/// Names and values of a queue pair's errors.
pub fn errors(pair: &v1::QueuePair) -> [(&'static str, u32); 7] {
    let e = pair.errors.unwrap_or_default();
    [
        ("out_of_sequence", e.out_of_sequence),
        ("duplicate_request", e.duplicate_request),
        ("out_of_buffer", e.out_of_buffer),
        ("packet_seq_err", e.packet_seq_err),
        ("implied_nak_seq_err", e.implied_nak_seq_err),
        ("local_ack_timeout_err", e.local_ack_timeout_err),
        ("rnr_nak_retry_err", e.rnr_nak_retry_err),
    ]
}

/// Errors of all kinds of a queue pair.
pub fn errors_in_all(pair: &v1::QueuePair) -> u64 {
    errors(pair).iter().map(|(_, n)| u64::from(*n)).sum()
}

/// Address of the peer: short, if it has a short one.
pub fn address(peer: &v1::QueuePairPeer) -> &str {
    text::or(&peer.ipv4, &peer.gid)
}

/// The lower one of the limits that are set, if there is one.
pub fn limit(pair: &v1::QueuePair) -> Option<u64> {
    [pair.driver_rate_bps, pair.rate_bps]
        .into_iter()
        .filter(|bps| *bps > 0)
        .min()
}

/// A process in words.
pub fn owner(process: &v1::Process) -> String {
    let mut words = match process.pid {
        0 => "a process of another PID namespace".to_owned(),
        pid => format!("pid {pid}"),
    };
    if !process.command.is_empty() {
        let _ = write!(words, " ({})", process.command);
    }
    if let Some(uid) = process.uid {
        let _ = write!(words, ", uid {uid}");
    }
    words
}
