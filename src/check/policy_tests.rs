//! Tests of policies: files that name policies, manifests, and what admission must do with each object.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::config::KubernetesVersion;
use super::document_file::{self, DocumentFileError};
use super::files::{Excludes, read_except};
use super::policies::{has_node_resource, read_policies_after};
use super::{CheckSettings, Checked, Manifests, Scope, SourceRole, UnreadableInput, settings, unknown_rule};
use crate::api::{ClusterConfigSpec, FieldStep, NODE_POLICY, NODE_POOL, POD_POLICY};
use crate::engine::Decision;
use crate::engine::policy_set::PolicySet;
use crate::manifest::NodeStep;
use crate::model::cluster::config::ClusterConfig;
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::{Action, Policy};
use crate::model::objects::object::ReviewStage;
use crate::model::syntax::string_enum::string_enum;
use crate::model::syntax::suggest::{date, nearest};
use crate::rules;

/// The name of a test file.
pub const TEST_FILE: &str = "transom-test.yaml";

/// A test of policies. Paths are relative to the folder of the file.
// The comments of the fields are the descriptions that editors show.
#[derive(Deserialize, JsonSchema, Clone, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(title = "Test of transom test (transom-test.yaml)")]
pub struct PolicyTest {
    /// The name in the report; unset: the path of the file.
    name: Option<String>,
    /// Files with WindowsPodPolicy, WindowsNodePolicy and WindowsNodePool objects; none: the built-in policy.
    #[serde(default)]
    policies: Vec<PathBuf>,
    /// The files and folders with the objects to evaluate.
    resources: Vec<PathBuf>,
    /// Files that describe the cluster, such as the output of kubectl get nodes,runtimeclasses,namespaces -o yaml.
    #[serde(default)]
    facts: Vec<PathBuf>,
    /// The Kubernetes version of the cluster; unset: the newest that Transom knows.
    kubernetes_version: Option<KubernetesVersion>,
    /// The day to evaluate for, as in 2026-12-31; unset: today in UTC.
    today: Option<String>,
    /// The namespace of objects that name none, as in kubectl apply -n.
    namespace: Option<String>,
    /// Facts about the cluster that its API does not show, as in the file of --cluster-config, which replaces them.
    #[serde(default)]
    cluster: ClusterConfigSpec,
    /// What admission must do.
    expectations: Vec<Expectation>,
}

/// What admission must do with an object.
#[derive(Deserialize, JsonSchema, Clone, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expectation {
    /// The object by kind, namespace and name, as in Deployment shop/web, or Deployment web without a namespace.
    object: String,
    /// What happens to it.
    outcome: TestOutcome,
    /// The names of exactly the rules that deny it or warn of it; unset: not compared.
    rules: Option<Vec<String>>,
    /// The fields that placement writes or removes; a field includes all fields below it. Empty: none. Unset: not compared.
    patched: Option<Vec<String>>,
}

string_enum! {
    /// What admission does with an object.
    #[derive(Deserialize, Serialize, JsonSchema, Clone, Copy, PartialEq, Eq, Debug)]
    #[serde(rename_all = "lowercase")]
    pub enum TestOutcome {
        /// It passes without a warning.
        Admitted = "admitted",
        /// It passes with a warning.
        Warned = "warned",
        /// It is denied.
        Denied = "denied",
    }
}

/// The result of one test file.
#[derive(Serialize, JsonSchema, Clone, PartialEq, Eq, Debug)]
#[serde(rename_all = "camelCase")]
pub struct TestFileResult {
    /// Its name.
    pub name: String,
    /// The file.
    pub file: String,
    /// The result of each expectation.
    pub results: Vec<ExpectationResult>,
    /// Why it, or a part of its inputs, could not be used; one line each.
    pub errors: Vec<String>,
    /// The names of the policies that use what registries report of images, which a test does not look up.
    pub using_registries: Vec<String>,
}

/// The result of one expectation.
#[derive(Serialize, JsonSchema, Clone, PartialEq, Eq, Debug)]
#[serde(rename_all = "camelCase")]
pub struct ExpectationResult {
    /// The object, as written.
    pub object: String,
    /// The expected outcome.
    pub outcome: TestOutcome,
    /// The line of the expectation.
    pub line: usize,
    /// What differs; empty if it is met.
    pub differences: Vec<Difference>,
    /// The open findings of the object, to explain a difference.
    pub findings: Vec<String>,
}

