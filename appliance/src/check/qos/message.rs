//! The message `vnic.v1.Qos` by its descriptor: writable fields, and their text.

use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, Value};
use vnic_control::{FILE_DESCRIPTOR_SET, v1};

/// Number of the first writable field.
const FIRST: u32 = 2;
/// Numbers of fields behind it that are not.
const OUTPUT: std::ops::Range<u32> = 40..43;

static FIELDS: LazyLock<Vec<FieldDescriptor>> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap_or_default();
    let message = pool.get_message_by_name("vnic.v1.Qos");
    let fields = message.iter().flat_map(|m| m.fields().collect::<Vec<_>>());
    let writable = |number| number >= FIRST && !OUTPUT.contains(&number);
    fields.filter(|f| writable(f.number())).collect()
});

static NAMES: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| FIELDS.iter().map(FieldDescriptor::name).collect());

/// Writable fields, in the order of their numbers.
pub fn fields() -> &'static [FieldDescriptor] {
    &FIELDS
}

/// Names of the writable fields, in the order of their numbers.
pub fn names() -> &'static [&'static str] {
    &NAMES
}

/// Writable field of a name.
pub fn field(name: &str) -> Option<&'static FieldDescriptor> {
    FIELDS.iter().find(|f| f.name() == name)
}

/// Message whose fields can be named at run time.
pub fn dynamic(of: &v1::Qos) -> Option<DynamicMessage> {
    let mut message = DynamicMessage::new(FIELDS.first()?.parent_message().clone());
    message.transcode_from(of).ok()?;
    Some(message)
}

/// Common prefix of the names of an enum's values.
fn prefix(of: &EnumDescriptor) -> String {
    let none = of.default_value();
    none.name().trim_end_matches("UNSPECIFIED").to_owned()
}

/// Values of an enum except the unspecified one: the word for people, and the name in the message.
pub fn words(of: &EnumDescriptor) -> Vec<(String, String)> {
    let prefix = prefix(of);
    let values = of.values().filter(|value| value.number() != 0);
    let both = values.map(|value| (word(value.name(), &prefix), value.name().to_owned()));
    both.collect()
}

/// Word for a value of an enum whose names begin with `prefix`.
pub fn word(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_ascii_lowercase()
}

/// Text of a field and its value.
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
        ("vl_arbitration", ..) => of.vl_arbitration.as_ref().map_or_else(
            || "none".to_owned(),
            |tables| {
                let table =
                    |all: &[v1::VlWeight]| list(all.iter().map(|e| format!("{}:{}", e.lane, e.weight)));
                let (high, low) = (table(&tables.high), table(&tables.low));
                format!("high {high}; low {low}; high limit {}", tables.high_limit)
            },
        ),
        ("priority_to_tc_by_port", ..) => match &of.priority_to_tc_by_port[..] {
            [] => "none".to_owned(),
            all => {
                let one = |t: &v1::TcByPort| {
                    let numbers = list(t.priority_to_tc.iter().map(ToString::to_string));
                    format!("{} {numbers}", t.source)
                };
                all.iter().map(one).collect::<Vec<_>>().join("; ")
            }
        },
        ("tpid", ..) => format!("{:#06x}", of.tpid),
        ("receive_buffers", ..) => of.receive_buffers.as_ref().map_or_else(
            || "none".to_owned(),
            |parts| {
                let numbers = |all: &[u32]| list(all.iter().map(ToString::to_string));
                let (sizes, buffers) = (numbers(&parts.sizes), numbers(&parts.priority_to_buffer));
                format!("sizes {sizes}, of priorities {buffers}")
            },
        ),
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

/// Text of a value that is neither a list nor a message.
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

/// Text of an ECN profile: `off`, or action and thresholds.
pub fn profile_text(profile: &v1::EcnProfile) -> String {
    let what = match (profile.ecn, profile.wred) {
        (false, false) => return "off".to_owned(),
        (true, false) => "mark",
        (true, true) => "mark or drop",
        (false, true) => "drop",
    };
    let unit = if profile.thresholds_in_percent { "%" } else { "" };
    let curve = |min: u32, max: u32, ppm: u32| format!("{min}{unit}..{max}{unit} {ppm} ppm");
    let mut text = format!(
        "{what} {}",
        curve(profile.min_bytes, profile.max_bytes, profile.max_probability_ppm)
    );
    for (color, of) in [("yellow", &profile.yellow), ("red", &profile.red)] {
        if let Some(of) = of {
            let curve = curve(of.min_bytes, of.max_bytes, of.max_probability_ppm);
            text += &format!(" {color} {curve}");
        }
    }
    if profile.average_weight != 0 {
        text += &format!(" average {}", profile.average_weight);
    }
    if profile.at_enqueue {
        text += " at enqueue";
    }
    text
}
