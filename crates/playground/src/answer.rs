//! Answers a request: checks a text, fixes it, and plans the patches of admission.

use jiff::civil::Date;
use json_patch::Patch;
use serde::{Deserialize, Serialize};
use transom_core::check::{
    CheckInput, CheckNote, CheckOutcome, CheckSettings, Checked, FixScope, Manifests, ReportedFinding, Scope,
    StatedSystems, UnreadableInput,
};
use transom_core::engine::policy_set::PolicySet;
use transom_core::fix::{FixedObject, diff, fix};
use transom_core::model::cluster::facts::Facts;
use transom_core::model::cluster::policy::{Mode, Policy};
use transom_core::model::objects::object::ReviewStage;
use transom_core::model::syntax::edit::to_json_patch;
use transom_core::model::syntax::text::object_title;
use transom_core::model::windows::os::{Evidence, Os};

use crate::EXAMPLES;
use crate::pod_patch::pod_patch;

/// The name of the text in notes and in the diff.
const SOURCE: &str = "manifest.yaml";

/// What the page asks for.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CheckRequest {
    /// The manifests; absent: the examples and the limits of the settings.
    text: Option<String>,
    /// Today, in UTC.
    today: Date,
    /// The mode of the policy.
    mode: Mode,
    /// The minor version of Kubernetes.
    kubernetes: u32,
    /// Whether pods without evidence are for Windows, as with `--os windows`.
    for_windows: bool,
    /// Whether the fix adds placement, as with `fix --placement`.
    placement: bool,
}

/// What the page shows before a text is checked.
#[derive(Serialize)]
struct Start {
    /// The version of Transom.
    version: &'static str,
    /// The newest minor version of Kubernetes.
    kubernetes: u32,
    examples: Vec<StartExample>,
}

/// A manifest to choose.
#[derive(Serialize)]
struct StartExample {
    title: &'static str,
    text: &'static str,
}

/// The result of a check.
#[derive(Serialize)]
struct CheckAnswer {
    objects: Vec<AnsweredObject>,
    errors: Vec<UnreadableInput>,
    notes: Vec<CheckNote>,
    /// The kinds with pods that are not evaluated.
    skipped: Vec<String>,
    fixed: FixAnswer,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AnsweredObject {
    title: String,
    line: usize,
    kind: &'static str,
    /// `None` for objects without a pod.
    verdict: Option<&'static str>,
    evidence: Vec<Evidence>,
    decision: &'static str,
    /// Why admission would never see it.
    not_reviewed: Option<String>,
    findings: Vec<AnsweredFinding>,
    /// How many findings comments and annotations suppress.
    suppressed: usize,
    /// The patch of the object, if it is a pod.
    patch: Patch,
    /// The patch of the pods that are created from its template.
    pod_patch: Option<Patch>,
}

/// A finding, as in `transom check -o json`, with the explanation of its rule.
#[derive(Serialize)]
struct AnsweredFinding {
    #[serde(flatten)]
    finding: ReportedFinding,
    /// Why it is wrong.
    why: &'static str,
}

/// What `transom fix` makes of the text.
#[derive(Serialize)]
struct FixAnswer {
    /// The fixed text; `None` if nothing changes.
    text: Option<String>,
    diff: String,
    objects: Vec<FixedObject>,
}

/// Answers a request in JSON, in JSON.
pub fn answer(request: &[u8]) -> String {
    let answered = match serde_json::from_slice::<CheckRequest>(request) {
        Ok(CheckRequest { text: None, .. }) => serde_json::to_string(&start()),
        Ok(request) => serde_json::to_string(&check(&request)),
        Err(error) => serde_json::to_string(&serde_json::json!({"invalid": error.to_string()})),
    };
    // None of these types can fail to be written.
    answered.unwrap_or_default()
}

fn start() -> Start {
    let examples = EXAMPLES.iter().map(|example| StartExample {
        title: example.title,
        text: example.text,
    });
    Start {
        version: env!("CARGO_PKG_VERSION"),
        kubernetes: Facts::KUBERNETES,
        examples: examples.collect(),
    }
}

fn check(request: &CheckRequest) -> CheckAnswer {
    let policies = PolicySet::new(Vec::new(), Policy::standalone().in_mode(request.mode));
    let kubernetes = request.kubernetes.min(Facts::KUBERNETES);
    let facts = Facts::new(kubernetes, request.today);
    let mut manifests = Manifests::new(CheckSettings {
        keep_text: true,
        scope: Scope {
            systems: StatedSystems {
                all: request.for_windows.then_some(Os::Windows),
                ..StatedSystems::default()
            },
            ..Scope::default()
        },
        ..CheckSettings::default()
    });
    manifests.add(CheckInput {
        source: SOURCE.to_owned(),
        bytes: request.text.clone().unwrap_or_default().into_bytes(),
    });
    let objects = manifests.objects(ReviewStage::Written);
    let mut known = facts.clone();
    objects.learn(&mut known, &policies);
    let mut answered = Vec::new();
    let CheckOutcome { errors, notes } = objects.run(&known, &policies, |checked| {
        answered.push(AnsweredObject::of(&checked, &known, &policies));
    });
    let scope = FixScope {
        placement: request.placement,
        rules: None,
    };
    CheckAnswer {
        objects: answered,
        errors,
        notes,
        skipped: manifests.skipped().kinds.into_keys().collect(),
        fixed: FixAnswer::of(&manifests, &facts, &policies, &scope),
    }
}

impl FixAnswer {
    fn of(manifests: &Manifests, facts: &Facts, policies: &PolicySet, scope: &FixScope) -> Self {
        let fixed = fix(manifests, facts, policies, scope, |_| true);
        let text = fixed.texts.get(SOURCE);
        let before = manifests.texts();
        let before = before.get(SOURCE).copied().unwrap_or_default();
        let unified = text.map(|text| diff::unified(SOURCE, before, &text.replaced));
        FixAnswer {
            text: text.map(|text| String::from_utf8_lossy(&text.bytes).into_owned()),
            diff: unified.map_or_else(String::new, |diff| String::from_utf8_lossy(&diff).into_owned()),
            objects: fixed.objects,
        }
    }
}

impl AnsweredObject {
    fn of(checked: &Checked<'_>, facts: &Facts, policies: &PolicySet) -> Self {
        let inference = &checked.evaluation.inference;
        let findings = checked.findings();
        AnsweredObject {
            title: object_title(checked.kind, &checked.namespace, &checked.name),
            line: checked.document.start().line,
            kind: checked.kind.as_str(),
            verdict: checked.kind.has_pod().then(|| inference.verdict.as_str()),
            evidence: inference.evidence.clone(),
            decision: checked.effective_decision().as_str(),
            not_reviewed: checked.not_reviewed.clone(),
            findings: findings
                .map(|(finding, detail)| AnsweredFinding {
                    finding: ReportedFinding::of_applied((finding, detail)),
                    why: finding.rule.docs,
                })
                .collect(),
            suppressed: checked.suppressed.len(),
            patch: to_json_patch(&checked.evaluation.edits),
            pod_patch: pod_patch(checked, facts, policies),
        }
    }
}
