//! The kinds of the custom resources, whose fields the program knows.

/// The API version of the custom resources.
pub const API_VERSION: &str = "transom.dev/v1alpha1";
/// The kind of the policy for pods.
pub const POD_POLICY: &str = "WindowsPodPolicy";
/// The kind of the policy for nodes.
pub const NODE_POLICY: &str = "WindowsNodePolicy";
/// The kind of a pool of nodes.
pub const NODE_POOL: &str = "WindowsNodePool";
