//! What of quality of service is stored beside the registry.

use prost::Message as _;
use tonic::Status;
use vnic_backend::QosSpec;
use vnic_backend::settings::QosKeys;
use vnic_control::v1;

use super::super::errors::{Violations, status};
use super::fields::{message, take};
use super::resource;
use crate::check::qos::message::names;
use crate::daemon::Context;
use crate::events::{ControlEvent, Owner};
use crate::store::{Batch, StoreError};

/// Rows: `adapters/{adapter}` or `ports/{port}`; `vnic.v1.Qos`. What has a key in an adapter's registry is there as it was
/// then, and not read.
const TABLE: &str = "qos";

pub fn failed(error: &StoreError) -> Status {
    status(tonic::Code::Unavailable, "STORE_FAILED", error.to_string(), [])
}

/// Adds to a batch what stores this.
pub fn put(batch: &mut Batch, owner: &Owner, spec: &QosSpec, keys: &QosKeys) {
    let plain = match owner {
        Owner::Port(_) => *keys == QosKeys::default(),
        _ => true,
    };
    let unkeyed = QosSpec {
        keys: QosKeys::default(),
        ..spec.clone()
    };
    if plain && unkeyed == QosSpec::default() {
        forget(batch, owner);
    } else {
        batch.put(
            TABLE,
            resource(owner).as_bytes(),
            message(spec, keys).encode_to_vec(),
        );
    }
}

/// Adds to a batch what forgets it.
pub fn forget(batch: &mut Batch, owner: &Owner) {
    batch.delete(TABLE, resource(owner).as_bytes());
}

/// What is stored for an adapter or a port; none: nothing. What cannot be read is told as an event.
pub fn stored(context: &Context, owner: &Owner) -> Option<QosSpec> {
    let rows = match context.store.all(TABLE) {
        Ok(rows) => rows,
        Err(error) => {
            lives_without(context, owner.clone(), &error.to_string());
            return None;
        }
    };
    let name = resource(owner);
    let (_, bytes) = rows
        .into_iter()
        .find(|(row, _)| row.as_slice() == name.as_bytes())?;
    let read = v1::Qos::decode(bytes.as_slice())
        .map_err(|e| e.to_string())
        .and_then(|message| {
            let (mut spec, mut keys) = (QosSpec::default(), QosKeys::default());
            let mut wrong = Violations::default();
            take(names(), &message, (&mut spec, &mut keys), &mut wrong);
            if matches!(owner, Owner::Port(_)) {
                spec.keys = keys;
            }
            wrong.finish(Some(spec)).map_err(|e| e.message().to_owned())
        });
    read.map_err(|problem| lives_without(context, owner.clone(), &problem))
        .ok()
}

/// What is stored cannot act: it is told.
pub fn lives_without(context: &Context, owner: Owner, problem: &str) {
    context.hub.record(ControlEvent::SettingsRefused {
        owner,
        store: "qos",
        what: format!("what is stored does not act: {problem}"),
        by: String::new(),
    });
}

/// A port was made: what is stored for its name acts.
pub fn bring_back(context: &Context, port: &str) {
    let owner = Owner::Port(port.to_owned());
    if let Some(spec) = stored(context, &owner)
        && let Err(error) = context.nic.set_qos(port, spec)
    {
        lives_without(context, owner, &error.to_string());
    }
}

/// A port is about to be removed: what is stored for it goes.
pub fn forget_port(context: &Context, port: &str) -> Result<(), Status> {
    let mut batch = Batch::new();
    forget(&mut batch, &Owner::Port(port.to_owned()));
    context.store.commit(batch).map_err(|e| failed(&e))
}
