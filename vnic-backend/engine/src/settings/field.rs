//! Fields of keys: a row of the table names its field of [`AdapterSettings`] once. The functions that read, write and copy
//! the field by its key follow from that name; a name that does not exist does not compile.

use alloc::vec::Vec;

use vnic_wire::MacAddr;

use super::{AdapterSettings, DelayDrop, KeyDef, Value};

/// Field of a key.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Sets the field to a value that the key allows.
    pub(super) set: fn(&KeyDef, &mut AdapterSettings, &Value),
    /// Value of the field. `None`: it is not set, and something else decides what acts (a preset).
    pub(super) get: fn(&KeyDef, &AdapterSettings) -> Option<Value>,
    /// Copies the field from the second argument to the first.
    pub(super) copy: fn(&KeyDef, &mut AdapterSettings, &AdapterSettings),
    /// Notes the revision that wrote the key.
    pub(super) written: fn(&mut AdapterSettings, u64),
    /// Names of the field in messages of the control plane; two if a message has a field for each half of it.
    pub(super) messages: &'static [&'static str],
}

/// [`Field`] at a path below [`AdapterSettings`], after its names in messages.
macro_rules! field {
    ($($message:literal),+ : $($path:tt)+) => {
        $crate::settings::field::Field {
            messages: &[$($message),+],
            ..$crate::settings::field::field!($($path)+)
        }
    };
    ($($path:tt)+) => {
        $crate::settings::field::Field {
            messages: &[],
            set: |_, settings, value| $crate::settings::field::Setting::set(&mut settings.$($path)+, value),
            get: |_, settings| $crate::settings::field::Setting::get(&settings.$($path)+),
            written: |settings, by| $crate::settings::field::Setting::written(&mut settings.$($path)+, by),
            copy: |_, to, from| to.$($path)+.clone_from(&from.$($path)+),
        }
    };
}
pub(super) use field;

/// Type of a field. A value that does not fit leaves the field as it is.
pub(super) trait Setting {
    fn set(&mut self, value: &Value);
    fn get(&self) -> Option<Value>;

    /// Notes the revision that wrote the key. For fields that act with each write, also of the same value.
    fn written(&mut self, _by: u64) {}
}

impl Setting for bool {
    fn set(&mut self, value: &Value) {
        if let Value::Dword(number) = value {
            *self = *number != 0;
        }
    }

    fn get(&self) -> Option<Value> {
        Some(Value::Dword((*self).into()))
    }
}

impl Setting for Vec<MacAddr> {
    fn set(&mut self, value: &Value) {
        if let Value::Macs(macs) = value {
            self.clone_from(macs);
        }
    }

    fn get(&self) -> Option<Value> {
        Some(Value::Macs(self.clone()))
    }
}

macro_rules! numbers {
    ($($number:ty),+) => {$(
        impl Setting for $number {
            fn set(&mut self, value: &Value) {
                if let Value::Dword(number) = value
                    && let Ok(number) = (*number).try_into()
                {
                    *self = number;
                }
            }

            fn get(&self) -> Option<Value> {
                Some(Value::Dword((*self).into()))
            }
        }
    )+};
}
numbers!(u8, u16, u32);

/// Older name of a number that has another key: `None` while it is not stored.
impl Setting for Option<u8> {
    fn set(&mut self, value: &Value) {
        if let Value::Dword(number) = value {
            *self = u8::try_from(*number).ok().or(*self);
        }
    }

    fn get(&self) -> Option<Value> {
        self.map(|number| Value::Dword(number.into()))
    }
}

impl Setting for DelayDrop {
    fn set(&mut self, value: &Value) {
        self.timeout.set(value);
    }

    fn get(&self) -> Option<Value> {
        self.timeout.get()
    }

    fn written(&mut self, by: u64) {
        self.act = by;
    }
}

/// Conversion of words to numbers, as in [`Kind::Enum`](super::Kind::Enum): the discriminants of an enum.
macro_rules! words {
    ($($of:ident { $($word:ident),+ })+) => {$(
        impl $crate::settings::field::Setting for $of {
            fn set(&mut self, value: &Value) {
                $(if *value == Value::Dword($of::$word as u32) {
                    *self = $of::$word;
                })+
            }

            fn get(&self) -> Option<Value> {
                Some(Value::Dword(*self as u32))
            }
        }
    )+};
}
pub(super) use words;

impl KeyDef {
    /// Sets the key's field to a value that the key allows. A key that is not built has no field.
    pub fn set(&self, settings: &mut AdapterSettings, value: &Value) {
        if let Some(field) = self.field {
            (field.set)(self, settings, value);
        }
    }

    /// Value of the key's field. `None`: the key is not built, or the field is not set and something else decides what acts (a preset).
    pub fn get(&self, settings: &AdapterSettings) -> Option<Value> {
        (self.field?.get)(self, settings)
    }

    /// Names of the key's field in messages of the control plane.
    pub fn messages(&self) -> &'static [&'static str] {
        self.field.map_or(&[], |field| field.messages)
    }

    /// Tells the key's field the revision that wrote the key.
    pub fn written(&self, settings: &mut AdapterSettings, by: u64) {
        if let Some(field) = self.field {
            (field.written)(settings, by);
        }
    }

    /// Copies the key's field.
    pub fn copy(&self, to: &mut AdapterSettings, from: &AdapterSettings) {
        if let Some(field) = self.field {
            (field.copy)(self, to, from);
        }
    }
}
