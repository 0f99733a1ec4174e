//! What is said of one stored object that carries a pod: plain data, as it is printed, counted and reported.

use serde::Serialize;

use crate::engine::Decision;
use crate::model::build::Build;
use crate::model::os::Verdict;
use crate::model::severity::{Class, Severity};
use crate::model::string_enum::string_enum;
use crate::model::workload::Kind;

/// The uid of an object.
pub type Uid = String;

string_enum! {
    /// What becomes of one finding at the next create of its object.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum FindingOutcome {
        /// It refuses the object. An update that leaves it as it is passes: it was there before (the ratchet).
        Denied = "denied",
        /// It is told to who applies the object.
        Warned = "warned",
        /// It is written to the audit log, and nothing else.
        Noted = "noted",
        /// A change that admission makes fixes it.
        Fixed = "fixed",
        /// A change that admission would make if it were not in dry run would fix it.
        Fixable = "fixable",
        /// An exemption lifts it.
        Exempted = "exempted",
        /// Admission is not asked about the object.
        Passed = "passed",
    }
}

string_enum! {
    /// What becomes of an object at its next create.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum OwnerOutcome {
        /// It is refused.
        Denied = "denied",
        /// It is changed. Of a workload it says nothing: its pods are changed, never the workload.
        Changed = "changed",
        /// It passes as it is, perhaps with a warning.
        Passes = "passes",
        /// Admission is not asked about it.
        NotAsked = "not-asked",
    }
}

/// An owner of a kind that Transom does not judge, as a Rollout of Argo: its pods are judged in its stead.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
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
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FindingResult {
    /// The rule's id.
    pub id: &'static str,
    /// The rule's name.
    pub rule: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// Who finds out, and when.
    #[serde(serialize_with = "as_text")]
    pub class: Class,
    /// Where, as in `spec.template.spec.containers[0].image`.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub remedy: String,
    /// What becomes of it.
    pub fate: FindingOutcome,
    /// Whether it would refuse the object if `validation` were Deny.
    pub would_deny: bool,
    /// Why something else becomes of it than its severity says: the policy's word, an exemption's note, the namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde calls it so
fn as_text<S: serde::Serializer>(class: &Class, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(class.as_str())
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde calls it so
fn decision_as_text<S: serde::Serializer>(decision: &Decision, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(decision.as_str())
}

/// One stored object that a person, a tool or a controller that Transom does not know has made.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerResult {
    /// Its `apiVersion`, by its kind.
    pub api_version: String,
    /// Its kind.
    #[serde(serialize_with = "kind_as_text")]
    pub kind: Kind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    #[serde(skip)]
    pub uid: Uid,
    /// Its owner, of a kind that is not judged; the object stands for all pods of that owner then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<ForeignOwner>,
    /// Its operating system.
    pub verdict: Verdict,
    /// The signs of that, strongest first.
    pub evidence: Vec<String>,
    /// The name of the policy that counts.
    pub policy: String,
    /// What becomes of it.
    #[serde(skip)]
    pub outcome: OwnerOutcome,
    /// The same, in the words of admission.
    #[serde(serialize_with = "decision_as_text")]
    pub decision: Decision,
    /// Why admission is not asked, where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_asked: Option<String>,
    /// The builds that its images are for, as far as their names tell; none where it is not for Windows.
    #[serde(serialize_with = "builds_as_text")]
    pub image_builds: Vec<Build>,
    /// Whether an image of it does not tell its build.
    pub has_unknown_images: bool,
    /// How many pods it asks for, where it says a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u64>,
    /// The fields that admission changes.
    pub changes: Vec<String>,
    /// The fields that admission would change besides, if it were not in dry run.
    pub would_change: Vec<String>,
    /// What was found, in the order in which a person would fix it.
    pub findings: Vec<FindingResult>,
}

impl OwnerResult {
    /// Whether there is nothing to say of it.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.changes.is_empty() && self.would_change.is_empty()
    }

    /// The names of the rules that refuse it, or would if `validation` were Deny: each once, in order.
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

#[allow(clippy::trivially_copy_pass_by_ref)] // serde calls it so
fn kind_as_text<S: serde::Serializer>(kind: &Kind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.as_str())
}

fn builds_as_text<S: serde::Serializer>(builds: &[Build], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(builds.iter().map(ToString::to_string))
}
