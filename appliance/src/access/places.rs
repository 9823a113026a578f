//! Limited places, in total and for each peer: connections, handshakes, streams, calls.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Numbers of places.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Number of places in total.
    pub total: usize,
    /// Number of places for one peer.
    pub peer: usize,
}

/// Places of one kind.
#[derive(Debug)]
pub struct Places {
    what: &'static str,
    limits: Limits,
    taken: Mutex<HashMap<String, usize>>,
}

/// A taken place; dropping it frees it.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    peer: String,
}

impl Places {
    /// Makes free places. `what` names them, in the plural.
    pub fn new(what: &'static str, limits: Limits) -> Arc<Places> {
        Arc::new(Places {
            what,
            limits,
            taken: Mutex::default(),
        })
    }

    /// Takes a place; the error is the limit that is reached.
    pub fn take(self: &Arc<Places>, peer: &str) -> Result<Place, String> {
        let Limits { total, peer: most } = self.limits;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.get(peer).copied().unwrap_or(0);
        if own >= most {
            return Err(format!("{most} {} from {peer}", self.what));
        }
        if taken.values().sum::<usize>() >= total {
            return Err(format!("{total} {} in total", self.what));
        }
        taken.insert(peer.to_owned(), own + 1);
        Ok(Place {
            places: self.clone(),
            peer: peer.to_owned(),
        })
    }
}

impl Place {
    /// Whether this is one of a peer's places among these.
    pub fn is_of(&self, places: &Arc<Places>, peer: &str) -> bool {
        Arc::ptr_eq(&self.places, places) && self.peer == peer
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(n) = taken.get_mut(&self.peer) {
            *n -= 1;
            if *n == 0 {
                taken.remove(&self.peer);
            }
        }
    }
}

/// Peer of an address, for counting places: an IPv6 host usually has all addresses of a /64.
pub fn group(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            format!("{}/64", Ipv6Addr::from_bits(network))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_for_each_and_for_all_and_come_back() {
        let places = Places::new("calls", Limits { total: 3, peer: 2 });
        let take = |peer: &str| places.take(peer);
        let mut held = vec![take("a").expect("a place"), take("a").expect("a place")];
        assert_eq!(take("a").expect_err("full"), "2 calls from a");
        held.push(take("b").expect("a place"));
        assert_eq!(take("c").expect_err("full"), "3 calls in total");
        held.remove(0);
        held.push(take("a").expect("a place"));
        drop(held);
        assert!(places.taken.lock().expect("places").is_empty());
    }

    #[test]
    fn addresses_of_one_host_are_one_peer() {
        for (address, peer) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2::7", "2001:db8:1:2::/64"),
            ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
            ("::1", "::/64"),
        ] {
            assert_eq!(group(address.parse().expect("an address")), peer);
        }
    }
}
