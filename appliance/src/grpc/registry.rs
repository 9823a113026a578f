//! `vnic.v1.RegistryService`.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::{broadcast, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};
use vnic_backend::settings::{Apply, Built, Illegal, KEYS, KeyDef, Kind, Origin, Place, Scopes, Value, key};
use vnic_control::v1;

use super::errors::{Violations, blocking, invalid, shutting_down, status};
use super::watch::{finish, too_slow};
use super::{convert, paging::Page};
use crate::access;
use crate::daemon::Context;
use crate::events::{ControlEvent, Owner};
use crate::registry::{
    Action, Commit, Done, Following, ImportOptions, NoScope, Operation, Refusal, RegistryError, Scope, State,
    Told, View, Why, known,
};

/// The service.
pub struct Registry(pub Arc<Context>);

/// Operations of one transaction.
const OPERATIONS_MAX: usize = 10_000;
/// Messages that a client may have unread before it is dropped.
const UNREAD_MAX: usize = 1024;
/// Bytes of a `.reg` file.
const FILE_MAX: usize = 512 << 10;
/// Values in one message of a snapshot.
const SNAPSHOT_PART: usize = 500;

/// What a scope in a request means.
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

/// A refused transaction as its caller sees it, and an event. `field` gives the path of the field of an operation.
pub fn refused(
    context: &Context,
    by: &str,
    error: RegistryError,
    field: impl Fn(&Refusal) -> String,
) -> Status {
    let refusals = match error {
        RegistryError::Refused(refusals) => refusals,
        RegistryError::Store(error) => {
            return status(Code::Unavailable, "STORE_FAILED", error.to_string(), []);
        }
    };
    for refusal in &refusals {
        let told = matches!(
            refusal.why,
            Why::NotAllowed(_) | Why::AboveLineRate { .. } | Why::Conflict(_) | Why::Nic(_)
        );
        if told {
            context.hub.record(ControlEvent::SettingsRefused {
                owner: owner(&refusal.scope),
                store: "registry",
                what: format!("{}: {}", refusal.key, refusal.why),
                by: by.to_owned(),
            });
        }
    }
    let whole = |code, reason, refusal: &Refusal, more: Option<(&'static str, String)>| {
        let facts = [("scope", refusal.scope.to_string()), ("key", refusal.key.clone())];
        status(code, reason, refusal.to_string(), facts.into_iter().chain(more))
    };
    // One kind of refusal has a code of its own; several are told field by field.
    let kinds: BTreeSet<_> = refusals.iter().map(|r| code(&r.why)).collect();
    match (refusals.as_slice(), kinds.len()) {
        ([first, ..], 1) => match &first.why {
            Why::UnknownKey { .. } => whole(Code::NotFound, "UNKNOWN_KEY", first, None),
            Why::NoAdapter(_) => whole(Code::NotFound, "NOT_FOUND", first, None),
            Why::NotBuilt(what) => {
                let more = ("waits_for", (*what).to_owned());
                whole(Code::Unimplemented, "KEY_NOT_BUILT", first, Some(more))
            }
            Why::Etag { current } => whole(
                Code::Aborted,
                "ETAG_MISMATCH",
                first,
                Some(("etag", current.to_string())),
            ),
            Why::AboveLineRate { stored, .. } => {
                let text = |v: &Value| key(&first.key).map_or_else(String::new, |def| def.format(v));
                let more = stored.as_ref().map(|v| ("stored", text(v)));
                whole(Code::OutOfRange, "ABOVE_LINE_RATE", first, more)
            }
            _ => violations(&refusals, field),
        },
        _ => violations(&refusals, field),
    }
}

/// Refusals of the same kind have the same number.
fn code(why: &Why) -> u8 {
    match why {
        Why::UnknownKey { .. } => 1,
        Why::NoAdapter(_) => 2,
        Why::NotBuilt(_) => 3,
        Why::Etag { .. } => 4,
        Why::AboveLineRate { .. } => 5,
        Why::WrongScope(_) | Why::NotAllowed(_) | Why::Conflict(_) | Why::Nic(_) => 6,
    }
}

