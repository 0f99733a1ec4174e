//! The two scales that weigh a finding: how bad it is, and who finds out.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How bad it is, for the author of the object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Best practice; nothing breaks today.
    Advice,
    /// Runs, but not as written; or will probably end on the wrong node.
    Warning,
    /// Will not run, or does without something that the author asked for.
    Error,
}

impl Severity {
    /// The name in every output.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Advice => "advice",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who finds out, and when, if Transom says nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// The API server refuses it while `spec.os.name` is `windows`; otherwise it is ignored in silence.
    Api,
    /// The API server refuses it whatever `spec.os.name` says.
    ApiAlways,
    /// The kubelet rejects the pod at admission.
    Admit,
    /// It fails or hangs at run time.
    Run,
    /// It is ignored in silence.
    Ignored,
    /// It works; it could be better, or may go wrong elsewhere.
    BestPractice,
}

impl Class {
    /// The name in documentation.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Api => "refused by the API server on a pod whose spec.os.name is windows, else ignored",
            Class::ApiAlways => "always refused by the API server",
            Class::Admit => "rejected by the kubelet",
            Class::Run => "fails or hangs at run time",
            Class::Ignored => "silently ignored",
            Class::BestPractice => "best practice",
        }
    }
}
