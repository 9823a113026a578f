//! Enumerations that travel as numbers.

/// `enum Name: type { Variant = number, … }` with `ALL`, `from_number` and `number`.
macro_rules! numbers {
    ($($(#[$doc:meta])* enum $name:ident: $kind:ident {
        $($(#[$variant_doc:meta])* $variant:ident = $number:literal,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr($kind)]
        pub enum $name {
            $($(#[$variant_doc])* $variant = $number,)*
        }

        impl $name {
            /// All variants.
            pub const ALL: [$name; [$($number,)*].len()] = [$($name::$variant,)*];

            /// The variant with a number.
            #[inline]
            pub const fn from_number(number: $kind) -> Option<$name> {
                match number {
                    $($number => Some($name::$variant),)*
                    _ => None,
                }
            }

            /// Number of the variant.
            #[inline]
            pub const fn number(self) -> $kind {
                self as $kind
            }
        }
    )*};
}

/// Bits: each as a number, in a module for those who build and check fields, and all of them as a set, for programs.
/// Behind `+`: one more number of the module.
macro_rules! bits {
    ($($(#[$doc:meta])* $module:ident $set:ident: $type:ident {
        $($(#[doc = $bit_doc:literal])* $bit:ident = $value:expr,)*
    } $(+ {
        $($(#[doc = $other_doc:literal])* $other:ident = $other_value:expr,)*
    })?)*) => { $(
        $(#[$doc])*
        pub mod $module {
            $($(#[doc = $bit_doc])* pub const $bit: $type = $value;)*
            /// Every bit there is.
            pub const ALL: $type = super::$set::all().bits();
            $($($(#[doc = $other_doc])* pub const $other: $type = $other_value;)*)?
        }

        bitflags::bitflags! {
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
            pub struct $set: $type {
                $($(#[doc = $bit_doc])* const $bit = $value;)*
            }
        }
    )* };
}
