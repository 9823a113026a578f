//! Which handles there are.

use std::collections::HashMap;

/// A kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Pd,
    Cq,
    Mr,
    Mw,
    Srq,
    Ah,
    Xrcd,
    Qp,
}

impl Kind {
    /// All.
    pub const ALL: [Kind; 8] = [
        Kind::Pd,
        Kind::Cq,
        Kind::Mr,
        Kind::Mw,
        Kind::Srq,
        Kind::Ah,
        Kind::Xrcd,
        Kind::Qp,
    ];

    /// The kind that a device's list of resources names so.
    pub fn named(name: &str) -> Option<Kind> {
        Some(match name {
            "pd" => Kind::Pd,
            "cq" => Kind::Cq,
            "mr" => Kind::Mr,
            "mw" => Kind::Mw,
            "srq" => Kind::Srq,
            "ah" => Kind::Ah,
            "xrcd" => Kind::Xrcd,
            "qp" => Kind::Qp,
            _ => return None,
        })
    }
}

/// The handles of a device.
#[derive(Debug, Default)]
pub struct Model {
    live: HashMap<Kind, Vec<u32>>,
    dead: HashMap<Kind, Vec<u32>>,
}

impl Model {
    /// Handles of objects.
    pub fn live(&self, kind: Kind) -> &[u32] {
        self.live.get(&kind).map_or(&[], Vec::as_slice)
    }

    /// Handles of former objects that no object has now.
    pub fn dead(&self, kind: Kind) -> &[u32] {
        self.dead.get(&kind).map_or(&[], Vec::as_slice)
    }

    /// How many there are.
    pub fn count(&self, kind: Kind) -> usize {
        self.live(kind).len()
    }

    /// An object was made.
    pub fn add(&mut self, kind: Kind, handle: u32) {
        self.live.entry(kind).or_default().push(handle);
        self.dead.entry(kind).or_default().retain(|h| *h != handle);
    }

    /// An object is gone.
    pub fn remove(&mut self, kind: Kind, handle: u32) {
        self.live.entry(kind).or_default().retain(|h| *h != handle);
        self.dead.entry(kind).or_default().push(handle);
    }
}
