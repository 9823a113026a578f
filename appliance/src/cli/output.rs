//! Output: tables for people, JSON for scripts.

use std::io::{self, Write as _};

use super::Failure;
use crate::json;

/// How results look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// For scripts: the messages of the .proto files, with their field names; 64-bit numbers are numbers.
    Json,
}

/// Writer of output in one format.
pub struct Output {
    format: Format,
}

impl Output {
    pub fn new(format: Format) -> Output {
        Output { format }
    }

    /// Whether JSON is wanted.
    pub fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Prints a message as JSON, or as text.
    pub fn message<M: prost::Message>(
        &self,
        name: &str,
        message: &M,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Json => print(&format!("{:#}\n", to_json(name, message)?)),
            Format::Table => print(&text()),
        }
    }

    /// Prints the message of an answer, as [`Output::message`] does.
    pub fn answer<M: prost::Message>(
        &self,
        name: &str,
        answer: tonic::Response<M>,
        text: impl FnOnce(&M) -> String,
    ) -> Result<(), Failure> {
        let message = answer.into_inner();
        self.message(name, &message, || text(&message))
    }

    /// Prints one message of a stream: as JSON on one line, or as text.
    pub fn streamed<M: prost::Message>(
        &self,
        name: &str,
        message: &M,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Json => print(&format!("{}\n", to_json(name, message)?)),
            Format::Table => print(&text()),
        }
    }

    /// Prints each message of a stream as it arrives, as [`Output::streamed`] does.
    pub async fn follow<M: prost::Message>(
        &self,
        name: &str,
        mut stream: tonic::Streaming<M>,
        text: impl Fn(&M) -> String,
    ) -> Result<(), Failure> {
        while let Some(message) = stream.message().await? {
            self.streamed(name, &message, || text(&message))?;
        }
        Ok(())
    }

    /// Prints a value that is not a message of `vnic.v1`.
    pub fn value(&self, value: &serde_json::Value, text: impl FnOnce() -> String) -> Result<(), Failure> {
        match self.format {
            Format::Json => print(&format!("{value:#}\n")),
            Format::Table => print(&text()),
        }
    }
}

/// Writes text to standard output and flushes it.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Writes bytes to standard output and flushes them.
pub fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()?;
    Ok(())
}

/// JSON of any message of the package, by its descriptor.
fn to_json<M: prost::Message>(name: &str, message: &M) -> Result<serde_json::Value, Failure> {
    json::of(name, message).map_err(|e| Failure::Failed(format!("cannot show vnic.v1.{name} as JSON: {e}")))
}
