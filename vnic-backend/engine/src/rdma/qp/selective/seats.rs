//! Places for what queue pairs know at length: a device has so many.

use alloc::boxed::Box;
use alloc::sync::Arc;

/// Losses of a device that may be repaired at a time, in either role: what is known of one takes up to 22 KiB, and peers could
/// make all its queue pairs know something. Without a place a queue pair goes back.
const SEATS: usize = 512;

/// Queue pairs of a device that may spread at a time: what one knows takes some 1,300 bytes.
const SPREADS: usize = 4096;

/// Places for what queue pairs know at length.
#[derive(Debug)]
pub(in super::super::super) struct Seats {
    places: Arc<()>,
    most: usize,
}

impl Seats {
    /// Those of losses that are being repaired.
    pub fn of_losses() -> Seats {
        let places = Arc::default();
        Seats { places, most: SEATS }
    }

    /// Those of queue pairs whose packets take several ways.
    pub fn of_spreads() -> Seats {
        Seats {
            places: Arc::default(),
            most: SPREADS,
        }
    }

    /// Is there a place?
    pub fn has_place(&self) -> bool {
        // (The device has one itself.)
        Arc::strong_count(&self.places) <= self.most
    }

    /// Takes a place, if there is one.
    fn take<T>(&self, what: impl FnOnce() -> Box<T>) -> Option<Seated<T>> {
        self.has_place().then(|| Seated {
            what: what(),
            _place: self.places.clone(),
        })
    }
}

/// What has a place, and gives it back at its end.
#[derive(Debug)]
pub(in super::super) struct Seated<T> {
    what: Box<T>,
    _place: Arc<()>,
}

impl<T> core::ops::Deref for Seated<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.what
    }
}

impl<T> core::ops::DerefMut for Seated<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.what
    }
}

/// Makes what a queue pair knows of losses, unless it is there. No: there is no place.
pub(in super::super) fn ensure<T>(
    seats: &Seats,
    known: &mut Option<Seated<T>>,
    make: impl FnOnce() -> Box<T>,
) -> bool {
    if known.is_none() {
        *known = seats.take(make);
    }
    known.is_some()
}
