//! Reads what ping and iperf3 print.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// What iputils' ping saw.
#[derive(Debug, Clone, PartialEq)]
pub struct Ping {
    /// Requests sent.
    pub sent: u32,
    /// Answers, without duplicates.
    pub received: u32,
    /// Answers that came twice.
    pub duplicates: u32,
    /// Sequence numbers of the answers, in their order.
    pub sequence: Vec<u32>,
    /// When they came, seconds (`ping -D`), as many as `sequence` or none.
    pub times: Vec<f64>,
    /// Round-trip times of the answers, in ms.
    pub trips: Vec<f64>,
}

impl Ping {
    /// Reads the output of `ping`, with or without `-D`.
    pub fn parse(text: &str) -> Result<Ping> {
        let mut ping = Ping {
            sent: 0,
            received: 0,
            duplicates: 0,
            sequence: Vec::new(),
            times: Vec::new(),
            trips: Vec::new(),
        };
        let mut summary = false;
        for line in text.lines() {
            if let Some((_, rest)) = line.split_once("icmp_seq=") {
                if !line.contains("bytes from") {
                    continue;
                }
                let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                ping.sequence
                    .push(digits.parse().with_context(|| format!("ping: {line:?}"))?);
                if let Some((_, rest)) = line.split_once("time=") {
                    let trip = rest.split(' ').next().and_then(|ms| ms.parse().ok());
                    ping.trips.push(trip.with_context(|| format!("ping: {line:?}"))?);
                }
                if line.contains("DUP!") {
                    ping.duplicates += 1;
                }
                if let Some((stamp, _)) = line.strip_prefix('[').and_then(|l| l.split_once(']')) {
                    ping.times
                        .push(stamp.parse().with_context(|| format!("ping: {line:?}"))?);
                }
            } else if line.contains(" packets transmitted, ") {
                let mut numbers = line
                    .split(", ")
                    .map(|part| part.split(' ').next().and_then(|n| n.parse().ok()));
                ping.sent = numbers
                    .next()
                    .flatten()
                    .with_context(|| format!("ping: {line:?}"))?;
                ping.received = numbers
                    .next()
                    .flatten()
                    .with_context(|| format!("ping: {line:?}"))?;
                summary = true;
            }
        }
        ensure!(summary, "ping gave no summary:\n{text}");
        Ok(ping)
    }

    /// No loss, no duplicate, no reordering.
    pub fn is_perfect(&self) -> bool {
        self.sent > 0 && self.sent == self.received && self.duplicates == 0 && self.in_order()
    }

    /// Do the answers' sequence numbers increase strictly?
    pub fn in_order(&self) -> bool {
        self.sequence.is_sorted_by(|a, b| a < b)
    }

    /// The longest time between two answers, in seconds.
    pub fn longest_gap(&self) -> f64 {
        self.times.windows(2).map(|w| w[1] - w[0]).fold(0.0, f64::max)
    }
}

/// What iperf3's client reports (`-J`).
#[derive(Debug, Clone, PartialEq)]
pub struct Iperf {
    /// Bytes that arrived at the receiver.
    pub received: u64,
    /// Bits per second at the receiver.
    pub rate: f64,
    /// UDP datagrams that arrived, as the receiver says.
    pub packets: Option<u64>,
}

impl Iperf {
    /// Reads the JSON report of a client.
    pub fn parse(text: &str) -> Result<Iperf> {
        // A message about the connection may come before the object.
        let start = text
            .find('{')
            .with_context(|| format!("iperf3 gave no JSON: {text}"))?;
        let report: Value =
            serde_json::from_str(&text[start..]).with_context(|| format!("iperf3 gave no JSON: {text}"))?;
        if let Some(error) = report["error"].as_str() {
            anyhow::bail!("iperf3: {error}");
        }
        let end = &report["end"];
        // TCP, and UDP of newer versions: sum_received. Else `sum`, where the receiver's losses are known.
        let udp = end["sum"]["packets"].as_u64();
        let lost = end["sum"]["lost_packets"].as_u64().unwrap_or(0);
        let packets = udp.map(|all| all.saturating_sub(lost));
        let sum = ["sum_received", "sum"]
            .into_iter()
            .map(|k| &end[k])
            .find(|v| v.is_object());
        let sum = sum.with_context(|| format!("iperf3's report has no sum: {end}"))?;
        let bytes = sum["bytes"].as_u64().context("iperf3's sum has no bytes")?;
        let received = match packets {
            // A sum of the sender, until the receiver's losses are taken off.
            Some(packets) if end["sum_received"].is_null() => {
                bytes.checked_div(udp.unwrap_or(1)).unwrap_or(0) * packets
            }
            _ => bytes,
        };
        Ok(Iperf {
            received,
            rate: sum["bits_per_second"].as_f64().unwrap_or(0.0),
            packets,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ping_with_a_gap_and_a_duplicate() {
        let text = "PING 10.0.0.2 (10.0.0.2) 56(84) bytes of data.\n\
            [100.000000] 64 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=1.00 ms\n\
            [100.500000] 64 bytes from 10.0.0.2: icmp_seq=4 ttl=64 time=1.00 ms\n\
            [100.600000] 64 bytes from 10.0.0.2: icmp_seq=4 ttl=64 time=9.00 ms (DUP!)\n\
            From 10.0.0.1 icmp_seq=5 Destination Host Unreachable\n\n\
            --- 10.0.0.2 ping statistics ---\n\
            5 packets transmitted, 2 received, +1 duplicates, 60% packet loss, time 500ms\n";
        let ping = Ping::parse(text).expect("a ping");
        assert_eq!((ping.sent, ping.received, ping.duplicates), (5, 2, 1));
        assert_eq!(ping.sequence, [1, 4, 4]);
        assert_eq!(ping.trips, [1.0, 1.0, 9.0]);
        assert!(!ping.in_order());
        assert!(!ping.is_perfect());
        assert!((ping.longest_gap() - 0.5).abs() < 1e-6);
    }

    #[test]
    fn iperf_reports() {
        let tcp = r#"{"end":{"sum_sent":{"bytes":20},"sum_received":{"bytes":10,"bits_per_second":80.0}}}"#;
        assert_eq!(Iperf::parse(tcp).expect("a report").received, 10);
        let udp = r#"{"end":{"sum":{"bytes":1000,"packets":10,"lost_packets":4}}}"#;
        let udp = Iperf::parse(udp).expect("a report");
        assert_eq!((udp.received, udp.packets), (600, Some(6)));
        assert!(Iperf::parse(r#"{"error":"no route"}"#).is_err());
    }
}
