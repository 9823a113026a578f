//! Address of a collector.

use tonic::codegen::http::Uri;
use tonic::codegen::http::uri::Scheme;

/// Path of traces behind the base of a collector's URL (OTLP specification, "OTLP/HTTP Request").
const PATH: &str = "v1/traces";
/// Port of collectors for OTLP/HTTP.
const PORT: u16 = 4318;

/// A collector, by OTLP/HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collector {
    /// Name or address of the host, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path of traces.
    pub path: String,
}

impl Collector {
    /// Reads the base of a collector's URL.
    pub fn parse(text: &str) -> Result<Collector, String> {
        let wrong = || {
            format!(
                "{text:?} is no URL of a collector: http://HOST[:PORT], such as http://127.0.0.1:{PORT}, or off"
            )
        };
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        if uri.scheme() == Some(&Scheme::HTTPS) {
            return Err(format!(
                "{text:?}: vnicd speaks no TLS to collectors; name one on this machine, which can pass spans on"
            ));
        }
        let host = uri.host().unwrap_or_default();
        let plain = uri.scheme() == Some(&Scheme::HTTP) && uri.query().is_none();
        let user = uri.authority().is_some_and(|a| a.as_str().contains('@'));
        if !plain || host.is_empty() || user {
            return Err(wrong());
        }
        let host = host
            .strip_prefix('[')
            .and_then(|h| h.strip_suffix(']'))
            .unwrap_or(host);
        Ok(Collector {
            host: host.to_owned(),
            port: uri.port_u16().unwrap_or(PORT),
            path: format!("{}/{PATH}", uri.path().trim_end_matches('/')),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_a_url_without_tls() {
        let of = |text: &str| Collector::parse(text).map(|c| (c.host, c.port, c.path));
        let traces = "/v1/traces".to_owned();
        assert_eq!(
            of("http://127.0.0.1:4318"),
            Ok(("127.0.0.1".into(), 4318, traces.clone()))
        );
        assert_eq!(of("http://[::1]:1/"), Ok(("::1".into(), 1, traces.clone())));
        assert_eq!(of("http://host"), Ok(("host".into(), 4318, traces)));
        let path = "/otel/v1/traces".to_owned();
        assert_eq!(of("http://host:80/otel/"), Ok(("host".into(), 80, path)));
        for bad in [
            "",
            "host:4318",
            "http://",
            "grpc://host",
            "http://h/?x=1",
            "http://u@h",
            "https://h",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
