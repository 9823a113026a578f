//! `vnic.v1.RegistryService`.

use std::collections::BTreeSet;
use std::sync::Arc;

use tonic::{Code, Request, Response, Status};
use vnic_backend::rehearsal::rehearses;
use vnic_backend::settings::{Apply, Built, Illegal, KEYS, KeyDef, Kind, Origin, Place, Scopes, Value, key};
use vnic_control::v1;

use super::answer::{Answer, Sender, Stream, answer, hear, send_all, send_now, stream};
use super::errors::invalid;
use super::paging::page;
use crate::access::{self, blocking, status};
use crate::check::Violations;
use crate::control::{Control, Keys};
use crate::registry::{
    Action, Commit, Done, Following, ImportOptions, NoScope, Operation, Refusal, Scope, State, Update, View,
    Why, known,
};
use crate::same::same;
use crate::stored::values::timestamp;

/// The service.
pub struct Registry(pub Arc<Control>);

/// Greatest number of operations of a transaction.
const OPERATIONS_MAX: usize = 10_000;
/// Number of unread messages at which a client's stream ends.
const UNREAD_MAX: usize = 1024;
/// Number of values in one message of a snapshot.
const SNAPSHOT_PART: usize = 500;

/// Scope of a request.
fn scope(field: &str, text: &str) -> Result<Scope, Status> {
    Scope::parse(text).map_err(|no| match no {
        NoScope::Form(problem) => invalid(field, problem),
        NoScope::NotBuilt(why) => status(Code::Unimplemented, "SCOPE_NOT_BUILT", why, []),
    })
}

fn if_match(field: &str, etag: Option<&String>) -> Result<Option<u64>, Status> {
    let number = |text: &String| {
        text.parse().map_err(|_| {
            invalid(
                field,
                format!("{text:?} is no etag: pass the one of an entry, or 0"),
            )
        })
    };
    etag.map(number).transpose()
}

/// Field of an operation that a refusal is about.
fn part(why: &Why) -> &'static str {
    match why {
        Why::UnknownKey { .. } | Why::NotBuilt(_) => "key",
        Why::NoAdapter(_) | Why::WrongScope(_) => "scope",
        Why::Etag { .. } => "if_match",
        _ => "value",
    }
}

fn number(def: &KeyDef, value: Option<u32>) -> Option<String> {
    value.map(|v| def.format(&Value::Dword(v)))
}

fn declaration(def: &KeyDef) -> v1::RegistryKey {
    use v1::registry_key::{self as wire, Type};
    let mut message = v1::RegistryKey {
        key: def.name.to_owned(),
        default_value: number(def, def.default),
        unset_value: number(def, def.unset),
        unit: def.unit.to_owned(),
        help: def.help.to_owned(),
        source: def.source.to_owned(),
        note: def.note.to_owned(),
        aliases: def.aliases.iter().map(|alias| (*alias).to_owned()).collect(),
        rules: def.rules.iter().map(ToString::to_string).collect(),
        mlx5cmd: match def.place {
            Place::Registry => String::new(),
            Place::Tool(verb) => verb.to_owned(),
        },
        ..v1::RegistryKey::default()
    };
    let kind = match def.kind {
        Kind::Dword { min, max } => {
            (message.min, message.max) = (Some(min), Some(max));
            Type::Dword
        }
        Kind::Rate { min } => {
            message.min = Some(min);
            Type::Rate
        }
        Kind::Enum(choices) => {
            let choice = |(value, word): &(u32, &str)| wire::Choice {
                value: *value,
                word: (*word).to_owned(),
            };
            message.choices = choices.iter().map(choice).collect();
            Type::Enum
        }
        Kind::Bool => {
            (message.min, message.max) = (Some(0), Some(1));
            Type::Bool
        }
        Kind::MacList { max } => {
            message.max_length = u32::try_from(max).ok();
            Type::MacList
        }
        Kind::Text { max } => {
            message.max_length = u32::try_from(max).ok();
            Type::Text
        }
    };
    message.set_type(kind);
    let scopes = [
        (Scopes::DRIVER, "driver"),
        (Scopes::ADAPTER, "adapters"),
        (Scopes::TEAM, "teams"),
        (Scopes::PORT, "ports"),
    ];
    let scopes = scopes.iter().filter(|(scope, _)| def.scopes.contains(*scope));
    message.scopes = scopes.map(|(_, name)| (*name).to_owned()).collect();
    message.set_apply(apply(def.apply));
    message.set_illegal(illegal(def.illegal));
    match def.built {
        Built::Yes => message.built = true,
        Built::No(what) => what.clone_into(&mut message.waits_for),
    }
    message
}

