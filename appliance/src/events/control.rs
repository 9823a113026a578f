//! Events of the control plane: requests, refusals, connections, and the daemon's start and end.

use std::sync::Arc;

use vnic_backend::MirrorSpec;

use super::words::{Told, tell, told};
use super::{Level, Owner, kinds};

/// Sink of events.
pub type Tell = Arc<dyn Fn(ControlEvent) + Send + Sync>;

/// Steps of a migration that operators take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationStep {
    /// An adapter was prepared for the guest of another one, or a guest for another daemon.
    Prepared,
    /// The migration was ended after the guest had moved.
    Done,
    /// The migration was given up.
    Cancelled,
}

/// What an event tells of a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// It begins.
    Begins,
    /// It has done something.
    Step(String),
    /// It is over; with the problem that ended it.
    Over(Option<String>),
}

/// Event of the control plane. `by` names the client, as [`crate::access::who`] does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlEvent {
    /// The daemon started.
    DaemonStarted {
        /// Whether the daemon before it ended in order; `None`: there was none.
        orderly: Option<bool>,
    },
    /// The daemon ends.
    DaemonStopped,
    /// Stored state was discarded.
    StateReset {
        /// Kind of the state, and cause.
        what: String,
        /// Path of the old state; empty: it was deleted.
        kept_as: String,
        /// Client that asked; empty: the state was damaged.
        by: String,
    },
    /// A thread of the daemon panicked.
    Panicked {
        thread: String,
        place: String,
        message: String,
    },
    /// A thread or task that the daemon needs ended by a panic.
    ThreadEnded { thread: &'static str },
    /// An adapter was restarted.
    AdapterRestarted {
        adapter: String,
        /// Client that asked.
        by: String,
    },
    /// What an adapter says of magic packets was done.
    Woken {
        adapter: String,
        /// The action.
        action: String,
        /// What came of it, or why it could not be done.
        outcome: Result<String, String>,
    },
    /// A step of the migration of a guest.
    Migration {
        adapter: String,
        /// The other adapter, or "another daemon"; empty: the adapter is enough.
        peer: String,
        step: MigrationStep,
        /// Client that asked.
        by: String,
    },
    /// A scenario is played.
    Scenario {
        scenario: String,
        phase: Phase,
        /// Client that asked.
        by: String,
    },
    /// Stored settings were changed.
    SettingsChanged {
        owner: Owner,
        /// Kind of the settings, such as `registry` or `nvconfig`.
        store: &'static str,
        /// The change in words, such as `RoceMaxFrameSize = 4096`.
        what: String,
        /// Client that asked.
        by: String,
    },
    /// A change of settings, or a stored setting, was refused.
    SettingsRefused {
        owner: Owner,
        /// Kind of the settings, such as `registry` or `nvconfig`.
        store: &'static str,
        /// The setting, and cause of the refusal.
        what: String,
        /// Client that asked; empty: the setting was stored.
        by: String,
    },
    /// A mirror session was made.
    MirrorAdded {
        spec: MirrorSpec,
        /// Client that asked.
        by: String,
    },
    /// A mirror session was ended.
    MirrorRemoved {
        spec: MirrorSpec,
        /// Copies that it sent.
        mirrored: u64,
        /// Client that asked.
        by: String,
    },
    /// A stored mirror session cannot be made again.
    MirrorLost {
        name: String,
        /// Cause.
        problem: String,
    },
    /// The NIC's clock was set or adjusted.
    ClockChanged {
        /// By how much it is ahead of the system's, in ns.
        offset: i64,
        /// Its frequency, in parts per billion.
        frequency: i32,
        /// Client that asked.
        by: String,
    },
    /// The filter of the log was changed.
    LogLevelChanged {
        filter: String,
        /// Client that asked.
        by: String,
    },
    /// A client was denied a method.
    AccessRefused {
        /// Client that asked.
        by: String,
        /// The method, such as `/vnic.v1.AdapterService/DeleteAdapter`.
        method: String,
        /// Role that the method needs; empty: any.
        needs: &'static str,
        /// Role of the client; empty: none.
        has: &'static str,
    },
    /// A connection was refused before its first request.
    ConnectionRefused {
        /// Address of the client.
        by: String,
        /// Cause.
        problem: String,
    },
    /// A connection was ended, because what it was accepted for is no longer valid.
    ConnectionEnded {
        /// Client of the connection.
        by: String,
        /// Cause.
        problem: String,
    },
    /// Certificates and roles were read again.
    CertificatesLoaded {
        /// Cause of a refusal; empty: they were accepted.
        problem: String,
    },
    /// A configuration file was applied, or refused.
    ConfigApplied {
        /// Name of the file.
        file: String,
        /// Number of objects that it changes.
        changes: usize,
        /// Keys that act when the daemon starts again, with commas between them.
        waits: String,
        /// Why it was refused, or undone; empty: it acts.
        problem: String,
        /// Client that asked; empty: a signal.
        by: String,
    },
    /// A peer joined a mesh or left it.
    MeshPeer {
        port: String,
        /// A name of the peer's certificate.
        peer: String,
        address: String,
        /// Cause of the leave; `None`: the peer joined.
        lost: Option<String>,
        /// Remark; may be empty.
        note: String,
    },
    /// A mesh refused a caller.
    MeshRefused {
        port: String,
        /// Address of the caller.
        by: String,
        /// Cause.
        problem: String,
    },
    /// A peer of a mesh's list cannot be reached.
    MeshTrouble {
        port: String,
        /// Peer as it is in the list.
        peer: String,
        /// Cause.
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
    pub fn owner(&self) -> Owner {
        match self {
            ControlEvent::AdapterRestarted { adapter, .. }
            | ControlEvent::Woken { adapter, .. }
            | ControlEvent::Migration { adapter, .. } => Owner::Adapter(adapter.clone()),
            ControlEvent::SettingsChanged { owner, .. } | ControlEvent::SettingsRefused { owner, .. } => {
                owner.clone()
            }
            ControlEvent::MeshPeer { port, .. }
            | ControlEvent::MeshRefused { port, .. }
            | ControlEvent::MeshTrouble { port, .. } => Owner::Port(port.clone()),
            _ => Owner::Nic,
        }
    }

    /// Kind, message and facts of the event.
    pub fn describe(&self) -> Told {
        match self {
            ControlEvent::DaemonStarted { orderly } => {
                let (version, pid) = (crate::VERSION, std::process::id());
                let (level, before, more) = match orderly {
                    None => (Level::Info, "none", ""),
                    Some(true) => (Level::Info, "orderly", ""),
                    Some(false) => (
                        Level::Warn,
                        "killed",
                        "; the one before it did not end in order: events of its last second may be missing",
                    ),
                };
                tell! { DAEMON_STARTED, version, pid, before; "vnicd {version} started{more}" }.at(level)
            }
            ControlEvent::Woken { action, outcome, .. } => match outcome {
                Ok(outcome) => tell! { WOKEN, action, outcome; "wake {action}: {outcome}" },
                Err(problem) => tell! { WOKEN, action, problem; "wake {action} failed: {problem}" }.at(Level::Warn),
            },
            ControlEvent::DaemonStopped => {
                told(&kinds::DAEMON_STOPPED, "vnicd ends").fact("pid", std::process::id())
            }
            ControlEvent::StateReset { what, kept_as, by } => {
                let kept = match kept_as.as_str() {
                    "" => String::new(),
                    path => format!("; the old one is kept as {path}"),
                };
                tell! { STATE_RESET, what, kept_as, by; "{what}: begun anew{}{kept}", of(by) }
            }
            ControlEvent::Panicked {
                thread,
                place,
                message,
            } => {
                let problem = message;
                tell! { PANIC, thread, place, problem; "a bug: thread {thread} panicked at {place}: {message}" }
            }
            ControlEvent::ThreadEnded { thread } => tell! { THREAD_ENDED, thread;
                "a bug has ended {thread}, which the daemon needs: restart vnicd"
            },
            ControlEvent::AdapterRestarted { by, .. } => {
                tell! { ADAPTER_RESTARTED, by; "adapter restarted{}", of(by) }
            }
            ControlEvent::Migration { peer, step, by, .. } => match step {
                MigrationStep::Prepared => tell! { MIGRATION_PREPARED, peer, by;
                    "a migration between this adapter and {peer} is prepared{}", of(by)
                },
                MigrationStep::Done => tell! { MIGRATION_DONE, by;
                    "the migration is over, the addresses are where the guest is{}", of(by)
                },
                MigrationStep::Cancelled => tell! { MIGRATION_CANCELLED, by; "the migration was given up{}", of(by) },
            },
            ControlEvent::Scenario { scenario, phase, by } => match phase {
                Phase::Begins => tell! { SCENARIO_BEGUN, scenario, by;
                    "scenario {scenario} begins{}: adapters fail on purpose until it is over", of(by)
                },
                Phase::Step(step) => tell! { SCENARIO_STEP, scenario, step; "scenario {scenario}: {step}" },
                Phase::Over(None) => tell! { SCENARIO_OVER, scenario; "scenario {scenario} is over, and everything put back" },
                Phase::Over(Some(problem)) => tell! { SCENARIO_OVER, scenario, problem;
                    "scenario {scenario} failed, and everything was put back: {problem}"
                }
                .at(Level::Warn),
            },
            ControlEvent::SettingsChanged { store, what, by, .. } => {
                tell! { SETTINGS_CHANGED, store, what, by; "{store}: {what}, set{}", of(by) }
            }
            ControlEvent::SettingsRefused { store, what, by, .. } => {
                let asked = match by.as_str() {
                    "" => String::new(),
                    _ => format!(" (asked{})", of(by)),
                };
                tell! { SETTINGS_REFUSED, store, what, by; "{store}: refused: {what}{asked}" }
            }
            ControlEvent::MirrorAdded { spec, by } => {
                let MirrorSpec {
                    name,
                    source,
                    direction,
                    destination,
                } = spec;
                let direction = direction.name();
                tell! { MIRROR_ADDED, name, source, direction, destination, by;
                    "mirror {name} copies frames of {source} ({direction}) to {destination}, made{}", of(by)
                }
            }
            ControlEvent::MirrorRemoved { spec, mirrored, by } => {
                let MirrorSpec {
                    name,
                    source,
                    destination,
                    ..
                } = spec;
                tell! { MIRROR_REMOVED, name, source, destination, mirrored, by;
                    "mirror {name} from {source} to {destination} ended after {mirrored} copies{}", of(by)
                }
            }
            ControlEvent::MirrorLost { name, problem } => tell! { MIRROR_LOST, name, problem;
                "mirror {name}, which was made at run time, does not come back: {problem}"
            },
            ControlEvent::ClockChanged { offset, frequency, by } => tell! { CLOCK_CHANGED, offset, frequency, by;
                "the clock is {offset} ns ahead of the system's and has {frequency:+} ppb, changed{}", of(by)
            },
            ControlEvent::LogLevelChanged { filter, by } => {
                tell! { LOG_LEVEL_CHANGED, filter, by; "the log has {filter} from now on, set{}", of(by) }
            }
            ControlEvent::AccessRefused {
                by,
                method,
                needs,
                has,
            } => {
                let role = match *has {
                    "" => "no role".to_owned(),
                    has => format!("role {has}"),
                };
                let wanted = if needs.is_empty() { "any" } else { needs };
                tell! { ACCESS_REFUSED, by, method, needs, has;
                    "{by} with {role} was refused {method}, which takes role {wanted}"
                }
            }
            ControlEvent::ConnectionRefused { by, problem } => {
                tell! { ACCESS_REFUSED, by, problem; "a connection from {by} was refused: {problem}" }
            }
            ControlEvent::ConnectionEnded { by, problem } => {
                tell! { ACCESS_REFUSED, by, problem; "the connection of {by} was ended: {problem}" }
            }
            ControlEvent::CertificatesLoaded { problem } if problem.is_empty() => tell! { CERTIFICATES_LOADED, problem;
                "certificates and roles read again: those for which they do not hold any more lose their connections"
            },
            ControlEvent::CertificatesLoaded { problem } => {
                tell! { CERTIFICATES_LOADED, problem; "certificates or roles refused, the old ones stay: {problem}" }
                    .at(Level::Warn)
            }
            ControlEvent::ConfigApplied {
                file,
                changes,
                waits,
                problem,
                by,
            } => {
                let (level, text) = match problem.as_str() {
                    "" => (Level::Info, format!("{changes} changed")),
                    problem => (Level::Warn, format!("refused: {problem}")),
                };
                let later = match waits.as_str() {
                    "" => String::new(),
                    waits => format!("; waits for a restart of the daemon: {waits}"),
                };
                tell! { CONFIG_APPLIED, file, changes, waits, problem, by;
                    "configuration {file}{}: {text}{later}", of(by)
                }
                .at(level)
            }
            ControlEvent::MeshPeer {
                peer,
                address,
                lost,
                note,
                ..
            } => {
                let (level, state, more) = match lost {
                    None => (Level::Info, "joined", note.clone()),
                    Some(why) => (Level::Warn, "left", format!(": {why}")),
                };
                let problem = lost.as_deref().unwrap_or_default();
                tell! { MESH_PEER, peer, address, state, problem; "mesh: {peer} at {address} {state}{more}" }.at(level)
            }
            ControlEvent::MeshRefused { by, problem, .. } => {
                tell! { MESH_REFUSED, by, problem; "mesh: {by} was refused: {problem}" }
            }
            ControlEvent::MeshTrouble { peer, problem, .. } => {
                tell! { MESH_TROUBLE, peer, problem; "mesh: peer {peer}: {problem}" }
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
        let told = refused.describe();
        assert_eq!(told.level, Level::Warn);
        assert_eq!(
            told.message,
            "uid 1000 (alice) with no role was refused /vnic.v1.PortService/DeletePort, which takes role admin"
        );
        let refused = ControlEvent::SettingsRefused {
            owner: Owner::Adapter("vf0".to_owned()),
            store: "registry",
            what: "NumberOfX = 5: out of range: 0 to 4".to_owned(),
            by: String::new(),
        };
        assert_eq!(
            refused.describe().message,
            "registry: refused: NumberOfX = 5: out of range: 0 to 4"
        );
        assert_eq!(
            (refused.owner(), refused.describe().kind.id),
            (Owner::Adapter("vf0".to_owned()), 0x1006)
        );
        for orderly in [None, Some(true), Some(false)] {
            let started = ControlEvent::DaemonStarted { orderly }.describe();
            assert!(started.kind.levels.contains(&started.level));
        }
    }
}
