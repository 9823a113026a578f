//! How large flows are: distributions that were published.

use fastrand::Rng;

/// A distribution of sizes, as its cumulative function; between two points it is a straight line.
#[derive(Debug, Clone, PartialEq)]
pub struct Sizes {
    /// Bytes, and the percent of flows that are at most so large. The first is 0 %, the last 100 %.
    points: Vec<(f64, f64)>,
}

/// Web search: the query and background traffic of a search cluster (Alizadeh et al., DCTCP, SIGCOMM 2010, figure 4), with the
/// points that HPCC's published simulator reads off it (`traffic_gen/WebSearch_distribution.txt`).
const WEB_SEARCH: &[(f64, f64)] = &[
    (1.0, 0.0),
    (10e3, 15.0),
    (20e3, 20.0),
    (30e3, 30.0),
    (50e3, 40.0),
    (80e3, 53.0),
    (200e3, 60.0),
    (1e6, 70.0),
    (2e6, 80.0),
    (5e6, 90.0),
    (10e6, 97.0),
    (30e6, 100.0),
];

/// Hadoop: Facebook's cluster (Roy et al., Inside the Social Network's (Datacenter) Network, SIGCOMM 2015, figure 6), with the
/// points that HPCC's published simulator reads off it (`traffic_gen/FbHdp_distribution.txt`).
const HADOOP: &[(f64, f64)] = &[
    (1.0, 0.0),
    (100.0, 1.0),
    (200.0, 2.0),
    (300.0, 5.0),
    (350.0, 15.0),
    (400.0, 20.0),
    (500.0, 30.0),
    (600.0, 40.0),
    (700.0, 50.0),
    (1e3, 60.0),
    (2e3, 67.0),
    (7e3, 70.0),
    (30e3, 72.0),
    (50e3, 82.0),
    (80e3, 87.0),
    (120e3, 90.0),
    (300e3, 95.0),
    (1e6, 97.5),
    (2e6, 99.0),
    (10e6, 100.0),
];

impl Sizes {
    /// Names of those that are built in.
    pub const NAMES: [&'static str; 2] = ["web-search", "hadoop"];

    /// Web search (DCTCP, SIGCOMM 2010, figure 4): 1.7 MB on average, most flows small, most bytes in large ones.
    pub fn web_search() -> Sizes {
        Sizes {
            points: WEB_SEARCH.to_vec(),
        }
    }

    /// Facebook's Hadoop (SIGCOMM 2015, figure 6): half of the flows below 700 bytes.
    pub fn hadoop() -> Sizes {
        Sizes {
            points: HADOOP.to_vec(),
        }
    }

    /// All flows of one size.
    pub fn fixed(bytes: u64) -> Sizes {
        let bytes = bytes.max(1) as f64;
        Sizes {
            points: vec![(bytes, 0.0), (bytes, 100.0)],
        }
    }

    /// One of [`NAMES`](Sizes::NAMES).
    pub fn by_name(name: &str) -> Option<Sizes> {
        match name {
            "web-search" => Some(Sizes::web_search()),
            "hadoop" => Some(Sizes::hadoop()),
            _ => None,
        }
    }

    /// From points: bytes, and the percent of flows that are at most so large. Both grow, from 0 % to 100 %.
    pub fn from_points(points: &[(f64, f64)]) -> Result<Sizes, &'static str> {
        let grows = points.windows(2).all(|p| p[0].0 <= p[1].0 && p[0].1 <= p[1].1);
        match points {
            [] | [_] => Err("a distribution has at least two points"),
            _ if !grows => Err("bytes and percent must not fall"),
            [(_, first), .., (_, last)] if *first != 0.0 || *last != 100.0 => {
                Err("the first point must be of 0 percent, the last of 100")
            }
            _ if points.iter().any(|(bytes, _)| !bytes.is_finite() || *bytes < 0.0) => {
                Err("bytes must not be negative")
            }
            _ => Ok(Sizes {
                points: points.to_vec(),
            }),
        }
    }

    /// Bytes on average.
    pub fn mean(&self) -> f64 {
        let parts = self.points.windows(2);
        parts
            .map(|p| (p[0].0 + p[1].0) / 2.0 * (p[1].1 - p[0].1) / 100.0)
            .sum::<f64>()
            .max(1.0)
    }

    /// Bytes of which `percent` of the flows have at most so many.
    pub fn percentile(&self, percent: f64) -> f64 {
        for p in self.points.windows(2) {
            let ((low, from), (high, to)) = (p[0], p[1]);
            if percent <= to && to > from {
                return low + (high - low) * ((percent - from) / (to - from)).max(0.0);
            }
        }
        self.points.last().map_or(1.0, |(bytes, _)| *bytes)
    }

    /// A size; at least one byte.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        (self.percentile(rng.f64() * 100.0).round() as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_figures() {
        let web = Sizes::web_search();
        assert_eq!(web.percentile(53.0), 80e3);
        assert_eq!(web.percentile(100.0), 30e6);
        assert_eq!(web.percentile(0.0), 1.0);
        assert!((web.mean() / 1e6 - 1.7).abs() < 0.05, "{}", web.mean());
        let hadoop = Sizes::hadoop();
        assert_eq!(hadoop.percentile(50.0), 700.0);
        assert!((hadoop.mean() / 1e3 - 122.0).abs() < 5.0, "{}", hadoop.mean());
    }

    #[test]
    fn draws_follow_the_distribution() {
        for name in Sizes::NAMES {
            let sizes = Sizes::by_name(name).expect("it is built in");
            let mut rng = Rng::with_seed(1);
            let mut draws: Vec<u64> = (0..20_000).map(|_| sizes.draw(&mut rng)).collect();
            draws.sort_unstable();
            let below = |bytes: f64| draws.partition_point(|d| *d as f64 <= bytes) as f64 / 200.0;
            for percent in [20.0, 50.0, 90.0, 99.0] {
                let got = below(sizes.percentile(percent));
                assert!((got - percent).abs() < 1.0, "{name}: {percent} became {got}");
            }
        }
    }

    #[test]
    fn one_size_is_one_size() {
        let sizes = Sizes::fixed(64_000);
        assert_eq!(sizes.mean(), 64_000.0);
        assert_eq!(sizes.draw(&mut Rng::with_seed(0)), 64_000);
    }

    #[test]
    fn points_that_are_none_are_refused() {
        assert!(Sizes::from_points(&[(0.0, 0.0), (10.0, 100.0)]).is_ok());
        assert!(Sizes::from_points(&[(0.0, 0.0)]).is_err());
        assert!(Sizes::from_points(&[(0.0, 0.0), (10.0, 90.0)]).is_err());
        assert!(Sizes::from_points(&[(20.0, 0.0), (10.0, 100.0)]).is_err());
    }
}