/// A difference between what is expected and what admission does.
#[derive(Serialize, JsonSchema, Clone, PartialEq, Eq, Debug)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The field of the expectation.
    pub field: &'static str,
    /// What is expected, and is not so.
    pub expected: Vec<String>,
    /// What is so, and is not expected.
    pub actual: Vec<String>,
}

impl PolicyTest {
    /// The JSON schema of the file.
    pub fn schema() -> Value {
        schemars::schema_for!(PolicyTest).to_value()
    }
}

/// Every test file in a folder and below it, sorted; or the file itself. Hidden folders are skipped.
///
/// # Errors
/// If a folder cannot be read.
pub fn find_tests(path: &Path) -> io::Result<Vec<PathBuf>> {
    /// Bounds the recursion, which a symbolic link to a parent would make endless.
    const DEEPEST: usize = 64;
    fn walk(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let path = entry.path();
            if name.to_string_lossy().starts_with('.') || depth > DEEPEST {
                continue;
            }
            if path.is_dir() {
                walk(&path, depth + 1, found)?;
            } else if name == TEST_FILE {
                found.push(path);
            }
        }
        Ok(())
    }
    if fs::metadata(path)?.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    walk(path, 0, &mut found)?;
    found.sort();
    Ok(found)
}

/// Runs one test file. `today` applies if the file names no day, and `stated` instead of what the file states about the cluster.
pub fn run_test(file: &Path, today: Date, stated: Option<&Arc<ClusterConfig>>) -> TestFileResult {
    let name = file.display().to_string();
    let mut result = TestFileResult {
        file: name.clone(),
        name,
        results: Vec::new(),
        errors: Vec::new(),
        using_registries: Vec::new(),
    };
    match read(file) {
        Ok((test, lines)) => {
            if let Some(name) = &test.name {
                result.name.clone_from(name);
            }
            // The reader has refused what cannot be used.
            let of_file = || Arc::new(test.cluster.compile().unwrap_or_default());
            let stated = stated.cloned().unwrap_or_else(of_file);
            evaluate(file, &test, &lines, (today, &stated), &mut result);
        }
        Err(DocumentFileError::Invalid { problems, .. }) => result.errors = problems,
        Err(error) => result.errors = vec![error.to_string()],
    }
    result
}

