//! The result for one stored object that carries a pod, as plain data for output, counts and reports.

use std::fmt::Display;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::engine::Decision;
use crate::model::cluster::severity::{Class, Severity};
use crate::model::objects::workload::Kind;
use crate::model::objects::workload_name::WorkloadName;
use crate::model::syntax::string_enum::string_enum;
use crate::model::syntax::text::object_title;
use crate::model::windows::build::Build;
use crate::model::windows::os::Verdict;

/// The uid of an object.
pub type Uid = String;

string_enum! {
    /// The outcome of one finding if its object were created again.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    pub enum FindingOutcome {
        /// It denies the object. An update that does not change the field is allowed, because the finding existed before.
        Denied = "denied",
        /// The client that applies the object gets a warning.
        Warned = "warned",
        /// It is recorded in the audit log only.
        Audited = "audited",
        /// Only scans and reports show it, because admission does not review objects of this kind.
        Reported = "reported",
        /// An edit that admission makes fixes it.
        Fixed = "fixed",
        /// An edit that admission would make if dry run were off would fix it.
        Fixable = "fixable",
        /// An exemption applies.
        Exempted = "exempted",
        /// The API server does not send the object for review.
        NotReviewed = "notReviewed",
    }
}

impl FindingOutcome {
    /// Whether nothing fixes it, no exemption applies, and it is in scope of admission or only reported.
    pub fn is_open(self) -> bool {
        matches!(
            self,
            FindingOutcome::Denied
                | FindingOutcome::Warned
                | FindingOutcome::Audited
                | FindingOutcome::Reported
        )
    }
}

string_enum! {
    /// The outcome for an object if it were created again.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum OwnerOutcome {
        /// It is denied.
        Denied = "denied",
        /// It is patched. Not used for workloads: admission patches their pods, never the workload.
        Patched = "patched",
        /// It is allowed without a patch, perhaps with a warning.
        Passes = "passes",
        /// The API server does not send it for review.
        NotReviewed = "not-reviewed",
    }
}

string_enum! {
    /// What an owner is denied for, or would be with `validation.action: Deny`. The first that applies.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    pub enum DenialCause {
        /// It cannot run on Windows as written.
        CannotRun = "cannotRun",
        /// Fields that Windows ignores: it runs, without what they request.
        IgnoredFields = "ignoredFields",
        /// Best practice that a policy enforces.
        BestPractice = "bestPractice",
    }
}

/// An owner whose pods are evaluated instead: its kind is one that Transom does not evaluate, such as an Argo Rollout, or its
/// template does not show that its pods are for Windows, or what they run.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForeignOwner {
    /// Its `apiVersion`.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// One finding of a stored object.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FindingResult {
    /// The rule's id.
    pub id: &'static str,
    /// The rule's name.
    pub rule: &'static str,
    /// How severe it is.
    pub severity: Severity,
    /// Which component rejects the object or fails, and when, without Transom.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
    pub class: Class,
    /// The field path, with containers and other list items by name, as in `spec.template.spec.containers[web].image`.
    pub path: String,
    /// The message.
    pub message: String,
    /// The remedy.
    pub remedy: String,
    /// The outcome.
    pub outcome: FindingOutcome,
    /// Whether it would deny the object with `validation.action: Deny`.
    pub would_deny: bool,
    /// Why the outcome differs from what the severity implies: a policy setting, the note of an exemption, or
    /// the namespace. Absent if it does not differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome_reason: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature that serde requires
fn as_text<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// One stored object that a person, a tool or an unknown controller created.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OwnerResult {
    /// Its `apiVersion`, derived from its kind.
    pub api_version: String,
    /// Its kind.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
    pub kind: Kind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    #[serde(skip)]
    pub uid: Uid,
    /// Its owner, if the object is evaluated instead of it; the object then represents all pods of that owner. Otherwise
    /// absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<ForeignOwner>,
    /// Whether it is a pod that is for Windows only by what admission added, such as a default node selector of the namespace:
    /// the template of its owner does not show it. Otherwise absent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_added_evidence: bool,
    /// Whether it is a pod with errors that the template of its StatefulSet or DaemonSet does not have; only these errors are
    /// listed. Its ControllerRevision is older, or was changed, or an injector added the fields. Otherwise absent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub differs_from_template: bool,
    /// Its operating system.
    pub verdict: Verdict,
    /// The evidence for the verdict, strongest first.
    pub evidence: Vec<String>,
    /// The name of the policy that applies.
    pub policy: String,
    /// The outcome.
    #[serde(skip)]
    pub outcome: OwnerOutcome,
    /// The outcome as an admission decision.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "Decision")]
    pub decision: Decision,
    /// Its kind, as in `Rollout.argoproj.io`, if it would be denied and no policy lists the controller of the kind: what the
    /// controller creates next for it would be denied too. Otherwise absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlisted_controller: Option<String>,
    /// Its RuntimeClass, if it would be denied and nothing else says that it is for Windows: the class may be newer than it.
    #[serde(skip)]
    pub denied_by_class: Option<String>,
    /// Why the API server does not send it for review; absent if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_reviewed: Option<String>,
    /// The builds of its images, if the image names contain them; empty if it is not for Windows.
    #[serde(serialize_with = "builds_as_text")]
    #[schemars(with = "Vec<String>")]
    pub image_builds: Vec<Build>,
    /// Whether the build of one of its images is unknown.
    pub has_unknown_images: bool,
    /// How many pods it requests; absent if it does not specify a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u64>,
    /// The fields that admission patches.
    pub patches: Vec<String>,
    /// The additional fields that admission would patch if dry run were off.
    pub would_patch: Vec<String>,
    /// The findings, in the order in which to fix them.
    pub findings: Vec<FindingResult>,
}

impl OwnerResult {
    /// The object, with its uid.
    pub fn workload(&self) -> WorkloadName {
        WorkloadName::of(self.kind, &self.namespace, &self.name).with_uid(&self.uid)
    }

    /// Its kind, namespace and name.
    pub fn title(&self) -> String {
        object_title(self.kind, &self.namespace, &self.name)
    }

    /// Its owner, if that is evaluated too, and it is a pod that differs from the template of this owner.
    pub fn owner_of_different_pod(&self) -> Option<&ForeignOwner> {
        (self.owner.as_ref()).filter(|_| self.is_added_evidence || self.differs_from_template)
    }

    /// Whether there is nothing to report about it.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.patches.is_empty() && self.would_patch.is_empty()
    }

    /// What it is denied for, or would be with `validation.action: Deny`; `None` if neither.
    pub fn denial_cause(&self) -> Option<DenialCause> {
        let cause = |found: &FindingResult| match found.class {
            Class::Api | Class::Ignored => DenialCause::IgnoredFields,
            Class::BestPractice => DenialCause::BestPractice,
            Class::ApiAlways | Class::Admit | Class::Run => DenialCause::CannotRun,
        };
        let denying = self.findings.iter().filter(|found| found.would_deny);
        denying.map(cause).min()
    }

    /// The names of the rules that deny it, or would deny it with `validation.action: Deny`; without duplicates,
    /// in order.
    pub fn denied_by(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for found in self.findings.iter().filter(|found| found.would_deny) {
            if !names.contains(&found.rule) {
                names.push(found.rule);
            }
        }
        names
    }
}

fn builds_as_text<S: Serializer>(builds: &[Build], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(builds.iter().map(ToString::to_string))
}