same! { fn apply(Apply) -> v1::registry_key::Apply { Dynamic, Restart } }
same! { fn illegal(Illegal) -> v1::registry_key::Illegal { Default, Reject, LineRate } }

fn entry(view: &View) -> v1::RegistryEntry {
    use v1::registry_entry::Origin as Wire;
    let text = |value: &Value| view.key.format(value);
    let origin = match (view.origin, &view.stored) {
        (Some(Origin::Adapter), _) => Wire::Adapter,
        (Some(Origin::Driver), _) | (None, Some(_)) => Wire::Driver,
        (Some(Origin::Unset), _) => Wire::Default,
        (None, None) => Wire::Unspecified,
    };
    v1::RegistryEntry {
        scope: view.scope.to_string(),
        key: view.key.name.to_owned(),
        stored: view.stored.as_ref().map(|e| text(&e.value)),
        pending: view.pending.as_ref().map(text),
        effective: view.effective.as_ref().map(text),
        origin: origin.into(),
        etag: view.stored.as_ref().map_or(0, |e| e.revision).to_string(),
        built: view.key.built == Built::Yes,
    }
}

fn warnings(done: &[crate::registry::Warning]) -> Vec<v1::RegistryWarning> {
    let message = |w: &crate::registry::Warning| v1::RegistryWarning {
        scope: w.scope.to_string(),
        key: w.key.name.to_owned(),
        message: w.message.clone(),
        stored: Some(w.key.format(&w.stored)),
    };
    done.iter().map(message).collect()
}

impl Registry {
    /// Carries out one operation.
    async fn one(&self, by: String, operation: Operation) -> Result<(v1::RegistryEntry, Done), Status> {
        let control = self.0.clone();
        blocking(move || {
            let operations = [operation];
            let done = Keys(&control).transact(&by, &operations, |r| part(&r.why).to_owned())?;
            let [Operation { scope, key, .. }] = &operations;
            let def = known(key).map_err(|why| not_found(&why))?;
            Ok((entry(&control.registry.view(scope, def)), done))
        })
        .await?
    }

    /// Scope of a request that reads: it must exist, or have stored values.
    fn readable(control: &Control, field: &str, text: &str) -> Result<Scope, Status> {
        let scope = scope(field, text)?;
        Keys(control).readable(&scope).map_err(|why| not_found(&why))?;
        Ok(scope)
    }
}

fn not_found(why: &Why) -> Status {
    let reason = match why {
        Why::UnknownKey { .. } => "UNKNOWN_KEY",
        _ => "NOT_FOUND",
    };
    status(Code::NotFound, reason, why.to_string(), [])
}

/// Imports a `.reg` file. May block.
fn import(
    control: &Control,
    by: &str,
    request: &v1::ImportRegistryRequest,
) -> Result<v1::ImportRegistryResponse, Status> {
    let mut options = ImportOptions {
        skip_unknown: request.skip_unknown,
        ..ImportOptions::default()
    };
    let mut wrong = Violations::default();
    for (index, name) in &request.adapters {
        match index.parse() {
            Ok(number) if index.len() <= 4 => {
                options.adapters.insert(number, name.clone());
            }
            _ => wrong.add("adapters", format!("{index:?} is no index: four digits")),
        }
    }
    wrong.finish(Some(()))?;
    let done = Keys(control).import(
        by,
        &request.content,
        &options,
        request.validate_only || rehearses(),
    )?;
    let left_out = done.left_out.into_iter();
    let left_out = left_out.map(|(scope, key, message)| v1::RegistryWarning {
        scope,
        key,
        message,
        stored: None,
    });
    Ok(v1::ImportRegistryResponse {
        changed: u32::try_from(done.changed).unwrap_or(u32::MAX),
        revision: done.revision,
        warnings: left_out.chain(warnings(&done.warnings)).collect(),
    })
}

