//! Requests over HTTP/1.1, without TLS: to programs on this machine, or in its own network.

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::codegen::http::Uri;
use tonic::codegen::http::uri::Scheme;

/// Longest answer that is read.
const ANSWER_MAX: usize = 64 << 10;

/// A URL without TLS, query and user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Name or address of the host, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Path, from its first slash on.
    pub path: String,
}

impl Url {
    /// Reads a URL; the port is `port` if there is none.
    pub fn parse(text: &str, port: u16) -> Result<Url, String> {
        let wrong = || format!("{text:?} is no URL: http://HOST[:PORT][/PATH]");
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        if uri.scheme() == Some(&Scheme::HTTPS) {
            return Err(format!(
                "{text:?}: vnicd speaks no TLS as a client; name a program on this machine, which can pass it on"
            ));
        }
        let host = uri.host().unwrap_or_default();
        let plain = uri.scheme() == Some(&Scheme::HTTP) && uri.query().is_none();
        let user = uri.authority().is_some_and(|a| a.as_str().contains('@'));
        if !plain || host.is_empty() || user {
            return Err(wrong());
        }
        let inner = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        Ok(Url {
            host: inner.unwrap_or(host).to_owned(),
            port: uri.port_u16().unwrap_or(port),
            path: uri.path().to_owned(),
        })
    }
}

/// Posts a body; returns the body of the answer. An answer with another status than 2xx is an error.
pub async fn post(url: &Url, content_type: &str, body: Bytes) -> Result<Bytes, String> {
    fn told(error: impl std::error::Error) -> String {
        error.to_string()
    }
    let Url { host, port, path } = url;
    let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(told)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(told)?;
    // (It ends with the sender.)
    let connection = tokio::spawn(connection);
    let authority = match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    let request = Request::post(path)
        .header(HOST, authority)
        .header(CONTENT_TYPE, content_type)
        .body(Full::new(body))
        .map_err(told)?;
    let answer = sender.send_request(request).await.map_err(told);
    let answer = match answer {
        Ok(answer) if answer.status().is_success() => {
            let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
            body.map(|body| body.to_bytes()).map_err(|e| e.to_string())
        }
        Ok(answer) => Err(format!("HTTP status {}", answer.status())),
        Err(error) => Err(error),
    };
    connection.abort();
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_no_tls_no_query_and_no_user() {
        let of = |text: &str| Url::parse(text, 80).map(|u| (u.host, u.port, u.path));
        let wake = |host: &str, port| Ok((host.to_owned(), port, "/wake".to_owned()));
        assert_eq!(of("http://127.0.0.1:8080/wake"), wake("127.0.0.1", 8080));
        assert_eq!(of("http://[::1]/wake"), wake("::1", 80));
        assert_eq!(of("http://host"), Ok(("host".into(), 80, "/".into())));
        for bad in [
            "",
            "host:1",
            "http://",
            "grpc://host",
            "http://h/?x=1",
            "http://u@h",
        ] {
            assert!(of(bad).is_err_and(|e| e.contains("http://HOST")), "{bad}");
        }
        assert!(of("https://h").is_err_and(|e| e.contains("TLS")));
    }
}
