//! `vnicctl qp show --watch`: one queue pair as it changes, with plots on a terminal and as lines elsewhere.

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _};
use std::net::Ipv6Addr;
use std::os::fd::AsFd as _;
use std::time::Duration;

use tonic::Streaming;
use vnic_control::v1;

use super::super::look::per_second;
use super::super::output::{self, Output};
use super::super::screen::paint::{self, Cell, Colour, Paper};
use super::super::screen::plot::{self, Ink};
use super::super::screen::terminal::{self, Terminal};
use super::super::{Failure, text};
use super::show::{ack_timer, bars, causes, trips_text};
use super::words::{address, errors_in_all, kind, state};
use crate::names;

/// Bits in a byte.
const BYTE: u64 = 8;
/// Looks that are remembered: those for which the widest terminal has room.
const KEPT: usize = 1000;
/// Size of a terminal that tells none.
const SIZE_DEFAULT: (usize, usize) = (80, 24);
/// Columns in front of a plot: its name and its number.
const LABEL: usize = 24;

type Look = v1::WatchQueuePairResponse;

/// What has happened between two looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Sample {
    sent_bps: u64,
    received_bps: u64,
    sent_pps: u64,
    received_pps: u64,
    /// Packets sent again.
    again_pps: u64,
    /// Packets received with a mark.
    marked_pps: u64,
    /// Congestion notifications received.
    cnps_pps: u64,
    /// Mean of the round trips, in ns; none: none was measured.
    trip: Option<u64>,
}

/// What a look has counted.
fn counted(look: &Look) -> Option<&v1::QueuePairObservation> {
    look.queue_pair.as_ref()?.observation.as_ref()
}

impl Sample {
    /// Between two looks; none: one of them has counted nothing.
    fn between(before: &Look, now: &Look) -> Option<Sample> {
        let (before, now) = (counted(before)?, counted(now)?);
        let span = |of: &v1::QueuePairObservation| Duration::try_from(of.span?).ok();
        let elapsed = span(now)?.checked_sub(span(before)?)?;
        type Of = fn(&v1::QueuePairObservation) -> u64;
        let rate = |of: Of| per_second(of(now).saturating_sub(of(before)), elapsed);
        let trips = |of: &v1::QueuePairObservation| {
            let trips = of.round_trips.as_ref();
            trips.map_or((0, 0), |t| (t.counts.iter().sum::<u64>(), t.sum_ns))
        };
        let ((n, sum), (n0, sum0)) = (trips(now), trips(before));
        fn packets(of: Option<v1::QueuePairPackets>) -> u64 {
            of.map_or(0, |of| of.packets)
        }
        fn bytes(of: Option<v1::QueuePairPackets>) -> u64 {
            of.map_or(0, |of| of.bytes)
        }
        Some(Sample {
            sent_bps: rate(|o| bytes(o.requests_sent) + bytes(o.responses_sent)).saturating_mul(BYTE),
            received_bps: rate(|o| bytes(o.requests_received) + bytes(o.responses_received))
                .saturating_mul(BYTE),
            sent_pps: rate(|o| packets(o.requests_sent) + packets(o.responses_sent)),
            received_pps: rate(|o| packets(o.requests_received) + packets(o.responses_received)),
            again_pps: rate(|o| o.sent_again),
            marked_pps: rate(|o| o.marked),
            cnps_pps: rate(|o| o.cnps_received),
            trip: sum.saturating_sub(sum0).checked_div(n.saturating_sub(n0)),
        })
    }
}

/// Headings of [`row`].
fn headings() -> String {
    format!(
        "{:<24}  {:>8}  {:>8}  {:>7}  {:>7}  {:>7}  {:>8}  {:>11}  {:>8}  {:>6}  {}\n",
        "TIME",
        "SENT b/s",
        "RECV b/s",
        "SENT/s",
        "RECV/s",
        "AGAIN/s",
        "TRIP",
        "UNACKED",
        "MARKED/s",
        "CNPS/s",
        "STATE"
    )
}

