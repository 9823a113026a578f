//! What two ends tell each other before they connect.

use std::fmt;
use std::str::FromStr;

use super::{QpKind, QueuePair};
use crate::{Context, Error, Gid, GidKind, MacAddress};

/// One end of a connection, as the other end has to know it. Its text is one line: `qpn=000102 psn=00abcd
/// gid=… mac=…`.
///
/// ```
/// use vnic_verbs::Endpoint;
///
/// let line = "qpn=000102 psn=00abcd gid=0000:0000:0000:0000:0000:ffff:0a00:0002 mac=02:00:00:00:00:01";
/// let peer: Endpoint = line.parse()?;
/// assert_eq!((peer.qpn, peer.to_string().as_str()), (0x102, line));
/// # Ok::<(), vnic_verbs::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// Number of the queue pair.
    pub qpn: u32,
    /// Number of the first packet that this end sends.
    pub psn: u32,
    /// GID of this end.
    pub gid: Gid,
    /// Ethernet address of this end, if it is known.
    pub mac: Option<MacAddress>,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "qpn={:06x} psn={:06x} gid={}", self.qpn, self.psn, self.gid)?;
        match self.mac {
            Some(mac) => write!(f, " mac={mac}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(s: &str) -> Result<Endpoint, Error> {
        let wrong = |what: &str| Error::Invalid(format!("{s:?} is no endpoint: {what}"));
        let (mut qpn, mut psn, mut gid, mut mac) = (None, None, None, None);
        for part in s.split_whitespace() {
            let (name, value) = part.split_once('=').ok_or_else(|| wrong(part))?;
            let number = || {
                u32::from_str_radix(value, 16)
                    .ok()
                    .filter(|n| *n < 1 << 24)
                    .ok_or_else(|| wrong(part))
            };
            match name {
                "qpn" => qpn = Some(number()?),
                "psn" => psn = Some(number()?),
                "gid" => gid = Some(value.parse()?),
                "mac" => mac = Some(value.parse()?),
                // A word of a later version.
                _ => {}
            }
        }
        Ok(Endpoint {
            qpn: qpn.ok_or_else(|| wrong("qpn is missing"))?,
            psn: psn.ok_or_else(|| wrong("psn is missing"))?,
            gid: gid.ok_or_else(|| wrong("gid is missing"))?,
            mac,
        })
    }
}

impl<K: QpKind> QueuePair<K> {
    /// This end, for the peer, with the GID at an index of the table.
    pub fn endpoint(&self, gid_index: u16) -> Result<Endpoint, Error> {
        let context = Context {
            core: std::sync::Arc::clone(&self.inner.core),
        };
        let gids = context.gids()?;
        let entry = gids
            .iter()
            .find(|entry| entry.index == gid_index && entry.kind != GidKind::None)
            .ok_or_else(|| {
                let there: Vec<String> = gids.iter().map(|e| e.index.to_string()).collect();
                Error::Invalid(format!(
                    "there is no GID at index {gid_index}; there are: {}",
                    if there.is_empty() {
                        "none".into()
                    } else {
                        there.join(", ")
                    }
                ))
            })?;
        Ok(Endpoint {
            qpn: self.number(),
            psn: self.psn(),
            gid: entry.gid,
            mac: Some(entry.mac).filter(|mac| *mac != MacAddress::default()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_written_and_read() {
        let endpoint = Endpoint {
            qpn: 0x102,
            psn: 0xabcd,
            gid: "10.0.0.1".parse().expect("a GID"),
            mac: Some(MacAddress([2, 0, 0, 0, 0, 1])),
        };
        let text = endpoint.to_string();
        assert_eq!(
            text,
            "qpn=000102 psn=00abcd gid=0000:0000:0000:0000:0000:ffff:0a00:0001 mac=02:00:00:00:00:01"
        );
        assert_eq!(text.parse::<Endpoint>().ok(), Some(endpoint));
        let without = Endpoint {
            mac: None,
            ..endpoint
        };
        assert_eq!(without.to_string().parse::<Endpoint>().ok(), Some(without));
        for wrong in [
            "",
            "qpn=1 psn=2",
            "qpn=1000000 psn=0 gid=::1",
            "qpn=x psn=0 gid=::1",
            "hello",
        ] {
            assert!(wrong.parse::<Endpoint>().is_err(), "{wrong}");
        }
    }
}
