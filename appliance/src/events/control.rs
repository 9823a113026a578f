//! Events of the control plane: what was asked of the daemon, and by whom.

use std::sync::Arc;

use super::kinds::{self, Kind};
use super::{Level, Owner};

/// Takes events, such as: who was refused.
pub type Tell = Arc<dyn Fn(ControlEvent) + Send + Sync>;

/// Something that happened in the control plane. `by` names who asked, as [`crate::access::who`] gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlEvent {
    /// The daemon started.
    DaemonStarted {
        /// Did the one before it end in order? `None`: there was none.
        orderly: Option<bool>,
    },
    /// The daemon ends.
    DaemonStopped,
    /// Stored state was given up.
    StateReset {
        /// Which, and why.
        what: String,
        /// Where the old one is now; empty: it is gone.
        kept_as: String,
        /// Who asked; empty: nobody, it was damaged.
        by: String,
    },
    /// An adapter was restarted.
    AdapterRestarted {
        /// The adapter.
        adapter: String,
        /// Who asked.
        by: String,
    },
    /// Stored settings were changed.
    SettingsChanged {
        /// Whose.
        owner: Owner,
        /// Of which kind, such as `registry` or `nvconfig`.
        store: &'static str,
        /// What is now what, for people: such as `RoceMaxFrameSize = 4096`.
        what: String,
        /// Who asked.
        by: String,
    },
    /// A change of settings, or a setting that is stored, was refused.
    SettingsRefused {
        /// Whose.
        owner: Owner,
        /// Of which kind, such as `registry` or `nvconfig`.
        store: &'static str,
        /// What, and why not.
        what: String,
        /// Who asked; empty: it was stored.
        by: String,
    },
    /// A client may not do what it asked for.
    AccessRefused {
        /// Who.
        by: String,
        /// The method, such as `/vnic.v1.AdapterService/DeleteAdapter`.
        method: String,
        /// The role that may; empty: any.
        needs: &'static str,
        /// The role it has; empty: none.
        has: &'static str,
    },
    /// A connection was refused before its first request.
    ConnectionRefused {
        /// From where.
        by: String,
        /// Why.
        problem: String,
    },
    /// A connection was ended: what had let it in does not hold any more.
    ConnectionEnded {
        /// Whose.
        by: String,
        /// Why.
        problem: String,
    },
    /// The certificates were read again, and roles.
    CertificatesLoaded {
        /// Why they were refused; empty: they were not.
        problem: String,
    },
    /// A daemon joined a mesh, or left it.
    MeshPeer {
        /// The port.
        port: String,
        /// A name of its certificate.
        peer: String,
        /// Where it is.
        address: String,
        /// Why it left; nothing: it joined.
        lost: Option<String>,
        /// What else is to be said.
        note: String,
    },
    /// A stranger called a mesh.
    MeshRefused {
        /// The port.
        port: String,
        /// From where.
        by: String,
        /// Why it was refused.
        problem: String,
    },
    /// A daemon of a mesh's list is not reached.
    MeshTrouble {
        /// The port.
        port: String,
        /// As in the list.
        peer: String,
        /// Why.
        problem: String,
    },
}

fn of(by: &str) -> String {
    if by.is_empty() {
        String::new()
    } else {
        format!(" by {by}")
    }
}

