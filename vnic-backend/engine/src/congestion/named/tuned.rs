//! Parameters of the algorithms that have no keys in the registry, as one adapter has them.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::super::dcqcn_plus::DcqcnPlus;
use super::super::hpcc::Hpcc;
use super::super::swift::Swift;
use super::super::timely::Timely;
use super::{Error, Named, Parameter, Unit};

/// Algorithms with their parameters. Each begins with the parameters that its name alone means.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuned([Named; 4]);

// (No parameter is ever NaN: values are checked against a range.)
impl Eq for Tuned {}

impl Default for Tuned {
    fn default() -> Self {
        Tuned([
            Named::DcqcnPlus(DcqcnPlus::default()),
            Named::Timely(Timely::default()),
            Named::Swift(Swift::default()),
            Named::Hpcc(Hpcc::default()),
        ])
    }
}

/// A parameter of one of the algorithms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunedParameter {
    /// Name of the algorithm.
    pub algorithm: &'static str,
    /// The parameter as it acts.
    pub now: Parameter,
    /// Its value as a number while nobody has set it.
    pub default: String,
}

impl TunedParameter {
    /// The name with the algorithm in front: `swift.base`.
    pub fn name(&self) -> String {
        [self.algorithm, ".", &self.now.name].concat()
    }

    /// Whether somebody has set it.
    pub fn is_set(&self) -> bool {
        self.now.number != self.default
    }
}

impl Tuned {
    /// The algorithm of a name.
    pub fn get(&self, algorithm: &str) -> Option<&Named> {
        self.0.iter().find(|named| named.name() == algorithm)
    }

    /// Sets a parameter by its name with the algorithm in front (`swift.base`): a number in the unit of [`Unit::name`], or as
    /// [`Named::set`] takes it; empty: what it was in the beginning. `None`: none of the algorithms is in front.
    pub fn set(&mut self, name: &str, text: &str) -> Option<Result<(), Error>> {
        let (algorithm, key) = name.split_once('.')?;
        let named = self.0.iter_mut().find(|named| named.name() == algorithm)?;
        let text = text.trim();
        let is = |p: &Parameter| p.name == key;
        let value = match text {
            "" => Tuned::default().get(algorithm).and_then(|named| named.get(key)),
            _ => {
                let time = named.parameters().iter().any(|p| is(p) && p.unit == Unit::Time);
                (time && text.parse::<f64>().is_ok()).then(|| format!("{text}ns"))
            }
        };
        Some(named.set(key, value.as_deref().unwrap_or(text)))
    }

    /// All parameters, algorithm by algorithm.
    pub fn parameters(&self) -> Vec<TunedParameter> {
        let default = Tuned::default();
        let of = |(now, before): (&Named, &Named)| {
            let algorithm = now.name();
            let rows = now.parameters().into_iter().zip(before.parameters());
            let row = move |(now, before): (Parameter, Parameter)| TunedParameter {
                algorithm,
                now,
                default: before.number,
            };
            rows.map(row).collect::<Vec<_>>()
        };
        self.0.iter().zip(&default.0).flat_map(of).collect()
    }
}
