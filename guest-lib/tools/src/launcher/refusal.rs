//! Why something cannot be done.

/// Why something cannot be done, and what helps. The text has both.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(String);

impl Refusal {
    /// With what is wrong and what helps.
    pub fn new(why: impl Into<String>) -> Refusal {
        Refusal(why.into())
    }
}
