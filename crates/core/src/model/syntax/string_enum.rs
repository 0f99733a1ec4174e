//! The macro for enums whose variants have the same name in every output: it defines variant and name together.

/// An enum of [`string_enum`].
pub trait StringEnum {
    /// The names of its variants, in their order.
    const NAMES: &'static [&'static str];
}

/// An enum with `ALL` variants, the name of each as `as_str`, and `Display` with that name.
#[macro_export]
#[doc(hidden)]
macro_rules! string_enum {
    (
        $(#[$of_enum:meta])*
        pub enum $name:ident {
            $($(#[$of_variant:meta])* $variant:ident = $text:literal,)*
        }
    ) => {
        $(#[$of_enum])*
        pub enum $name {
            $($(#[$of_variant])* $variant,)*
        }

        impl $name {
            /// Every variant, in its order.
            pub const ALL: [$name; [$($text),*].len()] = [$($name::$variant),*];

            /// The name in every output.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
            }
        }

        impl $crate::model::syntax::string_enum::StringEnum for $name {
            const NAMES: &'static [&'static str] = &[$($text),*];
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub use string_enum;