fn violations(refusals: &[Refusal], field: impl Fn(&Refusal) -> String) -> Status {
    let mut wrong = Violations::default();
    for refusal in refusals {
        wrong.add(field(refusal), refusal.to_string());
    }
    match wrong.finish(None::<()>) {
        Err(status) => status,
        Ok(()) => unreachable!("there are refusals"),
    }
}

fn owner(scope: &Scope) -> Owner {
    match scope {
        Scope::Driver => Owner::Nic,
        Scope::Adapter(name) => Owner::Adapter(name.clone()),
    }
}

/// The field of an operation that is to blame.
fn part(why: &Why) -> &'static str {
    match why {
        Why::UnknownKey { .. } | Why::NotBuilt(_) => "key",
        Why::NoAdapter(_) | Why::WrongScope(_) => "scope",
        Why::Etag { .. } => "if_match",
        _ => "value",
    }
}

/// A transaction that happened, as an event.
pub fn changed(context: &Context, by: &str, done: &Done) {
    let Some(first) = done.changes.first() else { return };
    let words: Vec<String> = done
        .changes
        .iter()
        .take(8)
        .map(|c| match &c.value {
            Some(value) => format!("{} {} = {}", c.scope, c.key.name, c.key.format(value)),
            None => format!("{} {} forgotten", c.scope, c.key.name),
        })
        .collect();
    let more = match done.changes.len().saturating_sub(words.len()) {
        0 => String::new(),
        n => format!(", and {n} more"),
    };
    let one = done.changes.iter().all(|c| c.scope == first.scope);
    context.hub.record(ControlEvent::SettingsChanged {
        owner: if one { owner(&first.scope) } else { Owner::Nic },
        store: "registry",
        what: words.join(", ") + &more,
        by: by.to_owned(),
    });
    for warning in &done.warnings {
        context.hub.record(ControlEvent::SettingsRefused {
            owner: owner(&warning.scope),
            store: "registry",
            what: warning.message.clone(),
            by: by.to_owned(),
        });
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
    message.set_apply(match def.apply {
        Apply::Dynamic => wire::Apply::Dynamic,
        Apply::Restart => wire::Apply::Restart,
    });
    message.set_illegal(match def.illegal {
        Illegal::Default => wire::Illegal::Default,
        Illegal::Reject => wire::Illegal::Reject,
        Illegal::LineRate => wire::Illegal::LineRate,
    });
    match def.built {
        Built::Yes => message.built = true,
        Built::No(what) => what.clone_into(&mut message.waits_for),
    }
    message
}

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
        let context = self.0.clone();
        blocking(move || {
            let operations = [operation];
            let done = context
                .registry
                .transact(&operations)
                .map_err(|e| refused(&context, &by, e, |r| part(&r.why).to_owned()))?;
            changed(&context, &by, &done);
            let [Operation { scope, key, .. }] = &operations;
            let def = known(key).map_err(|why| not_found(&why))?;
            Ok((entry(&context.registry.view(scope, def)), done))
        })
        .await?
    }

    /// The scope of a request that reads: it must exist, or have something stored.
    fn readable(context: &Context, field: &str, text: &str) -> Result<Scope, Status> {
        let scope = scope(field, text)?;
        if let Some(name) = scope.adapter() {
            let stored = || context.registry.committed().adapters().any(|a| a == name);
            if context.nic.adapter(name).is_err() && !stored() {
                return Err(not_found(&Why::NoAdapter(name.to_owned())));
            }
        }
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

/// Carries out a `.reg` file. May block.
fn import(
    context: &Context,
    by: &str,
    request: &v1::ImportRegistryRequest,
) -> Result<v1::ImportRegistryResponse, Status> {
    if request.content.len() > FILE_MAX {
        return Err(invalid("content", format!("a file has at most {FILE_MAX} bytes")));
    }
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
    let registry = &context.registry;
    let file = registry
        .read_file(&request.content, &options)
        .map_err(|problems| {
            let mut wrong = Violations::default();
            for p in problems {
                wrong.add(format!("content: line {}", p.line), p.problem);
            }
            wrong
                .finish(None::<()>)
                .err()
                .unwrap_or_else(|| invalid("content", "wrong"))
        })?;
    let left_out = file
        .left_out
        .into_iter()
        .map(|(scope, key, message)| v1::RegistryWarning {
            scope,
            key,
            message,
            stored: None,
        });
    let mut response = v1::ImportRegistryResponse {
        changed: 0,
        revision: registry.committed().revision,
        warnings: left_out.collect(),
    };
    if file.operations.is_empty() {
        return Ok(response);
    }
    let failed = |e| {
        refused(context, by, e, |r| {
            format!("content: line {}", file.lines.get(r.operation).unwrap_or(&0))
        })
    };
    if request.validate_only {
        let found = registry.validate(&file.operations).map_err(failed)?;
        response.warnings.extend(warnings(&found));
        return Ok(response);
    }
    let done = registry.transact(&file.operations).map_err(failed)?;
    changed(context, by, &done);
    response.changed = u32::try_from(done.changes.len()).unwrap_or(u32::MAX);
    response.revision = done.revision;
    response.warnings.extend(warnings(&done.warnings));
    Ok(response)
}

type Stream = ReceiverStream<Result<v1::WatchEntriesResponse, Status>>;
type Sender = mpsc::Sender<Result<v1::WatchEntriesResponse, Status>>;

/// What of the registry is watched.
struct Watched {
    scope: Option<Scope>,
    key: Option<&'static str>,
}

impl Watched {
    fn wants(&self, scope: &Scope, key: &str) -> bool {
        self.scope.as_ref().is_none_or(|s| s == scope) && self.key.is_none_or(|k| k == key)
    }

    /// What is stored, in parts.
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
            time: Some(convert::timestamp(commit.time)),
        })
    }

    fn told(&self, told: &Told) -> Option<v1::WatchEntriesResponse> {
        let applied = match told {
            Told::Committed(commit) => return self.committed(commit),
            Told::Applied(applied) => applied,
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
            time: Some(convert::timestamp(applied.time)),
        })
    }
}

