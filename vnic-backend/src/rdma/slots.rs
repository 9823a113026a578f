//! State of the engine's objects outside the engine, by the object's number.

/// Entries by number. The low bits of a number are an index; the bits above differ between old and new objects. The engine
/// begins with any index, and goes on with the next ones.
#[derive(Debug)]
pub struct Slots<T> {
    entries: Vec<Option<(u32, Box<T>)>>,
    index_mask: u32,
    /// Index of the first entry.
    first: u32,
}

impl<T> Slots<T> {
    /// No entries; `index_bits` as in [`vnic_engine::rdma::limits::index_bits`].
    pub fn new(index_bits: u32) -> Slots<T> {
        Slots {
            entries: Vec::new(),
            index_mask: (1 << index_bits) - 1,
            first: 0,
        }
    }

    /// Adds an entry.
    pub fn insert(&mut self, number: u32, entry: T) {
        let index = number & self.index_mask;
        if self.entries.is_empty() {
            self.first = index;
        }
        // The first index was that of an object that was destroyed before it came here.
        let before = self.first.saturating_sub(index);
        self.entries.splice(..0, (0..before).map(|_| None));
        self.first -= before;
        let index = self.index(number);
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, || None);
        }
        self.entries[index] = Some((number, Box::new(entry)));
    }

    #[inline]
    fn index(&self, number: u32) -> usize {
        // A number below the first becomes an index beyond all entries.
        (number & self.index_mask).wrapping_sub(self.first) as usize
    }

    /// Removes an entry.
    pub fn remove(&mut self, number: u32) -> Option<Box<T>> {
        self.get(number)?;
        let index = self.index(number);
        self.entries[index].take().map(|(_, entry)| entry)
    }

    /// The entry of a number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        match self.entries.get(self.index(number)) {
            Some(Some((owner, entry))) if *owner == number => Some(entry),
            _ => None,
        }
    }

    /// The entry of a number.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let index = self.index(number);
        match self.entries.get_mut(index) {
            Some(Some((owner, entry))) if *owner == number => Some(entry),
            _ => None,
        }
    }

    /// The entry at a place, with its number, if there is one; there are as many places as there ever were entries. (Places
    /// go up, never down, when an entry comes before the first.)
    pub fn place(&mut self, at: usize) -> Option<Option<(u32, &mut T)>> {
        let slot = self.entries.get_mut(at)?;
        Some(slot.as_mut().map(|(number, entry)| (*number, &mut **entry)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_begin_anywhere() {
        let mut slots = Slots::new(18);
        slots.insert(0x2_0001, 'b');
        slots.insert(0x4_0000 | 0x2_0000, 'a');
        slots.insert(0x2_0002, 'c');
        assert_eq!(slots.entries.len(), 3);
        let places = (0..).map_while(|at| Some(slots.place(at)?.map(|(number, &mut entry)| (number, entry))));
        let all: Vec<_> = places.flatten().collect();
        assert_eq!(all, [(0x6_0000, 'a'), (0x2_0001, 'b'), (0x2_0002, 'c')]);
        for number in [0, 1, 0x1_ffff, 0x2_0000, 0x2_0003] {
            assert_eq!(slots.get(number), None, "{number:#x}");
        }
    }

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
        assert_eq!(slots.remove(0x13), None);
        assert_eq!(slots.get(0x23), Some(&'b'));
        assert_eq!(slots.remove(0x23), Some(Box::new('b')));
        assert!(
            (0..)
                .map_while(|at| slots.place(at).map(|place| place.is_none()))
                .all(|free| free)
        );
    }
}
