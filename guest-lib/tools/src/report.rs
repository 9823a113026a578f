//! Reports of tools: tables as perftest prints them, or one line of JSON.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::failure::{Failure, Result};
use crate::stats::{Rate, Summary};

/// Who has checked that the data are right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verified {
    /// This side has.
    Here,
    /// The peer says that it has.
    ByPeer,
    /// Both sides have.
    Both,
    /// The peer does, but this side does not hear of it.
    Unknown,
    /// Nobody has: it was not wanted.
    Off,
}

impl Verified {
    fn text(self) -> &'static str {
        match self {
            Verified::Here => "verified: every byte compared on this side",
            Verified::ByPeer => "verified: every byte compared by the peer",
            Verified::Both => "verified: every byte compared on both sides",
            Verified::Unknown => "to be verified by the peer, which does not tell this side",
            Verified::Off => "not verified (--no-verify)",
        }
    }

    /// `true`, `false` if nobody has checked, `null` if this side does not know.
    fn json(self) -> [Value; 2] {
        match self {
            Verified::Here => [json!(true), json!("self")],
            Verified::ByPeer => [json!(true), json!("peer")],
            Verified::Both => [json!(true), json!("both")],
            Verified::Unknown => [Value::Null, json!("peer")],
            Verified::Off => [json!(false), Value::Null],
        }
    }
}

/// A report that is being made.
#[derive(Debug)]
pub struct Report {
    json: Map<String, Value>,
    rows: Vec<Value>,
    table: String,
    notes: Vec<String>,
    head: String,
    failed: Option<String>,
}

impl Report {
    /// Begins a report.
    pub fn new(tool: &str) -> Report {
        let mut json = Map::new();
        json.insert("tool".into(), tool.into());
        json.insert("ok".into(), true.into());
        Report {
            json,
            rows: Vec::new(),
            table: String::new(),
            notes: Vec::new(),
            head: String::new(),
            failed: None,
        }
    }

    /// Adds a fact: a word of JSON, and of the head of the text.
    pub fn fact(&mut self, key: &str, value: impl Into<Value>) {
        let value = value.into();
        if self.json.contains_key(key) {
            // With several sizes a fact would be added for each.
            return;
        }
        let gap = if self.head.is_empty() { "" } else { "  " };
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let _ = write!(self.head, "{gap}{key} {text}");
        self.json.insert(key.into(), value);
    }

    /// Adds a word of JSON only.
    pub fn word(&mut self, key: &str, value: impl Into<Value>) {
        self.json.insert(key.into(), value.into());
    }

    /// Adds a line below the table.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Notes a failure of a tool that came to its end: exit code 1.
    pub fn fail(&mut self, why: impl Into<String>) {
        let why = why.into();
        self.json.insert("ok".into(), false.into());
        self.json.insert("error".into(), why.clone().into());
        self.failed = Some(why);
    }

    /// Notes who has checked the data.
    pub fn verified(&mut self, by: Verified) {
        if self.json.contains_key("verified") {
            return;
        }
        let [verified, who] = by.json();
        self.word("verified", verified);
        self.word("verified_by", who);
        self.note(format!("data {}", by.text()));
    }

    /// Adds messages that an unreliable service lost.
    pub fn lost(&mut self, lost: u64, of: u64) {
        let before = self.json.get("lost").and_then(Value::as_u64).unwrap_or(0);
        self.word("lost", before + lost);
        if lost > 0 {
            self.note(format!("lost: {lost} of {of} messages"));
        }
    }

    /// Adds what a ping-pong took: bytes of both directions count, as in libibverbs' examples.
    pub fn pingpong(&mut self, size: u32, iterations: u64, took: Duration) {
        self.word("size", size);
        self.word("iterations", iterations);
        self.word("seconds", took.as_secs_f64());
        let bytes = 2 * iterations * u64::from(size);
        let seconds = took.as_secs_f64().max(1e-9);
        let rate = bytes as f64 * 8e-6 / seconds;
        self.note(format!(
            "{bytes} bytes in {seconds:.2} seconds = {rate:.2} Mbit/sec"
        ));
        let each = seconds * 1e6 / iterations as f64;
        self.note(format!(
            "{iterations} iters in {seconds:.2} seconds = {each:.2} usec/iter"
        ));
    }

