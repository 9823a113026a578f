//! Which handles there are.

use std::collections::HashMap;

vnic_wire::named! {
    /// A kind of object, by its name in a device's list of resources.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Kind {
        Pd => "pd",
        Cq => "cq",
        Mr => "mr",
        Mw => "mw",
        Srq => "srq",
        Ah => "ah",
        Xrcd => "xrcd",
        Qp => "qp",
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
