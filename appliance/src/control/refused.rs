//! Why something does not happen.

use vnic_backend::NicError;

use crate::capture::CaptureError;
use crate::check::Violations;
use crate::nv::NvWhy;
use crate::registry::{Refusal, RegistryError, Why};
use crate::store::StoreError;

/// Why something that was asked for does not happen. Nothing has changed then, but for [`Refused::AboveLineRate`].
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// These fields are wrong.
    #[error("{0}")]
    Fields(Violations),
    /// The NIC refuses, and not because of a field.
    #[error(transparent)]
    Nic(NicError),
    /// It cannot be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Operations that the registry refuses, with the fields that asked for them.
    #[error("{}", .0.iter().map(|(_, refusal)| refusal.to_string()).collect::<Vec<_>>().join("; "))]
    Registry(Vec<(String, Refusal)>),
    /// An NV parameter is not set, and the field that asked for it.
    #[error("{1}")]
    Nv(String, NvWhy),
    /// There is no such thing.
    #[error("there is no {kind} \"{name}\"")]
    NotFound {
        /// What it would be.
        kind: &'static str,
        /// Which one.
        name: String,
    },
    /// The team has no such affinity.
    #[error("team \"{0}\" has no such affinity")]
    NoAffinity(String),
    /// There is one of this name already.
    #[error("there is a {kind} \"{name}\" already")]
    Exists {
        /// What it is.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// There are as many as can be.
    #[error("{0}")]
    Limit(String),
    /// It has changed since it was looked at: its etag now.
    #[error("it has changed meanwhile: its etag is {0}")]
    Changed(String),
    /// A port is in a team, and may not be for this.
    #[error("port {port} is in team \"{team}\": {cure}")]
    InTeam {
        /// The port.
        port: String,
        /// Its team.
        team: String,
        /// What helps.
        cure: &'static str,
    },
    /// The line rate is stored instead of a rate above it.
    #[error("{text}")]
    AboveLineRate {
        /// The key of the rate.
        key: &'static str,
        /// What is stored.
        stored: u32,
        /// For people.
        text: String,
    },
    /// A capture to a file.
    #[error(transparent)]
    Capture(CaptureError),
}

impl From<Violations> for Refused {
    fn from(wrong: Violations) -> Refused {
        Refused::Fields(wrong)
    }
}

impl Refused {
    /// One wrong field.
    pub fn field(field: impl Into<String>, problem: impl Into<String>) -> Refused {
        Refused::Fields(Violations::one(field, problem))
    }

    /// What the NIC refuses; `path` gives the path of a field of a specification.
    pub fn nic(path: impl FnOnce(&str) -> String) -> impl FnOnce(NicError) -> Refused {
        move |error| match error {
            NicError::Invalid { field, problem } => Refused::field(path(field), problem),
            other => Refused::Nic(other),
        }
    }

    /// What the registry refuses; `path` gives the path of the field that asked for an operation.
    pub fn registry(error: RegistryError, path: impl Fn(&Refusal) -> String) -> Refused {
        match error {
            RegistryError::Store(error) => Refused::Store(error),
            RegistryError::Refused(refusals) => Refused::Registry(
                refusals
                    .into_iter()
                    .map(|refusal| (path(&refusal), refusal))
                    .collect(),
            ),
        }
    }

    /// The refusal that stands for all, where those of the registry are of one kind that says more than that a field is wrong.
    pub fn of_one_kind(refusals: &[(String, Refusal)]) -> Option<&Refusal> {
        let (_, first) = refusals.first()?;
        let one = refusals
            .iter()
            .all(|(_, refusal)| kind(&refusal.why) == kind(&first.why));
        (one && kind(&first.why) != 0).then_some(first)
    }

    /// Is it a rate above the line rate?
    pub fn is_above_line_rate(&self) -> bool {
        match self {
            Refused::AboveLineRate { .. } => true,
            Refused::Registry(all) => {
                Refused::of_one_kind(all).is_some_and(|one| matches!(one.why, Why::AboveLineRate { .. }))
            }
            _ => false,
        }
    }

    /// The fields that are wrong, where it is about fields.
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

    /// What is wrong, for people.
    pub fn text(&self) -> String {
        self.wrong_fields()
            .map_or_else(|| self.to_string(), |wrong| wrong.to_string())
    }
}

/// Refusals of one kind have one number; 0: a field is wrong.
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
