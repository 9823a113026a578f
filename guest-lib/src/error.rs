//! What can go wrong, with its cause and its cure.

/// An error of this library.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    #[error("{what}: {source}")]
    Os {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// Something of the machine or of the settings is not as it must be. The text names the cause and the cure.
    #[error("{0}")]
    Setup(String),
    /// There is no device.
    #[error("{0}")]
    NoDevice(String),
    /// The device speaks another version of the contract.
    #[error("{0}")]
    Version(String),
    /// The device has gone: its daemon ended, or restarted the adapter.
    #[error("the device is gone: {0}")]
    Gone(String),
}

impl Error {
    /// For `map_err` on what the operating system refuses.
    pub fn os(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |source| Error::Os { what, source }
    }
}
