//! The two scales of a finding: how severe it is, and which component rejects it or fails.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::syntax::string_enum::string_enum;

string_enum! {
    /// How severe it is for the author of the object.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum Severity {
        /// Best practice; nothing fails now.
        Advice = "advice",
        /// Runs, but not as written; or will probably be scheduled on the wrong node.
        Warning = "warning",
        /// Will not run, or lacks something that the author requested.
        Error = "error",
    }
}

string_enum! {
    /// Which component rejects the object or fails, and when, without Transom.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub enum Class {
        /// The API server rejects it if `spec.os.name` is `windows`; otherwise it is silently ignored.
        Api = "rejected by the API server on a pod whose spec.os.name is windows, else ignored",
        /// The API server rejects it regardless of `spec.os.name`.
        ApiAlways = "always rejected by the API server",
        /// The kubelet rejects the pod at admission.
        Admit = "rejected by the kubelet",
        /// It fails or hangs at run time.
        Run = "fails or hangs at run time",
        /// It is silently ignored.
        Ignored = "silently ignored",
        /// It works, but could be better, or may fail in other environments.
        BestPractice = "best practice",
    }
}

impl Class {
    /// Whether the object can never run, so a denial loses nothing.
    pub fn cannot_run(self) -> bool {
        matches!(self, Class::ApiAlways | Class::Admit)
    }

    /// Whether Windows ignores the field of a pod without `spec.os.name`, so that the pod runs.
    pub fn is_ignored(self) -> bool {
        matches!(self, Class::Api | Class::Ignored)
    }
}
