//! Algorithms and their parameters by name, as command lines and files of settings have them.
//!
//! ```text
//!  "dcqcn:paper"                  algorithm, and a preset of its parameters
//!  "program:FILE"                 a program (who reads files makes a `Named` of it)
//!  "ai_rate" = "40M"              a parameter
//! ```
//!
//! Each parameter is a row of a table: name, unit, range, what it does. Rates are in bit/s, or with k, M, G; bytes likewise; times have
//! a unit: ns, us, ms, s.

#[cfg(test)]
mod behaviour;
mod dcqcn;
mod dcqcn_plus;
mod delay;
#[cfg(test)]
mod tests;
mod tuned;
mod value;

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

pub use tuned::{Tuned, TunedParameter};
pub use value::Unit;
pub(super) use value::{number, parse};

use super::CongestionControl;
use super::dcqcn::Dcqcn;
use super::dcqcn_plus::DcqcnPlus;
use super::hpcc::{self, Hpcc};
use super::none;
use super::program::Program;
use super::swift::{self, Swift};
use super::timely::{self, Timely};

/// Why a name or a value is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such algorithm or preset.
    #[error("no congestion control \"{name}\": known are {known}")]
    Name {
        /// The name that was asked for.
        name: String,
        /// Names that exist.
        known: String,
    },
    /// The algorithm has no such parameter.
    #[error("{algorithm} has no parameter \"{key}\": it has {known}")]
    Key {
        /// The algorithm.
        algorithm: &'static str,
        /// The name that was asked for.
        key: String,
        /// Names that exist.
        known: String,
    },
    /// The parameter cannot have that value.
    #[error("{key} = \"{value}\" is not accepted: {accepted}")]
    Value {
        /// The parameter.
        key: String,
        /// The value that was asked for.
        value: String,
        /// Values that are accepted.
        accepted: String,
    },
}

/// A parameter, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Name of the parameter.
    pub name: Cow<'static, str>,
    /// Unit of its value.
    pub unit: Unit,
    /// Values that are accepted, in words.
    pub accepted: String,
    /// Its value.
    pub value: String,
    /// Its value as a number: ns, bit/s, bytes and so on, 1 or 0 of a switch, the place of a word among those that are accepted.
    pub number: String,
    /// What it does.
    pub help: &'static str,
}

/// An algorithm whose parameters can still change.
#[derive(Debug, Clone, PartialEq)]
pub enum Named {
    /// No algorithm.
    None,
    /// DCQCN.
    Dcqcn(Dcqcn),
    /// DCQCN+.
    DcqcnPlus(DcqcnPlus),
    /// TIMELY.
    Timely(Timely),
    /// Swift.
    Swift(Swift),
    /// HPCC.
    Hpcc(Hpcc),
    /// A program that was loaded.
    Program(Program),
}

impl Named {
    /// Every name, with presets behind a colon. A name without a preset means its first one.
    pub fn names() -> Vec<String> {
        let mut names = Vec::new();
        for (name, presets) in [
            ("none", &[][..]),
            ("dcqcn", &super::dcqcn::Parameters::PRESETS),
            ("dcqcn+", &[]),
            ("timely", &timely::Parameters::PRESETS),
            ("swift", &[]),
            ("hpcc", &hpcc::Parameters::PRESETS),
        ] {
            names.push(name.to_string());
            names.extend(presets.iter().map(|preset| [name, ":", preset].concat()));
        }
        names
    }

