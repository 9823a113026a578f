//! Address of a collector.

use crate::http::Url;

/// Path of traces behind the base of a collector's URL (OTLP specification, "OTLP/HTTP Request").
const PATH: &str = "v1/traces";
/// Port of collectors for OTLP/HTTP.
const PORT: u16 = 4318;

/// A collector, by OTLP/HTTP: where traces go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collector(pub Url);

impl Collector {
    /// Reads the base of a collector's URL.
    pub fn parse(text: &str) -> Result<Collector, String> {
        let url =
            Url::parse(text, PORT).map_err(|e| format!("{e}, such as http://127.0.0.1:{PORT}, or off"))?;
        let path = format!("{}/{PATH}", url.path.trim_end_matches('/'));
        Ok(Collector(Url { path, ..url }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_have_a_path_behind_the_base() {
        let of = |text: &str| Collector::parse(text).map(|Collector(u)| (u.host, u.port, u.path));
        let traces = "/v1/traces".to_owned();
        assert_eq!(of("http://[::1]:1/"), Ok(("::1".into(), 1, traces.clone())));
        assert_eq!(of("http://host"), Ok(("host".into(), 4318, traces)));
        let path = "/otel/v1/traces".to_owned();
        assert_eq!(of("http://host:80/otel/"), Ok(("host".into(), 80, path)));
        assert!(of("host:4318").is_err_and(|e| e.contains("or off")));
    }
}
