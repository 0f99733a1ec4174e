//! Values of a field that request nothing which a Windows pod lacks: a finding of such a value is a warning or advice,
//! unless the API server rejects the field. Each rule lists its own.

use crate::model::cluster::severity::Severity;

/// A value that requests nothing which the pods have to do without.
#[derive(Debug)]
pub struct AsksForNothing {
    /// The value as in a manifest, such as `false` or `{drop: [ALL]}`.
    pub value: &'static str,
    /// The pods that lose nothing.
    pub pods: Pods,
    /// Why nothing is lost: lower case, no full stop. Also the message of the finding.
    pub because: &'static str,
    /// Where that is defined: documentation or source code.
    pub source: &'static str,
}

/// The pods that lose nothing if Windows ignores a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pods {
    /// Every Windows pod.
    All,
    /// HostProcess pods only: they run on the node itself.
    HostProcess,
}

impl Pods {
    /// The name in documentation.
    pub fn as_str(self) -> &'static str {
        match self {
            Pods::All => "every Windows pod",
            Pods::HostProcess => "HostProcess pods",
        }
    }
}

impl AsksForNothing {
    /// The severity of its finding. A HostProcess pod has what the value requests, so the field is only superfluous.
    pub fn severity(&self) -> Severity {
        match self.pods {
            Pods::All => Severity::Warning,
            Pods::HostProcess => Severity::Advice,
        }
    }
}
