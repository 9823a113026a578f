//! One grammar for all methods: what requests call things, and what is answered. The section "Grammar" of `proto/control/README.md` says
//! it for people. Methods that are older than a rule keep what they have, for the API only grows; they are listed here.

use std::collections::BTreeSet;

use prost_reflect::{
    Cardinality, DescriptorPool, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor,
};

/// Methods that are older than a rule, with the rule.
const OLDER: &[(&str, &[Rule])] = &[
    ("ApplyTransaction", &[Rule::Name]),
    ("BackupState", &[Rule::Stream]),
    ("BatchCreateFaults", &[Rule::Name]),
    ("CreateCapture", &[Rule::Whole]),
    ("DeleteEntry", &[Rule::Name, Rule::Place, Rule::Answer]),
    ("GetEntry", &[Rule::Name, Rule::Place, Rule::Answer]),
    ("ListCongestionPresets", &[Rule::Pages]),
    ("ListCounterSets", &[Rule::Pages]),
    ("ListCounters", &[Rule::Place]),
    ("ListEntries", &[Rule::Place]),
    ("ListEventKinds", &[Rule::Pages]),
    ("ListFdbEntries", &[Rule::Place]),
    ("ListFlows", &[Rule::Place]),
    ("ListHistograms", &[Rule::Place]),
    ("ListNvParameters", &[Rule::Pages]),
    ("ListOids", &[Rule::Pages]),
    ("ListQueuePairRates", &[Rule::Place]),
    ("QueryOid", &[Rule::Name, Rule::Place]),
    ("ReadCounterSets", &[Rule::Name, Rule::Place]),
    ("ResetNvParameters", &[Rule::Name]),
    ("SetEntry", &[Rule::Place, Rule::Answer]),
    ("SetNvParameters", &[Rule::Answer]),
    ("SetOid", &[Rule::Place, Rule::Answer]),
    ("SetQueuePairRate", &[Rule::Place, Rule::Answer]),
    ("SnapshotCounters", &[Rule::Name, Rule::Place]),
    ("TraceFrame", &[Rule::Name, Rule::Place]),
    ("UpdatePort", &[Rule::Whole]),
    ("WatchAdapters", &[Rule::Change, Rule::Interval]),
    ("WatchCounters", &[Rule::Name, Rule::Place, Rule::Change]),
    (
        "WatchEntries",
        &[Rule::Name, Rule::Place, Rule::Change, Rule::Interval],
    ),
    ("WatchPorts", &[Rule::Change, Rule::Interval]),
    ("WatchQueuePairs", &[Rule::Name, Rule::Change]),
];

/// A rule of the grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    /// A request about one thing begins with its `name`.
    Name,
    /// Where something is or belongs to is `parent`, and nothing else.
    Place,
    /// A list has pages.
    Pages,
    /// What is made or changed is a field of its type; `thing_id` is its new name, `update_mask` the fields that change.
    Whole,
    /// What has an etag is changed and removed by it.
    Etag,
    /// Who makes, reads, sets or removes a thing gets the thing.
    Answer,
    /// A stream is a watch, or follows a log, or has the bytes of a capture.
    Stream,
    /// A watch answers `change`, the thing and `time`.
    Change,
    /// A watch looks each `interval`.
    Interval,
}

/// Verbs about one thing that `name` says, beside those that have rules of their own.
const OTHERS: &[&str] = &[
    "Add", "Apply", "Attach", "Batch", "Begin", "Cancel", "Detach", "Hand", "Prepare", "Query", "Read",
    "Remove", "Reset", "Restart", "Snapshot", "Stop", "Trace",
];

fn field(message: &MessageDescriptor, name: &str) -> Option<FieldDescriptor> {
    message.get_field_by_name(name)
}

fn is_string(message: &MessageDescriptor, name: &str) -> bool {
    field(message, name).is_some_and(|f| f.kind() == Kind::String && f.cardinality() != Cardinality::Repeated)
}

/// Type of a field that is one message.
fn type_of(field: &FieldDescriptor) -> Option<String> {
    match field.kind() {
        Kind::Message(message) if !field.is_list() && !field.is_map() => Some(message.full_name().to_owned()),
        Kind::Enum(of) => Some(of.full_name().to_owned()),
        _ => None,
    }
}

/// `AccessList` as a field.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// Verb and noun of a method.
fn parts(name: &str) -> (&str, &str) {
    let at = name.char_indices().skip(1).find(|(_, c)| c.is_ascii_uppercase());
    name.split_at(at.map_or(name.len(), |(i, _)| i))
}