impl ControlEvent {
    /// Its kind.
    pub fn kind(&self) -> &'static Kind {
        match self {
            ControlEvent::DaemonStarted { .. } => &kinds::DAEMON_STARTED,
            ControlEvent::DaemonStopped => &kinds::DAEMON_STOPPED,
            ControlEvent::StateReset { .. } => &kinds::STATE_RESET,
            ControlEvent::AdapterRestarted { .. } => &kinds::ADAPTER_RESTARTED,
            ControlEvent::SettingsChanged { .. } => &kinds::SETTINGS_CHANGED,
            ControlEvent::SettingsRefused { .. } => &kinds::SETTINGS_REFUSED,
            ControlEvent::AccessRefused { .. }
            | ControlEvent::ConnectionRefused { .. }
            | ControlEvent::ConnectionEnded { .. } => &kinds::ACCESS_REFUSED,
            ControlEvent::CertificatesLoaded { .. } => &kinds::CERTIFICATES_LOADED,
            ControlEvent::MeshPeer { .. } => &kinds::MESH_PEER,
            ControlEvent::MeshRefused { .. } => &kinds::MESH_REFUSED,
            ControlEvent::MeshTrouble { .. } => &kinds::MESH_TROUBLE,
        }
    }

    /// To what it happened.
    pub fn owner(&self) -> Owner {
        match self {
            ControlEvent::AdapterRestarted { adapter, .. } => Owner::Adapter(adapter.clone()),
            ControlEvent::SettingsChanged { owner, .. } | ControlEvent::SettingsRefused { owner, .. } => {
                owner.clone()
            }
            ControlEvent::MeshPeer { port, .. }
            | ControlEvent::MeshRefused { port, .. }
            | ControlEvent::MeshTrouble { port, .. } => Owner::Port(port.clone()),
            _ => Owner::Nic,
        }
    }

    /// The level and the words.
    pub fn describe(&self) -> (Level, String) {
        match self {
            ControlEvent::DaemonStarted { orderly: Some(false) } => (
                Level::Warn,
                format!(
                    "vnicd {} started; the one before it did not end in order: events of its last second may be missing",
                    crate::VERSION
                ),
            ),
            ControlEvent::DaemonStarted { .. } => (Level::Info, format!("vnicd {} started", crate::VERSION)),
            ControlEvent::DaemonStopped => (Level::Info, "vnicd ends".to_owned()),
            ControlEvent::StateReset { what, kept_as, by } => {
                let kept = match kept_as.as_str() {
                    "" => String::new(),
                    path => format!("; the old one is kept as {path}"),
                };
                (Level::Error, format!("{what}: begun anew{}{kept}", of(by)))
            }
            ControlEvent::AdapterRestarted { by, .. } => {
                (Level::Info, format!("adapter restarted{}", of(by)))
            }
            ControlEvent::SettingsChanged { store, what, by, .. } => {
                (Level::Info, format!("{store}: {what}, set{}", of(by)))
            }
            ControlEvent::SettingsRefused { store, what, by, .. } => {
                let asked = if by.is_empty() {
                    String::new()
                } else {
                    format!(" (asked{})", of(by))
                };
                (Level::Warn, format!("{store}: refused: {what}{asked}"))
            }
            ControlEvent::AccessRefused {
                by,
                method,
                needs,
                has,
            } => {
                let has = if has.is_empty() {
                    "no role".to_owned()
                } else {
                    format!("role {has}")
                };
                let needs = if needs.is_empty() { "any" } else { needs };
                (
                    Level::Warn,
                    format!("{by} with {has} was refused {method}, which takes role {needs}"),
                )
            }
            ControlEvent::ConnectionRefused { by, problem } => (
                Level::Warn,
                format!("a connection from {by} was refused: {problem}"),
            ),
            ControlEvent::ConnectionEnded { by, problem } => {
                (Level::Warn, format!("the connection of {by} was ended: {problem}"))
            }
            ControlEvent::CertificatesLoaded { problem } if problem.is_empty() => (
                Level::Info,
                "certificates and roles read again: those for which they do not hold any more lose their connections"
                    .to_owned(),
            ),
            ControlEvent::CertificatesLoaded { problem } => (
                Level::Warn,
                format!("certificates or roles refused, the old ones stay: {problem}"),
            ),
            ControlEvent::MeshPeer {
                peer,
                address,
                lost: None,
                note,
                ..
            } => (Level::Info, format!("mesh: {peer} at {address} joined{note}")),
            ControlEvent::MeshPeer {
                peer,
                address,
                lost: Some(why),
                ..
            } => (Level::Warn, format!("mesh: {peer} at {address} left: {why}")),
            ControlEvent::MeshRefused { by, problem, .. } => {
                (Level::Warn, format!("mesh: {by} was refused: {problem}"))
            }
            ControlEvent::MeshTrouble { peer, problem, .. } => {
                (Level::Warn, format!("mesh: peer {peer}: {problem}"))
            }
        }
    }

    /// Its facts, for programs.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        match self {
            ControlEvent::DaemonStarted { orderly } => {
                let before = match orderly {
                    None => "none",
                    Some(true) => "orderly",
                    Some(false) => "killed",
                };
                vec![
                    ("version", crate::VERSION.to_owned()),
                    ("pid", std::process::id().to_string()),
                    ("before", before.to_owned()),
                ]
            }
            ControlEvent::DaemonStopped => vec![("pid", std::process::id().to_string())],
            ControlEvent::StateReset { what, kept_as, by } => vec![
                ("what", what.clone()),
                ("kept_as", kept_as.clone()),
                ("by", by.clone()),
            ],
            ControlEvent::AdapterRestarted { by, .. } => vec![("by", by.clone())],
            ControlEvent::SettingsChanged { store, what, by, .. }
            | ControlEvent::SettingsRefused { store, what, by, .. } => vec![
                ("store", (*store).to_owned()),
                ("what", what.clone()),
                ("by", by.clone()),
            ],
            ControlEvent::AccessRefused {
                by,
                method,
                needs,
                has,
            } => vec![
                ("by", by.clone()),
                ("method", method.clone()),
                ("needs", (*needs).to_owned()),
                ("has", (*has).to_owned()),
            ],
            ControlEvent::ConnectionRefused { by, problem }
            | ControlEvent::ConnectionEnded { by, problem } => {
                vec![("by", by.clone()), ("problem", problem.clone())]
            }
            ControlEvent::CertificatesLoaded { problem } => vec![("problem", problem.clone())],
            ControlEvent::MeshPeer {
                peer, address, lost, ..
            } => vec![
                ("peer", peer.clone()),
                ("address", address.clone()),
                ("state", if lost.is_some() { "left" } else { "joined" }.to_owned()),
                ("problem", lost.clone().unwrap_or_default()),
            ],
            ControlEvent::MeshRefused { by, problem, .. } => {
                vec![("by", by.clone()), ("problem", problem.clone())]
            }
            ControlEvent::MeshTrouble { peer, problem, .. } => {
                vec![("peer", peer.clone()), ("problem", problem.clone())]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_say_who_and_what() {
        let refused = ControlEvent::AccessRefused {
            by: "uid 1000 (alice)".to_owned(),
            method: "/vnic.v1.PortService/DeletePort".to_owned(),
            needs: "admin",
            has: "",
        };
        let (level, text) = refused.describe();
        assert_eq!(level, Level::Warn);
        assert_eq!(
            text,
            "uid 1000 (alice) with no role was refused /vnic.v1.PortService/DeletePort, which takes role admin"
        );
        let refused = ControlEvent::SettingsRefused {
            owner: Owner::Adapter("vf0".to_owned()),
            store: "registry",
            what: "NumberOfX = 5: out of range: 0 to 4".to_owned(),
            by: String::new(),
        };
        assert_eq!(
            refused.describe().1,
            "registry: refused: NumberOfX = 5: out of range: 0 to 4"
        );
        assert_eq!(
            (refused.owner(), refused.kind().id),
            (Owner::Adapter("vf0".to_owned()), 0x1006)
        );
        for orderly in [None, Some(true), Some(false)] {
            let started = ControlEvent::DaemonStarted { orderly };
            assert!(started.kind().levels.contains(&started.describe().0));
        }
    }
}
