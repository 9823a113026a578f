//! `vnicctl registry`.

use std::collections::HashMap;
use std::path::PathBuf;

use clap::Subcommand;
use vnic_control::v1;

use super::client::{Client, resource};
use super::output::{Output, print_bytes};
use super::text::{self, Facts};
use super::{Failure, paging};
use crate::names::ADAPTERS;

/// What to do with the registry.
#[derive(Debug, Subcommand)]
pub enum RegistryVerb {
    /// List keys with what is stored, pending and effective
    #[command(
        after_help = "Examples:\n  vnicctl registry list vf0\n  vnicctl registry list --stored\n  \
                            vnicctl registry list vf0 --pending     (what waits for a restart)\n  \
                            vnicctl registry list --key DelayDropTimeout"
    )]
    List {
        /// An adapter, or the word `driver` for what counts for all adapters; all when absent
        scope: Option<String>,
        /// Only this key
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
        /// Only what is stored
        #[arg(long)]
        stored: bool,
        /// Only what waits for a restart of its adapter
        #[arg(long)]
        pending: bool,
    },
    /// Show one key
    #[command(after_help = "Examples:\n  vnicctl registry get vf0 DelayDropTimeout\n  \
                            vnicctl -o json registry get driver roce_mode | jq -r .etag")]
    Get {
        /// An adapter, or the word `driver`
        scope: String,
        /// Name of the key
        key: String,
    },
    /// Store values; several keys are one transaction: all of them or none
    #[command(after_help = "Examples:\n  vnicctl registry set vf0 DelayDropTimeout 50\n  \
                      vnicctl registry set vf0 VlanID 55 VlanPrio 3      (together, or not at all)\n  \
                      vnicctl registry set driver roce_mode 2\n  \
                      vnicctl registry set vf0 DelayDropTimeout 20 --etag 17   (only if nobody changed it since)\n\n\
                      Dynamic keys act at once, the others when the adapter restarts (vnicctl adapter restart).")]
    Set {
        /// An adapter, or the word `driver` for all adapters that have no value of their own
        scope: String,
        /// Key and value, again for further ones
        #[arg(num_args = 2.., required = true, value_names = ["KEY", "VALUE"])]
        pairs: Vec<String>,
        #[command(flatten)]
        condition: Condition,
        /// Only say what would happen
        #[arg(long)]
        dry_run: bool,
    },
    /// Forget stored values; several keys are one transaction
    #[command(
        visible_alias = "delete",
        after_help = "Example:\n  vnicctl registry remove vf0 DelayDropTimeout"
    )]
    Remove {
        /// An adapter, or the word `driver`
        scope: String,
        /// Name of a key, again for further ones
        #[arg(required = true)]
        keys: Vec<String>,
        /// Only if this is the entry's etag (one key only)
        #[arg(long, value_name = "ETAG")]
        etag: Option<String>,
    },
    /// Show what a key is: type, range, default, scope, when it acts, what illegal values do
    #[command(
        after_help = "Examples:\n  vnicctl registry describe DelayDropTimeout\n  vnicctl registry describe   (all keys)"
    )]
    Describe {
        /// Name of the key; all in short when absent
        key: Option<String>,
    },
    /// Write what is stored as a .reg file
    #[command(
        after_help = "Examples:\n  vnicctl registry export --file nic.reg\n  vnicctl registry export vf0 --utf8"
    )]
    Export {
        /// Adapters, or the word `driver`; all when absent
        scopes: Vec<String>,
        /// Write to this file instead of standard output
        #[arg(short, long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Write UTF-8 instead of UTF-16LE, which is what Windows writes
        #[arg(long)]
        utf8: bool,
    },
    /// Carry out a .reg file as one transaction
    #[command(after_help = "Examples:\n  vnicctl registry import nic.reg\n  \
                            vnicctl registry import windows.reg --map 0003=vf0 --skip-unknown\n  \
                            vnicctl registry import nic.reg --dry-run\n\n\
                            A section [...\\{4d36e972-e325-11ce-bfc1-08002be10318}\\NNNN] is about the adapter that --map \
                            says, or else the one that its NetCfgInstanceId names, or else the one with this index here; \
                            [...\\Services\\mlx5\\Parameters\\Roce] is about the driver. \"KEY\"=- forgets a value.")]
    Import {
        /// The file; UTF-16LE or UTF-8
        file: PathBuf,
        /// Which adapter an index of the file means; again for further ones
        #[arg(long, value_name = "INDEX=ADAPTER")]
        map: Vec<String>,
        /// Leave out what is unknown or not built, instead of refusing the file
        #[arg(long)]
        skip_unknown: bool,
        /// Only say what would happen
        #[arg(long)]
        dry_run: bool,
    },
    /// Show what is stored, and then changes as they happen
    #[command(
        after_help = "Examples:\n  vnicctl registry watch\n  vnicctl registry watch vf0 --key DelayDropTimeout\n  \
                            vnicctl -o json registry watch --after 41   (one object a line)"
    )]
    Watch {
        /// An adapter, or the word `driver`; all when absent
        scope: Option<String>,
        /// Only this key
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
        /// Begin with the transactions after this revision
        #[arg(long, value_name = "REVISION")]
        after: Option<u64>,
    },
}

