//! `vnicctl clock`.

use std::str::FromStr;

use clap::Subcommand;
use prost_types::Timestamp;
use vnic_control::v1;

use super::Failure;
use super::client::Client;
use super::output::Output;
use super::text::{self, Facts};

/// Verbs of the NIC's clock.
#[derive(Debug, Subcommand)]
pub enum ClockVerb {
    /// Show its time, how far it is from the system's, and its frequency
    #[command(after_help = "Example:\n  vnicctl -o json clock show | jq -r .offset_ns")]
    Show,
    /// Set its time; the frequency stays
    #[command(
        after_help = "Examples:\n  vnicctl clock set system\n  vnicctl clock set 2026-11-29T10:00:00.000000250Z\n  vnicctl clock set \
                      1796032800.00000025\n\nRDMA completions have times of this clock: programs see the step. It is gone when the daemon ends."
    )]
    Set {
        /// `system`, a time such as 2026-11-29T10:00:00Z, or seconds since 1970
        #[arg(value_parser = time)]
        time: Time,
    },
    /// Move its time, or change its frequency
    #[command(
        after_help = "Examples:\n  vnicctl clock adjust --offset -1500\n  vnicctl clock adjust --frequency 20000\n  vnicctl clock adjust \
                      --offset 37000000000 --frequency 0"
    )]
    #[group(required = true, multiple = true)]
    Adjust {
        /// By how much, in nanoseconds
        #[arg(long, value_name = "NS", allow_hyphen_values = true)]
        offset: Option<i64>,
        /// How much faster than the machine's monotonic clock it is to be, in parts per billion: -100000000 to 100000000
        #[arg(long, value_name = "PPB", allow_hyphen_values = true)]
        frequency: Option<i32>,
    },
}

/// A time to be set; `None`: the system's.
#[derive(Debug, Clone, Copy)]
pub struct Time(Option<Timestamp>);

fn time(text: &str) -> Result<Time, String> {
    if text == "system" {
        return Ok(Time(None));
    }
    let known = Timestamp::from_str(text).ok().or_else(|| seconds(text));
    let time =
        known.ok_or("neither `system`, a time such as 2026-11-29T10:00:00Z, nor seconds since 1970")?;
    Ok(Time(Some(time)))
}

/// Seconds since 1970 with up to nine decimals.
fn seconds(text: &str) -> Option<Timestamp> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let fits = digits(whole) && digits(part) && part.len() <= 9;
    let nanos = format!("{part:0<9}");
    fits.then_some(())?;
    Some(Timestamp {
        seconds: whole.parse().ok()?,
        nanos: nanos.parse().ok()?,
    })
}

/// Runs a command.
pub async fn run(verb: ClockVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    let mut service = client.clock().await?;
    let clock = match verb {
        ClockVerb::Show => service.get_clock(v1::GetClockRequest::default()).await?,
        ClockVerb::Set { time: Time(time) } => service.set_clock(v1::SetClockRequest { time }).await?,
        ClockVerb::Adjust { offset, frequency } => {
            let request = v1::AdjustClockRequest {
                offset_ns: offset.unwrap_or_default(),
                frequency_ppb: frequency,
            };
            service.adjust_clock(request).await?
        }
    };
    out.answer("Clock", clock, facts)
}

fn facts(clock: &v1::Clock) -> String {
    let whole = |t: &Option<Timestamp>| t.as_ref().map(ToString::to_string).unwrap_or_default();
    let mut facts = Facts::default();
    text::facts! { facts;
        "time": whole(&clock.time),
        "system": whole(&clock.system_time),
        "ahead of it": format!("{} ns", clock.offset_ns),
        "frequency": format!("{:+} ppb", clock.frequency_ppb),
    }
    facts.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_to_the_nanosecond() {
        let of = |text| time(text).map(|t| t.0.map(|t| (t.seconds, t.nanos)));
        assert_eq!(of("system"), Ok(None));
        assert_eq!(of("7.5"), Ok(Some((7, 500_000_000))));
        assert_eq!(of("1796032800.000000250"), Ok(Some((1_796_032_800, 250))));
        assert_eq!(of("1970-01-01T00:00:01.000000002Z"), Ok(Some((1, 2))));
        for wrong in ["", "-1", "1.", ".5", "1.0000000001", "noon", "1e9"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