/// Sends what was, which waits for the client, and then what happens, which does not.
async fn follow(watched: Watched, following: Following, sender: &Sender) -> Result<(), Status> {
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
        time: Some(convert::timestamp(std::time::SystemTime::now())),
    });
    for message in first {
        if sender.send(Ok(message)).await.is_err() {
            return Ok(());
        }
    }
    loop {
        let told = match news.recv().await {
            Ok(told) => told,
            Err(broadcast::error::RecvError::Lagged(_)) => return Err(too_slow()),
            Err(broadcast::error::RecvError::Closed) => return Err(shutting_down()),
        };
        let Some(message) = watched.told(&told) else {
            continue;
        };
        match sender.try_send(Ok(message)) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => return Err(too_slow()),
            Err(mpsc::error::TrySendError::Closed(_)) => return Ok(()),
        }
    }
}

#[tonic::async_trait]
impl v1::registry_service_server::RegistryService for Registry {
    async fn list_keys(
        &self,
        request: Request<v1::ListKeysRequest>,
    ) -> Result<Response<v1::ListKeysResponse>, Status> {
        let request = request.into_inner();
        let page = Page::new(request.page_size, &request.page_token, 1000, 1000)?;
        let (keys, next_page_token) = page.cut(KEYS.iter().collect(), |k| k.name.to_owned());
        Ok(Response::new(v1::ListKeysResponse {
            keys: keys.into_iter().map(declaration).collect(),
            next_page_token,
        }))
    }

