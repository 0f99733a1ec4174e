//! The names of the webhook entries. They are frozen: field managers identify an entry by its name, and the
//! API server prefixes each audit annotation with it.

/// `/mutate`: any evidence of Windows.
pub const MUTATE: &str = "mutate.transom.dev";
/// `/mutate`: namespaces with a default operating system.
pub const DEFAULT_OS_MUTATE: &str = "default-os.mutate.transom.dev";
/// `/mutate`: Linux pods that could be scheduled on Windows nodes.
pub const LINUX_PODS_MUTATE: &str = "linux-pods.mutate.transom.dev";
/// `/mutate`: pods without evidence of an operating system whose image is on a listed registry.
pub const IMAGES_MUTATE: &str = "images.mutate.transom.dev";
/// `/validate`: pods that are certainly for Windows, by evidence 1 to 4; registered only if it fails closed.
pub const CERTAIN_VALIDATE: &str = "certain.validate.transom.dev";
/// `/validate`: any evidence of Windows, except what goes to [`CERTAIN_VALIDATE`] if that is registered.
pub const VALIDATE: &str = "validate.transom.dev";
/// `/validate`: namespaces with a default operating system.
pub const DEFAULT_OS_VALIDATE: &str = "default-os.validate.transom.dev";
/// `/validate`: templates without evidence in namespaces with a default node selector.
pub const DEFAULT_NODE_SELECTOR_VALIDATE: &str = "default-node-selector.validate.transom.dev";
/// `/validate`: Linux pods that could be scheduled on Windows nodes.
pub const LINUX_PODS_VALIDATE: &str = "linux-pods.validate.transom.dev";
/// `/validate`: objects without evidence of an operating system whose image is on a listed registry.
pub const IMAGES_VALIDATE: &str = "images.validate.transom.dev";

/// `/validate`: custom resources that describe pods with any evidence of Windows.
pub const CUSTOM_RESOURCES_VALIDATE: &str = "custom-resources.validate.transom.dev";

/// The annotation of both configurations with the hash of the facts about the cluster for which they were made.
pub const CLUSTER_CONFIG_HASH: &str = "transom.dev/cluster-config-hash";
/// The annotation of both configurations with the ConfigMap of these facts, as `namespace/name`.
pub const CLUSTER_CONFIG_MAP: &str = "transom.dev/cluster-config-map";

/// The items of a comma-separated list, such as namespaces, without empty ones: an empty variable means "none", and a
/// missing one means the default.
pub fn non_empty_items(list: Vec<String>) -> impl Iterator<Item = String> {
    list.into_iter()
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_names_nothing() {
        let named = |text: &str| non_empty_items(text.split(',').map(str::to_owned).collect()).collect();
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
