//! What a mesh is made from.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::check::Checked;

/// Peers that a mesh has at most.
pub const PEERS_MAX: usize = 64;

/// Files, PEM.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Files {
    /// The daemon's certificate, and behind it those between it and its CA.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The CA, or several, whose daemons may be peers.
    pub ca: PathBuf,
    /// Lists of certificates that were revoked (X.509 CRL), one of each CA and of those between.
    pub crl: Option<PathBuf>,
}

/// What a mesh is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeshSpec {
    /// Where the daemon listens, UDP. Port 0: any.
    pub listen: SocketAddr,
    /// Whom it calls: `HOST:PORT`. Others may call it.
    pub peers: Vec<String>,
    /// Certificates.
    pub files: Files,
    /// Alternative names of certificates of peers, at least one; [`ANY_NAME`]: any that the CA signed.
    pub names: Vec<String>,
}

/// `ADDR:PORT` to listen on.
pub fn listen(text: &str) -> Checked<SocketAddr> {
    text.parse().map_err(|_| {
        format!("{text:?} is no address to listen on: ADDR:PORT such as 0.0.0.0:4790 or [::]:4790")
    })
}

/// `HOST:PORT` of a peer.
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

/// A peer that is named beside those before it.
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

/// In the list of names: all certificates of the CA are those of peers.
pub const ANY_NAME: &str = "*";

/// Names of which the certificate of a peer must have one.
pub fn names(names: Vec<String>) -> Checked<Vec<String>> {
    if names.is_empty() {
        return Err(format!(
            "whom the mesh takes is not said: list alternative names (DNS or URI) of peers' certificates; {ANY_NAME:?} \
             takes every certificate of the CA"
        ));
    }
    Ok(names)
}

/// A name that certificates of peers can have.
pub fn name(text: &str) -> Checked<String> {
    if text.is_empty() {
        return Err("a name of a certificate is not empty".to_owned());
    }
    Ok(text.to_owned())
}

/// The path of a file.
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
