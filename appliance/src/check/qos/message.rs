//! The message `vnic.v1.Qos`, as its descriptor says: which fields can be written, and how people read them.

use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, Value};
use vnic_control::{FILE_DESCRIPTOR_SET, v1};

/// Numbers of the fields that can be written.
const WRITABLE: std::ops::Range<u32> = 2..40;

static FIELDS: LazyLock<Vec<FieldDescriptor>> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap_or_default();
    let message = pool.get_message_by_name("vnic.v1.Qos");
    let fields = message.iter().flat_map(|m| m.fields().collect::<Vec<_>>());
    fields.filter(|f| WRITABLE.contains(&f.number())).collect()
});

static NAMES: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| FIELDS.iter().map(FieldDescriptor::name).collect());

/// Fields that can be written, in the order of their numbers.
pub fn fields() -> &'static [FieldDescriptor] {
    &FIELDS
}

/// Names of the fields that can be written, in the order of their numbers.
pub fn names() -> &'static [&'static str] {
    &NAMES
}

/// A field that can be written.
pub fn field(name: &str) -> Option<&'static FieldDescriptor> {
    FIELDS.iter().find(|f| f.name() == name)
}

/// The same message, with fields that can be named at run time.
pub fn dynamic(of: &v1::Qos) -> Option<DynamicMessage> {
    let mut message = DynamicMessage::new(FIELDS.first()?.parent_message().clone());
    message.transcode_from(of).ok()?;
    Some(message)
}

/// What the names of an enum's values begin with.
fn prefix(of: &EnumDescriptor) -> String {
    let none = of.default_value();
    none.name().trim_end_matches("UNSPECIFIED").to_owned()
}

/// The values of an enum, but for that which is never sent: as people write them, and as the message does.
pub fn words(of: &EnumDescriptor) -> Vec<(String, String)> {
    let prefix = prefix(of);
    let values = of.values().filter(|value| value.number() != 0);
    let both = values.map(|value| (word(value.name(), &prefix), value.name().to_owned()));
    both.collect()
}

/// The word that people have for a value of an enum, whose name in the message begins with `prefix`.
pub fn word(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_ascii_lowercase()
}

/// A field and its value, for people.
pub fn text(name: &str, of: &v1::Qos) -> String {
    fn list(values: impl IntoIterator<Item = String>) -> String {
        values.into_iter().collect::<Vec<_>>().join(",")
    }
    let rates = |rates: &[u64]| list(rates.iter().map(ToString::to_string));
    let value = match (name, field(name), dynamic(of)) {
        ("schedule_queue", ..) => of.schedule_queue.as_ref().map_or_else(
            || "none".to_owned(),
            |queue| format!("max {}, min {}", rates(&queue.max_bps), rates(&queue.min_bps)),
        ),
        ("policies", ..) if of.policies.is_empty() => "none".to_owned(),
        ("policies", ..) => list(of.policies.iter().map(|p| p.name.clone())),
        ("ecn", ..) => list(of.ecn.iter().map(profile_text)),
        (_, Some(field), Some(message)) if field.supports_presence() && !message.has_field(field) => {
            "none".to_owned()
        }
        (_, Some(field), Some(message)) => match &*message.get_field(field) {
            Value::List(values) => list(values.iter().map(|value| match value {
                Value::Bool(on) => u8::from(*on).to_string(),
                value => one(&field.kind(), value),
            })),
            value => one(&field.kind(), value),
        },
        _ => String::new(),
    };
    format!("{name} = {value}")
}

/// A value that is neither a list nor a message.
fn one(kind: &Kind, value: &Value) -> String {
    match (kind, value) {
        (Kind::Enum(of), Value::EnumNumber(number)) => {
            let value = of.get_value(*number).unwrap_or_else(|| of.default_value());
            word(value.name(), &prefix(of))
        }
        (_, Value::Bool(on)) => on.to_string(),
        (_, Value::U32(number)) => number.to_string(),
        (_, Value::U64(number)) => number.to_string(),
        _ => String::new(),
    }
}

/// A profile, for people: `off`, or what is done between which thresholds.
pub fn profile_text(profile: &v1::EcnProfile) -> String {
    let what = match (profile.ecn, profile.wred) {
        (false, false) => return "off".to_owned(),
        (true, false) => "mark",
        (true, true) => "mark or drop",
        (false, true) => "drop",
    };
    let v1::EcnProfile {
        min_bytes,
        max_bytes,
        max_probability_ppm: ppm,
        at_enqueue,
        ..
    } = profile;
    let at = if *at_enqueue { " at enqueue" } else { "" };
    format!("{what} {min_bytes}..{max_bytes} {ppm} ppm{at}")
}
