//! The files of a check: reads manifests, configurations, baselines, policies and their tests. What is in them is evaluated
//! by `transom_core::check`.

mod baseline_file;
mod config;
mod document_file;
mod environment;
pub(crate) mod files;
mod knowledge_file;
mod policies;
pub mod policy_tests;
mod rendered;
mod repository;

pub use transom_core::check::*;

pub use self::baseline_file::read_baseline;
pub use self::config::{CONFIG_FILE, CheckConfig, ConfigFailOn, ConfigOs, KubernetesVersion, find_config};
pub use self::document_file::DocumentFileError;
pub use self::environment::settings;
pub use self::knowledge_file::{KnowledgeLoadError, read_knowledge};
pub use self::policies::{has_node_resource, note_policies, read_policies_after};
pub use self::repository::Repository;
