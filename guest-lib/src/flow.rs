//! Which of the frames that come for an adapter a raw packet queue pair has (`SPEC.md`, section 8.7).

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
        }
    }
}
