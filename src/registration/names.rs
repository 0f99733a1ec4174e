//! The names of the entries. They are frozen: an entry is known by its name to everybody who owns a part of it.

/// `/mutate`: evidence 1 to 4.
pub const STRONG_MUTATE: &str = "strong.mutate.transom.dev";
/// `/mutate`: critical pods, HostProcess, RuntimeClasses, images.
pub const MAYBE_MUTATE: &str = "maybe.mutate.transom.dev";
/// `/mutate`: namespaces with a default operating system.
pub const DEFAULT_OS_MUTATE: &str = "default-os.mutate.transom.dev";
/// `/mutate`: the reverse guard.
pub const GUARD_MUTATE: &str = "guard.mutate.transom.dev";
/// `/validate`: evidence 1 to 4.
pub const STRONG_VALIDATE: &str = "strong.validate.transom.dev";
/// `/validate`: critical pods, HostProcess, RuntimeClasses, images.
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
