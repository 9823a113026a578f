//! Seats of processes that share the RDMA function of an adapter: what each but the first has of its own.
//!
//! The first has the function itself, as a guest has; the numbers of queue pairs say whose they are (`Place::of`).

use vnic_engine::rdma::Place;
use vnic_fabric::switch::PortId;

use crate::rdma::Function;

/// Seats beside the functions of a data core, by their adapters' ports.
#[derive(Default)]
pub struct Seats {
    ports: Vec<Option<Box<Table>>>,
    /// Number of tables.
    tables: usize,
}

/// Seats beside a function.
#[derive(Default)]
struct Table {
    /// By place; that of place 0 stays empty.
    seats: Vec<Option<Box<Function>>>,
    /// Number of seats that are taken, with that of a process that sends.
    taken: usize,
    /// Place whose turn is the next.
    next: u8,
    /// Version of the function's GID table that the seats have.
    gids: u64,
}

impl Seats {
    #[inline]
    fn table(&self, port: PortId) -> Option<&Table> {
        self.ports.get(usize::from(port.0))?.as_deref()
    }

    fn table_mut(&mut self, port: PortId) -> Option<&mut Table> {
        self.ports.get_mut(usize::from(port.0))?.as_deref_mut()
    }

    /// Whether there are no seats.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.tables == 0
    }

    /// Whether a port has seats beside its function.
    #[inline]
    pub fn any(&self, port: PortId) -> bool {
        !self.is_empty() && self.table(port).is_some()
    }

    /// Number of seats beside the function of a port.
    pub fn len(&self, port: PortId) -> usize {
        self.table(port).map_or(0, |table| table.taken)
    }

    /// The seat at a place.
    pub fn get_mut(&mut self, port: PortId, place: Place) -> Option<&mut Function> {
        let seats = &mut self.table_mut(port)?.seats;
        seats.get_mut(usize::from(place.number()))?.as_deref_mut()
    }

    /// The seats beside a function.
    pub fn of(&self, port: PortId) -> impl Iterator<Item = &Function> {
        let tables = self.table(port).into_iter();
        tables.flat_map(|table| table.seats.iter().filter_map(Option::as_deref))
    }

    /// The seats beside a function, to change them.
    pub fn of_mut(&mut self, port: PortId) -> impl Iterator<Item = &mut Function> {
        let tables = self.table_mut(port).into_iter();
        tables.flat_map(|table| table.seats.iter_mut().filter_map(Option::as_deref_mut))
    }

    /// All seats, with their ports.
    pub fn all_mut(&mut self) -> impl Iterator<Item = (PortId, &mut Function)> {
        let ports = self.ports.iter_mut().enumerate();
        ports.flat_map(|(port, table)| {
            let seats = table.iter_mut().flat_map(|table| table.seats.iter_mut());
            seats.filter_map(move |seat| Some((PortId(port as u16), seat.as_deref_mut()?)))
        })
    }

    /// Takes in a seat that is new, with this version of the function's GID table.
    pub fn put(&mut self, port: PortId, place: Place, seat: Function, gids: u64) {
        let i = usize::from(port.0);
        if self.ports.len() <= i {
            self.ports.resize_with(i + 1, || None);
        }
        self.tables += usize::from(self.ports[i].is_none());
        let table = self.ports[i].get_or_insert_default();
        if table.seats.is_empty() {
            table.seats.resize_with(Place::COUNT.into(), || None);
            table.gids = gids;
        }
        table.taken += 1;
        table.seats[usize::from(place.number())] = Some(Box::new(seat));
    }

    /// Removes a seat.
    pub fn take(&mut self, port: PortId, place: Place) -> Option<Box<Function>> {
        let seat = self.lift(port, place);
        self.ended(port);
        seat
    }

    /// Notes that a seat is gone for good.
    pub fn ended(&mut self, port: PortId) {
        if let Some(table) = self.table_mut(port) {
            table.taken -= 1;
            if table.taken == 0 {
                self.ports[usize::from(port.0)] = None;
                self.tables -= 1;
            }
        }
    }

    /// Takes the seat of a process that sends out of its place; [`put_back`](Seats::put_back) follows.
    pub fn lift(&mut self, port: PortId, place: Place) -> Option<Box<Function>> {
        self.table_mut(port)?
            .seats
            .get_mut(usize::from(place.number()))?
            .take()
    }

    /// Puts a seat back to its place.
    pub fn put_back(&mut self, port: PortId, place: Place, seat: Option<Box<Function>>) {
        if let Some(table) = self.table_mut(port) {
            table.seats[usize::from(place.number())] = seat;
        }
    }

    /// Removes all seats of a port.
    pub fn take_all(&mut self, port: PortId) -> Vec<Box<Function>> {
        let table = self.ports.get_mut(usize::from(port.0)).and_then(Option::take);
        self.tables -= usize::from(table.is_some());
        let seats = table.into_iter().flat_map(|table| table.seats);
        seats.flatten().collect()
    }

    /// The place whose turn it is, and notes that the turn goes to the one behind it; place 0 is the function's.
    pub fn next_turn(&mut self, port: PortId) -> Place {
        let Some(table) = self.table_mut(port) else {
            return Place::default();
        };
        for _ in 0..Place::COUNT {
            let place = Place::new(table.next).unwrap_or_default();
            table.next = (place.number() + 1) % Place::COUNT;
            if place == Place::default() || table.seats[usize::from(place.number())].is_some() {
                return place;
            }
        }
        Place::default()
    }

    /// Brings the seats' GID tables in line with that of their function.
    #[inline]
    pub fn follow_gids(&mut self, port: PortId, function: &Function) {
        let version = function.gid_version();
        if let Some(table) = self.table_mut(port)
            && table.gids != version
        {
            table.gids = version;
            for seat in table.seats.iter_mut().flatten() {
                seat.follow_gids(function);
            }
        }
    }
}
