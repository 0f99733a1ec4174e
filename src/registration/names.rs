//! The names of the entries. They are frozen: an entry is known by its name to every field manager that owns a part of it.
//!
//! `strong` is the one that is always there. An upgrade from a registration with two entries therefore keeps the one that
//! most pods go to, with the `caBundle` that stands in it.

/// `/mutate`: any sign of Windows.
pub const STRONG_MUTATE: &str = "strong.mutate.transom.dev";
/// `/mutate`: a part of the pods of [`STRONG_MUTATE`], in registrations made before that one was for all of them.
pub const MAYBE_MUTATE: &str = "maybe.mutate.transom.dev";
/// `/mutate`: namespaces with a default operating system.
pub const DEFAULT_OS_MUTATE: &str = "default-os.mutate.transom.dev";
/// `/mutate`: the reverse guard.
pub const GUARD_MUTATE: &str = "guard.mutate.transom.dev";
/// `/validate`: any sign of Windows; where it fails closed, evidence 1 to 4.
pub const STRONG_VALIDATE: &str = "strong.validate.transom.dev";
/// `/validate`: the rest of the pods with a sign of Windows, where [`STRONG_VALIDATE`] fails closed.
pub const MAYBE_VALIDATE: &str = "maybe.validate.transom.dev";
/// `/validate`: namespaces with a default operating system.
pub const DEFAULT_OS_VALIDATE: &str = "default-os.validate.transom.dev";
/// `/validate`: the reverse guard.
pub const GUARD_VALIDATE: &str = "guard.validate.transom.dev";

/// Every name, those of `/mutate` first.
pub const ALL: [&str; 8] = [
    STRONG_MUTATE,
    MAYBE_MUTATE,
    DEFAULT_OS_MUTATE,
    GUARD_MUTATE,
    STRONG_VALIDATE,
    MAYBE_VALIDATE,
    DEFAULT_OS_VALIDATE,
    GUARD_VALIDATE,
];

/// The namespaces of a list that was split at its commas: what is empty names none, so that an empty variable means
/// "none" where a missing one means the default.
pub fn named_namespaces(list: Vec<String>) -> impl Iterator<Item = String> {
    list.into_iter()
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_of_namespaces_names_none() {
        let named = |text: &str| named_namespaces(text.split(',').map(str::to_owned).collect()).collect();
        for (text, names) in [
            ("", &[][..]),
            (",", &[]),
            ("a,, b", &["a", "b"]),
            ("123", &["123"]),
        ] {
            let found: Vec<String> = named(text);
            assert_eq!(found, names, "{text:?}");
        }
    }
}
