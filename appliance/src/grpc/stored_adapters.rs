//! Adapters that were made at run time: stored as they were asked for, and made again when the daemon starts.

use prost::Message as _;
use tonic::{Code, Status};
use vnic_backend::{AdapterSpec, AdapterStatus, NicError, QosSpec};
use vnic_control::v1;

use super::errors::{Violations, status};
use super::{congestion, convert, qos, registry};
use crate::daemon::Context;
use crate::events::{Level, Owner, Record, kinds};
use crate::store::{Batch, StoreError};

/// Rows: name; `vnic.v1.Adapter` as it was asked for, without what the daemon fills in. Defaults are found anew at each
/// start, so that they fit the daemon's directories and cores.
pub const TABLE: &str = "adapters";

/// The settings of a request, without what is output only.
fn asked(adapter: &v1::Adapter) -> v1::Adapter {
    v1::Adapter {
        name: String::new(),
        macs: adapter.macs.clone(),
        mtu: adapter.mtu,
        queue_pairs: adapter.queue_pairs,
        vlan: adapter.vlan.clone(),
        anti_spoofing: adapter.anti_spoofing,
        data_core: adapter.data_core,
        socket_role: adapter.socket_role,
        socket_group: adapter.socket_group,
        socket_users: adapter.socket_users.clone(),
        allowed_addresses: adapter.allowed_addresses.clone(),
        rdma_memory_mib: adapter.rdma_memory_mib,
        vmm_regions: adapter.vmm_regions,
        vmm_descriptors: adapter.vmm_descriptors,
        eth_socket: adapter.eth_socket.clone(),
        rdma_enabled: adapter.rdma_enabled,
        rdma_socket: adapter.rdma_socket.clone(),
        ..v1::Adapter::default()
    }
}

fn failed(error: &StoreError) -> Status {
    status(Code::Unavailable, "STORE_FAILED", error.to_string(), [])
}

/// An adapter has just been made on request: it is stored.
pub fn keep(context: &Context, name: &str, adapter: &v1::Adapter) -> Result<(), Status> {
    let mut batch = Batch::new();
    batch.put(TABLE, name.as_bytes(), asked(adapter).encode_to_vec());
    context.store.commit(batch).map_err(|e| failed(&e))?;
    context.set_stored(name);
    Ok(())
}

/// Makes an adapter with what is stored for it. What of that is refused now is told as an event: it lives without. May
/// block.
pub fn add(context: &Context, spec: AdapterSpec) -> Result<AdapterStatus, NicError> {
    let owner = Owner::Adapter(spec.name.clone());
    let slowing = congestion::stored(context, &spec.name);
    let (status, refused) = match qos::stored(context, &owner) {
        None => context.registry.add_adapter(spec, QosSpec::default(), slowing)?,
        Some(stored) => match context.registry.add_adapter(spec.clone(), stored, slowing) {
            Err(NicError::Invalid { field, problem }) if qos::is_field(field) => {
                qos::lives_without(context, owner, &format!("{field}: {problem}"));
                context.registry.add_adapter(spec, QosSpec::default(), slowing)?
            }
            other => other?,
        },
    };
    if let Some(error) = refused {
        let same = |r: &crate::registry::Refusal| r.key.clone();
        let _ = registry::refused(context, "", error, same);
    }
    Ok(status)
}

/// An adapter is about to be removed: it is not made again, and what is stored for it is forgotten.
pub fn forget(context: &Context, name: &str) -> Result<(), Status> {
    let mut batch = Batch::new();
    batch.delete(TABLE, name.as_bytes());
    qos::forget(&mut batch, &Owner::Adapter(name.to_owned()));
    congestion::forget(&mut batch, name);
    let same = |r: &crate::registry::Refusal| r.key.clone();
    context
        .registry
        .remove_adapter(name, batch)
        .map_err(|e| registry::refused(context, "", e, same))
}

/// Makes the stored adapters again. One that cannot be made is told as an event, and stays stored.
pub fn bring_back(context: &Context) -> Result<(), StoreError> {
    for (name, adapter) in context.store.all(TABLE)? {
        let name = String::from_utf8_lossy(&name).into_owned();
        match again(context, &name, &adapter) {
            Ok(()) => context.set_stored(&name),
            Err(problem) => context.hub.record(Record::now(
                &kinds::STORED_ADAPTER_SHADOWED,
                Level::Warn,
                Owner::Adapter(name.clone()),
                format!("the adapter that was made at run time does not come back: {problem}"),
                vec![("problem", problem)],
            )),
        }
    }
    Ok(())
}

fn again(context: &Context, name: &str, adapter: &[u8]) -> Result<(), String> {
    if context.nic.adapter(name).is_ok() || context.nic.port(name).is_ok() {
        return Err("the configuration has its name".to_owned());
    }
    let adapter = v1::Adapter::decode(adapter).map_err(|e| format!("what is stored is unreadable: {e}"))?;
    let mut wrong = Violations::default();
    let spec = convert::adapter_spec(context, name, &adapter, &context.nic.adapters(), &mut wrong);
    let spec = wrong.finish(spec).map_err(|e| e.message().to_owned())?;
    add(context, spec).map_err(|e| e.to_string())?;
    tracing::debug!(owner = name, "adapter made at run time added again");
    Ok(())
}
