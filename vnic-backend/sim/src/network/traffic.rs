//! Who sends what to whom, and when. Everything random follows from the seed that is given.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use fastrand::Rng;

use super::scenario::Flow;

pub mod sizes;

pub use sizes::Sizes;

/// When flows start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starts {
    /// All at this time, in ns.
    At(u64),
    /// At any time from the first up to the second, in ns.
    Within(u64, u64),
    /// The first at the first time, each of the others the second time later than the one before, in ns.
    Every(u64, u64),
}

impl Starts {
    fn of(self, number: usize, rng: &mut Rng) -> u64 {
        match self {
            Starts::At(time) => time,
            Starts::Within(from, to) => rng.u64(from..to.max(from + 1)),
            Starts::Every(from, gap) => from + gap * number as u64,
        }
    }
}

impl Flow {
    /// Bytes of priority 3 (the usual one of RoCE) from one host to another; `None`: without end.
    pub fn new(from: usize, to: usize, start: u64, bytes: Option<u64>) -> Flow {
        Flow {
            from,
            to,
            start,
            bytes,
            stop: None,
            priority: 3,
            group: 0,
        }
    }

    /// The same in another group.
    pub fn group(self, group: u16) -> Flow {
        Flow { group, ..self }
    }
}

/// `flows` flows to one host, from the senders in turn.
pub fn incast(
    senders: &[usize],
    to: usize,
    flows: usize,
    bytes: Option<u64>,
    starts: Starts,
    seed: u64,
) -> Vec<Flow> {
    let mut rng = Rng::with_seed(seed);
    (0..flows)
        .map(|n| Flow::new(senders[n % senders.len()], to, starts.of(n, &mut rng), bytes))
        .collect()
}

/// Each host sends to one other and receives from one other.
pub fn permutation(hosts: &[usize], bytes: Option<u64>, starts: Starts, seed: u64) -> Vec<Flow> {
    let mut rng = Rng::with_seed(seed);
    // A cycle through all hosts in any order: nobody sends to itself (Sattolo).
    let mut to: Vec<usize> = (0..hosts.len()).collect();
    for i in (1..to.len()).rev() {
        to.swap(i, rng.usize(..i));
    }
    to.iter()
        .enumerate()
        .filter(|(from, to)| from != *to)
        .map(|(n, to)| Flow::new(hosts[n], hosts[*to], starts.of(n, &mut rng), bytes))
        .collect()
}

/// Flows that arrive as a Poisson process.
#[derive(Debug, Clone, Copy)]
pub struct Poisson<'a> {
    /// Hosts that send and receive, any to any other.
    pub hosts: &'a [usize],
    /// Part of the hosts' links that they use on average, 0..=1.
    pub load: f64,
    /// Speed of a host's link, in bit/s.
    pub rate: u64,
    /// When the first may arrive, in ns.
    pub from: u64,
    /// And the last.
    pub until: u64,
}

impl Poisson<'_> {
    /// Single flows of such sizes, by their start.
    pub fn flows(&self, sizes: &Sizes, seed: u64) -> Vec<Flow> {
        let hosts = self.hosts;
        self.arrivals(sizes.mean(), seed, |time, rng| {
            let from = rng.usize(..hosts.len());
            let to = (from + rng.usize(1..hosts.len())) % hosts.len();
            vec![Flow::new(hosts[from], hosts[to], time, Some(sizes.draw(rng)))]
        })
    }

    /// Incasts: each time `fan_in` hosts send so many bytes to one. Flows by their start.
    pub fn incasts(&self, fan_in: usize, bytes: u64, seed: u64) -> Vec<Flow> {
        let fan_in = fan_in.min(self.hosts.len().saturating_sub(1));
        let mut order = self.hosts.to_vec();
        self.arrivals((fan_in as u64 * bytes) as f64, seed, |time, rng| {
            rng.shuffle(&mut order);
            let flow = |from: &usize| Flow::new(*from, order[0], time, Some(bytes));
            order[1..=fan_in].iter().map(flow).collect()
        })
    }

    /// What `come` says, at times that make the load if that is so many bytes on average.
    fn arrivals(&self, bytes: f64, seed: u64, mut come: impl FnMut(u64, &mut Rng) -> Vec<Flow>) -> Vec<Flow> {
        let mut rng = Rng::with_seed(seed);
        let mut flows = Vec::new();
        let bytes_per_ns = self.load * self.rate as f64 / 8e9 * self.hosts.len() as f64;
        if self.hosts.len() < 2 || bytes <= 0.0 || bytes_per_ns <= 0.0 {
            return flows;
        }
        let gap = bytes / bytes_per_ns;
        let mut time = self.from as f64;
        loop {
            // 1 - x is never 0. Not the platform's logarithm: a seed is the same run everywhere.
            time -= libm::log(1.0 - rng.f64()) * gap;
            if time >= self.until as f64 {
                return flows;
            }
            flows.extend(come(time as u64, &mut rng));
        }
    }
}

/// Flows of a file: lines of `from,to,start_ns,bytes`, by the numbers of hosts. Without bytes a flow has no end. A first line
/// that names the columns, empty lines and those that begin with `#` are passed over.
pub fn from_file(path: &Path, hosts: usize) -> Result<Vec<Flow>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    from_text(&text, hosts).with_context(|| path.display().to_string())
}

