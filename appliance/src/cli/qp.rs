//! `vnicctl qp`: queue pairs of RDMA functions.

use std::fmt::Write as _;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use vnic_control::v1;
use vnic_control::v1::queue_pair::{State, Type};

use super::client::{Client, resource};
use super::output::Output;
use super::text::{self, Facts};
use super::{Failure, counter, paging};
use crate::check::fault::{integer, span};
use crate::check::qos::rate_text;
use crate::names::{self, ADAPTERS};
use crate::same::same;

#[derive(Debug, Subcommand)]
pub enum QpVerb {
    /// List queue pairs, as rdma resource show qp does
    #[command(
        after_help = "Examples:\n  vnicctl qp list\n  vnicctl qp list vf0 --state rts --state err\n  vnicctl -o json qp list vf0 | \
                      jq '.queue_pairs[] | select(.errors.local_ack_timeout_err > 0) | .number'\n\nUNACKED: packets that \
                      acknowledges are due for, of the most there may be now. SENDS, RECVS: work requests that have not \
                      completed, of the most there can be. RATE: of congestion control, or the limit that is set. ERRORS: of all \
                      kinds; qp show tells them apart. COMMAND: the process at the socket, a VMM or the program itself."
    )]
    List {
        /// Name of the adapter; all when absent
        adapter: Option<String>,
        /// Only those in this state; again for further ones
        #[arg(long = "state", value_name = "STATE")]
        states: Vec<QpState>,
    },
    /// Show one queue pair in full, with its errors, as rdma statistic qp show does
    #[command(after_help = "Examples:\n  vnicctl qp show vf0 17\n  vnicctl -o json qp show vf0 0x11")]
    Show {
        /// Name of the adapter
        adapter: String,
        /// Number of the queue pair, decimal or hexadecimal after 0x
        #[arg(value_name = "QPN", value_parser = number)]
        number: u32,
    },
    /// Show all queue pairs, and then those that come, go, change their state or peer, or have new errors
    #[command(
        after_help = "Examples:\n  vnicctl qp watch\n  vnicctl -o json qp watch vf0 --interval 100ms   (one object a line)\n\n\
                      What begins and ends between two looks is not seen."
    )]
    Watch {
        /// Name of the adapter; all when absent
        adapter: Option<String>,
        /// Time between looks: 100 ms to 1 hour
        #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = span)]
        interval: Duration,
    },
}

/// States of queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum QpState {
    /// Just created
    Reset,
    /// Receives may be posted
    Init,
    /// Ready to receive
    Rtr,
    /// Ready to send
    Rts,
    /// Send queue drained, or draining
    Sqd,
    /// Send queue error
    Sqe,
    /// Error: everything is flushed
    Err,
}

same! { fn wanted(QpState) -> State { Reset, Init, Rtr, Rts, Sqd, Sqe, Err } }

fn number(text: &str) -> Result<u32, String> {
    let number = integer(text)?;
    let fits = u32::try_from(number).ok().filter(|n| *n <= 0xff_ffff);
    fits.ok_or_else(|| format!("{text} is no number of a queue pair: 0 to 16777215"))
}

/// Runs a command about queue pairs.
pub async fn run(verb: QpVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    let mut service = client.rdma().await?;
    let parent = |adapter: Option<String>| adapter.map_or_else(String::new, |name| resource(ADAPTERS, &name));
    match verb {
        QpVerb::List { adapter, states } => {
            let parent = parent(adapter);
            let states: Vec<i32> = states.into_iter().map(|s| wanted(s).into()).collect();
            let request = v1::ListQueuePairsRequest {
                parent,
                states,
                ..Default::default()
            };
            let all = paging::list(&mut service, request).await?;
            out.message("ListQueuePairsResponse", &all, || table(&all.queue_pairs))
        }
        QpVerb::Show { adapter, number } => {
            // `adapter` may be a resource name.
            let adapter = resource(ADAPTERS, &adapter);
            let name = names::queue_pair(names::last(&adapter), number);
            let request = v1::GetQueuePairRequest { name };
            out.answer("QueuePair", service.get_queue_pair(request).await?, facts)
        }
        QpVerb::Watch { adapter, interval } => {
            let request = v1::WatchQueuePairsRequest {
                parent: parent(adapter),
                interval: Some(counter::wire_span(interval)?),
            };
            let stream = service.watch_queue_pairs(request).await?.into_inner();
            out.follow("WatchQueuePairsResponse", stream, line).await
        }
    }
}

/// Transport service of a queue pair for a column.
pub fn kind(pair: &v1::QueuePair) -> &'static str {
    match pair.r#type() {
        Type::Unspecified => "",
        Type::Rc => "RC",
        Type::Uc => "UC",
        Type::Ud => "UD",
        Type::XrcInitiator => "XRC-INI",
        Type::XrcTarget => "XRC-TGT",
    }
}

/// State of a queue pair for a column.
pub fn state(pair: &v1::QueuePair) -> &'static str {
    text::word(pair.state().as_str_name(), "STATE_")
}

