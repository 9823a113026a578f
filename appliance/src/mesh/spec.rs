//! Specification of a mesh.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::check::Checked;

/// Greatest number of peers of a mesh.
pub const PEERS_MAX: usize = 64;

/// PEM files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Files {
    /// The daemon's certificate, followed by those between it and its CA.
    pub certificate: PathBuf,
    /// Private key of the certificate.
    pub key: PathBuf,
    /// CA certificates; their daemons may be peers.
    pub ca: PathBuf,
    /// Certificate revocation lists (X.509 CRL), one of each CA and of each intermediate CA.
    pub crl: Option<PathBuf>,
}

/// Specification of a mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeshSpec {
    /// UDP address on which the daemon listens. Port 0: any.
    pub listen: SocketAddr,
    /// Peers to call, `HOST:PORT`. Others may call this daemon.
    pub peers: Vec<String>,
    /// Certificate files.
    pub files: Files,
    /// Alternative names of which a peer's certificate must have one; [`ANY_NAME`]: any certificate of the CA is accepted.
    pub names: Vec<String>,
}

/// Checks an address to listen on, `ADDR:PORT`.
pub fn listen(text: &str) -> Checked<SocketAddr> {
    text.parse().map_err(|_| {
        format!("{text:?} is no address to listen on: ADDR:PORT such as 0.0.0.0:4790 or [::]:4790")
    })
}

/// Checks the address of a peer, `HOST:PORT`.
pub fn peer(text: &str) -> Checked<String> {
    let wrong =
        || format!("{text:?} is no peer: HOST:PORT such as node2.example.com:4790 or [2001:db8::2]:4790");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let good = match bare {
        Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let legal = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
            !host.is_empty() && host.len() <= 253 && host.bytes().all(legal)
        }
    };
    let port: u16 = port.parse().map_err(|_| wrong())?;
    if good && port != 0 {
        Ok(text.to_owned())
    } else {
        Err(wrong())
    }
}

/// Checks one more peer of a list.
pub fn one_more_peer(peers: &[String], text: &str) -> Checked<String> {
    let new = peer(text)?;
    if peers.iter().any(|p| p.eq_ignore_ascii_case(&new)) {
        return Err(format!("{new} is named twice"));
    }
    if peers.len() >= PEERS_MAX {
        return Err(format!("a mesh has at most {PEERS_MAX} peers"));
    }
    Ok(new)
}

/// In a list of names: all certificates of the CA are accepted.
pub const ANY_NAME: &str = "*";

/// Checks the names that peers' certificates may have.
pub fn names(names: Vec<String>) -> Checked<Vec<String>> {
    if names.is_empty() {
        return Err(format!(
            "whom the mesh takes is not said: list alternative names (DNS or URI) of peers' certificates; {ANY_NAME:?} \
             takes every certificate of the CA"
        ));
    }
    Ok(names)
}

/// Checks a name that peers' certificates may have.
pub fn name(text: &str) -> Checked<String> {
    if text.is_empty() {
        return Err("a name of a certificate is not empty".to_owned());
    }
    Ok(text.to_owned())
}

/// Checks the path of a file.
pub fn file(text: &str) -> Checked<PathBuf> {
    let path = Path::new(text);
    path.is_absolute()
        .then(|| path.to_owned())
        .ok_or_else(|| format!("{text:?} is not an absolute path"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_hosts_with_a_port() {
        for good in [
            "node2:4790",
            "10.0.0.2:1",
            "a.example.com:65535",
            "[2001:db8::2]:4790",
        ] {
            assert_eq!(peer(good), Ok(good.to_owned()));
        }
        for bad in [
            "",
            "node2",
            "node2:",
            ":4790",
            "node2:0",
            "node2:65536",
            "2001:db8::2:4790",
            "[node2]:4790",
            "a b:1",
        ] {
            assert!(peer(bad).is_err_and(|e| e.contains("HOST:PORT")), "{bad}");
        }
        let named = ["Node2:4790".to_owned()];
        assert_eq!(
            one_more_peer(&named, "node2:4790"),
            Err("node2:4790 is named twice".to_owned())
        );
    }
}