/// A line of numbers.
fn row(look: &Look, sample: &Sample) -> String {
    let pair = look.queue_pair.clone().unwrap_or_default();
    let unacked = pair
        .sends
        .map_or_else(String::new, |s| format!("{}/{}", s.in_flight, s.window));
    format!(
        "{:<24}  {:>8}  {:>8}  {:>7}  {:>7}  {:>7}  {:>8}  {unacked:>11}  {:>8}  {:>6}  {}\n",
        text::time(look.time),
        text::short(sample.sent_bps),
        text::short(sample.received_bps),
        text::short(sample.sent_pps),
        text::short(sample.received_pps),
        text::short(sample.again_pps),
        sample.trip.map_or_else(|| "-".to_owned(), text::nanos),
        text::short(sample.marked_pps),
        text::short(sample.cnps_pps),
        state(&pair),
    )
}

/// Follows a queue pair until there is enough, the user ends it, or the queue pair is gone.
pub async fn follow(
    mut stream: Streaming<Look>,
    iterations: Option<u64>,
    out: &Output,
) -> Result<(), Failure> {
    let name = "WatchQueuePairResponse";
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    if iterations.is_none() && !out.is_json() && !dumb && io::stdout().is_terminal() {
        return live(stream).await;
    }
    let mut left = iterations.unwrap_or(u64::MAX);
    let mut before: Option<Look> = None;
    while let Some(look) = stream.message().await? {
        let shown = || match &before {
            None => headings(),
            Some(before) => Sample::between(before, &look).map_or_else(String::new, |s| row(&look, &s)),
        };
        out.streamed(name, &look, shown)?;
        left -= u64::from(before.is_some());
        if left == 0 {
            break;
        }
        before = Some(look);
    }
    if !out.is_json()
        && let Some(seen) = before.as_ref().and_then(counted)
    {
        let trips = seen.round_trips.clone().unwrap_or_default();
        let lines = bars(Ink::Ascii, &trips, 40).join("\n");
        output::print(&format!("round trips: {}\n{lines}\n", trips_text(&trips)))?;
    }
    Ok(())
}

/// Shows it on the terminal, each look in the place of the one before.
async fn live(mut stream: Streaming<Look>) -> Result<(), Failure> {
    // What is wrong with the request was said before the screen is taken.
    let Some(mut before) = stream.message().await? else {
        return Ok(());
    };
    let mut samples = VecDeque::new();
    let mut terminal = Terminal::new()?;
    let (no_color, ink) = (
        std::env::var_os("NO_COLOR"),
        Ink::of_locale(|name| std::env::var_os(name)),
    );
    loop {
        let (width, height) = terminal::size(io::stdout().as_fd()).unwrap_or(SIZE_DEFAULT);
        let paper = Paper {
            width: Some(width),
            colours: paint::wanted(true, no_color.as_deref()),
        };
        terminal.show(&page(&paper, ink, height, &before, &samples))?;
        let look = tokio::select! {
            () = terminal.end() => return Ok(()),
            look = stream.message() => look?,
        };
        let Some(look) = look else { return Ok(()) };
        samples.extend(Sample::between(&before, &look));
        if samples.len() > KEPT {
            samples.pop_front();
        }
        before = look;
    }
}

