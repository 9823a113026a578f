//! Loom's, by the names of the product's `sync`.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard};

use loom::sync::atomic as loomed;
pub use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
pub use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};
pub use loom::{hint::spin_loop, thread::yield_now};

/// One of loom's atomics that is reached by an address.
#[derive(Clone, Copy)]
enum Word {
    U16(&'static AtomicU16),
    U32(&'static AtomicU32),
    U64(&'static AtomicU64),
}

thread_local! {
    /// By address. (Loom's threads are all of one thread.)
    static WORDS: RefCell<HashMap<usize, Word>> = RefCell::default();
}

macro_rules! atomics {
    ($($name:ident $plain:ident $word:ident $put:ident;)*) => {
        $(
            /// Loom's, which is also found by its address.
            #[derive(Debug, Default)]
            pub struct $name(loomed::$name);

            impl $name {
                pub fn new(value: $plain) -> $name {
                    $name(loomed::$name::new(value))
                }

                /// The one that was put at this address.
                pub fn from_ptr(at: *mut $plain) -> &'static $name {
                    match WORDS.with_borrow(|words| words.get(&at.addr()).copied()) {
                        Some(Word::$word(one)) => one,
                        _ => panic!("no word of this size has been put at this place"),
                    }
                }
            }

            impl Deref for $name {
                type Target = loomed::$name;

                fn deref(&self) -> &loomed::$name {
                    &self.0
                }
            }

            /// Puts one at an address: in the place of the one of an execution before.
            pub fn $put(at: usize) {
                // (It is small, and a model has some ten thousand executions.)
                let one = Box::leak(Box::new($name::new(0)));
                WORDS.with_borrow_mut(|words| words.insert(at, Word::$word(one)));
            }
        )*
    };
}

atomics! {
    AtomicU16 u16 U16 put_u16;
    AtomicU32 u32 U32 put_u32;
    AtomicU64 u64 U64 put_u64;
}

/// In the place of rtrb's ring: its two indices, with the orderings that rtrb has; what it holds is in a list with a lock,
/// of which loom knows nothing.
pub struct RingBuffer;

struct List<T> {
    waiting: Mutex<VecDeque<T>>,
    room: usize,
    pushed: AtomicUsize,
    popped: AtomicUsize,
}

pub struct Producer<T>(Arc<List<T>>);
pub struct Consumer<T>(Arc<List<T>>);

#[derive(Debug)]
pub struct Refused;

impl RingBuffer {
    #[allow(clippy::new_ret_no_self, reason = "as rtrb's")]
    pub fn new<T>(room: usize) -> (Producer<T>, Consumer<T>) {
        let list = Arc::new(List {
            waiting: Mutex::default(),
            room,
            pushed: AtomicUsize::new(0),
            popped: AtomicUsize::new(0),
        });
        (Producer(list.clone()), Consumer(list))
    }
}

impl<T> List<T> {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.waiting.lock().expect("nobody panics with it")
    }
}

impl<T> Producer<T> {
    pub fn slots(&self) -> usize {
        self.0.room - (self.0.pushed.load(Relaxed) - self.0.popped.load(Acquire))
    }

    pub fn is_full(&self) -> bool {
        self.slots() == 0
    }

    pub fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    pub fn push(&mut self, one: T) -> Result<(), Refused> {
        if self.is_full() {
            return Err(Refused);
        }
        self.0.waiting().push_back(one);
        self.0.pushed.store(self.0.pushed.load(Relaxed) + 1, Release);
        Ok(())
    }
}

impl<T> Consumer<T> {
    pub fn is_empty(&self) -> bool {
        self.0.pushed.load(Acquire) == self.0.popped.load(Relaxed)
    }

    pub fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    pub fn pop(&mut self) -> Result<T, Refused> {
        if self.is_empty() {
            return Err(Refused);
        }
        let one = self.0.waiting().pop_front().ok_or(Refused)?;
        self.0.popped.store(self.0.popped.load(Relaxed) + 1, Release);
        Ok(one)
    }
}
