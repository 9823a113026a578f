//! Who may do what: roles, who has which, and the gate that every request passes.
//!
//! ```text
//!  Unix socket: the kernel tells uid and gid ─┐
//!                                             ├─▶ Peer: who, role ─▶ Gate: role of the method, limits, deadline ─▶ service
//!  TCP: a certificate of the client CA ───────┘
//! ```

mod answers;
mod connections;
mod gate;
mod live;
pub mod methods;
mod people;
mod places;
pub(crate) mod tls;

use std::collections::BTreeMap;
use std::sync::Arc;

use tonic::Request;

pub use answers::{DOMAIN, blocking, bug, status};
pub use connections::{Connection, mutual_tls, unix};
pub use gate::{DEADLINE, Gate};
pub use live::Live;
pub use people::{group_id, user_id};
pub use tls::{Tls, TlsFiles};

/// What a client may do. Each role may do what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Reads and watches.
    Viewer,
    /// Changes what can be changed back: settings, fault rules, GIDs; restarts adapters.
    Operator,
    /// Everything: makes and removes adapters and ports, reads guests' traffic.
    Admin,
}

impl Role {
    /// All, from the least to the most.
    pub const ALL: [Role; 3] = [Role::Viewer, Role::Operator, Role::Admin];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }

    /// The role with this name.
    pub fn named(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// Who has which role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Roles of users, by number. What is said here about a user goes before everything else.
    pub users: BTreeMap<u32, Role>,
    /// Roles of groups, by number: of several the one that may do most.
    pub groups: BTreeMap<u32, Role>,
    /// Whoever else can open the Unix socket; `None`: may do nothing.
    pub default: Option<Role>,
    /// Roles of certificates, by alternative name (DNS, URI), or by common name where there is no alternative one.
    pub certificates: BTreeMap<String, Role>,
}

impl Default for Access {
    /// Root and the daemon's own user are administrators; whoever else the socket's rights let in reads.
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
    /// The role of a user who connects to the Unix socket. `own` is the daemon's user, `groups` are the user's groups.
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

    /// The role of a certificate with these names: of several the one that may do most.
    pub fn of_certificate<'a>(&self, names: impl IntoIterator<Item = &'a String>) -> Option<Role> {
        let roles = names.into_iter().filter_map(|name| self.certificates.get(name));
        roles.max().copied()
    }
}

/// The other end of a connection.
#[derive(Debug)]
pub struct Peer {
    /// Who it is, such as `uid 1000 (alice)` or `certificate "ops.example.com" from 10.0.0.1`.
    pub who: String,
    /// Its role.
    pub role: Option<Role>,
    /// The limit that the connection is beyond: its requests are refused.
    pub over: Option<String>,
}

/// Who sent a request, for the event log: such as `uid 1000 (alice)`.
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
