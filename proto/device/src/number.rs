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
