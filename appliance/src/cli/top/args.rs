//! Options of `vnicctl top`.

use std::time::Duration;

use clap::ValueEnum;

use crate::check::fault::span;

/// `vnicctl top`.
#[derive(Debug, clap::Args)]
pub struct TopArgs {
    /// Only this adapter and its queue pairs; all when absent
    pub adapter: Option<String>,
    /// Time between looks
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// Only this section; again for further ones
    #[arg(long = "section", value_name = "SECTION")]
    pub sections: Vec<Section>,
    /// By what rows are sorted, the greatest first
    #[arg(long, value_name = "COLUMN", default_value = "traffic")]
    pub sort: Sort,
    /// Rows of a section, at most [default: what the screen has room for, else 10]
    #[arg(long, value_name = "N", value_parser = limit)]
    pub limit: Option<usize>,
    /// End after N pages, which are printed one after another
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: Option<u64>,
}

/// A part of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Section {
    /// Adapters
    Adapters,
    /// Uplink ports
    Ports,
    /// Queue pairs
    Qps,
    /// Data cores
    Cores,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = span(text)?;
    let allowed = Duration::from_millis(100)..=Duration::from_secs(3600);
    match allowed.contains(&interval) {
        true => Ok(interval),
        false => Err("100 ms to 1 hour is allowed".to_owned()),
    }
}

fn limit(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|n| *n > 0);
    number.ok_or_else(|| format!("{text:?} is no number of rows: 1 or more"))
}

impl TopArgs {
    /// Whether a section is on the page.
    pub fn shows(&self, section: Section) -> bool {
        match self.sections.as_slice() {
            // Ports and cores are not an adapter's.
            [] => self.adapter.is_none() || matches!(section, Section::Adapters | Section::Qps),
            some => some.contains(&section),
        }
    }
}

/// By what rows are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Bits in a second both ways, of queue pairs packets, of cores their work
    Traffic,
    /// Frames and packets in a second both ways
    Packets,
    /// Drops in a second, of queue pairs errors
    Drops,
    /// Errors of queue pairs in a second, then those since they were made; of others drops
    Errors,
    /// Name
    Name,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_and_limits_have_bounds() {
        assert_eq!(interval("100ms"), Ok(Duration::from_millis(100)));
        assert!(interval("99ms").is_err() && interval("2h").is_err());
        assert_eq!(limit("1"), Ok(1));
        assert!(limit("0").is_err() && limit("x").is_err());
    }
}