/// Whether a message is the thing, or has it in a field: as an answer that was empty once.
fn has(answer: &MessageDescriptor, thing: &MessageDescriptor) -> bool {
    let own = snake(thing.name());
    answer == thing || field(answer, &own).and_then(|f| type_of(&f)).as_deref() == Some(thing.full_name())
}

/// Rules that a method breaks.
fn broken(pool: &DescriptorPool, method: &MethodDescriptor) -> BTreeSet<Rule> {
    let (request, answer) = (method.input(), method.output());
    let (verb, noun) = parts(method.name());
    let thing = pool.get_message_by_name(&format!("vnic.v1.{noun}"));
    // What belongs to a thing that `name` says: TeamAffinity to Team.
    let holder = type_of_name(pool, noun);
    let mut broken = BTreeSet::new();
    let mut rule = |rule, holds: bool| {
        if !holds {
            broken.insert(rule);
        }
    };
    let empty = request.fields().len() == 0;
    let by_name = || empty || is_string(&request, "name");
    let whole = || {
        let own = thing
            .as_ref()
            .and_then(|thing| field(&request, &snake(thing.name())));
        own.and_then(|own| type_of(&own)) == thing.as_ref().map(|thing| thing.full_name().to_owned())
    };
    let answers = || match (&thing, &holder) {
        (Some(thing), _) if has(&answer, thing) => true,
        (_, Some(holder)) => answer == *holder,
        _ => false,
    };
    let etag =
        |thing: &MessageDescriptor| field(thing, "etag").is_none() || field(&request, "etag").is_some();
    match verb {
        "Get" => {
            rule(Rule::Name, by_name());
            rule(Rule::Answer, answers());
        }
        "List" => {
            let pages = field(&request, "page_size").is_some() && is_string(&request, "page_token");
            rule(Rule::Pages, pages && is_string(&answer, "next_page_token"));
        }
        "Create" => {
            rule(
                Rule::Whole,
                whole() && is_string(&request, &format!("{}_id", snake(noun))),
            );
            rule(Rule::Answer, answers());
        }
        "Update" => {
            rule(Rule::Whole, whole() && field(&request, "update_mask").is_some());
            rule(Rule::Answer, answers());
            rule(
                Rule::Etag,
                thing.iter().all(|thing| field(thing, "etag").is_some()),
            );
        }
        "Set" => rule(Rule::Answer, answers()),
        "Delete" => {
            rule(Rule::Name, by_name());
            rule(Rule::Answer, answers());
            rule(Rule::Etag, thing.iter().all(etag));
        }
        "Watch" => {
            rule(Rule::Name, by_name());
            rule(Rule::Interval, field(&request, "interval").is_some());
            let change = field(&answer, "change").and_then(|f| type_of(&f));
            rule(
                Rule::Change,
                change.as_deref() == Some("vnic.v1.Change") && field(&answer, "time").is_some(),
            );
        }
        verb if OTHERS.contains(&verb) => rule(Rule::Name, by_name() || method.name().ends_with("Config")),
        _ => {}
    }
    let place = |name: &str| is_string(&request, name);
    rule(
        Rule::Place,
        !["adapter", "owner", "scope", "team", "of", "device"]
            .iter()
            .any(|name| place(name)),
    );
    rule(
        Rule::Stream,
        method.is_server_streaming() == matches!(verb, "Watch" | "Follow" | "Stream"),
    );
    broken
}

/// The thing whose name the name of a part begins with.
fn type_of_name(pool: &DescriptorPool, part: &str) -> Option<MessageDescriptor> {
    let ends = part
        .char_indices()
        .skip(1)
        .filter(|(_, c)| c.is_ascii_uppercase());
    let names = ends.filter_map(|(i, _)| part.get(..i));
    let found = names.filter_map(|name| pool.get_message_by_name(&format!("vnic.v1.{name}")));
    found.last()
}

#[test]
fn all_methods_have_one_grammar() {
    let pool = super::pool();
    let mut left: BTreeSet<(&str, Rule)> = OLDER
        .iter()
        .flat_map(|(name, rules)| rules.iter().map(move |rule| (*name, *rule)))
        .collect();
    let mut wrong = Vec::new();
    let services = pool.services().filter(|s| s.full_name().starts_with("vnic.v1."));
    for method in services.flat_map(|s| s.methods().collect::<Vec<_>>()) {
        for rule in broken(&pool, &method) {
            let older = left
                .iter()
                .find(|(name, known)| *name == method.name() && *known == rule)
                .copied();
            match older {
                Some(older) => drop(left.remove(&older)),
                None => wrong.push(format!("{} breaks {rule:?}", method.full_name())),
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\nproto/control/README.md has the grammar",
        wrong.join("\n")
    );
    assert!(left.is_empty(), "no exceptions any more: {left:?}");
}
