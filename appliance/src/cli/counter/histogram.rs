//! `vnicctl counter histogram`.

use std::time::Duration;

use vnic_control::v1;

use super::super::client::Client;
use super::super::output::Output;
use super::super::{Failure, paging, text};

/// Lists the histograms of an owner, or of all.
pub async fn run(owner: Option<String>, client: &Client, out: &Output) -> Result<(), Failure> {
    let owner = match owner {
        None => String::new(),
        Some(name) => client.owner(&name).await?,
    };
    let request = v1::ListHistogramsRequest {
        owner,
        ..Default::default()
    };
    let all = paging::list(&mut client.counters().await?, request).await?;
    out.message("ListHistogramsResponse", &all, || table(&all.histograms))
}

fn table(histograms: &[v1::Histogram]) -> String {
    text::table! { h in histograms, "no histograms";
        let count = h.counts.iter().sum::<u64>();
        let percentile = |p: f64| quantile(&h.bounds, &h.counts, p).map_or("-".to_owned(), |value| shown(h, value));
        "OWNER": h.owner,
        "HISTOGRAM": h.name,
        ">COUNT": count,
        ">MEAN": h.sum.checked_div(count).map_or("-".to_owned(), |mean| shown(h, mean)),
        ">P50": percentile(0.5),
        ">P99": percentile(0.99),
        ">P99.9": percentile(0.999),
        "MEANING": h.help,
    }
}

/// A value with its unit.
fn shown(histogram: &v1::Histogram, value: u64) -> String {
    match histogram.unit.as_str() {
        "ns" if value >= 1000 => format!("{:.1?}", Duration::from_nanos(value)),
        "ns" => format!("{value}ns"),
        _ => value.to_string(),
    }
}

/// The value that this part of all values does not exceed, as `histogram_quantile` of Prometheus finds it: values of a bucket are
/// taken for evenly spread; what is beyond the last bound is taken for that bound. `None`: there are no values.
// What is shown has three digits.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]
pub fn quantile(bounds: &[u64], counts: &[u64], part: f64) -> Option<u64> {
    let count: u64 = counts.iter().sum();
    if count == 0 {
        return None;
    }
    let rank = part * count as f64;
    let (mut before, mut low) = (0.0, 0);
    for (n, bound) in counts.iter().zip(bounds) {
        let n = *n as f64;
        if before + n >= rank && n > 0.0 {
            let within = (rank - before) / n;
            return Some(low + (within * (bound - low) as f64) as u64);
        }
        before += n;
        low = *bound;
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_prometheus() {
        let mut h = v1::Histogram {
            unit: "ns".to_owned(),
            bounds: vec![128, 256, 512],
            counts: vec![0, 0, 0, 0],
            ..Default::default()
        };
        assert_eq!(quantile(&h.bounds, &h.counts, 0.5), None);
        assert!(table(std::slice::from_ref(&h)).contains(" - "));
        h.counts = vec![10, 80, 10, 0];
        assert_eq!(quantile(&h.bounds, &h.counts, 0.5), Some(192));
        assert_eq!(quantile(&h.bounds, &h.counts, 0.1), Some(128));
        assert_eq!(quantile(&h.bounds, &h.counts, 0.99), Some(486));
        h.counts = vec![0, 0, 0, 1];
        assert_eq!(
            quantile(&h.bounds, &h.counts, 0.5),
            Some(512),
            "beyond the last bound"
        );
        h.counts = vec![1, 0, 0, 0];
        assert_eq!(quantile(&h.bounds, &h.counts, 0.5), Some(64));
        assert_eq!(shown(&h, 999), "999ns");
        assert_eq!(shown(&h, 1_530_000), "1.5ms");
        h.unit = "frames".to_owned();
        assert_eq!(shown(&h, 1024), "1024");
    }
}
