//! What drivers have left: memory whose release takes so long that no data core does it. (4 MiB take the kernel 0.3 ms.)

use std::any::Any;
use std::sync::{Arc, Weak};

/// Entries of a list whose release is another's.
const MANY: usize = 4096;

/// To be freed where nobody waits for it. One at a time, for what waits to be freed is in no budget: what is left meanwhile is
/// freed at once.
#[derive(Debug, Default)]
pub struct Remains {
    left: Option<Box<dyn Any + Send>>,
    /// Lives as long as what was left last.
    under_way: Weak<()>,
}

impl Remains {
    /// Something of so many entries is not needed any more.
    pub fn leave(&mut self, entries: usize, what: impl Any + Send) {
        if entries >= MANY && self.under_way.strong_count() == 0 {
            let token = Arc::new(());
            self.under_way = Arc::downgrade(&token);
            // (In this order.)
            self.left = Some(Box::new((what, token)));
        }
    }

    /// What is to be freed elsewhere.
    pub fn take(&mut self) -> Option<Box<dyn Any + Send>> {
        self.left.take()
    }

    /// Is there something?
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
