//! `vnicctl qp`: queue pairs of RDMA functions.

mod live;
mod show;
mod words;

use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use vnic_control::v1;
use vnic_control::v1::queue_pair::State;

use super::client::{Client, resource};
use super::output::Output;
use super::text;
use super::{Failure, counter, paging};
use crate::check::fault::{integer, span};
use crate::check::qos::rate_text;
use crate::names::{self, ADAPTERS};
use crate::same::same;
pub use words::{address, errors_in_all, kind, owner, state};

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
    #[command(
        after_help = "Examples:\n  vnicctl qp show vf0 17\n  vnicctl -o json qp show vf0 0x11\n  vnicctl qp show vf0 17 --watch   \
                      (live on a terminal; q ends it)\n  vnicctl qp show vf0 17 --watch 100ms --iterations 50 > file   (a line a \
                      look)\n  vnicctl -o json qp show vf0 17 --watch | jq .queue_pair.observation.cnps_received\n\nWhile somebody \
                      looks at a queue pair, its packets, what is sent again and why, marks and round trips are counted. That \
                      begins with the first look and ends 10 s after the last one; nothing is counted of others."
    )]
    Show {
        /// Name of the adapter
        adapter: String,
        /// Number of the queue pair, decimal or hexadecimal after 0x
        #[arg(value_name = "QPN", value_parser = number)]
        number: u32,
        /// Follow it, with a look each second or each SPAN: 100 ms to 1 min
        #[arg(long, value_name = "SPAN", num_args = 0..=1, default_missing_value = "1s", value_parser = interval)]
        watch: Option<Duration>,
        /// End after N spans, which are printed one after another
        #[arg(long, value_name = "N", requires = "watch", value_parser = clap::value_parser!(u64).range(1..))]
        iterations: Option<u64>,
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

/// How long a look at a queue pair asks for an observation.
const OBSERVE: Duration = Duration::from_secs(10);

/// Time between two looks at one queue pair.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = span(text)?;
    let allowed = Duration::from_millis(100)..=Duration::from_secs(60);
    match allowed.contains(&interval) {
        true => Ok(interval),
        false => Err("100 ms to 1 min is allowed".to_owned()),
    }
}

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
        QpVerb::Show {
            adapter,
            number,
            watch,
            iterations,
        } => {
            // `adapter` may be a resource name.
            let adapter = resource(ADAPTERS, &adapter);
            let name = names::queue_pair(names::last(&adapter), number);
            if let Some(interval) = watch {
                let request = v1::WatchQueuePairRequest {
                    name,
                    interval: Some(counter::wire_span(interval)?),
                };
                let stream = service.watch_queue_pair(request).await?.into_inner();
                return live::follow(stream, iterations, out).await;
            }
            let observe = Some(counter::wire_span(OBSERVE)?);
            let mut request = v1::GetQueuePairRequest { name, observe };
            let answer = match service.get_queue_pair(request.clone()).await {
                // As many as can be are observed: it is shown without that.
                Err(status) if status.code() == tonic::Code::ResourceExhausted => {
                    request.observe = None;
                    service.get_queue_pair(request).await
                }
                answer => answer,
            };
            out.answer("QueuePair", answer?, show::facts)
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

fn table(pairs: &[v1::QueuePair]) -> String {
    let none = || "-".to_owned();
    text::table! { pair in pairs, "no queue pairs";
        let (device, _) = names::queue_pair_parts(&pair.name).unwrap_or_default();
        let (peer, sends) = (pair.peer.as_ref(), pair.sends.as_ref());
        let rate = pair.flow.as_ref().and_then(|flow| flow.rate_bps).or(words::limit(pair));
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
    use vnic_control::v1::queue_pair::Type;

    use super::*;

    fn pair() -> v1::QueuePair {
        let span = |nanos| Some(prost_types::Duration { seconds: 0, nanos });
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
            pkey: Some(0x8002),
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
                credits: Some(3),
                timers: Some(v1::QueuePairTimers {
                    ack_timeout: span(67_108_864),
                    ack_timer: span(4_000_000),
                    ack_left: span(1_230_000),
                    rnr_left: span(10_000),
                    smoothed: None,
                }),
            }),
            path: Some(v1::QueuePairPath {
                version: v1::gid::Version::RoceV2.into(),
                source_gid: "::ffff:10.0.0.4".to_owned(),
                destination_gid: "::ffff:10.0.0.5".to_owned(),
                source_mac: "02:00:5e:00:00:02".to_owned(),
                destination_mac: "02:00:5e:00:00:01".to_owned(),
                vlan: Some(5),
                dscp: 26,
                hop_limit: 64,
                flow_label: 0,
                udp_source_port: Some(49_170),
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
        let text = show::facts(&pair());
        let of = |name: &str| {
            let value = text.lines().find_map(|l| l.strip_prefix(name));
            value.unwrap_or_default().trim().to_owned()
        };
        for (name, value) in [
            ("queue pair ", "17 (0x11)"),
            ("owner", "pid 4711 (qemu), uid 1000"),
            ("peer", "10.0.0.5, queue pair 18, at 02:00:5e:00:00:01"),
            ("P_Key", "0x8002, full member"),
            ("send PSN", "5, up to 7 for another time"),
            ("retries left", "2 of 3"),
            (
                "RNR retries left",
                "7 of 7 (for ever); the peer has no receive: it waits",
            ),
            ("path  ", "ROCE_V2, ::ffff:10.0.0.4 to ::ffff:10.0.0.5"),
            ("VLAN", "5"),
            ("DSCP", "26, hop limit 64"),
            ("UDP source port", "49170"),
            ("credits", "3"),
            ("ACK timer", "4.00ms of 67.1ms, 1.23ms left"),
            ("waits for receiver", "10.0µs"),
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
    fn what_was_counted_of_it_is_shown_with_a_histogram() {
        let packets = |packets| {
            Some(v1::QueuePairPackets {
                packets,
                bytes: 1024 * packets,
            })
        };
        let repeats = |cause: v1::queue_pair_repeats::Cause, times, packets| v1::QueuePairRepeats {
            cause: cause.into(),
            times,
            packets,
        };
        let mut pair = pair();
        pair.observation = Some(v1::QueuePairObservation {
            span: Some(prost_types::Duration {
                seconds: 12,
                nanos: 0,
            }),
            requests_sent: packets(1000),
            responses_sent: packets(0),
            requests_received: packets(1),
            responses_received: packets(500),
            repeats: vec![
                repeats(v1::queue_pair_repeats::Cause::ImpliedNak, 0, 0),
                repeats(v1::queue_pair_repeats::Cause::EarlyTimeout, 2, 30),
                repeats(v1::queue_pair_repeats::Cause::ReceiverNotReady, 1, 1),
            ],
            sent_again: 40,
            marked: 5,
            echoed: 4,
            cnps_sent: 3,
            cnps_received: 2,
            round_trips: Some(v1::QueuePairRoundTrips {
                bounds_ns: vec![128, 256, 512],
                counts: vec![0, 1, 0, 3],
                sum_ns: 4000,
                least_ns: Some(200),
                newest_ns: Some(1000),
                smoothed_ns: Some(900),
            }),
        });
        let text = show::facts(&pair);
        let from = text.find("observed").unwrap_or(text.len());
        let expected = "\
observed for                 12.0s
requests sent                1000 (1000 KiB)
responses sent               0 (0 B)
requests received            1 (1.00 KiB)
responses received           500 (500 KiB)
packets sent again           40: 30 after 2 early timeouts, 1 after 1 RNR NAKs
marked packets received      5
BECNs received               4
CNPs                         3 sent, 2 received
round trips                  4 measured: least 200ns, median 512ns, 99 % 512ns, smoothed 900ns, newest 1.00µs
    128ns to 256ns  ##############                                 1  25 %
    256ns to 512ns                                                 0   0 %
        over 512ns  ########################################       3  75 %
";
        assert_eq!(&text[from..], expected);
        // The first look has counted nothing yet.
        pair.observation = Some(v1::QueuePairObservation::default());
        let text = show::facts(&pair);
        assert!(
            text.ends_with("from now on: show it again within 10 s, or --watch it\n"),
            "{text}"
        );
    }

    #[test]
    fn spans_of_looks_have_bounds() {
        assert_eq!(interval("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(interval("1min"), Ok(Duration::from_secs(60)));
        for wrong in ["99ms", "61s", "1"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
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
