//! The API as a list: a line for each service, method, message, field, enum and value.

use std::fmt::{self, Write as _};

use prost_reflect::{
    Cardinality, DescriptorPool, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor,
};

/// The package of the API.
pub const PACKAGE: &str = "vnic.v1";
const HEAD: &str = "# All of the gRPC API vnic.v1, a line for each thing. appliance/tests/appliance/api.rs compares it with the .proto files: lines are\n\
                    # added by UPDATE_DOCS=1; one that changes or goes breaks clients (README.md, \"Changes\").\n";

/// A thing of the API, of which a client can depend on everything here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// `field`, and so on.
    pub kind: &'static str,
    /// What it belongs to; of what belongs to nothing, itself.
    pub owner: String,
    /// Its name, without its owner's; empty if it belongs to nothing.
    pub name: String,
    /// Its number, if it has one.
    pub number: Option<i64>,
    /// Its type, and how often it may be there.
    pub shape: String,
}

/// The most numbers of a reserved range that are listed: the last one may be the last there is.
const MANY: usize = 1000;
/// Kinds of things, in the order of the list.
const KINDS: [&str; 7] = [
    "service", "method", "message", "field", "enum", "value", "reserved",
];

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.owner)?;
        if !self.name.is_empty() {
            write!(f, ".{}", self.name)?;
        }
        if let Some(number) = self.number {
            write!(f, " = {number}")?;
        }
        if !self.shape.is_empty() {
            write!(f, " : {}", self.shape)?;
        }
        Ok(())
    }
}

impl Item {
    /// As [`Display`](fmt::Display) writes it; none of what is no such line.
    pub fn parse(line: &str) -> Option<Item> {
        let (rest, shape) = line.split_once(" : ").unwrap_or((line, ""));
        let (rest, number) = match rest.split_once(" = ") {
            Some((rest, number)) => (rest, Some(number.parse().ok()?)),
            None => (rest, None),
        };
        let (word, path) = rest.split_once(' ')?;
        let kind = KINDS.into_iter().find(|kind| *kind == word)?;
        let (owner, name) = match kind {
            "method" | "field" | "value" => path.rsplit_once('.')?,
            _ => (path, ""),
        };
        Some(Item {
            kind,
            owner: owner.to_owned(),
            name: name.to_owned(),
            number,
            shape: shape.to_owned(),
        })
    }

    fn of(kind: &'static str, owner: &str) -> Item {
        Item {
            kind,
            owner: owner.to_owned(),
            name: String::new(),
            number: None,
            shape: String::new(),
        }
    }

    fn reserved(owner: &str, number: i64) -> Item {
        Item {
            number: Some(number),
            ..Item::of("reserved", owner)
        }
    }

    fn member(kind: &'static str, owner: &str, name: &str, number: Option<i64>, shape: String) -> Item {
        Item {
            name: name.to_owned(),
            number,
            shape,
            ..Item::of(kind, owner)
        }
    }
}

/// All of the API, sorted.
pub fn list(pool: &DescriptorPool) -> String {
    let mut items = Vec::new();
    for service in pool.services().filter(|s| s.package_name() == PACKAGE) {
        items.push(Item::of("service", service.full_name()));
        let member = |m: MethodDescriptor| {
            Item::member("method", service.full_name(), m.name(), None, signature(&m, "->"))
        };
        items.extend(service.methods().map(member));
    }
    for message in pool.all_messages() {
        if message.package_name() == PACKAGE && !message.is_map_entry() {
            of_message(&message, &mut items);
        }
    }
    for values in pool.all_enums().filter(|e| e.package_name() == PACKAGE) {
        of_enum(&values, &mut items);
    }
    items.sort_by(|a, b| {
        let kind = |item: &Item| KINDS.iter().position(|kind| *kind == item.kind);
        let key = |item: &Item| (item.owner.clone(), kind(item), item.number, item.name.clone());
        key(a).cmp(&key(b))
    });
    let mut text = HEAD.to_owned();
    for item in items {
        let _ = writeln!(text, "{item}");
    }
    text
}

fn of_message(message: &MessageDescriptor, items: &mut Vec<Item>) {
    let owner = message.full_name();
    items.push(Item::of("message", owner));
    let field =
        |f: FieldDescriptor| Item::member("field", owner, f.name(), Some(i64::from(f.number())), shape(&f));
    items.extend(message.fields().map(field));
    let ranges = message.reserved_ranges();
    items.extend(
        ranges
            .flat_map(|range| range.take(MANY))
            .map(|n| Item::reserved(owner, n.into())),
    );
}

fn of_enum(values: &EnumDescriptor, items: &mut Vec<Item>) {
    let owner = values.full_name();
    items.push(Item::of("enum", owner));
    items.extend(values.values().map(|v| {
        Item::member(
            "value",
            owner,
            v.name(),
            Some(i64::from(v.number())),
            String::new(),
        )
    }));
    let ranges = values.reserved_ranges();
    items.extend(
        ranges
            .flat_map(|range| range.take(MANY))
            .map(|n| Item::reserved(owner, n.into())),
    );
}

/// What a method takes and answers.
pub fn signature(method: &MethodDescriptor, arrow: &str) -> String {
    let side = |stream: bool, message: &str| format!("{}{message}", if stream { "stream " } else { "" });
    format!(
        "{} {arrow} {}",
        side(method.is_client_streaming(), method.input().full_name()),
        side(method.is_server_streaming(), method.output().full_name())
    )
}

/// Type of a field, whether it is there several times or perhaps not, and of which `oneof` it is.
pub fn shape(field: &FieldDescriptor) -> String {
    let name = type_name(field);
    let oneof = field.containing_oneof();
    match oneof.filter(|oneof| !oneof.is_synthetic()) {
        _ if field.is_map() => name,
        Some(oneof) => format!("{name}, one of {}", oneof.name()),
        None if field.cardinality() == Cardinality::Repeated => format!("repeated {name}"),
        None if field.supports_presence() && !matches!(field.kind(), Kind::Message(_)) => {
            format!("optional {name}")
        }
        None => name,
    }
}

/// Type of a field as its .proto file has it, but with the whole names of messages.
pub fn type_name(field: &FieldDescriptor) -> String {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => format!(
            "map<{}, {}>",
            type_name(&entry.map_entry_key_field()),
            type_name(&entry.map_entry_value_field())
        ),
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(values) => values.full_name().to_owned(),
        scalar => format!("{scalar:?}"),
    }
}