/// Lines of a page: what it is, plots over time, the histogram of all round trips.
fn page(paper: &Paper, ink: Ink, height: usize, look: &Look, samples: &VecDeque<Sample>) -> Vec<String> {
    let pair = look.queue_pair.clone().unwrap_or_default();
    let seen = pair.observation.clone().unwrap_or_default();
    let trips = seen.round_trips.clone().unwrap_or_default();
    let mut lines = heads(paper, look, &pair, &seen);
    let newest = samples.back().copied().unwrap_or_default();
    let width = paper.width.unwrap_or(SIZE_DEFAULT.0).saturating_sub(LABEL);
    // A line between the parts, and what the histogram needs at least; the rest is for three plots.
    let wanted = bars(ink, &trips, 0).len();
    let rows = (height.saturating_sub(lines.len() + 3 + wanted.min(8)) / 3).clamp(1, 5);
    type Of = fn(&Sample) -> Option<u64>;
    let plots: [(&str, Of, String); 3] = [
        (
            "sent",
            |s| Some(s.sent_bps),
            format!("{}b/s", text::short(newest.sent_bps)),
        ),
        (
            "received",
            |s| Some(s.received_bps),
            format!("{}b/s", text::short(newest.received_bps)),
        ),
        (
            "round trip",
            |s| s.trip,
            newest.trip.map_or_else(|| "-".to_owned(), text::nanos),
        ),
    ];
    for (name, of, now) in plots {
        let values: Vec<Option<u64>> = samples.iter().map(of).collect();
        let shown = &values[values.len().saturating_sub(ink.room(width))..];
        let most = shown.iter().flatten().copied().max().unwrap_or(0);
        let top = match name {
            "round trip" => text::nanos(most),
            _ => text::short(most),
        };
        for (i, line) in plot::plot(ink, shown, width, rows, most).into_iter().enumerate() {
            let label = match i {
                0 => format!("{name:<11}{now:>11}"),
                1 => format!("{:>22}", format!("top {top}")),
                _ => String::new(),
            };
            let label = Cell::plain(format!("{label:<22}"));
            lines.push(paper.line(&[label, Cell::new(line, Colour::Green)]));
        }
    }
    lines.push(String::new());
    lines.push(paper.line(&[Cell::plain(format!("round trips  {}", trips_text(&trips)))]));
    let bar = paper
        .width
        .unwrap_or(SIZE_DEFAULT.0)
        .saturating_sub(36)
        .clamp(4, 60);
    lines.extend(
        bars(ink, &trips, bar)
            .into_iter()
            .map(|line| paper.line(&[Cell::plain(line)])),
    );
    lines.truncate(height);
    lines
}