/// Filter of a watch.
struct Watched {
    scope: Option<Scope>,
    key: Option<&'static str>,
}

impl Watched {
    fn wants(&self, scope: &Scope, key: &str) -> bool {
        self.scope.as_ref().is_none_or(|s| s == scope) && self.key.is_none_or(|k| k == key)
    }

    /// Messages of the stored values.
    fn snapshot(&self, state: &State) -> Vec<v1::WatchEntriesResponse> {
        let wanted = state.entries.iter().filter(|((s, k), _)| self.wants(s, k));
        let changes: Vec<_> = wanted
            .filter_map(|((scope, name), e)| {
                Some(v1::watch_entries_response::Change {
                    scope: scope.to_string(),
                    key: (*name).to_owned(),
                    stored: Some(key(name)?.format(&e.value)),
                    etag: e.revision.to_string(),
                    effective: None,
                })
            })
            .collect();
        let message = |changes: &[v1::watch_entries_response::Change]| v1::WatchEntriesResponse {
            kind: v1::watch_entries_response::Kind::Existing.into(),
            revision: state.revision,
            changes: changes.to_vec(),
            time: None,
        };
        changes.chunks(SNAPSHOT_PART).map(message).collect()
    }

    fn committed(&self, commit: &Commit) -> Option<v1::WatchEntriesResponse> {
        let wanted = commit.changes.iter().filter(|c| self.wants(&c.scope, c.key.name));
        let changes: Vec<_> = wanted
            .map(|c| v1::watch_entries_response::Change {
                scope: c.scope.to_string(),
                key: c.key.name.to_owned(),
                stored: c.value.as_ref().map(|v| c.key.format(v)),
                etag: c.value.as_ref().map_or(0, |_| commit.revision).to_string(),
                effective: None,
            })
            .collect();
        (!changes.is_empty()).then(|| v1::WatchEntriesResponse {
            kind: v1::watch_entries_response::Kind::Committed.into(),
            revision: commit.revision,
            changes,
            time: Some(timestamp(commit.time)),
        })
    }

    fn told(&self, told: &Update) -> Option<v1::WatchEntriesResponse> {
        let applied = match told {
            Update::Committed(commit) => return self.committed(commit),
            Update::Applied(applied) => applied,
        };
        let scope = Scope::Adapter(applied.adapter.clone());
        let wanted = applied
            .values
            .iter()
            .filter(|(def, _)| self.wants(&scope, def.name));
        let changes: Vec<_> = wanted
            .map(|(def, value)| v1::watch_entries_response::Change {
                scope: scope.to_string(),
                key: def.name.to_owned(),
                stored: None,
                etag: String::new(),
                effective: value.as_ref().map(|v| def.format(v)),
            })
            .collect();
        (!changes.is_empty()).then(|| v1::WatchEntriesResponse {
            kind: v1::watch_entries_response::Kind::Applied.into(),
            revision: applied.revision,
            changes,
            time: Some(timestamp(applied.time)),
        })
    }
}

/// Sends the snapshot, waiting for the client, and then changes, without waiting.
async fn follow(
    watched: Watched,
    following: Following,
    sender: Sender<v1::WatchEntriesResponse>,
) -> Result<(), Status> {
    let Following {
        snapshot,
        before,
        revision,
        mut news,
    } = following;
    let mut first = snapshot.map_or_else(Vec::new, |state| watched.snapshot(&state));
    first.extend(before.iter().filter_map(|c| watched.committed(c)));
    drop(before);
    first.push(v1::WatchEntriesResponse {
        kind: v1::watch_entries_response::Kind::Synced.into(),
        revision,
        changes: Vec::new(),
        time: Some(timestamp(std::time::SystemTime::now())),
    });
    let mut there = send_all(&sender, first).await;
    while there {
        if let Some(message) = watched.told(&hear(&mut news).await?) {
            there = send_now(&sender, message)?;
        }
    }
    Ok(())
}

