//! Messages of `vnic.v1` as JSON.

use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use vnic_control::FILE_DESCRIPTOR_SET;

/// Descriptors of the package, read once: a stream has many messages.
static POOL: LazyLock<Result<DescriptorPool, String>> =
    LazyLock::new(|| DescriptorPool::decode(FILE_DESCRIPTOR_SET).map_err(|e| e.to_string()));

/// Descriptors of the package.
pub fn pool() -> Result<&'static DescriptorPool, String> {
    POOL.as_ref().map_err(Clone::clone)
}

/// JSON of any message of the package, by its name in the package, as [`of_dynamic`] makes it.
pub fn of<M: prost::Message>(name: &str, message: &M) -> Result<serde_json::Value, String> {
    let descriptor = pool()?.get_message_by_name(&format!("vnic.v1.{name}"));
    let descriptor = descriptor.ok_or("unknown message")?;
    let encoded = message.encode_to_vec();
    let dynamic = DynamicMessage::decode(descriptor, encoded.as_slice()).map_err(|e| e.to_string())?;
    of_dynamic(&dynamic)
}

/// Reads a message of the package from JSON, by its name in the package.
pub fn read<M: prost::Message + Default>(name: &str, text: &str) -> Result<M, String> {
    let descriptor = pool()?.get_message_by_name(&format!("vnic.v1.{name}"));
    let descriptor = descriptor.ok_or("unknown message")?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let dynamic = DynamicMessage::deserialize(descriptor, &mut reader).map_err(|e| e.to_string())?;
    reader.end().map_err(|e| e.to_string())?;
    dynamic.transcode_to().map_err(|e| e.to_string())
}

/// JSON of a message: proto3 JSON with the fields' own names, all fields, and 64-bit integers as numbers.
pub fn of_dynamic(message: &DynamicMessage) -> Result<serde_json::Value, String> {
    let options = SerializeOptions::new()
        .stringify_64_bit_integers(false)
        .use_proto_field_name(true)
        .skip_default_fields(false);
    message
        .serialize_with_options(serde_json::value::Serializer, &options)
        .map_err(|e| e.to_string())
}
