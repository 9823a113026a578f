//! Errors of the control plane.

use vnic_backend::{NicError, rehearsal};

use crate::capture::CaptureError;
use crate::check::Violations;
use crate::config::Diagnostics;
use crate::nv::NvWhy;
use crate::registry::{Refusal, RegistryError, Why};
use crate::store::StoreError;

/// Error of a request. The request has changed nothing, except with [`Refused::AboveLineRate`].
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Fields that are wrong.
    #[error("{0}")]
    Fields(Violations),
    /// The NIC refuses for another cause than a field.
    #[error(transparent)]
    Nic(NicError),
    /// The store fails.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The registry refuses operations; each with the field that asked for it.
    #[error("{}", .0.iter().map(|(_, refusal)| refusal.to_string()).collect::<Vec<_>>().join("; "))]
    Registry(Vec<(String, Refusal)>),
    /// The NV configuration refuses a parameter; with the field that asked for it.
    #[error("{1}")]
    Nv(String, NvWhy),
    /// The resource does not exist.
    #[error("there is no {kind} \"{name}\"")]
    NotFound { kind: &'static str, name: String },
    /// The team has no such affinity.
    #[error("team \"{0}\" has no such affinity")]
    NoAffinity(String),
    /// A resource of this name exists already.
    #[error("there is a {kind} \"{name}\" already")]
    Exists { kind: &'static str, name: String },
    /// A limit of resources is reached.
    #[error("{0}")]
    Limit(String),
    /// The resource has changed since the request's etag; its etag now.
    #[error("it has changed meanwhile: its etag is {0}")]
    Changed(String),
    /// A port cannot do this as a member of a team.
    #[error("port {port} is in team \"{team}\": {cure}")]
    InTeam {
        port: String,
        team: String,
        /// Remedy, in words.
        cure: &'static str,
    },
    /// NV parameters do not allow an algorithm of congestion control.
    #[error(
        "{0}: {next} first: `vnicctl nvconfig set {next}`, then `vnicctl nvconfig device-reset`",
        next = if *.1 { "ROCE_CC_LEGACY_DCQCN=0" } else { "USER_PROGRAMMABLE_CC=1" }
    )]
    NotProgrammable(String, bool),
    /// The line rate is stored instead of rates above it.
    #[error("{text}")]
    AboveLineRate {
        /// Names of the rates.
        keys: Vec<&'static str>,
        /// Stored rate.
        stored: u32,
        text: String,
    },
    /// A configuration file is wrong.
    #[error("the file is wrong, and nothing was changed:\n{}", .0.brief())]
    File(Diagnostics),
    /// The daemon was started without a configuration file.
    #[error("the daemon was started without a configuration file")]
    NoFile,
    /// A capture to a file fails.
    #[error(transparent)]
    Capture(CaptureError),
}

impl From<Violations> for Refused {
    fn from(wrong: Violations) -> Refused {
        Refused::Fields(wrong)
    }
}

impl Refused {
    /// Error of one field.
    pub fn field(field: impl Into<String>, problem: impl Into<String>) -> Refused {
        Refused::Fields(Violations::one(field, problem))
    }

    /// Translates an error of the NIC; `path` gives the path of a field of a specification.
    pub fn nic(path: impl FnOnce(&str) -> String) -> impl FnOnce(NicError) -> Refused {
        move |error| match error {
            NicError::Invalid { field, problem } => Refused::field(path(field), problem),
            other => Refused::Nic(other),
        }
    }

    /// Translates an error of the registry; `path` gives the path of the field that asked for an operation.
    pub fn registry(error: RegistryError, path: impl Fn(&Refusal) -> String) -> Refused {
        match error {
            RegistryError::Store(error) => Refused::Store(error),
            RegistryError::Rehearsed => Refused::Nic(NicError::Rehearsed),
            RegistryError::Refused(refusals) => Refused::Registry(
                refusals
                    .into_iter()
                    .map(|refusal| (path(&refusal), refusal))
                    .collect(),
            ),
        }
    }

    /// First refusal of the registry, if all are of one kind that says more than that a field is wrong.
    pub fn of_one_kind(refusals: &[(String, Refusal)]) -> Option<&Refusal> {
        let (_, first) = refusals.first()?;
        let one = refusals
            .iter()
            .all(|(_, refusal)| kind(&refusal.why) == kind(&first.why));
        (one && kind(&first.why) != 0).then_some(first)
    }

    /// Whether the request is in order, and was only rehearsed.
    pub fn is_rehearsed(&self) -> bool {
        matches!(self, Refused::Nic(NicError::Rehearsed))
    }

    /// Whether the error is a rate above the line rate.
    pub fn is_above_line_rate(&self) -> bool {
        match self {
            Refused::AboveLineRate { .. } => true,
            Refused::Registry(all) => {
                Refused::of_one_kind(all).is_some_and(|one| matches!(one.why, Why::AboveLineRate { .. }))
            }
            _ => false,
        }
    }

    /// Wrong fields, if the error is about fields.
    pub fn wrong_fields(&self) -> Option<Violations> {
        match self {
            Refused::Fields(wrong) => Some(wrong.clone()),
            Refused::Registry(refusals) if Refused::of_one_kind(refusals).is_none() => {
                let mut wrong = Violations::default();
                for (field, refusal) in refusals {
                    wrong.add(field.clone(), refusal.to_string());
                }
                Some(wrong)
            }
            Refused::Nv(field, why @ NvWhy::NotAllowed { .. }) => {
                Some(Violations::one(field.clone(), why.to_string()))
            }
            _ => None,
        }
    }

    /// Error text.
    pub fn text(&self) -> String {
        self.wrong_fields()
            .map_or_else(|| self.to_string(), |wrong| wrong.to_string())
    }
}

/// Stands between the checks of a change and its first act: in a rehearsal it is an error, [`NicError::Rehearsed`].
pub fn acts() -> Result<(), Refused> {
    rehearsal::acts().map_err(Refused::Nic)
}

/// Number of a kind of refusals; 0: a field is wrong.
fn kind(why: &Why) -> u8 {
    match why {
        Why::WrongScope(_) | Why::NotAllowed(_) | Why::Conflict(_) | Why::Nic(_) => 0,
        Why::UnknownKey { .. } => 1,
        Why::NoAdapter(_) => 2,
        Why::NotBuilt(_) => 3,
        Why::Etag { .. } => 4,
        Why::AboveLineRate { .. } => 5,
    }
}
