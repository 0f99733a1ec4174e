//! Operating systems, the evidence for them, and the resulting verdict.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::model::syntax::path::Path;
use crate::model::syntax::string_enum::string_enum;

/// The operating systems of pods.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Os {
    Windows,
    Linux,
}

impl Os {
    /// Parses `windows` or `linux` in any letter case.
    pub fn parse_lenient(name: &str) -> Option<Os> {
        if name.eq_ignore_ascii_case("windows") {
            Some(Os::Windows)
        } else if name.eq_ignore_ascii_case("linux") {
            Some(Os::Linux)
        } else {
            None
        }
    }

    /// The value of the label `kubernetes.io/os`.
    pub fn label(self) -> &'static str {
        match self {
            Os::Windows => "windows",
            Os::Linux => "linux",
        }
    }
}

string_enum! {
    /// The kinds of evidence, strongest first.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum EvidenceKind {
        /// `spec.os.name`.
        OsName = "os-name",
        /// A nodeSelector on `kubernetes.io/os` or its beta form.
        NodeSelector = "node-selector",
        /// The default node selector of the namespace, which admission adds to the pods of a template.
        NamespaceNodeSelector = "namespace-node-selector",
        /// A nodeSelector on the build label or on a node label that means Windows.
        NodeLabel = "node-label",
        /// Required node affinity in which every term implies one operating system.
        NodeAffinity = "node-affinity",
        /// A RuntimeClass whose scheduling selects one operating system.
        RuntimeClass = "runtime-class",
        /// An effective `windowsOptions.hostProcess: true`.
        HostProcess = "host-process",
        /// A RuntimeClass of a template that does not exist yet, with the name of one for Windows.
        AbsentRuntimeClass = "absent-runtime-class",
        /// An image that only exists for Windows.
        Image = "image",
        /// What the author states for a file, with `--os`.
        Stated = "stated",
        /// The default of the namespace, from the policy.
        Namespace = "namespace",
    }
}

impl EvidenceKind {
    /// Whether it decides alone and may contradict other evidence.
    pub fn is_strong(self) -> bool {
        self <= EvidenceKind::HostProcess
    }
}

/// A sign of the operating system of an object.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Evidence {
    /// The field.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
    pub path: Path,
    /// Its value.
    pub value: String,
    /// The kind of evidence.
    pub kind: EvidenceKind,
    /// The operating system that it indicates.
    #[serde(skip)]
    pub os: Os,
}

fn as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(path)
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.path, self.value)
    }
}

string_enum! {
    /// The conclusion from the evidence.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, JsonSchema)]
    pub enum Verdict {
        /// A Windows pod.
        Windows = "Windows",
        /// A Linux pod.
        Linux = "Linux",
        /// No evidence, or a pod that may run on either system.
        Unknown = "Unknown",
        /// Strong evidence disagrees.
        Conflicting = "Conflicting",
    }
}

/// A verdict with the evidence for it.
#[derive(Clone, PartialEq, Debug)]
pub struct Inference {
    pub verdict: Verdict,
    /// All evidence, strongest first.
    pub evidence: Vec<Evidence>,
}

impl Inference {
    /// Whether the verdict is based only on weak evidence (an image, the namespace's default).
    pub fn is_weak(&self) -> bool {
        self.evidence.iter().all(|e| !e.kind.is_strong())
    }

    /// Whether the scheduler sees the operating system: the other evidence is only used by Transom or the kubelet. `in_template`:
    /// the admission of pods adds nothing.
    pub fn selects_nodes(&self, in_template: bool) -> bool {
        self.evidence.iter().any(|evidence| match evidence.kind {
            EvidenceKind::NodeSelector | EvidenceKind::NodeLabel | EvidenceKind::NodeAffinity => true,
            EvidenceKind::RuntimeClass | EvidenceKind::NamespaceNodeSelector => !in_template,
            _ => false,
        })
    }

    /// Whether only the author's statement decides: the object itself says nothing, so admission would not know it.
    pub fn is_stated(&self) -> bool {
        (self.evidence.first()).is_some_and(|evidence| evidence.kind == EvidenceKind::Stated)
    }
}