/// When a value is stored.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub struct Condition {
    /// Only if this is the entry's etag (one key only)
    #[arg(long, value_name = "ETAG")]
    etag: Option<String>,
    /// Only if nothing is stored
    #[arg(long)]
    if_absent: bool,
}

/// Scope of `vf0`, `driver` or `adapters/vf0`.
fn scope(text: &str) -> String {
    if text == "driver" {
        text.to_owned()
    } else {
        resource(ADAPTERS, text)
    }
}

/// Runs a command.
pub async fn run(verb: RegistryVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    let mut service = client.registry().await?;
    match verb {
        RegistryVerb::List {
            scope: only,
            key,
            stored,
            pending,
        } => {
            let request = v1::ListEntriesRequest {
                scope: only.as_deref().map(scope).unwrap_or_default(),
                key: key.unwrap_or_default(),
                stored_only: stored,
                ..Default::default()
            };
            let mut all = paging::list(&mut service, request).await?;
            all.entries.retain(|e| !pending || e.pending.is_some());
            out.message("ListEntriesResponse", &all, || table(&all.entries))
        }
        RegistryVerb::Get { scope: of, key } => {
            let scope = scope(&of);
            let request = v1::GetEntryRequest { scope, key };
            out.answer("RegistryEntry", service.get_entry(request).await?, facts)
        }
        RegistryVerb::Set {
            scope: of,
            pairs,
            condition,
            dry_run,
        } => {
            let scope = scope(&of);
            let (pairs, rest) = pairs.as_chunks::<2>();
            if let [key] = rest {
                return Err(Failure::Usage(format!(
                    "{key}: a value is missing behind this key"
                )));
            }
            let if_match = match condition.if_absent {
                true => Some("0".to_owned()),
                false => condition.etag,
            };
            if if_match.as_deref().is_some_and(|etag| etag != "0") && pairs.len() > 1 {
                return Err(Failure::Usage("--etag is about one key only".to_owned()));
            }
            if let ([[key, value]], false) = (pairs, dry_run) {
                let request = v1::SetEntryRequest {
                    scope,
                    key: key.clone(),
                    value: value.clone(),
                    if_match,
                };
                let done = service.set_entry(request).await?.into_inner();
                return out.message("SetEntryResponse", &done, || {
                    warnings(&done.warnings) + &done.entry.as_ref().map(facts).unwrap_or_default()
                });
            }
            let operation = |[key, value]: &[String; 2]| v1::RegistryOperation {
                scope: scope.clone(),
                key: key.clone(),
                action: Some(v1::registry_operation::Action::Set(value.clone())),
                if_match: if_match.clone(),
            };
            let operations = pairs.iter().map(operation).collect();
            transact(client, out, operations, dry_run).await
        }
        RegistryVerb::Remove {
            scope: of,
            keys,
            etag,
        } => {
            if etag.is_some() && keys.len() > 1 {
                return Err(Failure::Usage("--etag is about one key only".to_owned()));
            }
            let operation = |key: String| v1::RegistryOperation {
                scope: scope(&of),
                key,
                action: Some(v1::registry_operation::Action::Delete(v1::RegistryDelete {})),
                if_match: etag.clone(),
            };
            let operations = keys.into_iter().map(operation).collect();
            transact(client, out, operations, false).await
        }
        RegistryVerb::Describe { key } => describe(key.as_deref(), client, out).await,
        RegistryVerb::Export { scopes, file, utf8 } => {
            let request = v1::ExportRegistryRequest {
                scopes: scopes.iter().map(|s| scope(s)).collect(),
                // The default on a terminal is UTF-8.
                utf8: utf8 || (file.is_none() && std::io::IsTerminal::is_terminal(&std::io::stdout())),
            };
            let content = service.export_registry(request).await?.into_inner().content;
            match file {
                Some(file) => std::fs::write(&file, content)
                    .map_err(|e| Failure::Failed(format!("{}: {e}", file.display()))),
                None => print_bytes(&content),
            }
        }
        RegistryVerb::Import {
            file,
            map,
            skip_unknown,
            dry_run,
        } => {
            let content =
                std::fs::read(&file).map_err(|e| Failure::Failed(format!("{}: {e}", file.display())))?;
            let mut adapters = HashMap::new();
            for pair in map {
                let (index, name) = pair.split_once('=').ok_or_else(|| {
                    Failure::Usage(format!(
                        "--map {pair}: INDEX=ADAPTER, such as 0003=vf0, is allowed"
                    ))
                })?;
                adapters.insert(index.to_owned(), name.to_owned());
            }
            let request = v1::ImportRegistryRequest {
                content,
                adapters,
                skip_unknown,
                validate_only: dry_run,
            };
            let done = service.import_registry(request).await?.into_inner();
            out.message("ImportRegistryResponse", &done, || {
                let end = match dry_run {
                    true => "it would be taken\n".to_owned(),
                    false => format!("{} values changed, revision {}\n", done.changed, done.revision),
                };
                warnings(&done.warnings) + &end
            })
        }
        RegistryVerb::Watch {
            scope: only,
            key,
            after,
        } => {
            let request = v1::WatchEntriesRequest {
                scope: only.as_deref().map(scope).unwrap_or_default(),
                key: key.unwrap_or_default(),
                after_revision: after,
            };
            let stream = service.watch_entries(request).await?.into_inner();
            out.follow("WatchEntriesResponse", stream, lines).await
        }
    }
}