    async fn list_entries(
        &self,
        request: Request<v1::ListEntriesRequest>,
    ) -> Result<Response<v1::ListEntriesResponse>, Status> {
        let request = request.into_inner();
        let page = Page::new(request.page_size, &request.page_token, 1000, 10_000)?;
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
        // The driver comes first, by whatever name adapters go.
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

    async fn get_entry(
        &self,
        request: Request<v1::GetEntryRequest>,
    ) -> Result<Response<v1::RegistryEntry>, Status> {
        let request = request.into_inner();
        let scope = Self::readable(&self.0, "scope", &request.scope)?;
        let def = known(&request.key).map_err(|why| not_found(&why))?;
        Ok(Response::new(entry(&self.0.registry.view(&scope, def))))
    }

    async fn set_entry(
        &self,
        request: Request<v1::SetEntryRequest>,
    ) -> Result<Response<v1::SetEntryResponse>, Status> {
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
    ) -> Result<Response<v1::DeleteEntryResponse>, Status> {
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
    ) -> Result<Response<v1::ApplyTransactionResponse>, Status> {
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
        let context = self.0.clone();
        blocking(move || {
            let registry = &context.registry;
            let field = |r: &Refusal| format!("operations[{}].{}", r.operation, part(&r.why));
            let failed = |e| refused(&context, &by, e, field);
            if request.validate_only {
                let found = registry.validate(&operations).map_err(failed)?;
                return Ok(Response::new(v1::ApplyTransactionResponse {
                    entries: Vec::new(),
                    revision: registry.committed().revision,
                    warnings: warnings(&found),
                }));
            }
            let done = registry.transact(&operations).map_err(failed)?;
            changed(&context, &by, &done);
            let mut told = BTreeSet::new();
            let mut entries = Vec::new();
            for o in &operations {
                let def = known(&o.key).map_err(|why| not_found(&why))?;
                if told.insert((&o.scope, def.name)) {
                    entries.push(entry(&registry.view(&o.scope, def)));
                }
            }
            Ok(Response::new(v1::ApplyTransactionResponse {
                entries,
                revision: done.revision,
                warnings: warnings(&done.warnings),
            }))
        })
        .await?
    }

    async fn export_registry(
        &self,
        request: Request<v1::ExportRegistryRequest>,
    ) -> Result<Response<v1::ExportRegistryResponse>, Status> {
        let request = request.into_inner();
        let mut scopes = BTreeSet::new();
        for (i, text) in request.scopes.iter().enumerate() {
            scopes.insert(Self::readable(&self.0, &format!("scopes[{i}]"), text)?);
        }
        let context = self.0.clone();
        blocking(move || {
            let wanted = |scope: &Scope| scopes.is_empty() || scopes.contains(scope);
            let file = context.registry.write_file(wanted, request.utf8);
            let (content, revision) = file.map_err(|e| refused(&context, "", e, |r| r.key.clone()))?;
            Ok(Response::new(v1::ExportRegistryResponse { content, revision }))
        })
        .await?
    }

    async fn import_registry(
        &self,
        request: Request<v1::ImportRegistryRequest>,
    ) -> Result<Response<v1::ImportRegistryResponse>, Status> {
        let by = access::who(&request);
        let request = request.into_inner();
        let context = self.0.clone();
        blocking(move || import(&context, &by, &request).map(Response::new)).await?
    }

    type WatchEntriesStream = Stream;

    async fn watch_entries(
        &self,
        request: Request<v1::WatchEntriesRequest>,
    ) -> Result<Response<Stream>, Status> {
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
        let (sender, receiver) = mpsc::channel(UNREAD_MAX);
        let ended = self.0.ended();
        tokio::spawn(async move {
            tokio::select! {
                status = follow(watched, following, &sender) => {
                    if let Err(status) = status {
                        finish(&sender, status).await;
                    }
                }
                () = ended => finish(&sender, shutting_down()).await,
                () = sender.closed() => {}
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
