//! Enumerations whose variants have names.

/// Declares an enumeration with the names of its variants: `ALL`, `name` and `Display` follow from one list.
///
/// ```
/// vnic_wire::named! {
///     /// A colour.
///     #[derive(Debug, Clone, Copy, PartialEq, Eq)]
///     pub enum Colour {
///         /// As the sky.
///         Blue = 7 => "blue",
///         /// As grass.
///         Green => "green",
///     }
/// }
/// assert_eq!(Colour::ALL.map(Colour::name), ["blue", "green"]);
/// ```
#[macro_export]
macro_rules! named {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$variant_meta:meta])* $variant:ident $(= $number:literal)? => $text:literal,)+
    }) => {
        $(#[$meta])*
        $vis enum $name { $($(#[$variant_meta])* $variant $(= $number)?,)+ }

        impl $name {
            /// All of them, in the order of their declaration.
            pub const ALL: [$name; [$($text),+].len()] = [$($name::$variant),+];

            /// The name for people and programs.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)+ }
            }
        }

        impl ::core::fmt::Display for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
