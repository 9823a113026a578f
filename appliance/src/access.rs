//! Access control of the control interface: roles, and the gate that each request passes.
//!
//! ```text
//!  Unix socket: the kernel tells uid and gid ─┐
//!                                             ├─▶ Peer: who, role ─▶ Gate: role of the method, limits, deadline ─▶ service
//!  TCP: a certificate of the client CA ───────┘
//! ```

mod answers;
mod authority;
mod connections;
mod gate;
mod live;
mod meter;
pub mod methods;
mod people;
mod places;
mod rehearsals;
mod retries;
pub(crate) mod tls;
mod usage;

use std::collections::BTreeMap;
use std::sync::Arc;

use tonic::Request;

pub use answers::{DOMAIN, blocking, bug, status};
pub use connections::{Connection, mutual_tls, unix};
pub use gate::{DEADLINE, Gate};
pub use live::Live;
pub use meter::{BOUNDS, Durations, Meter, Reading, code_name};
pub use people::{group_id, user_id};
pub use rehearsals::in_order;
pub use tls::{Tls, TlsFiles};
use usage::Usage;

/// Role of a client. Each role includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// May read and watch.
    Viewer,
    /// May make reversible changes: settings, fault rules, GIDs, restarts of adapters.
    Operator,
    /// May do all: make and remove adapters and ports, read guests' traffic.
    Admin,
}

impl Role {
    /// All roles, from the least to the greatest.
    pub const ALL: [Role; 3] = [Role::Viewer, Role::Operator, Role::Admin];

    /// Name of the role.
    pub fn name(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }

    /// Role of a name.
    pub fn named(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// Roles of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Roles of users, by number. They override all other rules.
    pub users: BTreeMap<u32, Role>,
    /// Roles of groups, by number: the greatest of a user's groups counts.
    pub groups: BTreeMap<u32, Role>,
    /// Role of other clients of the Unix socket; `None`: no role.
    pub default: Option<Role>,
    /// Roles of certificates, by alternative name (DNS, URI), or by common name of a certificate without alternative names.
    pub certificates: BTreeMap<String, Role>,
}

impl Default for Access {
    /// Root and the daemon's user are administrators; other clients that can open the socket are viewers.
    fn default() -> Access {
        Access {
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
            default: Some(Role::Viewer),
            certificates: BTreeMap::new(),
        }
    }
}

impl Access {
    /// Role of a user at the Unix socket. `own` is the daemon's user, `groups` are the user's groups.
    pub fn of_user(&self, uid: u32, own: u32, groups: &[u32]) -> Option<Role> {
        if let Some(role) = self.users.get(&uid) {
            return Some(*role);
        }
        if uid == 0 || uid == own {
            return Some(Role::Admin);
        }
        let by_group = groups.iter().filter_map(|gid| self.groups.get(gid)).max();
        by_group.copied().or(self.default)
    }

    /// Role of a certificate with these names: the greatest of those.
    pub fn of_certificate<'a>(&self, names: impl IntoIterator<Item = &'a String>) -> Option<Role> {
        let roles = names.into_iter().filter_map(|name| self.certificates.get(name));
        roles.max().copied()
    }
}

/// Client of a connection.
#[derive(Debug)]
pub struct Peer {
    /// Name of the client, such as `uid 1000 (alice)` or `certificate "ops.example.com" from 10.0.0.1`.
    pub who: String,
    /// Role of the client.
    pub role: Option<Role>,
    /// Limit that the connection exceeds, so that its requests are refused.
    pub over: Option<String>,
    /// Requests of the connection.
    pub usage: Usage,
}

impl Peer {
    /// A client whose connection was just accepted.
    fn new(who: String, role: Option<Role>, over: Option<String>) -> Peer {
        Peer {
            who,
            role,
            over,
            usage: Usage::default(),
        }
    }
}

/// Client of a request for the event log, such as `uid 1000 (alice)`.
pub fn who<T>(request: &Request<T>) -> String {
    let peer = request.extensions().get::<Arc<Peer>>();
    peer.map_or_else(|| "an unknown client".to_owned(), |peer| peer.who.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_found_from_the_most_particular_to_the_least() {
        let access = Access {
            users: [(0, Role::Viewer), (1000, Role::Operator)].into(),
            groups: [(36, Role::Operator), (4, Role::Admin)].into(),
            default: None,
            certificates: [("ops".to_owned(), Role::Admin), ("mon".to_owned(), Role::Viewer)].into(),
        };
        assert_eq!(access.of_user(1000, 99, &[4]), Some(Role::Operator));
        assert_eq!(access.of_user(0, 99, &[]), Some(Role::Viewer));
        assert_eq!(access.of_user(99, 99, &[]), Some(Role::Admin));
        assert_eq!(access.of_user(1001, 99, &[36, 4, 5]), Some(Role::Admin));
        assert_eq!(access.of_user(1001, 99, &[36]), Some(Role::Operator));
        assert_eq!(access.of_user(1001, 99, &[5]), None);
        let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        assert_eq!(access.of_certificate(&names(&["mon", "ops"])), Some(Role::Admin));
        assert_eq!(access.of_certificate(&names(&["mon"])), Some(Role::Viewer));
        assert_eq!(access.of_certificate(&names(&["Ops", ""])), None);
        let default = Access::default();
        assert_eq!(default.of_user(0, 99, &[]), Some(Role::Admin));
        assert_eq!(default.of_user(5, 99, &[]), Some(Role::Viewer));
        assert!(default.of_certificate(&names(&["ops"])).is_none());
        for role in Role::ALL {
            assert_eq!(Role::named(role.name()), Some(role));
        }
    }
}
