//! Processes that have an RDMA function.

use vnic_engine::rdma::Place;

use super::Caller;

/// Processes that have an RDMA function: one that has it alone, without a place, or those that share it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RdmaOwners(pub Vec<(Option<Place>, Caller)>);

impl RdmaOwners {
    /// The process that has the queue pair of this number.
    pub fn of(&self, qp: u32) -> Option<Caller> {
        self.of_place(Place::of(qp))
    }

    /// The process that has what belongs to a place: the one there, or the one that has the function alone.
    pub fn of_place(&self, of: Place) -> Option<Caller> {
        let has = |place: Option<Place>| place.is_none_or(|place| place == of);
        let owner = self.0.iter().find(|(place, _)| has(*place));
        owner.map(|(_, caller)| *caller)
    }

    /// The process at a place, or the one that has the function alone.
    pub fn at(&self, place: Option<Place>) -> Option<Caller> {
        let owner = self.0.iter().find(|(theirs, _)| *theirs == place);
        owner.map(|(_, caller)| *caller)
    }

    /// All processes, in the order in which they came.
    pub fn all(&self) -> impl Iterator<Item = Caller> {
        self.0.iter().map(|(_, caller)| *caller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_queue_pair_says_whose_it_is() {
        let caller = |pid| Caller {
            pid: Some(pid),
            uid: None,
        };
        let alone = RdmaOwners(vec![(None, caller(1))]);
        assert_eq!(
            (alone.of(2), alone.of(0xff_fffe)),
            (Some(caller(1)), Some(caller(1)))
        );
        let places = [0, 1, 63].map(|place| (Place::new(place), caller(place.into())));
        let shared = RdmaOwners(places.to_vec());
        let pid = |qp| shared.of(qp).and_then(|caller| caller.pid);
        assert_eq!((pid(2), pid(0x7f_ffff)), (Some(0), Some(0)));
        assert_eq!((pid(0x82_0002), pid(0x83_ffff)), (Some(1), Some(1)));
        assert_eq!((pid(0x84_0000), pid(0xff_fffe)), (None, Some(63)));
        assert_eq!(RdmaOwners::default().of(2), None);
    }
}
