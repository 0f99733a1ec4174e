//! The corpus: manifests as people write them, held against what the facts say of them and against snapshots of every answer.
//!
//! Comments above a document are its expectations, written from what Kubernetes does and never from the program's answers:
//!
//! - `# expect: rule-a, rule-b x2`: exactly these rules at severity warning or error (`x2`: this often);
//! - `# advice: rule-c`: exactly these rules at severity advice;
//! - `# verdict: Windows`, `# decision: deny`;
//! - `# after: /spec/os/name = "windows"`: what admission makes of this place (`null`: it is not there);
//! - `# unpatched`: admission changes nothing.
//!
//! The first line of a file may carry options, and comments may say what registries list, as in the examples of rules.

use crate::support::gate;
use crate::support::objects::registry_images;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use jiff::civil::date;
use serde_json::{Value, json};
use transom::check::{CheckInput, Checked, Manifests};
use transom::engine::policy_set::PolicySet;
use transom::engine::{Decision, Evaluation};
use transom::model::cluster::facts::{Facts, Runtime};
use transom::model::cluster::policy::{LinuxPods, Policy};
use transom::model::cluster::severity::Severity;
use transom::model::objects::object::{Object, ReviewStage};
use transom::model::objects::workload::Kind;
use transom::model::syntax::edit::to_json_patch;
use transom::rules::{Finding, catalogue};

mod production;

const FOLDERS: [&str; 6] = ["good", "bad", "linux", "placement", "cluster", "production"];

/// What one file was checked with.
pub(super) struct World {
    pub(super) facts: Facts,
    pub(super) policies: PolicySet,
    stage: ReviewStage,
}

/// One object of the corpus and what was said of it.
struct Answer {
    line: usize,
    kind: Kind,
    name: String,
    json: Value,
    evaluation: Evaluation,
    expected: Expected,
}

/// What the comments above an object say.
#[derive(Default)]
struct Expected {
    rules: Option<Counts>,
    advice: Option<Counts>,
    verdict: Option<String>,
    decision: Option<String>,
    after: Vec<(String, Value)>,
    unpatched: bool,
}

/// Rules by name, with how often they are to be found where that was said.
type Counts = BTreeMap<String, Option<usize>>;

/// One file of the corpus.
struct File {
    folder: &'static str,
    name: String,
    world: World,
    answers: Vec<Answer>,
}

impl File {
    fn at(&self, answer: &Answer) -> String {
        let File { folder, name, .. } = self;
        format!(
            "{folder}/{name}.yaml:{}: {} {}",
            answer.line, answer.kind, answer.name
        )
    }
}

static CORPUS: LazyLock<Vec<File>> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut files = Vec::new();
    for folder in FOLDERS {
        let mut paths: Vec<PathBuf> = fs::read_dir(root.join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
            .collect();
        paths.sort();
        files.extend(paths.iter().map(|path| read(folder, path)));
    }
    files
});

fn answers() -> impl Iterator<Item = (&'static File, &'static Answer)> {
    CORPUS
        .iter()
        .flat_map(|file| file.answers.iter().map(move |answer| (file, answer)))
}

fn in_folder(folder: &str) -> impl Iterator<Item = (&'static File, &'static Answer)> {
    answers().filter(move |(file, _)| file.folder == folder)
}

