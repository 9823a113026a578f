//! Objects of a device by their numbers, for whoever imports them (`man 3 ibv_import_device`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use vnic_verbs::{DeviceMemory, ProtectionDomain};

use crate::errno::Errno;
use crate::handle::Uses;
use crate::sync::lock;

/// What an imported region is known by.
#[derive(Debug, Clone, Copy)]
pub struct Keys {
    pub length: usize,
    pub lkey: u32,
    pub rkey: u32,
}

/// Objects that can be imported.
#[derive(Default)]
pub struct Named {
    pub domains: Table<(ProtectionDomain, Uses)>,
    pub regions: Table<Keys>,
    pub memories: Table<(DeviceMemory, Uses)>,
}

/// Objects of one kind.
pub struct Table<T>(Arc<Mutex<HashMap<u32, Arc<T>>>>);

impl<T> Clone for Table<T> {
    fn clone(&self) -> Self {
        Table(Arc::clone(&self.0))
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table(Arc::default())
    }
}

impl<T> Table<T> {
    /// Lists an object.
    pub fn list(&self, number: u32, object: T) -> Listed<T> {
        let object = Arc::new(object);
        lock(&self.0).insert(number, Arc::clone(&object));
        Listed {
            table: self.clone(),
            number,
            object,
        }
    }

    /// The object with a number; ENOENT if there is none.
    pub fn find(&self, number: u32) -> Result<Arc<T>, Errno> {
        lock(&self.0).get(&number).cloned().ok_or(Errno::NO_ENTRY)
    }
}

/// An object that can be imported while this value lives.
pub struct Listed<T> {
    table: Table<T>,
    number: u32,
    object: Arc<T>,
}

impl<T> Listed<T> {
    /// The same object, which has become another one.
    pub fn becomes(&mut self, object: T) {
        self.object = Arc::new(object);
        lock(&self.table.0).insert(self.number, Arc::clone(&self.object));
    }
}

impl<T> Drop for Listed<T> {
    fn drop(&mut self) {
        let mut all = lock(&self.table.0);
        // The number may be another object's by now.
        if all
            .get(&self.number)
            .is_some_and(|o| Arc::ptr_eq(o, &self.object))
        {
            all.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_while_its_object_is_there() {
        let table = Table::default();
        let mut first = table.list(7, 'a');
        assert_eq!(table.find(7).map(|o| *o), Ok('a'));
        first.becomes('b');
        assert_eq!(table.find(7).map(|o| *o), Ok('b'));
        let second = table.list(7, 'c');
        drop(first);
        assert_eq!(
            table.find(7).map(|o| *o),
            Ok('c'),
            "the number was given out anew"
        );
        drop(second);
        assert_eq!(table.find(7).map(|o| *o), Err(Errno::NO_ENTRY));
    }
}
