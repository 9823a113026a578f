//! What the shell keeps for an object of the engine, found by the object's number.

/// Entries by number. The low bits of a number are an index that the engine keeps small, those above tell an old
/// object from a new one.
#[derive(Debug)]
pub struct Slots<T> {
    entries: Vec<Option<(u32, Box<T>)>>,
    index_mask: u32,
}

impl<T> Slots<T> {
    /// Empty; `index_bits` as in [`vnic_engine::rdma::limits::handle_bits`].
    pub fn new(index_bits: u32) -> Slots<T> {
        Slots {
            entries: Vec::new(),
            index_mask: (1 << index_bits) - 1,
        }
    }

    /// Remembers an entry.
    pub fn insert(&mut self, number: u32, entry: T) {
        let index = (number & self.index_mask) as usize;
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, || None);
        }
        self.entries[index] = Some((number, Box::new(entry)));
    }

    /// Forgets one.
    pub fn remove(&mut self, number: u32) {
        if self.get(number).is_some() {
            self.entries[(number & self.index_mask) as usize] = None;
        }
    }

    /// The entry of a number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        match self.entries.get((number & self.index_mask) as usize) {
            Some(Some((owner, entry))) if *owner == number => Some(entry),
            _ => None,
        }
    }

    /// The entry of a number.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        match self.entries.get_mut((number & self.index_mask) as usize) {
            Some(Some((owner, entry))) if *owner == number => Some(entry),
            _ => None,
        }
    }

    /// All, with their numbers.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.entries
            .iter_mut()
            .flatten()
            .map(|(number, entry)| (*number, &mut **entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_number_does_not_find_a_new_object() {
        let mut slots = Slots::new(4);
        slots.insert(0x13, 'a');
        assert_eq!(
            (slots.get(0x13), slots.get(0x23), slots.get(0x04)),
            (Some(&'a'), None, None)
        );
        slots.insert(0x23, 'b');
        assert_eq!((slots.get(0x13), slots.get(0x23)), (None, Some(&'b')));
        slots.remove(0x13);
        assert_eq!(slots.get(0x23), Some(&'b'));
        slots.remove(0x23);
        assert_eq!(slots.iter_mut().count(), 0);
    }
}