async fn transact(
    client: &Client,
    out: &Output,
    operations: Vec<v1::RegistryOperation>,
    validate_only: bool,
) -> Result<(), Failure> {
    let request = v1::ApplyTransactionRequest {
        operations,
        validate_only,
    };
    let mut service = client.registry().await?;
    let done = service.apply_transaction(request).await?.into_inner();
    out.message("ApplyTransactionResponse", &done, || {
        let rest = match validate_only {
            true => "it would be taken\n".to_owned(),
            false => table(&done.entries),
        };
        warnings(&done.warnings) + &rest
    })
}

fn warnings(all: &[v1::RegistryWarning]) -> String {
    all.iter()
        .map(|w| format!("warning: {}: {}\n", w.scope, w.message))
        .collect()
}

fn origin(entry: &v1::RegistryEntry) -> String {
    text::word(entry.origin().as_str_name(), "ORIGIN_").to_lowercase()
}

fn effective(entry: &v1::RegistryEntry) -> String {
    match (&entry.effective, entry.built) {
        (Some(value), _) => value.clone(),
        (None, false) => "not implemented".to_owned(),
        (None, true) => "-".to_owned(),
    }
}

fn table(entries: &[v1::RegistryEntry]) -> String {
    let or_dash = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    text::table! { e in entries, "nothing is stored";
        "SCOPE": crate::names::last(&e.scope),
        "KEY": e.key,
        "STORED": or_dash(&e.stored),
        "PENDING": or_dash(&e.pending),
        "EFFECTIVE": effective(e),
        "FROM": origin(e),
        ">ETAG": e.etag,
    }
}

fn facts(e: &v1::RegistryEntry) -> String {
    let pending = e.pending.as_ref();
    let pending = pending.map(|v| format!("{v} (acts after vnicctl adapter restart)"));
    let mut facts = Facts::default();
    text::facts! { facts;
        "scope": e.scope,
        "key": e.key,
        "stored": e.stored.as_deref().unwrap_or("-"),
        "pending": pending.unwrap_or_default(),
    }
    if e.scope != "driver" {
        facts.add("effective", effective(e)).add("from", origin(e));
    } else if !e.built {
        facts.add("effective", "not implemented");
    }
    facts.add("etag", &*e.etag).finish()
}

