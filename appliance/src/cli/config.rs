//! `vnicctl export`, `diff`, `apply`, `server reload` and `backup`: what is there as a configuration file, and back.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use vnic_control::v1;
use vnic_control::v1::config_change::{Action, Outcome};

use super::Failure;
use super::client::{self, Client};
use super::output::Output;
use super::text;
use crate::private;

/// A file, and what becomes of what it does not have.
#[derive(Debug, Args)]
pub struct FileArgs {
    /// The file; - is standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Remove ports, teams, adapters, multicast groups and fault rules that the file does not have
    #[arg(long)]
    prune: bool,
}

/// `vnicctl apply`.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    file: FileArgs,
    /// Only tell what would be done
    #[arg(long)]
    dry_run: bool,
}

/// `vnicctl backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// Write the copy to FILE, in place of a file that is there
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl FileArgs {
    /// Name of the file for texts, and the file.
    fn read(&self) -> Result<(String, String), Failure> {
        let (shown, text) = match self.file == Path::new("-") {
            true => ("(standard input)".to_owned(), io::read_to_string(io::stdin())),
            false => (self.file.display().to_string(), fs::read_to_string(&self.file)),
        };
        match text {
            Ok(text) => Ok((shown, text)),
            Err(error) => Err(Failure::Usage(format!("cannot read {shown}: {error}"))),
        }
    }

    async fn compare(&self, client: &Client) -> Result<v1::DiffConfigResponse, Failure> {
        let (file, text) = self.read()?;
        let prune = self.prune;
        let request = v1::DiffConfigRequest { file, text, prune };
        Ok(client.config().await?.diff_config(request).await?.into_inner())
    }
}

/// Prints what is there as a configuration file.
pub async fn export(client: &Client, out: &Output) -> Result<(), Failure> {
    let answer = client
        .config()
        .await?
        .export_config(v1::ExportConfigRequest {})
        .await?;
    out.answer("ExportConfigResponse", answer, |export| export.text.clone())
}

/// Prints what a file would change; that there is something is the failure [`Failure::Differs`], as of diff(1).
pub async fn diff(args: FileArgs, client: &Client, out: &Output) -> Result<(), Failure> {
    // Exit code 1 is for differences.
    let found = args.compare(client).await.map_err(|failure| match failure {
        Failure::Refused(status) => {
            let text = client::explain(&status);
            Failure::Usage(text.trim_start_matches("vnicctl: ").trim_end().to_owned())
        }
        Failure::Failed(text) => Failure::Usage(text),
        other => other,
    })?;
    out.message("DiffConfigResponse", &found, || planned(&found))?;
    match found.changes.is_empty() {
        true => Ok(()),
        false => Err(Failure::Differs),
    }
}

/// Makes what a file says.
pub async fn apply(args: ApplyArgs, client: &Client, out: &Output) -> Result<(), Failure> {
    if args.dry_run {
        let found = args.file.compare(client).await?;
        return out.message("DiffConfigResponse", &found, || planned(&found));
    }
    let (file, text) = args.file.read()?;
    let prune = args.file.prune;
    let request = v1::ApplyConfigRequest { file, text, prune };
    let done = client.config().await?.apply_config(request).await?.into_inner();
    out.message("ApplyConfigResponse", &done, || {
        changes(&done.changes) + &stays(&done.kept) + &pending(&done.pending)
    })?;
    refused(&done.problem)
}

/// Makes the daemon read its configuration file again.
pub async fn reload(client: &Client, out: &Output) -> Result<(), Failure> {
    let answer = client
        .config()
        .await?
        .reload_config(v1::ReloadConfigRequest {})
        .await?;
    let done = answer.into_inner();
    out.message("ReloadConfigResponse", &done, || {
        let mut text = format!("{}: read\n", done.file);
        text += &(changes(&done.changes) + &pending(&done.pending));
        if !done.waits.is_empty() {
            text += "waits for a restart of the daemon:\n";
            text += &keys(&done.waits);
        }
        text
    })?;
    refused(&done.problem)
}