/// The lines above the plots.
fn heads(paper: &Paper, look: &Look, pair: &v1::QueuePair, seen: &v1::QueuePairObservation) -> Vec<String> {
    let (device, _) = names::queue_pair_parts(&pair.name).unwrap_or_default();
    let peer = pair.peer.as_ref().map_or_else(
        || "no peer".to_owned(),
        |p| {
            // Short, as people write it.
            let ipv6 = address(p).parse::<Ipv6Addr>().map(|a| a.to_string());
            let address = ipv6.unwrap_or_else(|_| address(p).to_owned());
            format!("peer {address} QPN {}", p.queue_pair)
        },
    );
    let title = format!("queue pair {} ({:#x}) of {device}", pair.number, pair.number);
    let state = match state(pair) {
        "RTS" => Cell::new("RTS", Colour::Green),
        word @ ("ERR" | "SQE") => Cell::new(word, Colour::Red),
        word => Cell::plain(word),
    };
    let mut lines = vec![paper.line(&[
        Cell::new(title, Colour::Bold),
        Cell::plain(kind(pair)),
        state,
        Cell::plain(peer),
        Cell::plain(text::time(look.time)),
    ])];
    let mut line = |words: Vec<String>| {
        let words = words.into_iter().filter(|word| !word.is_empty());
        lines.push(paper.line(&words.map(Cell::plain).collect::<Vec<_>>()));
    };
    if let Some(path) = &pair.path {
        line(vec![
            path.udp_source_port
                .map_or_else(String::new, |port| format!("UDP port {port}")),
            format!("DSCP {}", path.dscp),
            format!("priority {}", pair.priority),
            path.vlan.map_or_else(String::new, |vlan| format!("VLAN {vlan}")),
            format!("hop limit {}", path.hop_limit),
            format!("MTU {}", pair.path_mtu),
            format!("to {}", path.destination_mac),
        ]);
    }
    if let Some(s) = &pair.sends {
        line(vec![
            format!("unacknowledged {}/{}", s.in_flight, s.window),
            format!("sends {}/{}", s.posted, s.limit),
            format!("retries {}/{}", s.retries_left, s.retries),
            format!("RNR {}/{}", s.rnr_retries_left, s.rnr_retries),
            s.credits.map_or_else(String::new, |n| format!("credits {n}")),
            s.timers
                .as_ref()
                .map_or_else(String::new, |t| format!("ACK timer {}", ack_timer(t))),
        ]);
    }
    if let Some(flow) = &pair.flow {
        line(vec![
            flow.rate_bps
                .map_or_else(String::new, |bps| format!("rate {}b/s", text::short(bps))),
            flow.window_bytes
                .map_or_else(String::new, |w| format!("window {}", text::bytes(w))),
            format!("{} notifications", flow.notifications),
        ]);
    }
    let again = match causes(seen) {
        none if none.is_empty() => String::new(),
        causes => format!(" ({causes})"),
    };
    line(vec![
        format!("sent again {}{again}", text::count(seen.sent_again)),
        format!("marked {}", text::count(seen.marked)),
        format!(
            "CNPs {} in, {} out",
            text::count(seen.cnps_received),
            text::count(seen.cnps_sent)
        ),
        format!("errors {}", text::count(errors_in_all(pair))),
    ]);
    lines.push(String::new());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: Paper = Paper {
        width: Some(80),
        colours: false,
    };

    /// A look after so many seconds, in each of which the same happens.
    fn look(seconds: u64) -> Look {
        let packets = |packets: u64, bytes: u64| {
            Some(v1::QueuePairPackets {
                packets: packets * seconds,
                bytes: bytes * seconds,
            })
        };
        let observation = v1::QueuePairObservation {
            span: Some(prost_types::Duration {
                seconds: seconds as i64,
                nanos: 0,
            }),
            requests_sent: packets(1_000, 1_000_000),
            responses_sent: packets(10, 600),
            requests_received: packets(0, 0),
            responses_received: packets(100, 6_000),
            repeats: vec![
                v1::QueuePairRepeats {
                    cause: v1::queue_pair_repeats::Cause::SequenceNak.into(),
                    times: seconds,
                    packets: 7 * seconds,
                },
                v1::QueuePairRepeats {
                    cause: v1::queue_pair_repeats::Cause::Timeout.into(),
                    ..Default::default()
                },
            ],
            sent_again: 7 * seconds,
            marked: 3 * seconds,
            echoed: 0,
            cnps_sent: 0,
            cnps_received: 2 * seconds,
            round_trips: Some(v1::QueuePairRoundTrips {
                bounds_ns: vec![128, 256, 512, 1024],
                counts: vec![0, 30 * seconds, 0, 10 * seconds, 0],
                sum_ns: 12_000 * seconds,
                least_ns: (seconds > 0).then_some(150),
                newest_ns: (seconds > 0).then_some(200),
                smoothed_ns: (seconds > 0).then_some(300),
            }),
        };
        Look {
            change: v1::Change::Updated.into(),
            queue_pair: Some(v1::QueuePair {
                name: "adapters/vf0/queuePairs/17".to_owned(),
                number: 17,
                r#type: v1::queue_pair::Type::Rc.into(),
                state: v1::queue_pair::State::Rts.into(),
                priority: 3,
                path_mtu: 1024,
                peer: Some(v1::QueuePairPeer {
                    ipv4: "10.0.0.5".to_owned(),
                    queue_pair: 18,
                    ..Default::default()
                }),
                path: Some(v1::QueuePairPath {
                    destination_mac: "02:00:5e:00:00:01".to_owned(),
                    udp_source_port: Some(49_170),
                    dscp: 26,
                    hop_limit: 64,
                    ..Default::default()
                }),
                sends: Some(v1::QueuePairSends {
                    in_flight: 5,
                    window: 1024,
                    posted: 2,
                    limit: 64,
                    retries_left: 7,
                    retries: 7,
                    rnr_retries_left: 7,
                    rnr_retries: 7,
                    ..Default::default()
                }),
                observation: Some(observation),
                ..Default::default()
            }),
            time: Some(prost_types::Timestamp {
                seconds: seconds as i64,
                nanos: 0,
            }),
        }
    }

    #[test]
    fn rates_are_those_of_the_daemons_clock() {
        let sample = Sample::between(&look(2), &look(4));
        let expected = Sample {
            sent_bps: 8 * 1_000_600,
            received_bps: 48_000,
            sent_pps: 1_010,
            received_pps: 100,
            again_pps: 7,
            marked_pps: 3,
            cnps_pps: 2,
            trip: Some(300),
        };
        assert_eq!(sample, Some(expected));
        // Nothing was measured, no time has passed, the observation began anew.
        let empty = Sample::between(&look(0), &look(0)).unwrap_or_default();
        assert_eq!(empty, Sample::default());
        assert_eq!(Sample::between(&look(4), &look(2)), None);
    }

    #[test]
    fn lines_stand_below_their_headings() {
        let sample = Sample::between(&look(2), &look(4)).unwrap_or_default();
        let expected = "\
TIME                      SENT b/s  RECV b/s   SENT/s   RECV/s  AGAIN/s      TRIP      UNACKED  MARKED/s  CNPS/s  STATE
1970-01-01T00:00:04Z         8.00M     48.0k    1.01k      100        7     300ns       5/1024         3       2  RTS
";
        assert_eq!(format!("{}{}", headings(), row(&look(4), &sample)), expected);
    }

    #[test]
    fn a_page_has_plots_and_the_histogram() {
        let samples = (1..=20).map(|n| Sample {
            sent_bps: n * 1_000_000,
            received_bps: 48_000,
            trip: (n % 5 != 0).then_some(100 * n),
            ..Sample::default()
        });
        let lines = page(&PAPER, Ink::Ascii, 30, &look(20), &samples.collect());
        let expected = "\
queue pair 17 (0x11) of vf0  RC  RTS  peer 10.0.0.5 QPN 18  1970-01-01T00:00:20Z
UDP port 49170  DSCP 26  priority 3  hop limit 64  MTU 1024  to 02:00:5e:00:00:0
unacknowledged 5/1024  sends 2/64  retries 7/7  RNR 7/7
sent again 140 (140 after 20 NAKs)  marked 60  CNPs 40 in, 0 out  errors 0

sent          20.0Mb/s                                                      ####
             top 20.0M                                                  ########
                                                                    ############
                                                                ################
                                                            ####################
received      48.0kb/s                                      ####################
             top 48.0k                                      ####################
                                                            ####################
                                                            ####################
                                                            ####################
round trip           -                                                     ####
            top 1.90µs                                                 ### ####
                                                                   ## #### ####
                                                               # #### #### ####
                                                            #### #### #### ####
";
        let text = lines.join("\n");
        assert!(text.starts_with(expected), "{text}");
        let expected = "

round trips  800 measured: least 150ns, median 213ns, 99 % 1.00µs, smoothed 300n
    128ns to 256ns  ############################################     600  75 %
    256ns to 512ns                                                     0   0 %
   512ns to 1.02µs  ###############                                  200  25 %";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn a_page_fits_the_screen() {
        let samples: VecDeque<Sample> = (0..KEPT as u64)
            .map(|n| Sample {
                sent_bps: n,
                trip: Some(n),
                ..Sample::default()
            })
            .collect();
        for ink in [Ink::Ascii, Ink::Unicode] {
            for (width, height) in [(1, 1), (20, 5), (80, 24), (200, 60)] {
                let paper = Paper {
                    width: Some(width),
                    ..PAPER
                };
                let lines = page(&paper, ink, height, &look(9), &samples);
                assert!(lines.len() <= height, "{width} {height}: {lines:#?}");
                assert!(lines.iter().all(|l| l.chars().count() <= width), "{lines:#?}");
                assert_eq!(lines.len() == height, height < 20, "{width} {height}: {lines:#?}");
            }
        }
        // Nothing is known yet.
        let lines = page(&PAPER, Ink::Ascii, 24, &Look::default(), &VecDeque::new());
        assert!(
            lines.iter().any(|l| l == "round trips  none was measured"),
            "{lines:#?}"
        );
    }
}