async fn describe(key: Option<&str>, client: &Client, out: &Output) -> Result<(), Failure> {
    let mut service = client.registry().await?;
    let request = v1::ListKeysRequest::default();
    let mut all = service.list_keys(request).await?.into_inner();
    let Some(key) = key else {
        return out.message("ListKeysResponse", &all, || keys(&all.keys));
    };
    // The daemon knows other spellings of the key, and reports a key that does not exist.
    let request = v1::GetEntryRequest {
        scope: "driver".to_owned(),
        key: key.to_owned(),
    };
    let name = service.get_entry(request).await?.into_inner().key;
    all.keys.retain(|k| k.key == name);
    match all.keys.first() {
        Some(key) => out.message("RegistryKey", key, || declaration(key)),
        None => Err(Failure::Failed(format!(
            "{name}: the daemon does not describe this key"
        ))),
    }
}

fn keys(all: &[v1::RegistryKey]) -> String {
    text::table! { k in all, "no keys";
        "KEY": k.key,
        "ALLOWED": allowed(k),
        "DEFAULT": k.default_value.as_deref().unwrap_or("-"),
        "UNIT": k.unit,
        "SCOPES": k.scopes.join(" "),
        "ACTS": acts(k),
        "BUILT": if k.built { "yes" } else { "not implemented" },
    }
}

fn allowed(k: &v1::RegistryKey) -> String {
    use v1::registry_key::Type;
    let most = k.max_length.unwrap_or(0);
    match k.r#type() {
        Type::Unspecified => String::new(),
        Type::Dword => format!("{}..{}", k.min.unwrap_or(0), k.max.unwrap_or(u32::MAX)),
        Type::Rate => format!("{}..line rate", k.min.unwrap_or(0)),
        Type::Enum => {
            let words: Vec<String> = k.choices.iter().map(|c| c.value.to_string()).collect();
            words.join(" ")
        }
        Type::Bool => "0 1".to_owned(),
        Type::MacList => format!("up to {most} addresses"),
        Type::Text => format!("text, {most} bytes"),
    }
}

fn acts(k: &v1::RegistryKey) -> &'static str {
    use v1::registry_key::Apply;
    match k.apply() {
        Apply::Unspecified => "",
        Apply::Dynamic => "at once",
        Apply::Restart => "at restart",
    }
}

fn declaration(k: &v1::RegistryKey) -> String {
    use v1::registry_key::Illegal;
    let illegal = match k.illegal() {
        Illegal::Unspecified => "",
        Illegal::Default => "the default is stored instead",
        Illegal::Reject => "refused",
        Illegal::LineRate => "refused; above the line rate, the line rate is stored",
    };
    let choices = k.choices.iter().map(|c| format!("{} ({})", c.value, c.word));
    let choices = choices.collect::<Vec<_>>().join(", ");
    let built = match k.built {
        true => "yes".to_owned(),
        false => format!("not implemented: waits for {}", k.waits_for),
    };
    let mut facts = Facts::default();
    text::facts! { facts;
        "key": k.key,
        "meaning": k.help,
        "allowed": if choices.is_empty() { allowed(k) } else { choices },
        "unit": k.unit,
        "default": k.default_value.as_deref().unwrap_or_default(),
        "while unset": k.unset_value.as_deref().unwrap_or_default(),
        "scopes": k.scopes.join(", "),
        "acts": acts(k),
        "illegal values": illegal,
        "built": built,
        "source": k.source,
        "also written": k.aliases.join(", "),
    }
    for rule in &k.rules {
        facts.add("together", &**rule);
    }
    if !k.mlx5cmd.is_empty() {
        facts.add("in WinOF-2", format!("mlx5cmd {}", k.mlx5cmd));
    }
    match k.note.is_empty() {
        true => facts.finish(),
        false => format!("{}\n{}\n", facts.finish(), k.note),
    }
}

fn lines(message: &v1::WatchEntriesResponse) -> String {
    use v1::watch_entries_response::Kind;
    let mut out = String::new();
    let time = text::time(message.time);
    for c in &message.changes {
        let what = match (message.kind(), &c.stored) {
            (Kind::Applied, _) => format!("{} is effective", c.effective.as_deref().unwrap_or("nothing")),
            (_, Some(value)) => format!("= {value}"),
            (_, None) => "forgotten".to_owned(),
        };
        let when = match message.kind() {
            Kind::Existing => String::new(),
            _ => format!("{time}  "),
        };
        out.push_str(&format!(
            "{when}{:>6}  {} {} {what}\n",
            message.revision, c.scope, c.key
        ));
    }
    if message.kind() == Kind::Synced {
        out.push_str(&format!("-- changes after revision {} --\n", message.revision));
    }
    out
}