/// What the first line asks for.
pub(super) fn world(text: &str) -> World {
    let mut facts = Facts::new(36, date(2026, 6, 1));
    facts.images = registry_images(text);
    let mut policy = Policy::standalone();
    let mut stage = ReviewStage::Written;
    let first = text.lines().next().unwrap_or_default();
    let options = first.strip_prefix("# --").map_or("", |_| &first[2..]);
    let mut words = options.split_whitespace();
    while let Some(option) = words.next() {
        let mut value = || words.next().expect("an option has a value");
        match option {
            "--kubernetes-version" => {
                facts.kubernetes = value()
                    .strip_prefix("1.")
                    .expect("a release is 1.N")
                    .parse()
                    .unwrap();
            }
            "--runtime" => {
                assert_eq!(value(), "docker");
                facts.runtime = Runtime::Docker;
            }
            "--feature-gate" => {
                facts.feature_gates.set(value()).unwrap();
            }
            "--linux-pods" => {
                policy.linux_pods = match value() {
                    "Warn" => LinuxPods::Warn,
                    "Apply" => LinuxPods::Apply,
                    other => panic!("unknown linux-pods {other}"),
                };
            }
            "--stored" => stage = ReviewStage::Stored,
            other => panic!("unknown option {other}"),
        }
    }
    World {
        facts,
        policies: PolicySet::new(Vec::new(), policy),
        stage,
    }
}

fn read(folder: &'static str, path: &Path) -> File {
    let text = fs::read_to_string(path).unwrap();
    let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
    let mut world = world(&text);
    let manifests = Manifests::parse(vec![CheckInput {
        source: name.clone(),
        bytes: text.clone().into_bytes(),
    }]);
    let objects = manifests.objects(world.stage);
    objects.learn(&mut world.facts, &world.policies);
    let mut answers = Vec::new();
    let errors = objects.check(&world.facts, &world.policies, |checked| {
        answers.push(Answer {
            line: checked.document.start().line,
            kind: checked.kind,
            json: whole(&checked),
            name: checked.name,
            evaluation: checked.evaluation,
            expected: Expected::default(),
        });
    });
    assert!(errors.is_empty(), "{folder}/{name}: {errors:?}");
    answers.sort_by_key(|answer| answer.line);
    for (index, line) in text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("# ") else {
            continue;
        };
        if let Some(answer) = answers.iter_mut().find(|answer| answer.line > index + 1) {
            answer.expected.read(comment);
        }
    }
    File {
        folder,
        name,
        world,
        answers,
    }
}

/// The object; an item of a typed list gets its kind.
fn whole(checked: &Checked<'_>) -> Value {
    let mut json: Value = serde_json::from_str(checked.document.json()).unwrap();
    json["kind"] = checked.kind.as_str().into();
    json["apiVersion"] = checked.api_version.into();
    json
}

impl Expected {
    fn read(&mut self, comment: &str) {
        let Some((word, rest)) = comment.split_once(':') else {
            self.unpatched |= comment == "unpatched";
            return;
        };
        let rest = rest.trim();
        match word {
            "expect" => self.rules = Some(counts(rest)),
            "advice" => self.advice = Some(counts(rest)),
            "verdict" => self.verdict = Some(rest.to_owned()),
            "decision" => self.decision = Some(rest.to_owned()),
            "after" => {
                let (pointer, value) = rest.split_once(" = ").expect("after: pointer = value");
                self.after
                    .push((pointer.to_owned(), serde_json::from_str(value).unwrap()));
            }
            _ => {}
        }
    }
}

fn counts(list: &str) -> Counts {
    let parts = list.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, count) = match part.split_once(" x") {
                Some((name, count)) => (name, Some(count.parse().unwrap())),
                None => (part, None),
            };
            assert!(catalogue().any(|r| r.name == name), "no rule {name}");
            (name.to_owned(), count)
        })
        .collect()
}

/// How often each rule was found, at a severity that counts.
fn found(evaluation: &Evaluation, counts: impl Fn(Severity) -> bool) -> BTreeMap<&'static str, usize> {
    let mut found = BTreeMap::new();
    for finding in evaluation.findings.iter().filter(|f| counts(f.severity)) {
        *found.entry(finding.rule.name).or_default() += 1;
    }
    found
}

fn compare(expected: &Counts, found: &BTreeMap<&str, usize>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, count) in expected {
        match (found.get(&**name), count) {
            (None, _) => wrong.push(format!("{name} is missing")),
            (Some(found), Some(count)) if found != count => {
                wrong.push(format!("{name} x{count} is found x{found}"));
            }
            _ => {}
        }
    }
    let unexpected = found.keys().filter(|name| !expected.contains_key(**name));
    wrong.extend(unexpected.map(|name| format!("{name} is not expected")));
    wrong
}