fn from_text(text: &str, hosts: usize) -> Result<Vec<Flow>> {
    let mut flows = Vec::new();
    let lines = text.lines().map(str::trim).enumerate();
    for (number, line) in lines.filter(|(_, l)| !l.is_empty() && !l.starts_with('#')) {
        if number == 0 && line.starts_with("from") {
            continue;
        }
        let flow = row(line, hosts).with_context(|| format!("line {}: {line:?}", number + 1))?;
        flows.push(flow);
    }
    Ok(flows)
}

fn row(line: &str, hosts: usize) -> Result<Flow> {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    let [from, to, start, rest @ ..] = cells.as_slice() else {
        bail!("expected from,to,start_ns,bytes");
    };
    let number = |name: &str, text: &str| {
        text.parse::<u64>()
            .with_context(|| format!("{name}: {text:?} is not a whole number"))
    };
    let host = |name: &str, text: &str| {
        let host = number(name, text)? as usize;
        ensure!(
            host < hosts,
            "{name}: there are hosts 0 to {}",
            hosts.saturating_sub(1)
        );
        Ok(host)
    };
    let bytes = match rest {
        [] | [""] => None,
        [bytes] => Some(number("bytes", bytes)?),
        _ => bail!("expected from,to,start_ns,bytes"),
    };
    let (from, to) = (host("from", from)?, host("to", to)?);
    ensure!(from != to, "a host cannot send to itself");
    ensure!(bytes != Some(0), "bytes: a flow has at least one");
    Ok(Flow::new(from, to, number("start_ns", start)?, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incast_takes_its_senders_in_turn() {
        let flows = incast(&[4, 5], 6, 3, None, Starts::Every(10, 5), 0);
        let seen: Vec<_> = flows.iter().map(|f| (f.from, f.to, f.start)).collect();
        assert_eq!(seen, [(4, 6, 10), (5, 6, 15), (4, 6, 20)]);
    }

    #[test]
    fn starts_follow_from_the_seed() {
        let starts = |seed| {
            let flows = incast(&[0], 1, 50, None, Starts::Within(100, 200), seed);
            flows.iter().map(|f| f.start).collect::<Vec<_>>()
        };
        assert_eq!(starts(1), starts(1));
        assert_ne!(starts(1), starts(2));
        assert!(starts(1).iter().all(|t| (100..200).contains(t)));
    }

    #[test]
    fn in_a_permutation_everybody_sends_and_receives_once() {
        let hosts: Vec<usize> = (0..40).collect();
        for seed in 0..20 {
            let flows = permutation(&hosts, Some(1), Starts::At(0), seed);
            let mut to: Vec<_> = flows.iter().map(|f| f.to).collect();
            to.sort_unstable();
            assert_eq!(to, hosts);
            assert!(flows.iter().all(|f| f.from != f.to));
        }
    }

    #[test]
    fn poisson_arrivals_make_the_load_that_is_asked_for() {
        let hosts: Vec<usize> = (0..64).collect();
        let sizes = Sizes::web_search();
        let poisson = Poisson {
            hosts: &hosts,
            load: 0.5,
            rate: 100_000_000_000,
            from: 0,
            until: 100_000_000,
        };
        let flows = poisson.flows(&sizes, 7);
        let bytes: u64 = flows.iter().filter_map(|f| f.bytes).sum();
        let load = bytes as f64 * 8.0 / (0.1 * 64.0 * 100e9);
        assert!((load - 0.5).abs() < 0.02, "{load}");
        assert!(flows.is_sorted_by_key(|f| f.start));
        assert!(flows.iter().all(|f| f.from != f.to));
    }

    #[test]
    fn incasts_have_senders_that_differ() {
        let hosts: Vec<usize> = (0..320).collect();
        let incasts = Poisson {
            hosts: &hosts,
            load: 0.02,
            rate: 100_000_000_000,
            from: 0,
            until: 20_000_000,
        };
        let flows = incasts.incasts(60, 500_000, 3);
        assert!(flows.len() >= 60 && flows.len().is_multiple_of(60));
        for burst in flows.chunks(60) {
            let mut from: Vec<_> = burst.iter().map(|f| f.from).collect();
            from.sort_unstable();
            from.dedup();
            assert_eq!(from.len(), 60);
            assert!(burst.iter().all(|f| f.to == burst[0].to && f.from != f.to));
        }
    }

    #[test]
    fn a_file_has_a_flow_on_each_line() {
        let flows = from_text(
            "from,to,start_ns,bytes\n# one\n0,1,5,1000\n\n2, 1, 9,\n1,0,3\n",
            3,
        );
        let seen: Vec<_> = flows
            .expect("it is right")
            .iter()
            .map(|f| (f.from, f.to, f.start, f.bytes))
            .collect();
        assert_eq!(seen, [(0, 1, 5, Some(1000)), (2, 1, 9, None), (1, 0, 3, None)]);
    }

    #[test]
    fn what_is_wrong_with_a_file_has_a_line() {
        for (text, expected) in [
            (
                "0,1,x,1",
                "line 1: \"0,1,x,1\": start_ns: \"x\" is not a whole number",
            ),
            (
                "0,1,0,1\n0,3,0,1",
                "line 2: \"0,3,0,1\": to: there are hosts 0 to 2",
            ),
            ("0,0,0,1", "line 1: \"0,0,0,1\": a host cannot send to itself"),
            ("0,1", "line 1: \"0,1\": expected from,to,start_ns,bytes"),
            ("0,1,0,0", "line 1: \"0,1,0,0\": bytes: a flow has at least one"),
        ] {
            let error = from_text(text, 3).expect_err("it is wrong");
            let message = format!("{error:#}");
            assert!(message.starts_with(expected), "{message}");
        }
    }
}
