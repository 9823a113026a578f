//! Conversion between enums whose values have the same names.

/// Function that converts a value of one enum to that of the same name of another.
macro_rules! same {
    ($(#[$doc:meta])* $visibility:vis fn $name:ident($from:ty) -> $to:ty { $($value:ident),+ }) => {
        $(#[$doc])* $visibility fn $name(value: $from) -> $to {
            match value { $(<$from>::$value => <$to>::$value),+ }
        }
    };
}
pub(crate) use same;
