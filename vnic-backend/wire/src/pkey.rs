//! Partition keys (IBTA vol 1 section 10.9): which ports may speak with each other.

/// Bit of a P_Key that says that its port is a full member of the partition; the 15 bits below it are the partition (IBTA vol 1
/// section 10.9.1).
pub const FULL_MEMBER: u16 = 0x8000;

/// The P_Key of full members of the default partition, which every port has unless somebody takes it out of its table.
pub const DEFAULT_PKEY: u16 = 0xffff;

/// Most entries of a port's table.
pub const ENTRIES_MAX: usize = 16;

/// The partition that a P_Key is of: its lower 15 bits. 0 is none.
#[inline]
pub const fn partition(pkey: u16) -> u16 {
    pkey & !FULL_MEMBER
}

/// Whether a packet with the first P_Key is for somebody with the second one: they are of one partition, and one of them is a full
/// member's (IBTA vol 1 section 10.9.3). A P_Key without a partition is for nobody.
#[inline]
pub const fn admits(packet: u16, own: u16) -> bool {
    partition(packet ^ own) == 0 && (packet | own) & FULL_MEMBER != 0 && partition(own) != 0
}

/// The P_Keys of a port: 1 to [`ENTRIES_MAX`], none twice, each of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PkeyTable {
    keys: [u16; ENTRIES_MAX],
    len: u8,
}

/// Reason why P_Keys are no table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PkeyError {
    /// There is none, or there are too many.
    #[error("{0} P_Keys; 1 to {ENTRIES_MAX} are allowed")]
    Count(usize),
    /// A P_Key is of no partition.
    #[error(
        "P_Key {0:#06x} is of no partition: 0x0001 to 0x7fff are allowed for limited members, 0x8001 to 0xffff for full ones"
    )]
    NoPartition(u16),
    /// A P_Key is there twice.
    #[error("P_Key {0:#06x} is there twice")]
    Twice(u16),
}

impl Default for PkeyTable {
    /// The table of a full member of the default partition.
    fn default() -> PkeyTable {
        let mut keys = [0; ENTRIES_MAX];
        keys[0] = DEFAULT_PKEY;
        PkeyTable { keys, len: 1 }
    }
}

impl PkeyTable {
    /// Makes a table of P_Keys, which keep their order.
    pub fn new(pkeys: &[u16]) -> Result<PkeyTable, PkeyError> {
        if pkeys.is_empty() || pkeys.len() > ENTRIES_MAX {
            return Err(PkeyError::Count(pkeys.len()));
        }
        let mut keys = [0; ENTRIES_MAX];
        for (i, pkey) in pkeys.iter().enumerate() {
            if partition(*pkey) == 0 {
                return Err(PkeyError::NoPartition(*pkey));
            }
            if pkeys[..i].contains(pkey) {
                return Err(PkeyError::Twice(*pkey));
            }
            keys[i] = *pkey;
        }
        let len = pkeys.len() as u8;
        Ok(PkeyTable { keys, len })
    }

    /// The P_Keys, by index.
    #[inline]
    pub fn as_slice(&self) -> &[u16] {
        &self.keys[..usize::from(self.len).min(ENTRIES_MAX)]
    }

    /// Number of entries.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> u16 {
        self.len.into()
    }

    /// The P_Key at an index; 0, which is for nobody, where none is.
    #[inline]
    pub fn get(&self, index: u16) -> u16 {
        self.as_slice().get(usize::from(index)).copied().unwrap_or(0)
    }

    /// Whether a packet with a P_Key is for the port: one of its P_Keys admits it.
    pub fn admits(&self, packet: u16) -> bool {
        self.as_slice().iter().any(|own| admits(packet, *own))
    }

    /// Index of the port's P_Key of the same partition as another port's; of two, that of a full member.
    pub fn index_of(&self, pkey: u16) -> Option<u16> {
        let keys = self.as_slice().iter().zip(0_u16..);
        let same = keys.filter(|(own, _)| partition(**own) == partition(pkey));
        same.max_by_key(|(own, _)| **own).map(|(_, index)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IBTA vol 1 section 10.9.3, row by row: full and limited members of a partition, and of another one.
    #[test]
    fn who_speaks_with_whom() {
        const FULL: u16 = 0x8001;
        const LIMITED: u16 = 0x0001;
        for (packet, own, speaks) in [
            (FULL, FULL, true),
            (FULL, LIMITED, true),
            (LIMITED, FULL, true),
            (LIMITED, LIMITED, false),
            (0x8002, FULL, false),
            (0x8002, LIMITED, false),
            (0x0002, FULL, false),
            (0x0002, LIMITED, false),
            (DEFAULT_PKEY, DEFAULT_PKEY, true),
            (0x7fff, DEFAULT_PKEY, true),
            (0x7fff, 0x7fff, false),
            (DEFAULT_PKEY, FULL, false),
            // No partition.
            (0x8000, 0x8000, false),
            (0, 0x8000, false),
            (0x8000, 0, false),
            (0, 0, false),
        ] {
            assert_eq!(admits(packet, own), speaks, "{packet:#06x} to {own:#06x}");
            assert_eq!(admits(own, packet), speaks, "{own:#06x} to {packet:#06x}");
        }
    }

    #[test]
    fn a_table_has_what_it_was_made_of() {
        let table = PkeyTable::new(&[0xffff, 0x0001, 0x8001, 0x0002]).expect("a table");
        assert_eq!(table.as_slice(), [0xffff, 0x0001, 0x8001, 0x0002]);
        assert_eq!([table.get(2), table.get(4), table.get(u16::MAX)], [0x8001, 0, 0]);
        assert_eq!(
            [table.index_of(0x0001), table.index_of(0x8002)],
            [Some(2), Some(3)]
        );
        assert_eq!(table.index_of(0x8003), None);
        assert!(table.admits(0x0001) && table.admits(0x8002));
        assert!(!table.admits(0x0002) && !table.admits(0x8003) && !table.admits(0));
        assert_eq!(PkeyTable::default().as_slice(), [DEFAULT_PKEY]);
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let all: [u16; 17] = core::array::from_fn(|i| i as u16 + 1);
        assert!(PkeyTable::new(&all[..16]).is_ok());
        for (wrong, error) in [
            (&all[..], PkeyError::Count(17)),
            (&[], PkeyError::Count(0)),
            (&[1, 0x8000], PkeyError::NoPartition(0x8000)),
            (&[0], PkeyError::NoPartition(0)),
            (&[1, 0x8001, 1], PkeyError::Twice(1)),
        ] {
            assert_eq!(PkeyTable::new(wrong), Err(error));
        }
    }
}
