//! Moves of a guest from one adapter to another (live migration).

vnic_wire::named! {
    /// Part of an adapter in the move of a guest.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum MovePart {
        /// The guest leaves this adapter.
        Source => "source",
        /// The guest comes to this adapter.
        Target => "target",
    }
}

/// The move of a guest, as one of its two adapters sees it. Both adapters have the guest's addresses; the one whose guest runs speaks
/// for them: only there the switch knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moving {
    /// Part of this adapter.
    pub part: MovePart,
    /// The other adapter; `None`: it is an adapter of another daemon.
    pub peer: Option<String>,
}

impl Moving {
    /// Whether `other` is the other adapter.
    pub fn is_with(&self, other: &str) -> bool {
        self.peer.as_deref() == Some(other)
    }
}