/// A test file, and the line of each expectation.
fn read(file: &Path) -> Result<(PolicyTest, Vec<usize>), DocumentFileError> {
    let mut read = document_file::read::<PolicyTest>(file, "test file")?;
    let mut problems: Vec<(Vec<NodeStep<'static>>, String)> = Vec::new();
    if let Some(Err(why)) = read.content.today.as_deref().map(date) {
        problems.push((vec![NodeStep::Key("today")], format!("today: {why}")));
    }
    if read.content.expectations.is_empty() {
        let message = "expectations: there is none, so the test can never fail".to_owned();
        problems.push((vec![NodeStep::Key("expectations")], message));
    }
    for (index, expectation) in read.content.expectations.iter().enumerate() {
        let at = [NodeStep::Key("expectations"), NodeStep::Index(index)];
        let is_title = expectation
            .object
            .split_once(' ')
            .is_some_and(|(kind, name)| !kind.is_empty() && !name.is_empty() && !name.contains(' '));
        if !is_title {
            let message = format!(
                "expectations[{index}].object: write kind and name, as in Deployment shop/web, not \"{}\"",
                expectation.object
            );
            problems.push(([&at[..], &[NodeStep::Key("object")]].concat(), message));
        }
        let mut earlier = read.content.expectations.iter().take(index);
        if earlier.any(|other| other.object == expectation.object) {
            let message = format!(
                "expectations[{index}].object: {} is expected twice",
                expectation.object
            );
            problems.push(([&at[..], &[NodeStep::Key("object")]].concat(), message));
        }
        for (i, name) in expectation.rules.iter().flatten().enumerate() {
            if rules::find(name).is_none_or(|rule| rule.name != name) {
                let path = [&at[..], &[NodeStep::Key("rules"), NodeStep::Index(i)]].concat();
                problems.push((
                    path,
                    format!("expectations[{index}].rules[{i}]: {}", unknown_rule(name)),
                ));
            }
        }
    }
    for (path, message) in problems {
        read.problem(&path, &message);
    }
    for problem in read.content.cluster.compile().err().into_iter().flatten() {
        let steps = problem.path.iter().map(FieldStep::step);
        let path: Vec<NodeStep<'_>> = std::iter::once(NodeStep::Key("cluster")).chain(steps).collect();
        read.problem(&path, &format!("cluster.{}", problem.message));
    }
    let count = read.content.expectations.len();
    let lines = (0..count)
        .map(|index| read.line(&[NodeStep::Key("expectations"), NodeStep::Index(index)]))
        .collect();
    Ok((read.finish()?, lines))
}

struct TestedObject {
    title: String,
    outcome: TestOutcome,
    rules: Vec<String>,
    patched: Vec<String>,
    findings: Vec<String>,
}

impl TestedObject {
    fn of(checked: &Checked<'_>) -> Self {
        let evaluation = &checked.evaluation;
        let loud = || evaluation.open().filter(|finding| finding.action >= Action::Warn);
        let mut rules: Vec<String> = loud().map(|finding| finding.rule.name.to_owned()).collect();
        rules.sort();
        rules.dedup();
        let mut patched: Vec<String> = evaluation.edits.iter().map(|edit| edit.path().named()).collect();
        patched.sort();
        patched.dedup();
        let name = &checked.name;
        TestedObject {
            title: if checked.namespace.is_empty() {
                format!("{} {name}", checked.kind)
            } else {
                format!("{} {}/{name}", checked.kind, checked.namespace)
            },
            outcome: match evaluation.decision() {
                Decision::Deny => TestOutcome::Denied,
                _ if loud().next().is_some() => TestOutcome::Warned,
                _ => TestOutcome::Admitted,
            },
            rules,
            patched,
            findings: loud()
                .map(|finding| {
                    let (path, rule) = (finding.path.named(), finding.rule.name);
                    format!("{path}: {} [{rule}] ({})", finding.message, finding.action)
                })
                .collect(),
        }
    }
}

fn evaluate(
    file: &Path,
    test: &PolicyTest,
    lines: &[usize],
    (today, stated): (Date, &Arc<ClusterConfig>),
    result: &mut TestFileResult,
) {
    let (manifests, policies) = inputs(file, test, stated);
    let day = test.today.as_deref().and_then(|day| date(day).ok());
    let kubernetes = test
        .kubernetes_version
        .map_or(Facts::KUBERNETES, |version| version.0.min(Facts::KUBERNETES));
    let mut facts = Facts::new(kubernetes, day.unwrap_or(today));
    facts.set_config(Arc::clone(stated));
    let written = manifests.objects(ReviewStage::Written);
    written.learn(&mut facts, &policies);
    let mut objects = Vec::new();
    let errors = written.check(&facts, &policies, |checked| {
        objects.push(TestedObject::of(&checked));
    });
    let expectations = test.expectations.iter().zip(lines);
    let results = expectations.map(|(expectation, line)| compare(expectation, *line, &objects));
    result.results = results.collect();
    result.errors = errors.iter().map(ToString::to_string).collect();
    result.using_registries = policies.using_registries().map(str::to_owned).collect();
}

/// The inputs of a test, and its policies.
fn inputs(file: &Path, test: &PolicyTest, stated: &ClusterConfig) -> (Manifests, PolicySet) {
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut manifests = Manifests::new(CheckSettings {
        for_admission: true,
        pod_templates: stated.pod_templates.clone(),
        scope: Scope {
            namespace: test.namespace.clone(),
            ..Scope::default()
        },
        ..settings()
    });
    let read_all = |manifests: &mut Manifests, paths: &[PathBuf], role| {
        for path in paths {
            let path = folder.join(path);
            if read_except(&path, &Excludes::default(), role, manifests) == 0 {
                let message = "there is no .yaml, .yml or .json file in this folder";
                manifests.add_error(UnreadableInput::of_file(&path, message));
            }
        }
    };
    read_all(&mut manifests, &test.policies, SourceRole::Facts);
    let policies = read_policies_after(&mut manifests, 0, true);
    let has_policies = !policies.is_empty() || has_node_resource(&manifests);
    if !has_policies && !test.policies.is_empty() && manifests.errors().is_empty() {
        let message =
            format!("there is no {POD_POLICY}, {NODE_POLICY} or {NODE_POOL} in the files of policies");
        manifests.add_error(UnreadableInput::of_file(file, message));
    }
    // Only the files of policies apply; others are validated.
    let known = manifests.len();
    read_all(&mut manifests, &test.facts, SourceRole::Facts);
    read_all(&mut manifests, &test.resources, SourceRole::Named);
    read_policies_after(&mut manifests, known, false);
    let policies = PolicySet::new(policies, Policy::standalone());
    (manifests, policies)
}

/// The only object that an expectation names; else what there is instead.
fn named<'o>(expectation: &Expectation, objects: &'o [TestedObject]) -> Result<&'o TestedObject, Difference> {
    let title = &expectation.object;
    let found: Vec<&TestedObject> = objects.iter().filter(|object| object.title == *title).collect();
    let (expected, actual) = match found[..] {
        [object] => return Ok(object),
        [] => {
            let near = nearest(title, objects.iter().map(|object| object.title.as_str()));
            let hint = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
            (title.clone(), format!("no object has this kind and name{hint}"))
        }
        _ => {
            let count = format!("{} objects have this kind and name", found.len());
            ("one object".to_owned(), count)
        }
    };
    Err(Difference {
        field: "object",
        expected: vec![expected],
        actual: vec![actual],
    })
}