#[tonic::async_trait]
impl v1::registry_service_server::RegistryService for Registry {
    async fn list_keys(&self, request: Request<v1::ListKeysRequest>) -> Answer<v1::ListKeysResponse> {
        let request = request.into_inner();
        let page = page!(request, "ListKeys", [1000, 1000])?;
        let (keys, next_page_token) = page.cut(KEYS.iter().collect(), |k| k.name.to_owned());
        Ok(Response::new(v1::ListKeysResponse {
            keys: keys.into_iter().map(declaration).collect(),
            next_page_token,
        }))
    }

    async fn list_entries(
        &self,
        request: Request<v1::ListEntriesRequest>,
    ) -> Answer<v1::ListEntriesResponse> {
        let request = request.into_inner();
        let page = page!(request, "ListEntries", [1000, 10_000])?;
        let only = match request.key.as_str() {
            "" => None,
            name => Some(known(name).map_err(|why| not_found(&why))?),
        };
        let wanted = match request.scope.as_str() {
            "" => None,
            text => Some(Self::readable(&self.0, "scope", text)?),
        };
        let wants = |scope: &Scope| wanted.as_ref().is_none_or(|w| w == scope);
        let (mut views, revision) = self.0.registry.views(wants, request.stored_only);
        views.retain(|v| only.is_none_or(|def| def.name == v.key.name));
        // The driver sorts before all adapters.
        let order = |v: &View| match v.scope.adapter() {
            None => format!("0 {}", v.key.name),
            Some(adapter) => format!("1 {adapter} {}", v.key.name),
        };
        let (views, next_page_token) = page.cut(views, order);
        Ok(Response::new(v1::ListEntriesResponse {
            entries: views.iter().map(entry).collect(),
            next_page_token,
            revision,
        }))
    }

    async fn get_entry(&self, request: Request<v1::GetEntryRequest>) -> Answer<v1::RegistryEntry> {
        let request = request.into_inner();
        let scope = Self::readable(&self.0, "scope", &request.scope)?;
        let def = known(&request.key).map_err(|why| not_found(&why))?;
        Ok(Response::new(entry(&self.0.registry.view(&scope, def))))
    }

    async fn set_entry(&self, request: Request<v1::SetEntryRequest>) -> Answer<v1::SetEntryResponse> {
        let by = access::who(&request);
        let request = request.into_inner();
        let operation = Operation {
            scope: scope("scope", &request.scope)?,
            key: request.key,
            action: Action::Set(Value::Text(request.value)),
            if_match: if_match("if_match", request.if_match.as_ref())?,
        };
        let (entry, done) = self.one(by, operation).await?;
        Ok(Response::new(v1::SetEntryResponse {
            entry: Some(entry),
            revision: done.revision,
            warnings: warnings(&done.warnings),
        }))
    }

    async fn delete_entry(
        &self,
        request: Request<v1::DeleteEntryRequest>,
    ) -> Answer<v1::DeleteEntryResponse> {
        let by = access::who(&request);
        let request = request.into_inner();
        let operation = Operation {
            scope: scope("scope", &request.scope)?,
            key: request.key,
            action: Action::Delete,
            if_match: if_match("if_match", request.if_match.as_ref())?,
        };
        let (entry, done) = self.one(by, operation).await?;
        Ok(Response::new(v1::DeleteEntryResponse {
            entry: Some(entry),
            revision: done.revision,
        }))
    }