/// Names and values of a queue pair's errors.
fn errors(pair: &v1::QueuePair) -> [(&'static str, u32); 7] {
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
fn limit(pair: &v1::QueuePair) -> Option<u64> {
    [pair.driver_rate_bps, pair.rate_bps]
        .into_iter()
        .filter(|bps| *bps > 0)
        .min()
}

fn table(pairs: &[v1::QueuePair]) -> String {
    let none = || "-".to_owned();
    text::table! { pair in pairs, "no queue pairs";
        let (device, _) = names::queue_pair_parts(&pair.name).unwrap_or_default();
        let (peer, sends) = (pair.peer.as_ref(), pair.sends.as_ref());
        let rate = pair.flow.as_ref().and_then(|flow| flow.rate_bps).or(limit(pair));
        let owner = pair.owner.as_ref();
        "DEV": device,
        ">QPN": pair.number,
        "TYPE": kind(pair),
        "STATE": state(pair),
        "PEER": peer.map_or_else(none, |p| address(p).to_owned()),
        ">PEER QPN": peer.map_or_else(none, |p| p.queue_pair.to_string()),
        ">SQ PSN": sends.map_or_else(none, |s| s.next_psn.to_string()),
        ">RQ PSN": pair.expected_psn,
        ">UNACKED": sends.map_or_else(none, |s| format!("{}/{}", s.in_flight, s.window)),
        ">SENDS": sends.map_or_else(none, |s| format!("{}/{}", s.posted, s.limit)),
        ">RECVS": format!("{}/{}", pair.receives_posted, pair.receives_limit),
        ">RATE": rate.map_or_else(none, rate_text),
        ">ERRORS": errors_in_all(pair),
        ">PID": owner.map_or_else(none, |o| o.pid.to_string()),
        "COMMAND": owner.map_or("", |o| &o.command),
    }
}

fn facts(pair: &v1::QueuePair) -> String {
    let (device, _) = names::queue_pair_parts(&pair.name).unwrap_or_default();
    let mut facts = Facts::default();
    text::facts! { facts;
        "adapter": device,
        "queue pair": format!("{} ({:#x})", pair.number, pair.number),
        "type": kind(pair),
        "state": state(pair),
        "owner": pair.owner.as_ref().map_or("nobody".to_owned(), owner),
    }
    if let Some(peer) = &pair.peer {
        text::facts! { facts;
            "peer": format!("{}, queue pair {}, at {}", address(peer), peer.queue_pair, peer.mac),
            "from GID": format!("index {}", peer.gid_index),
        }
    }
    text::facts! { facts; "path MTU": format!("{} bytes", pair.path_mtu), "priority": pair.priority, }
    if let Some(s) = &pair.sends {
        let again = match s.next_psn == s.end_psn {
            true => String::new(),
            false => format!(", up to {} for another time", s.end_psn),
        };
        let waits = if s.waits_for_receiver {
            "; the peer has no receive: it waits"
        } else {
            ""
        };
        let forever = if s.rnr_retries == 7 { " (for ever)" } else { "" };
        text::facts! { facts;
            "sends": format!("{} of {} posted", s.posted, s.limit),
            "send PSN": format!("{}{again}", s.next_psn),
            "oldest PSN not acknowledged": s.oldest_psn,
            "not acknowledged": format!("{} of {} packets", s.in_flight, s.window),
            "retries left": format!("{} of {}", s.retries_left, s.retries),
            "RNR retries left": format!("{} of {}{forever}{waits}", s.rnr_retries_left, s.rnr_retries),
        }
    }
    let set = |bps: u64| if bps == 0 { String::new() } else { rate_text(bps) };
    text::facts! { facts;
        "receives": format!("{} of {} posted", pair.receives_posted, pair.receives_limit),
        "receive PSN": pair.expected_psn,
        "driver's limit": set(pair.driver_rate_bps),
        "operator's limit": set(pair.rate_bps),
    }
    if let Some(flow) = &pair.flow {
        let rate = flow.rate_bps.map_or("no rate".to_owned(), rate_text);
        let window = flow.window_bytes;
        let window = window.map_or("no window".to_owned(), |w| format!("window {}", text::bytes(w)));
        let notifications = flow.notifications;
        text::facts! { facts; "congestion control": format!("{rate}, {window}, {notifications} notifications"), }
    }
    for (name, number) in [
        ("protection domain", pair.pd),
        ("send CQ", pair.send_cq),
        ("receive CQ", pair.receive_cq),
        ("shared receive queue", pair.srq),
        ("XRC domain", pair.xrcd),
    ] {
        facts.add(name, number.map_or_else(String::new, |n| n.to_string()));
    }
    for (name, count) in errors(pair) {
        facts.add(name, count.to_string());
    }
    facts.finish()
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

fn line(message: &v1::WatchQueuePairsResponse) -> String {
    use v1::watch_queue_pairs_response::Change;
    let pair = message.queue_pair.clone().unwrap_or_default();
    let now = || {
        let peer = pair.peer.as_ref();
        let peer = peer.map_or_else(String::new, |p| format!("  {} {}", address(p), p.queue_pair));
        let errors = match errors_in_all(&pair) {
            0 => String::new(),
            n => format!("  {n} errors"),
        };
        format!("{:<7}  {}{peer}{errors}", kind(&pair), state(&pair))
    };
    let what = match message.change() {
        Change::Unspecified => return String::new(),
        Change::Synced => return "-- changes from here on --\n".to_owned(),
        Change::Removed => "destroyed".to_owned(),
        Change::Added => format!("{}, made", now()),
        Change::Existing | Change::Changed => now(),
    };
    let (device, _) = names::queue_pair_parts(&pair.name).unwrap_or_default();
    format!(
        "{}  {device:<15}  {:>8}  {what}\n",
        text::time(message.time),
        pair.number
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> v1::QueuePair {
        v1::QueuePair {
            name: "adapters/vf0/queuePairs/17".to_owned(),
            number: 17,
            r#type: Type::Rc.into(),
            state: State::Rts.into(),
            owner: Some(v1::Process {
                pid: 4711,
                uid: Some(1000),
                command: "qemu".to_owned(),
            }),
            peer: Some(v1::QueuePairPeer {
                gid: "0000:0000:0000:0000:0000:ffff:0a00:0005".to_owned(),
                ipv4: "10.0.0.5".to_owned(),
                mac: "02:00:5e:00:00:01".to_owned(),
                queue_pair: 18,
                gid_index: 3,
            }),
            path_mtu: 1024,
            sends: Some(v1::QueuePairSends {
                posted: 2,
                limit: 64,
                next_psn: 5,
                oldest_psn: 4,
                end_psn: 7,
                in_flight: 1,
                window: 16,
                retries_left: 2,
                retries: 3,
                rnr_retries_left: 7,
                rnr_retries: 7,
                waits_for_receiver: true,
            }),
            expected_psn: 9,
            receives_posted: 1,
            receives_limit: 32,
            errors: Some(v1::QueuePairErrors {
                packet_seq_err: 2,
                rnr_nak_retry_err: 1,
                ..v1::QueuePairErrors::default()
            }),
            rate_bps: 2_000_000_000,
            pd: Some(1),
            ..v1::QueuePair::default()
        }
    }

    #[test]
    fn a_row_has_all_that_tells_a_queue_pair_that_hangs() {
        let target = v1::QueuePair {
            name: "adapters/vf0/queuePairs/3".to_owned(),
            number: 3,
            r#type: Type::XrcTarget.into(),
            state: State::Reset.into(),
            ..v1::QueuePair::default()
        };
        let expected = "\
DEV  QPN  TYPE     STATE  PEER      PEER QPN  SQ PSN  RQ PSN  UNACKED  SENDS  RECVS    RATE  ERRORS   PID  COMMAND
vf0   17  RC       RTS    10.0.0.5        18       5       9     1/16   2/64   1/32  2 Gbps       3  4711  qemu
vf0    3  XRC-TGT  RESET  -                -       -       0        -      -    0/0       -       0     -
";
        assert_eq!(table(&[pair(), target]), expected);
        assert_eq!(table(&[]), "no queue pairs\n");
    }

    #[test]
    fn one_is_shown_in_full() {
        let text = facts(&pair());
        let of = |name: &str| {
            let value = text.lines().find_map(|l| l.strip_prefix(name));
            value.unwrap_or_default().trim().to_owned()
        };
        for (name, value) in [
            ("queue pair ", "17 (0x11)"),
            ("owner", "pid 4711 (qemu), uid 1000"),
            ("peer", "10.0.0.5, queue pair 18, at 02:00:5e:00:00:01"),
            ("send PSN", "5, up to 7 for another time"),
            ("retries left", "2 of 3"),
            (
                "RNR retries left",
                "7 of 7 (for ever); the peer has no receive: it waits",
            ),
            ("packet_seq_err", "2"),
            ("local_ack_timeout_err", "0"),
        ] {
            assert_eq!(of(name), value, "{name} in\n{text}");
        }
        assert!(
            !text.contains("XRC domain") && !text.contains("driver's limit"),
            "{text}"
        );
    }

    #[test]
    fn a_watcher_sees_what_has_changed() {
        use v1::watch_queue_pairs_response::Change;
        let told = |change: Change| {
            let text = line(&v1::WatchQueuePairsResponse {
                change: change.into(),
                queue_pair: Some(pair()),
                time: Some(prost_types::Timestamp::default()),
            });
            text.trim_end()
                .trim_start_matches("1970-01-01T00:00:00Z")
                .trim_start()
                .to_owned()
        };
        let now = "vf0                    17  RC       RTS  10.0.0.5 18  3 errors";
        assert_eq!(told(Change::Changed), now);
        assert_eq!(told(Change::Added), format!("{now}, made"));
        assert_eq!(told(Change::Removed), "vf0                    17  destroyed");
        assert_eq!(told(Change::Synced), "-- changes from here on --");
    }

    #[test]
    fn numbers_are_those_of_queue_pairs() {
        assert_eq!(number("0x11"), Ok(17));
        assert_eq!(number("16777215"), Ok(0xff_ffff));
        for wrong in ["16777216", "-1", "x", ""] {
            assert!(number(wrong).is_err(), "{wrong}");
        }
    }
}
