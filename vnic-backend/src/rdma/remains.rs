//! Memory of drivers' former objects that takes too long to free on a data core. (4 MiB take the kernel 0.3 ms.)

use std::any::Any;
use std::sync::{Arc, Weak};

/// Entries of a list from which on another thread frees it.
const MANY: usize = 4096;

/// Memory to be freed on another thread, one piece at a time, because it is in no budget: memory that comes meanwhile is
/// freed at once.
#[derive(Debug, Default)]
pub struct Remains {
    left: Option<Box<dyn Any + Send>>,
    /// Alive as long as the last piece.
    under_way: Weak<()>,
}

impl Remains {
    /// Takes memory of `entries` entries that is not needed any more.
    pub fn leave(&mut self, entries: usize, what: impl Any + Send) {
        if entries >= MANY && self.under_way.strong_count() == 0 {
            let token = Arc::new(());
            self.under_way = Arc::downgrade(&token);
            // (Dropped in this order.)
            self.left = Some(Box::new((what, token)));
        }
    }

    /// Takes the memory that another thread is to free.
    pub fn take(&mut self) -> Option<Box<dyn Any + Send>> {
        self.left.take()
    }

    /// Whether there is memory to take.
    pub fn any(&self) -> bool {
        self.left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_large_is_freed_elsewhere_one_at_a_time() {
        let mut remains = Remains::default();
        let alive = |what: &Arc<u8>| Arc::strong_count(what) > 1;
        let leave = |remains: &mut Remains, entries| {
            let what = Arc::new(0);
            remains.leave(entries, what.clone());
            what
        };
        assert!(!alive(&leave(&mut remains, MANY - 1)) && !remains.any());
        let first = leave(&mut remains, MANY);
        assert!(alive(&first) && remains.any());
        assert!(!alive(&leave(&mut remains, MANY)), "one is under way");
        let taken = remains.take();
        assert!(alive(&first) && !remains.any());
        assert!(!alive(&leave(&mut remains, MANY)), "it still is");
        drop(taken);
        assert!(!alive(&first));
        assert!(alive(&leave(&mut remains, MANY)));
    }
}
