//! Structs with written offsets, which the compiler checks.

/// A field, as `SPEC.md` lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Name.
    pub name: &'static str,
    /// Bytes in front of the field.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
}

/// A struct, as `SPEC.md` lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Name.
    pub name: &'static str,
    /// Size in bytes.
    pub size: usize,
    /// Fields, without a gap.
    pub fields: &'static [Field],
}

/// Size of the field that a projection of a struct leads to.
pub(crate) const fn size_behind<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// Structs of the contract: `struct Name: size { offset field: type, … }`. The compiler asserts sizes and offsets;
/// `Default` is all zeros; `LAYOUTS` lists the structs.
macro_rules! layouts {
    ($($(#[$doc:meta])* struct $name:ident: $size:literal {
        $($(#[$field_doc:meta])* $offset:literal $field:ident: $kind:ty,)*
    })*) => {
        $(
            $(#[$doc])*
            #[derive(
                Debug, Clone, Copy, PartialEq, Eq, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
                zerocopy::KnownLayout,
            )]
            #[repr(C)]
            pub struct $name {
                $($(#[$field_doc])* pub $field: $kind,)*
            }

            const _: () = {
                assert!(size_of::<$name>() == $size && $size % 8 == 0);
                $(assert!(core::mem::offset_of!($name, $field) == $offset);)*
            };

            impl Default for $name {
                fn default() -> $name {
                    zerocopy::FromZeros::new_zeroed()
                }
            }

            impl $name {
                /// Size, and offsets of the fields.
                pub const LAYOUT: $crate::Layout = $crate::Layout {
                    name: stringify!($name),
                    size: $size,
                    fields: &[$($crate::Field {
                        name: stringify!($field),
                        offset: $offset,
                        size: $crate::layout::size_behind(|s: &$name| &s.$field),
                    },)*],
                };
            }
        )*

        /// Layouts of this module's structs.
        pub const LAYOUTS: &[$crate::Layout] = &[$($name::LAYOUT,)*];
    };
}