fn compare(expectation: &Expectation, line: usize, objects: &[TestedObject]) -> ExpectationResult {
    let mut result = ExpectationResult {
        object: expectation.object.clone(),
        outcome: expectation.outcome,
        line,
        differences: Vec::new(),
        findings: Vec::new(),
    };
    let object = match named(expectation, objects) {
        Ok(object) => object,
        Err(difference) => {
            result.differences.push(difference);
            return result;
        }
    };
    if object.outcome != expectation.outcome {
        let (expected, actual) = (expectation.outcome.to_string(), object.outcome.to_string());
        result.differ("outcome", vec![expected], vec![actual]);
    }
    if let Some(expected) = &expectation.rules {
        let missing = expected.iter().filter(|rule| !object.rules.contains(rule));
        let more = object.rules.iter().filter(|rule| !expected.contains(rule));
        result.differ("rules", missing.cloned().collect(), more.cloned().collect());
    }
    if let Some(expected) = &expectation.patched {
        let is_met = |field: &&String| !object.patched.iter().any(|patched| is_at(patched, field));
        let missing = expected.iter().filter(is_met);
        let is_more = |patched: &&String| !expected.iter().any(|field| is_at(patched, field));
        let more = object.patched.iter().filter(is_more);
        result.differ("patched", missing.cloned().collect(), more.cloned().collect());
    }
    if !result.differences.is_empty() {
        result.findings.clone_from(&object.findings);
    }
    result
}

impl ExpectationResult {
    fn differ(&mut self, field: &'static str, expected: Vec<String>, actual: Vec<String>) {
        if !expected.is_empty() || !actual.is_empty() {
            self.differences.push(Difference {
                field,
                expected,
                actual,
            });
        }
    }
}

/// Whether a path is a field or below it.
fn is_at(path: &str, field: &str) -> bool {
    let rest = path.strip_prefix(field);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

#[cfg(test)]
mod tests {
    use super::is_at;

    #[test]
    fn a_field_stands_for_all_below_it() {
        assert!(is_at("spec.nodeSelector[kubernetes.io/os]", "spec.nodeSelector"));
        assert!(is_at("spec.tolerations", "spec.tolerations"));
        assert!(is_at("spec.os.name", "spec"));
        assert!(!is_at("spec.nodeSelector", "spec.node"));
        assert!(!is_at("spec", "spec.os"));
    }
}