    /// An algorithm by one of [`Named::names`].
    pub fn by_name(name: &str) -> Result<Named, Error> {
        let (algorithm, preset) = match name.split_once(':') {
            Some((algorithm, preset)) => (algorithm, Some(preset)),
            None => (name, None),
        };
        let named = match (algorithm, preset) {
            ("none", None) => Some(Named::None),
            ("dcqcn", _) => super::dcqcn::Parameters::preset(preset.unwrap_or("paper"))
                .map(|parameters| Named::Dcqcn(Dcqcn { parameters })),
            ("dcqcn+", None) => Some(Named::DcqcnPlus(DcqcnPlus::default())),
            ("timely", _) => timely::Parameters::preset(preset.unwrap_or("ns3"))
                .map(|parameters| Named::Timely(Timely { parameters })),
            ("swift", None) => Some(Named::Swift(Swift {
                parameters: swift::Parameters::PAPER,
            })),
            ("hpcc", _) => hpcc::Parameters::preset(preset.unwrap_or("sim"))
                .map(|parameters| Named::Hpcc(Hpcc { parameters })),
            _ => None,
        };
        named.ok_or_else(|| Error::Name {
            name: name.to_string(),
            known: Named::names().join(", "),
        })
    }

    /// Name of the algorithm, without a preset.
    pub fn name(&self) -> &'static str {
        match self {
            Named::None => "none",
            Named::Dcqcn(_) => "dcqcn",
            Named::DcqcnPlus(_) => "dcqcn+",
            Named::Timely(_) => "timely",
            Named::Swift(_) => "swift",
            Named::Hpcc(_) => "hpcc",
            Named::Program(_) => "program",
        }
    }

    /// Changes a parameter.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), Error> {
        let done = match self {
            Named::None => None,
            Named::Dcqcn(a) => value::set(dcqcn::ROWS, &mut a.parameters, key, value),
            Named::DcqcnPlus(a) => value::set(dcqcn_plus::ROWS, &mut a.parameters, key, value),
            Named::Timely(a) => value::set(delay::TIMELY, &mut a.parameters, key, value),
            Named::Swift(a) => value::set(delay::SWIFT, &mut a.parameters, key, value),
            Named::Hpcc(a) => value::set(delay::HPCC, &mut a.parameters, key, value),
            Named::Program(a) => a.set(key, value),
        };
        done.unwrap_or_else(|| {
            let known: Vec<Cow<'_, str>> = self.parameters().into_iter().map(|p| p.name).collect();
            Err(Error::Key {
                algorithm: self.name(),
                key: key.to_string(),
                known: if known.is_empty() {
                    "none".into()
                } else {
                    known.join(", ")
                },
            })
        })
    }

    /// The parameters, in the order of the algorithm's table.
    pub fn parameters(&self) -> Vec<Parameter> {
        match self {
            Named::None => Vec::new(),
            Named::Dcqcn(a) => value::list(dcqcn::ROWS, &mut a.parameters.clone()),
            Named::DcqcnPlus(a) => value::list(dcqcn_plus::ROWS, &mut a.parameters.clone()),
            Named::Timely(a) => value::list(delay::TIMELY, &mut a.parameters.clone()),
            Named::Swift(a) => value::list(delay::SWIFT, &mut a.parameters.clone()),
            Named::Hpcc(a) => value::list(delay::HPCC, &mut a.parameters.clone()),
            Named::Program(a) => a.parameters(),
        }
    }

    /// A parameter's value, as [`Named::set`] takes it.
    pub fn get(&self, key: &str) -> Option<String> {
        let mut all = self.parameters().into_iter();
        all.find(|p| p.name == key).map(|p| p.value)
    }

    /// The algorithm, as flows use it.
    pub fn build(&self) -> Arc<dyn CongestionControl> {
        match self {
            Named::None => Arc::new(none::None),
            Named::Dcqcn(a) => Arc::new(a.clone()),
            Named::DcqcnPlus(a) => Arc::new(a.clone()),
            Named::Timely(a) => Arc::new(a.clone()),
            Named::Swift(a) => Arc::new(a.clone()),
            Named::Hpcc(a) => Arc::new(a.clone()),
            Named::Program(a) => Arc::new(a.running()),
        }
    }
}

/// An algorithm by its name with its parameters as they are.
pub fn by_name(name: &str) -> Option<Arc<dyn CongestionControl>> {
    Named::by_name(name).ok().map(|named| named.build())
}