    async fn apply_transaction(
        &self,
        request: Request<v1::ApplyTransactionRequest>,
    ) -> Answer<v1::ApplyTransactionResponse> {
        let by = access::who(&request);
        let request = request.into_inner();
        let count = request.operations.len();
        if !(1..=OPERATIONS_MAX).contains(&count) {
            return Err(invalid(
                "operations",
                format!("{count} operations: 1 to {OPERATIONS_MAX} are allowed"),
            ));
        }
        let mut operations = Vec::with_capacity(count);
        for (i, o) in request.operations.into_iter().enumerate() {
            let field = |name: &str| format!("operations[{i}].{name}");
            let action = match o.action {
                Some(v1::registry_operation::Action::Set(value)) => Action::Set(Value::Text(value)),
                Some(v1::registry_operation::Action::Delete(_)) => Action::Delete,
                None => return Err(invalid(field("action"), "set or delete is required")),
            };
            operations.push(Operation {
                scope: scope(&field("scope"), &o.scope)?,
                key: o.key,
                action,
                if_match: if_match(&field("if_match"), o.if_match.as_ref())?,
            });
        }
        answer(&self.0, move |control| {
            let (keys, registry) = (Keys(control), &control.registry);
            let field = |r: &Refusal| format!("operations[{}].{}", r.operation, part(&r.why));
            if request.validate_only || rehearses() {
                let found = keys.validate(&by, &operations, field)?;
                return Ok(v1::ApplyTransactionResponse {
                    entries: Vec::new(),
                    revision: registry.committed().revision,
                    warnings: warnings(&found),
                });
            }
            let done = keys.transact(&by, &operations, field)?;
            let mut told = BTreeSet::new();
            let mut entries = Vec::new();
            for o in &operations {
                let def = known(&o.key).map_err(|why| not_found(&why))?;
                if told.insert((&o.scope, def.name)) {
                    entries.push(entry(&registry.view(&o.scope, def)));
                }
            }
            Ok(v1::ApplyTransactionResponse {
                entries,
                revision: done.revision,
                warnings: warnings(&done.warnings),
            })
        })
        .await
    }

    async fn export_registry(
        &self,
        request: Request<v1::ExportRegistryRequest>,
    ) -> Answer<v1::ExportRegistryResponse> {
        let request = request.into_inner();
        let mut scopes = BTreeSet::new();
        for (i, text) in request.scopes.iter().enumerate() {
            scopes.insert(Self::readable(&self.0, &format!("scopes[{i}]"), text)?);
        }
        answer(&self.0, move |control| {
            let wanted = |scope: &Scope| scopes.is_empty() || scopes.contains(scope);
            let (content, revision) = Keys(control).export(wanted, request.utf8)?;
            Ok(v1::ExportRegistryResponse { content, revision })
        })
        .await
    }

    async fn import_registry(
        &self,
        request: Request<v1::ImportRegistryRequest>,
    ) -> Answer<v1::ImportRegistryResponse> {
        let by = access::who(&request);
        let request = request.into_inner();
        let control = self.0.clone();
        blocking(move || import(&control, &by, &request).map(Response::new)).await?
    }

    type WatchEntriesStream = Stream<v1::WatchEntriesResponse>;

    async fn watch_entries(
        &self,
        request: Request<v1::WatchEntriesRequest>,
    ) -> Answer<Self::WatchEntriesStream> {
        let request = request.into_inner();
        let watched = Watched {
            scope: match request.scope.as_str() {
                "" => None,
                text => Some(scope("scope", text)?),
            },
            key: match request.key.as_str() {
                "" => None,
                name => Some(known(name).map_err(|why| not_found(&why))?.name),
            },
        };
        let after = request.after_revision;
        let following = self.0.registry.follow(after).map_err(|oldest| {
            let text = format!(
                "transactions after {} are no longer kept: the oldest that can be given is {oldest}; watch again \
                 without a revision",
                after.unwrap_or(0)
            );
            let metadata = [("oldest_revision", oldest.to_string())];
            status(Code::OutOfRange, "REVISION_GONE", text, metadata)
        })?;
        let follow = |sender| follow(watched, following, sender);
        Ok(Response::new(stream(&self.0, UNREAD_MAX, follow)))
    }
}
