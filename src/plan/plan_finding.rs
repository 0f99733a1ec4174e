//! What is said of a workload: statements, each with the rule or the row of a table that it rests on.

use serde::Serialize;

use crate::model::string_enum::string_enum;
use crate::rules;

string_enum! {
    /// What an upgrade means for a workload, the mildest first.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub enum UpgradeClass {
        /// It runs on the new build as it is, with the isolation that it has.
        Unchanged = "unchanged",
        /// Its images run on the new build by Hyper-V isolation only.
        HyperVOnly = "hyperVOnly",
        /// What its images are for is not known from their names.
        Unknown = "unknown",
        /// It needs images for the new build.
        NewImage = "newImage",
        /// It requires nodes that the new ones will not be.
        Pinned = "pinned",
        /// Something else is in the way, which its pods cannot say.
        Blocked = "blocked",
    }
}

string_enum! {
    /// What holds a workload to the old build, or keeps it off the new one.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub enum BlockedBy {
        /// A nodeSelector of the build.
        NodeSelector = "nodeSelector",
        /// A required node affinity of the build, or one that matches no node.
        NodeAffinity = "nodeAffinity",
        /// A label of the build that kubelets cannot write.
        RestrictedBuildLabel = "restrictedBuildLabel",
        /// A label of a pool of nodes.
        PoolLabel = "poolLabel",
        /// Another label that the nodes of the new build do not have.
        NodeLabel = "nodeLabel",
        /// What its RuntimeClass selects.
        RuntimeClass = "runtimeClass",
        /// A node by its name.
        NodeName = "nodeName",
        /// A taint of the nodes of the new build.
        Taint = "taint",
        /// A group-managed service account, whose password each node must be allowed to read.
        Gmsa = "gmsa",
        /// HostProcess containers.
        HostProcess = "hostProcess",
        /// A DaemonSet that must be there for both builds.
        DaemonSet = "daemonSet",
        /// No controller, which would make the pod anew.
        NoController = "noController",
    }
}

/// What a statement rests on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FindingSource {
    /// A rule, `TSM601 image-build-mismatch`, or the row of a table.
    pub name: String,
    /// Where it can be read.
    pub source: String,
}

impl FindingSource {
    /// The row of a table.
    pub(super) fn row(name: impl Into<String>, source: &str) -> Self {
        FindingSource {
            name: name.into(),
            source: source.to_owned(),
        }
    }

    /// A rule of the catalogue, by its name.
    pub(super) fn rule(name: &str) -> Self {
        let rule = rules::find(name);
        FindingSource {
            name: rule.map_or_else(|| name.to_owned(), |rule| format!("{} {}", rule.id, rule.name)),
            source: rule
                .and_then(|rule| rule.see.first())
                .copied()
                .unwrap_or_default()
                .to_owned(),
        }
    }
}

string_enum! {
    /// What a registry has said of a proposed image.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub enum RegistryCheck {
        /// No registry was asked, or none answered.
        NotVerified = "notVerified",
        /// The registry has it.
        Exists = "exists",
        /// The registry has nothing by that name.
        Missing = "missing",
    }
}

/// An image that would do, by the pattern of the one that is there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Proposal {
    /// The reference.
    pub image: String,
    /// Whether there is such an image.
    pub verified: RegistryCheck,
}

/// One thing that is to be said of a workload.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanFinding {
    /// What it makes of the workload.
    pub class: UpgradeClass,
    /// By what, for what is pinned or blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<BlockedBy>,
    /// Whether the workload cannot be moved before this is fixed, or found out.
    pub holds: bool,
    /// The field that it is about.
    pub path: String,
    /// What is so: lower case, no full stop.
    pub message: String,
    /// What to do: lower case, no full stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// What it rests on.
    pub because: FindingSource,
    /// An image that would do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proposed: Option<Proposal>,
}

impl PlanFinding {
    /// A statement that holds the workload, unless it says that it runs unchanged.
    pub(super) fn new(
        class: UpgradeClass,
        path: impl Into<String>,
        message: impl Into<String>,
        because: FindingSource,
    ) -> Self {
        PlanFinding {
            class,
            by: None,
            holds: class != UpgradeClass::Unchanged,
            path: path.into(),
            message: message.into(),
            remedy: None,
            because,
            proposed: None,
        }
    }

    pub(super) fn by(self, by: BlockedBy) -> Self {
        PlanFinding { by: Some(by), ..self }
    }

    pub(super) fn remedy(self, remedy: impl Into<String>) -> Self {
        PlanFinding {
            remedy: Some(remedy.into()),
            ..self
        }
    }

    /// The same, as something to know that holds nothing up.
    pub(super) fn note(self) -> Self {
        PlanFinding { holds: false, ..self }
    }
}