fn patched(answer: &Answer) -> Value {
    let patch = to_json_patch(&answer.evaluation.edits);
    let mut document = answer.json.clone();
    json_patch::patch(&mut document, &patch).unwrap();
    document
}

/// Checks one more object in the world of a file.
fn again(world: &World, document: &Value) -> Evaluation {
    let manifests = Manifests::parse(vec![CheckInput {
        source: "again".into(),
        bytes: document.to_string().into_bytes(),
    }]);
    let mut evaluation = None;
    let objects = manifests.objects(world.stage);
    let errors = objects.check(&world.facts, &world.policies, |checked| {
        evaluation = Some(checked.evaluation);
    });
    assert!(errors.is_empty(), "{errors:?}");
    evaluation.unwrap()
}

fn none(failures: &[String]) {
    assert!(
        failures.is_empty(),
        "{} failures\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn a_rule_that_is_not_called_would_have_reported_nothing() {
    for (file, answer) in answers() {
        let json = answer.json.to_string();
        let subject = Object::parse(answer.kind, &json, file.world.stage).unwrap();
        let [with, without] = gate::with_and_without(&subject, &file.world.facts, &Policy::standalone());
        assert_eq!(with, without, "{}", file.at(answer));
    }
}

#[test]
fn every_answer_is_what_the_facts_say() {
    let mut failures = Vec::new();
    for (file, answer) in answers() {
        let Answer {
            expected, evaluation, ..
        } = answer;
        let mut wrong = Vec::new();
        if let Some(rules) = &expected.rules {
            wrong.extend(compare(rules, &found(evaluation, |s| s > Severity::Advice)));
        }
        if let Some(advice) = &expected.advice {
            wrong.extend(compare(advice, &found(evaluation, |s| s == Severity::Advice)));
        }
        let verdict = evaluation.inference.verdict.as_str();
        if expected.verdict.as_deref().is_some_and(|v| v != verdict) {
            wrong.push(format!("the verdict is {verdict}"));
        }
        let decision = evaluation.decision().as_str();
        if expected.decision.as_deref().is_some_and(|d| d != decision) {
            wrong.push(format!("the decision is {decision}"));
        }
        if expected.unpatched && !evaluation.edits.is_empty() {
            wrong.push(format!("it is patched: {:?}", evaluation.edits));
        }
        let after = patched(answer);
        for (pointer, value) in &expected.after {
            let is = after.pointer(pointer).unwrap_or(&Value::Null);
            if is != value {
                wrong.push(format!("after admission, {pointer} is {is}, not {value}"));
            }
        }
        failures.extend(wrong.iter().map(|w| format!("{}: {w}", file.at(answer))));
    }
    none(&failures);
}

#[test]
fn good_windows_workloads_pass_without_error_or_warning() {
    let mut failures = Vec::new();
    let mut windows = 0;
    for (file, answer) in in_folder("good") {
        let worse = found(&answer.evaluation, |s| s > Severity::Advice);
        if !worse.is_empty() || matches!(answer.evaluation.decision(), Decision::Deny | Decision::WouldDeny) {
            failures.push(format!("{}: {worse:?}", file.at(answer)));
        }
        if answer.kind.has_pod() {
            windows += 1;
            let verdict = answer.evaluation.inference.verdict.as_str();
            if verdict != "Windows" {
                failures.push(format!("{}: the verdict is {verdict}", file.at(answer)));
            }
        }
    }
    none(&failures);
    assert!(windows > 40);
}

#[test]
fn linux_pods_are_left_alone() {
    let mut failures = Vec::new();
    for (file, answer) in in_folder("linux").filter(|(_, answer)| answer.kind.has_pod()) {
        let Evaluation { findings, edits, .. } = &answer.evaluation;
        if !findings.is_empty() || !edits.is_empty() {
            let all = found(&answer.evaluation, |_| true);
            failures.push(format!("{}: {all:?} {edits:?}", file.at(answer)));
        }
    }
    none(&failures);
}

#[test]
fn every_bad_object_has_a_finding() {
    let mut failures = Vec::new();
    for (file, answer) in in_folder("bad").filter(|(_, answer)| answer.kind.has_pod()) {
        let nothing_expected = answer.expected.rules.as_ref().is_some_and(BTreeMap::is_empty);
        if answer.evaluation.findings.is_empty() && !nothing_expected {
            failures.push(file.at(answer));
        }
    }
    none(&failures);
}

#[test]
fn every_kind_with_a_pod_is_in_the_corpus() {
    let kinds: Vec<Kind> = answers().map(|(_, answer)| answer.kind).collect();
    for kind in Kind::ALL.into_iter().filter(|kind| kind.has_pod()) {
        assert!(kinds.contains(&kind), "{kind}");
    }
}

#[test]
fn admission_called_twice_changes_nothing_more_and_makes_nothing_worse() {
    let mut failures = Vec::new();
    for (file, answer) in answers().filter(|(_, answer)| !answer.evaluation.edits.is_empty()) {
        let second = again(&file.world, &patched(answer));
        if !second.edits.is_empty() {
            failures.push(format!("{}: {:?}", file.at(answer), second.edits));
        }
        let open = |evaluation: &Evaluation| -> BTreeSet<(&'static str, String)> {
            let open = evaluation.open().filter(|f| f.severity > Severity::Advice);
            open.map(Finding::identity).collect()
        };
        let (before, after) = (open(&answer.evaluation), open(&second));
        if before != after {
            failures.push(format!(
                "{}: open before {before:?}, after {after:?}",
                file.at(answer)
            ));
        }
    }
    none(&failures);
}

#[test]
fn answers_are_as_before() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../corpus/snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let mut changed = Vec::new();
    for file in CORPUS.iter() {
        let name = format!("{}-{}", file.folder, file.name);
        let text = file.answers.iter().map(shown).collect::<Vec<_>>().join("\n");
        // Every snapshot is compared, not only those before the first that changed.
        let compared = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            settings.bind(|| insta::assert_snapshot!(name.as_str(), text));
        }));
        if compared.is_err() {
            changed.push(name);
        }
    }
    none(&changed);
}