fn refused(problem: &str) -> Result<(), Failure> {
    match problem {
        "" => Ok(()),
        _ => Err(Failure::Failed(format!("a step was refused: {problem}"))),
    }
}

fn planned(found: &v1::DiffConfigResponse) -> String {
    changes(&found.changes) + &stays(&found.kept)
}

/// What is done to each object, with its keys.
fn changes(all: &[v1::ConfigChange]) -> String {
    let mut lines = String::new();
    for change in all {
        let (sign, verb) = match change.action() {
            Action::Unspecified => (' ', ""),
            Action::Add => ('+', "add"),
            Action::Change => ('~', "change"),
            Action::Replace => ('!', "remove and make anew"),
            Action::Remove => ('-', "remove"),
        };
        let outcome = match change.outcome() {
            Outcome::Unspecified => "",
            Outcome::Done => ": done",
            Outcome::Failed => ": refused",
            Outcome::Undone => ": undone",
            Outcome::NotUndone => ": done, and could not be undone",
            Outcome::NotReached => ": not tried",
        };
        lines += &format!("{sign} {}: {verb}{outcome}\n", change.name);
        for more in [&change.problem, &change.note]
            .into_iter()
            .filter(|text| !text.is_empty())
        {
            lines += &format!("    ({more})\n");
        }
        if change.action() != Action::Remove {
            lines += &keys(&change.keys);
        }
    }
    match lines.as_str() {
        "" => "nothing to change\n".to_owned(),
        _ => lines,
    }
}

fn keys(all: &[v1::ConfigKey]) -> String {
    let line = |key: &v1::ConfigKey| match (key.before.as_str(), key.after.as_str()) {
        ("", after) => format!("    {} = {after}\n", key.key),
        (before, after) => format!("    {}: {before} -> {}\n", key.key, text::or(after, "none")),
    };
    all.iter().map(line).collect()
}

fn stays(kept: &[String]) -> String {
    match kept {
        [] => String::new(),
        kept => format!(
            "not in the file, and left (--prune removes it): {}\n",
            kept.join(", ")
        ),
    }
}

fn pending(all: &[v1::ConfigPending]) -> String {
    let mut lines = String::new();
    for adapter in all {
        let name = crate::names::last(&adapter.name);
        lines += &format!("{}: waits for `vnicctl adapter restart {name}`\n", adapter.name);
        lines += &keys(&adapter.keys);
    }
    lines
}

/// Writes a copy of the store to a file, which is there when it is complete.
pub async fn backup(args: BackupArgs, client: &Client, out: &Output) -> Result<(), Failure> {
    let path = args.file;
    let failed = |e: io::Error| Failure::Failed(format!("{}: {e}", path.display()));
    let answer = client
        .config()
        .await?
        .backup_state(v1::BackupStateRequest {})
        .await?;
    let mut parts = answer.into_inner();
    let mut half = path.clone().into_os_string();
    half.push(".part");
    let half = PathBuf::from(half);
    let mut options = private::file();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .open(&half)
        .map_err(failed)?;
    let mut bytes = 0;
    let written = loop {
        match parts.message().await {
            Ok(Some(part)) => {
                bytes += part.part.len();
                if let Err(error) = file.write_all(&part.part) {
                    break Err(failed(error));
                }
            }
            Ok(None) => {
                break file
                    .sync_all()
                    .and_then(|()| fs::rename(&half, &path))
                    .map_err(failed);
            }
            Err(status) => break Err(status.into()),
        }
    };
    if written.is_err() {
        let _ = fs::remove_file(&half);
    }
    written?;
    let value = serde_json::json!({ "file": path.to_string_lossy(), "bytes": bytes });
    out.value(&value, || {
        format!("{}: {}\n", path.display(), text::bytes(bytes as u64))
    })
}
