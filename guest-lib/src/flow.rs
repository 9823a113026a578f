//! Which of the frames that come for an adapter a raw packet queue pair has, or a hash queue pair (`SPEC.md`, section 8.7).

use std::sync::Arc;

use vnic_device::command::flow::CreateFlow;
use vnic_device::command::{Object, Opcode};

use crate::Error;
use crate::driver::Core;

pub use vnic_device::command::flow::FlowFields;
pub use vnic_device::verbs::{FlowKind, flow_headers};

/// What a flow takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowRule {
    /// Kind of the flow. Only one of kind NORMAL looks at headers.
    pub kind: FlowKind,
    /// Of several flows that would take a frame, the one with the lowest number has it.
    pub priority: u16,
    /// Headers that the frame must have: bits of [`flow_headers`].
    pub headers: u32,
    /// Values of its fields.
    pub value: FlowFields,
    /// Bits of these that count.
    pub mask: FlowFields,
    /// Values of fields of the frame in VXLAN; for devices from version 1.8 on.
    pub inner_value: FlowFields,
    /// Bits of these that count.
    pub inner_mask: FlowFields,
}

impl Default for FlowRule {
    /// A flow of kind NORMAL that takes all frames.
    fn default() -> FlowRule {
        FlowRule {
            kind: FlowKind::Normal,
            priority: 0,
            headers: 0,
            value: FlowFields::default(),
            mask: FlowFields::default(),
            inner_value: FlowFields::default(),
            inner_mask: FlowFields::default(),
        }
    }
}

/// What has a flow's frames, and lives as long.
type Owner = Arc<dyn Send + Sync>;

/// Frames that a queue pair has.
pub struct Flow {
    handle: u32,
    epoch: u32,
    core: Arc<Core>,
    _of: Owner,
}

impl std::fmt::Debug for Flow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Flow({:#x})", self.handle)
    }
}

impl Flow {
    pub(crate) fn new(
        core: &Arc<Core>,
        epoch: u32,
        qp: u32,
        rule: &FlowRule,
        of: Owner,
    ) -> Result<Flow, Error> {
        let body = CreateFlow {
            qp,
            kind: rule.kind.number(),
            priority: rule.priority.into(),
            headers: rule.headers,
            value: rule.value,
            mask: rule.mask,
            inner_value: rule.inner_value,
            inner_mask: rule.inner_mask,
        };
        let made: Object = core.call(epoch, Opcode::CreateFlow, &body)?;
        Ok(Flow {
            handle: made.handle,
            epoch,
            core: Arc::clone(core),
            _of: of,
        })
    }

    /// Number of the flow.
    pub fn number(&self) -> u32 {
        self.handle
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.core
            .end(self.epoch, Opcode::DestroyFlow, self.handle, Box::new(()));
    }
}