fn shown(answer: &Answer) -> String {
    let evaluation = &answer.evaluation;
    let mut out = format!("{} {}", answer.kind, answer.name);
    if answer.kind.has_pod() {
        let evidence: Vec<String> = (evaluation.inference.evidence.iter())
            .map(|e| format!("{} {e}", e.kind.as_str()))
            .collect();
        let verdict = evaluation.inference.verdict;
        let _ = write!(out, ": {}, {verdict}", evaluation.decision().as_str());
        if !evidence.is_empty() {
            let _ = write!(out, " by {}", evidence.join(" and "));
        }
    }
    out.push('\n');
    for finding in &evaluation.findings {
        let Finding {
            rule,
            severity,
            path,
            message,
            remedy,
            ..
        } = finding;
        let resolved = finding
            .resolved_by
            .map_or(String::new(), |by| format!(" ({by:?} fixes it)"));
        let place = path.named();
        let _ = writeln!(
            out,
            "  {severity} {} {} {place}: {message}; {remedy}{resolved}",
            rule.id, rule.name
        );
    }
    for operation in to_json_patch(&evaluation.edits)
        .iter()
        .map(|operation| json!(operation))
    {
        let value = operation
            .get("value")
            .map_or(String::new(), |value| format!(" {value}"));
        let _ = writeln!(
            out,
            "  patch {} {}{value}",
            operation["op"].as_str().unwrap(),
            operation["path"].as_str().unwrap()
        );
    }
    for path in &evaluation.withheld {
        let _ = writeln!(out, "  os withheld by {}", path.named());
    }
    out
}