    /// Adds a row of a bandwidth benchmark.
    pub fn bandwidth(&mut self, bytes: u64, iterations: u64, rate: &Rate) {
        if self.table.is_empty() {
            self.table.push_str(
                " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n",
            );
        }
        let _ = writeln!(
            self.table,
            " {bytes:<10} {iterations:<14} {:<19.2} {:<21.2} {:.6}",
            rate.peak, rate.average, rate.messages
        );
        self.rows.push(json!({
            "bytes": bytes, "iterations": iterations, "bw_peak_mib": rate.peak, "bw_average_mib": rate.average,
            "msg_rate_mpps": rate.messages,
        }));
    }

    /// Adds a row of a latency benchmark, if it has any times.
    pub fn latency(&mut self, bytes: u64, times: Option<Summary>) {
        let Some(s) = times else { return };
        if self.table.is_empty() {
            self.table.push_str(
                " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   \
                 99% percentile[usec]   99.9% percentile[usec]\n",
            );
        }
        let _ = writeln!(
            self.table,
            " {bytes:<6} {:<14} {:<14.2} {:<12.2} {:<18.2} {:<14.2} {:<15.2} {:<22.2} {:.2}",
            s.count, s.min, s.max, s.typical, s.average, s.deviation, s.p99, s.p999
        );
        self.rows.push(json!({
            "bytes": bytes, "iterations": s.count, "t_min_us": s.min, "t_max_us": s.max, "t_typical_us": s.typical,
            "t_avg_us": s.average, "t_stdev_us": s.deviation, "p99_us": s.p99, "p999_us": s.p999,
        }));
    }

    /// The report as JSON.
    pub fn to_json(&self) -> Value {
        let mut json = self.json.clone();
        if !self.rows.is_empty() {
            json.insert("results".into(), self.rows.clone().into());
        }
        json.into()
    }

    /// The report as text.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for part in [&self.head, self.table.trim_end()] {
            if !part.is_empty() {
                text.push_str(part);
                text.push('\n');
            }
        }
        for note in self.notes.iter().chain(&self.failed) {
            text.push_str(note);
            text.push('\n');
        }
        text
    }

    /// Prints the report. Returns whether all was as it should be.
    pub fn print(&self, json: bool) -> Result<bool> {
        let text = if json {
            format!("{}\n", self.to_json())
        } else {
            self.to_text()
        };
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .map_err(Failure::os("standard output"))?;
        Ok(self.failed.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Times;

    #[test]
    fn columns_are_those_of_perftest() {
        let mut report = Report::new("write_bw");
        report.fact("type", "RC");
        let rate = Rate {
            peak: 200.0,
            average: 100.5,
            messages: 0.0016,
        };
        report.bandwidth(65536, 1000, &rate);
        report.verified(Verified::Both);
        report.lost(0, 1000);
        let text = report.to_text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "type RC");
        for (title, value) in [
            ("#bytes", "65536"),
            ("#iterations", "1000"),
            ("BW peak", "200.00"),
            ("MsgRate", "0.001600"),
        ] {
            assert_eq!(lines[1].find(title), lines[2].find(value), "{text}");
        }
        let json = report.to_json();
        assert_eq!(json["results"][0]["bw_average_mib"], 100.5);
        assert_eq!(
            (&json["ok"], &json["verified"], &json["lost"]),
            (&json!(true), &json!(true), &json!(0))
        );
    }

    #[test]
    fn a_latency_row() {
        let mut report = Report::new("write_lat");
        let mut times = Times::new();
        times.add(Duration::from_micros(5));
        report.latency(2, times.summary());
        report.fail("half of it is missing");
        assert_eq!(report.to_json()["results"][0]["t_typical_us"], 5.0);
        assert_eq!(report.to_json()["ok"], false);
        let text = report.to_text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0].split_whitespace().count() - 2,
            lines[1].split_whitespace().count()
        );
        assert_eq!(lines[2], "half of it is missing");
    }
}
