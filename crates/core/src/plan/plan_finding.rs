//! The findings of a plan for a workload, each with the rule or table row that is its source.

use schemars::JsonSchema;
use serde::Serialize;

use crate::model::syntax::string_enum::string_enum;
use crate::rules::Rule;

string_enum! {
    /// What an upgrade means for a workload, mildest first.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    pub enum UpgradeClass {
        /// It runs on the new build unchanged, with its current isolation.
        Unchanged = "unchanged",
        /// Its images run on the new build only with Hyper-V isolation.
        HyperVOnly = "hyperVOnly",
        /// The builds of its images are unknown from their names.
        Unknown = "unknown",
        /// It needs images for the new build.
        NewImage = "newImage",
        /// It requires nodes that the new nodes do not match.
        Pinned = "pinned",
        /// Something outside its pods blocks it.
        Blocked = "blocked",
    }
}

string_enum! {
    /// What keeps a workload on the old build, or off the new one.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    pub enum BlockedBy {
        /// A nodeSelector on the build.
        NodeSelector = "nodeSelector",
        /// A required node affinity on the build, or one that matches no node.
        NodeAffinity = "nodeAffinity",
        /// A build label that kubelets cannot set.
        RestrictedBuildLabel = "restrictedBuildLabel",
        /// A label of a node pool.
        PoolLabel = "poolLabel",
        /// Another label that the nodes of the new build do not have.
        NodeLabel = "nodeLabel",
        /// The node selector of its RuntimeClass.
        RuntimeClass = "runtimeClass",
        /// A node name.
        NodeName = "nodeName",
        /// An extended resource that the nodes of the new build do not offer.
        Resource = "resource",
        /// A taint on the nodes of the new build.
        Taint = "taint",
        /// A group-managed service account, whose password each node must be allowed to retrieve.
        Gmsa = "gmsa",
        /// HostProcess containers.
        HostProcess = "hostProcess",
        /// A DaemonSet that must exist for both builds.
        DaemonSet = "daemonSet",
        /// No controller that would create the pod again.
        NoController = "noController",
    }
}

/// The source of a finding.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct FindingSource {
    /// A rule, such as `TSM601 image-build-mismatch`, or a table row.
    pub name: String,
    /// Where it is documented.
    pub documentation: String,
}

impl FindingSource {
    /// A table row.
    pub(super) fn row(name: impl Into<String>, source: &str) -> Self {
        FindingSource {
            name: name.into(),
            documentation: source.to_owned(),
        }
    }

    /// A rule of the catalogue.
    pub(super) fn rule(rule: &Rule) -> Self {
        FindingSource {
            name: format!("{} {}", rule.id, rule.name),
            documentation: rule.see.first().copied().unwrap_or_default().to_owned(),
        }
    }
}

string_enum! {
    /// How it is known whether a proposed image exists.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    pub enum RegistryCheck {
        /// Microsoft publishes the image, according to its lists of tags. No registry was asked, or none answered.
        Published = "published",
        /// The image exists.
        Exists = "exists",
        /// The image does not exist.
        Missing = "missing",
    }
}

/// A replacement image.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Proposal {
    /// The reference.
    pub image: String,
    /// Whether the image exists.
    pub verified: RegistryCheck,
}

/// One finding about a workload.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanFinding {
    /// The class that it gives the workload.
    pub class: UpgradeClass,
    /// The cause, for pinned or blocked workloads; otherwise absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<BlockedBy>,
    /// Whether the workload cannot move until this is fixed or verified.
    pub blocks: bool,
    /// The field path.
    pub path: String,
    /// The message: lower case, no full stop.
    pub message: String,
    /// The remedy: lower case, no full stop. Absent if nothing needs to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The source of the finding.
    pub source: FindingSource,
    /// A replacement image; absent if none is proposed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proposed: Option<Proposal>,
}

impl PlanFinding {
    /// A finding that blocks the workload, unless its class is `Unchanged`.
    pub(super) fn new(
        class: UpgradeClass,
        path: impl Into<String>,
        message: impl Into<String>,
        source: FindingSource,
    ) -> Self {
        PlanFinding {
            class,
            cause: None,
            blocks: class != UpgradeClass::Unchanged,
            path: path.into(),
            message: message.into(),
            remedy: None,
            source,
            proposed: None,
        }
    }

    pub(super) fn caused_by(self, cause: BlockedBy) -> Self {
        PlanFinding {
            cause: Some(cause),
            ..self
        }
    }

    pub(super) fn remedy(self, remedy: impl Into<String>) -> Self {
        PlanFinding {
            remedy: Some(remedy.into()),
            ..self
        }
    }

    /// The same finding as a note that does not block.
    pub(super) fn note(self) -> Self {
        PlanFinding {
            blocks: false,
            ..self
        }
    }
}
