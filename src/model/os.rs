//! Operating systems, the evidence for them, and the verdict that evidence adds up to.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::path::Path;
use super::string_enum::string_enum;

/// The operating systems that a pod can be for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Os {
    /// Windows.
    Windows,
    /// Linux.
    Linux,
}

impl Os {
    /// Reads `windows` or `linux` without regard to case.
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
    /// What kind of sign a piece of evidence is, strongest first.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum EvidenceKind {
        /// `spec.os.name`.
        OsName = "os-name",
        /// A nodeSelector on `kubernetes.io/os` or its beta form.
        NodeSelector = "node-selector",
        /// A nodeSelector on the build label or on a pool label that says Windows.
        PoolLabel = "pool-label",
        /// Required node affinity in which every term implies one operating system.
        NodeAffinity = "node-affinity",
        /// A RuntimeClass whose scheduling selects one operating system.
        RuntimeClass = "runtime-class",
        /// An effective `windowsOptions.hostProcess: true`.
        HostProcess = "host-process",
        /// An image that only exists for Windows.
        Image = "image",
        /// The default of the namespace, from the policy.
        Namespace = "namespace",
    }
}

impl EvidenceKind {
    /// Whether it decides by itself and may contradict another.
    pub fn is_strong(self) -> bool {
        self <= EvidenceKind::HostProcess
    }
}

/// One signal about the operating system of a subject.
#[derive(Clone, PartialEq, Debug)]
pub struct Evidence {
    /// What kind of sign it is.
    pub kind: EvidenceKind,
    /// Where it stands.
    pub path: Path,
    /// What stands there.
    pub value: String,
    /// What it says.
    pub os: Os,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.path, self.value)
    }
}

string_enum! {
    /// What the evidence adds up to.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
    pub enum Verdict {
        /// A Windows pod.
        Windows = "Windows",
        /// A Linux pod.
        Linux = "Linux",
        /// No sign, or a pod that may run on either.
        Unknown = "Unknown",
        /// Strong signs disagree.
        Conflicting = "Conflicting",
    }
}

/// A verdict with the evidence for it.
#[derive(Clone, PartialEq, Debug)]
pub struct Inference {
    /// The verdict.
    pub verdict: Verdict,
    /// Every sign, strongest first.
    pub evidence: Vec<Evidence>,
}

impl Inference {
    /// Whether the verdict rests on weak signs only (an image, the namespace's default).
    pub fn is_weak(&self) -> bool {
        self.evidence.iter().all(|e| !e.kind.is_strong())
    }
}
