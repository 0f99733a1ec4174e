//! The two scales that weigh a finding: how bad it is, and who finds out.

use serde::{Deserialize, Serialize};

use super::string_enum::string_enum;

string_enum! {
    /// How bad it is, for the author of the object.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Severity {
        /// Best practice; nothing breaks today.
        Advice = "advice",
        /// Runs, but not as written; or will probably end on the wrong node.
        Warning = "warning",
        /// Will not run, or does without something that the author asked for.
        Error = "error",
    }
}

string_enum! {
    /// Who finds out, and when, if Transom says nothing.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub enum Class {
        /// The API server refuses it while `spec.os.name` is `windows`; otherwise it is ignored in silence.
        Api = "refused by the API server on a pod whose spec.os.name is windows, else ignored",
        /// The API server refuses it whatever `spec.os.name` says.
        ApiAlways = "always refused by the API server",
        /// The kubelet rejects the pod at admission.
        Admit = "rejected by the kubelet",
        /// It fails or hangs at run time.
        Run = "fails or hangs at run time",
        /// It is ignored in silence.
        Ignored = "silently ignored",
        /// It works; it could be better, or may go wrong elsewhere.
        BestPractice = "best practice",
    }
}

impl Class {
    /// Whether the object cannot run whatever any author says: nothing is lost where it is refused.
    pub fn cannot_run(self) -> bool {
        matches!(self, Class::ApiAlways | Class::Admit)
    }
}
