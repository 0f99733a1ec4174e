//! The names of the entries. They are frozen: an entry is known by its name to every field manager that owns a part of it,
//! and the API server puts it before each audit annotation.

/// `/mutate`: any sign of Windows.
pub const MUTATE: &str = "mutate.transom.dev";
/// `/mutate`: namespaces with a default operating system.
pub const DEFAULT_OS_MUTATE: &str = "default-os.mutate.transom.dev";
/// `/mutate`: Linux pods that could land on Windows nodes.
pub const LINUX_PODS_MUTATE: &str = "linux-pods.mutate.transom.dev";
/// `/validate`: what is certainly for Windows, by evidence 1 to 4; registered only if it fails closed.
pub const CERTAIN_VALIDATE: &str = "certain.validate.transom.dev";
/// `/validate`: any sign of Windows, except what goes to [`CERTAIN_VALIDATE`] where that is registered.
pub const VALIDATE: &str = "validate.transom.dev";
/// `/validate`: namespaces with a default operating system.
pub const DEFAULT_OS_VALIDATE: &str = "default-os.validate.transom.dev";
/// `/validate`: Linux pods that could land on Windows nodes.
pub const LINUX_PODS_VALIDATE: &str = "linux-pods.validate.transom.dev";

/// Every name, those of `/mutate` first.
pub const ALL: [&str; 7] = [
    MUTATE,
    DEFAULT_OS_MUTATE,
    LINUX_PODS_MUTATE,
    CERTAIN_VALIDATE,
    VALIDATE,
    DEFAULT_OS_VALIDATE,
    LINUX_PODS_VALIDATE,
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
