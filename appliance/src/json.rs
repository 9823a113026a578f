//! Messages of `vnic.v1` as JSON.

use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use vnic_control::FILE_DESCRIPTOR_SET;

/// Descriptors of the package, read once: a stream has many messages.
static POOL: LazyLock<Result<DescriptorPool, String>> =
    LazyLock::new(|| DescriptorPool::decode(FILE_DESCRIPTOR_SET).map_err(|e| e.to_string()));

/// JSON of any message of the package, by its name in the package: proto3 JSON with the fields' own names, all fields, and 64-bit
/// integers as numbers.
pub fn of<M: prost::Message>(name: &str, message: &M) -> Result<serde_json::Value, String> {
    let pool = POOL.as_ref().map_err(Clone::clone)?;
    let descriptor = pool.get_message_by_name(&format!("vnic.v1.{name}"));
    let descriptor = descriptor.ok_or("unknown message")?;
    let encoded = message.encode_to_vec();
    let dynamic = DynamicMessage::decode(descriptor, encoded.as_slice()).map_err(|e| e.to_string())?;
    let options = SerializeOptions::new()
        .stringify_64_bit_integers(false)
        .use_proto_field_name(true)
        .skip_default_fields(false);
    dynamic
        .serialize_with_options(serde_json::value::Serializer, &options)
        .map_err(|e| e.to_string())
}
