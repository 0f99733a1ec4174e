//! `transom fix`: what it makes of the corpus and of random pods in every notation, and what a person sees.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use proptest::prelude::*;
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};
use transom::check::{CheckInput, CheckSettings, FixScope, Manifests, Scope, StatedSystems, settings};
use transom::engine::policy_set::PolicySet;
use transom::fix::{FixedInputs, fix};
use transom::manifest;
use transom::model::cluster::facts::Facts;
use transom::model::objects::object::ReviewStage;
use transom::model::windows::os::Os;

use super::corpus::{World, world};
use super::properties::{any_cluster, any_policy, cases, pods};
use super::support::command::{CommandRun, status_unread, transom_with};

// ---- Properties.

fn scope(placement: bool) -> FixScope {
    FixScope {
        placement,
        rules: None,
    }
}

fn manifests(bytes: &[u8], os: Option<Os>) -> Manifests {
    let systems = StatedSystems {
        all: os,
        ..StatedSystems::default()
    };
    let mut manifests = Manifests::new(CheckSettings {
        keep_text: true,
        scope: Scope {
            systems,
            ..Scope::default()
        },
        ..settings()
    });
    manifests.add(CheckInput {
        source: "a.yaml".into(),
        bytes: bytes.to_vec(),
    });
    manifests
}

fn fixed(
    bytes: &[u8],
    os: Option<Os>,
    facts: &Facts,
    policies: &PolicySet,
    scope: &FixScope,
) -> (FixedInputs, Vec<u8>) {
    let manifests = manifests(bytes, os);
    let fixed = fix(&manifests, facts, policies, scope, |_| true);
    let after = fixed
        .texts
        .get("a.yaml")
        .map_or_else(|| bytes.to_vec(), |text| text.bytes.clone());
    (fixed, after)
}

fn objects(bytes: &[u8]) -> Vec<Value> {
    let documents = manifest::parse(bytes.to_vec()).documents;
    documents
        .iter()
        .map(|document| serde_json::from_str(document.json()).unwrap())
        .collect()
}

/// The findings of every object, by its index.
fn findings(
    bytes: &[u8],
    os: Option<Os>,
    facts: &Facts,
    policies: &PolicySet,
) -> BTreeSet<(usize, String, String)> {
    let manifests = manifests(bytes, os);
    let mut facts = facts.clone();
    let objects = manifests.objects(ReviewStage::Written);
    objects.learn(&mut facts, policies);
    let (mut found, mut index) = (BTreeSet::new(), 0);
    objects.check(&facts, policies, |checked| {
        for finding in &checked.evaluation.findings {
            found.insert((index, finding.rule.name.to_owned(), finding.path.named()));
        }
        index += 1;
    });
    found
}

/// How many objects were changed, and how many refused.
#[derive(Default)]
struct Seen {
    changed: usize,
    refused: Vec<String>,
    fixed: usize,
}

/// Fixes a text and checks every promise.
fn keeps_its_promises(
    bytes: &[u8],
    os: Option<Os>,
    facts: &Facts,
    policies: &PolicySet,
    scope: &FixScope,
) -> Result<Seen, String> {
    let (result, after) = fixed(bytes, os, facts, policies, scope);
    let text = || String::from_utf8_lossy(&after).into_owned();
    // The printed patch is the whole difference.
    let (old, new) = (objects(bytes), objects(&after));
    let starts: Vec<usize> = manifest::parse(bytes.to_vec())
        .documents
        .iter()
        .map(|document| document.start().line)
        .collect();
    let mut expected = old;
    let mut seen = Seen::default();
    let mut patched = BTreeSet::new();
    for object in &result.objects {
        seen.refused.extend(object.error.clone());
        seen.fixed += object.fixed.len();
        if object.patch.is_empty() {
            continue;
        }
        seen.changed += 1;
        let mut at_line: Vec<usize> = (0..starts.len())
            .filter(|index| starts[*index] == object.line && !patched.contains(index))
            .collect();
        if at_line.len() > 1 {
            at_line.retain(|index| expected[*index]["metadata"]["name"] == *object.name);
        }
        let index = *at_line.first().ok_or("no object at this line")?;
        json_patch::patch(&mut expected[index], &object.patch).map_err(|error| error.to_string())?;
        patched.insert(index);
        let listed = object.fixed.iter().map(|finding| &finding.path);
        let listed: Vec<&String> = listed
            .chain(object.changes.iter().map(|change| &change.path))
            .collect();
        for operation in &object.patch.0 {
            let pointer = operation.path().to_string();
            // A deprecated label gets another key.
            let is_listed = |path: &&String| {
                is_related(path, &pointer) || is_related(&path.replace("[beta.", "["), &pointer)
            };
            if !listed.iter().any(is_listed) {
                return Err(format!("{pointer} is not listed: {listed:?}\n{}", text()));
            }
        }
    }
    if expected != new {
        return Err(format!("the patches are not the difference:\n{}", text()));
    }
    // What is called fixed is gone.
    let left = findings(&after, os, facts, policies);
    for object in &result.objects {
        for finding in &object.fixed {
            let is_there = left.iter().any(|(index, rule, path)| {
                rule == finding.rule
                    && *path == finding.path
                    && new[*index % new.len()]["metadata"]["name"] == *object.name
                    && result.objects.len() == 1
            });
            if is_there {
                return Err(format!("{} is not fixed:\n{}", finding.path, text()));
            }
        }
    }
    let before = findings(bytes, os, facts, policies);
    let called: usize = result.objects.iter().map(|object| object.fixed.len()).sum();
    let gone = before.difference(&left).count();
    if called < gone {
        return Err(format!("{gone} findings are gone, {called} are called fixed"));
    }
    // Once is enough.
    let (again, twice) = fixed(&after, os, facts, policies, scope);
    if twice != after || again.objects.iter().any(|object| !object.patch.is_empty()) {
        return Err(format!(
            "the second fix differs:\n{}\n---\n{}",
            text(),
            String::from_utf8_lossy(&twice)
        ));
    }
    keeps_the_rest(bytes, &after)?;
    Ok(seen)
}

/// Whether a printed path and a JSON Pointer lead to the same field, or one leads to a part of the other.
fn is_related(path: &str, pointer: &str) -> bool {
    let mut steps = Vec::new();
    for (at, part) in path.split(['[', ']']).enumerate() {
        match at % 2 {
            0 => steps.extend(part.split('.').filter(|step| !step.is_empty())),
            _ => steps.push(part),
        }
    }
    let tokens = pointer.split('/').skip(1).map(|token| token.replace("~1", "/"));
    let is_item = |token: &str| token == "-" || token.parse::<usize>().is_ok();
    let mut both = steps.iter().zip(tokens);
    both.all(|(step, token)| **step == token || is_item(&token))
}

/// Byte order mark, line ends and comments on lines of their own are kept.
fn keeps_the_rest(before: &[u8], after: &[u8]) -> Result<(), String> {
    const MARK: &[u8] = b"\xEF\xBB\xBF";
    if before.starts_with(MARK) != after.starts_with(MARK) {
        return Err("the byte order mark".into());
    }
    let (before, after) = (String::from_utf8_lossy(before), String::from_utf8_lossy(after));
    let mixed =
        |text: &str| text.matches("\r\n").count() != text.matches('\n').count() && text.contains("\r\n");
    if before.contains("\r\n") != after.contains("\r\n") || (mixed(&after) && !mixed(&before)) {
        return Err(format!("line ends:\n{after:?}"));
    }
    if before.ends_with('\n') != after.ends_with('\n') {
        return Err("the end of the file".into());
    }
    // A comment goes only inside a block that goes: neither the first nor the last line of a removal is a comment.
    let diff = TextDiff::from_lines(&*before, &*after);
    let changes: Vec<(ChangeTag, &str)> = diff
        .iter_all_changes()
        .map(|it| (it.tag(), it.value().trim()))
        .collect();
    let is_comment =
        |change: Option<&(ChangeTag, &str)>| change.is_some_and(|(_, line)| line.starts_with("# "));
    for run in changes
        .chunk_by(|a, b| a.0 == b.0)
        .filter(|run| run[0].0 == ChangeTag::Delete)
    {
        if is_comment(run.first()) || is_comment(run.last()) {
            return Err(format!("a comment is gone: {run:?}"));
        }
    }
    Ok(())
}

fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [
        "tests/corpus/good",
        "tests/corpus/bad",
        "tests/corpus/linux",
        "tests/corpus/placement",
        "tests/corpus/cluster",
        "tests/corpus/production",
        "manifests/examples",
    ];
    let mut files: Vec<PathBuf> = folders
        .iter()
        .flat_map(|folder| fs::read_dir(root.join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    files
}

#[test]
fn every_manifest_of_the_corpus_is_fixed_as_promised() {
    let mut seen = Seen::default();
    for path in files() {
        let text = fs::read_to_string(&path).unwrap();
        let World { facts, policies, .. } = world(&text);
        let texts = [
            text.clone(),
            text.replace('\n', "\r\n"),
            format!("\u{FEFF}{text}"),
            text.trim_end().to_owned(),
        ];
        for text in &texts {
            for placement in [false, true] {
                for os in [None, Some(Os::Windows), Some(Os::Linux)] {
                    let scope = scope(placement);
                    let of_text = keeps_its_promises(text.as_bytes(), os, &facts, &policies, &scope)
                        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                    seen.changed += of_text.changed;
                    seen.refused.extend(of_text.refused);
                    seen.fixed += of_text.fixed;
                }
            }
        }
    }
    let Seen {
        changed,
        refused,
        fixed,
    } = seen;
    let count = refused.len();
    eprintln!("{changed} objects changed, {count} refused, {fixed} findings fixed");
    assert!(changed > 1000 && fixed > 2000, "{changed} {fixed}");
    // One object of the corpus gets its securityContext from a merge key; its other fields are fixed.
    assert_eq!(refused, [""; 0]);
}

/// How a text is written.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools)] // independent properties of a text
struct Notation {
    step: usize,
    dash: usize,
    flow: bool,
    json: Option<bool>,
    comments: bool,
    crlf: bool,
    mark: bool,
    quote: char,
}

fn notation() -> impl Strategy<Value = Notation> {
    (
        1usize..5,
        0usize..3,
        prop::bool::weighted(0.2),
        prop_oneof![4 => Just(None), 1 => Just(Some(true)), 1 => Just(Some(false))],
        any::<[bool; 3]>(),
        prop_oneof![Just(' '), Just('"'), Just('\'')],
    )
        .prop_map(
            |(step, dash, flow, json, [comments, crlf, mark], quote)| Notation {
                step,
                dash,
                flow,
                json,
                comments,
                crlf,
                mark,
                quote,
            },
        )
}

impl Notation {
    fn write(self, object: &Value) -> Vec<u8> {
        let mut text = match self.json {
            Some(true) => format!("{object:#}"),
            Some(false) => object.to_string(),
            None => {
                let mut text = String::new();
                self.below(object, 0, &mut text);
                text
            }
        };
        if self.crlf {
            text = text.replace('\n', "\r\n");
        }
        if self.mark {
            text.insert(0, '\u{FEFF}');
        }
        text.into_bytes()
    }

    fn scalar(self, value: &Value) -> String {
        match (value.as_str(), self.quote) {
            (Some(text), '\'') if !text.contains(char::is_control) => {
                format!("'{}'", text.replace('\'', "''"))
            }
            (Some(text), ' ')
                if !text.is_empty()
                    && text.starts_with(|c: char| c.is_ascii_alphabetic())
                    && text
                        .chars()
                        .all(|c| c.is_ascii_alphanumeric() || "-./".contains(c))
                    && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
                        .contains(&&*text.to_lowercase()) =>
            {
                text.to_owned()
            }
            _ => value.to_string(),
        }
    }

    fn comment(self, column: usize, out: &mut String) {
        if self.comments && out.len().is_multiple_of(3) {
            let _ = writeln!(out, "{}# {}", " ".repeat(column), out.len());
        }
    }

    fn is_inline(self, value: &Value) -> bool {
        match value {
            Value::Object(entries) => entries.is_empty() || (self.flow && entries.len() < 3),
            Value::Array(items) => items.is_empty() || (self.flow && items.len() < 3),
            _ => true,
        }
    }

    fn inline(self, value: &Value) -> String {
        match value {
            Value::Object(_) | Value::Array(_) => value.to_string().replace("\":", "\": "),
            _ => self.scalar(value),
        }
    }

    fn below(self, value: &Value, column: usize, out: &mut String) {
        match value {
            Value::Object(entries) => {
                for (key, value) in entries {
                    self.comment(column, out);
                    let _ = write!(out, "{}", " ".repeat(column));
                    self.entry(key, value, column, out);
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.comment(column, out);
                    let blank = " ".repeat(column);
                    match item {
                        Value::Object(entries) if !self.is_inline(item) => {
                            for (at, (key, value)) in entries.iter().enumerate() {
                                let _ = write!(out, "{blank}{}", if at == 0 { "- " } else { "  " });
                                self.entry(key, value, column + 2, out);
                            }
                        }
                        _ => {
                            let _ = writeln!(out, "{blank}- {}", self.inline(item));
                        }
                    }
                }
            }
            _ => {}
        }
    }

    fn entry(self, key: &str, value: &Value, column: usize, out: &mut String) {
        let key = self.scalar(&Value::from(key));
        if self.is_inline(value) {
            let end = if self.comments && out.len().is_multiple_of(5) {
                " # end"
            } else {
                ""
            };
            let _ = writeln!(out, "{key}: {}{end}", self.inline(value));
            return;
        }
        let _ = writeln!(out, "{key}:");
        let indent = if value.is_array() { self.dash } else { self.step };
        self.below(value, column + indent, out);
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn a_random_pod_in_any_notation_is_fixed_as_promised(
        pod in pods::pod(), facts in any_cluster(), policy in any_policy(), notation in notation(),
        placement: bool, in_deployment: bool,
    ) {
        let mut pod = pod;
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        if in_deployment {
            let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": pod["spec"]});
            pod = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {
                "selector": {"matchLabels": {"app": "a"}}, "template": template,
            }});
        }
        let text = notation.write(&pod);
        prop_assert_eq!(objects(&text), vec![pod], "{}", String::from_utf8_lossy(&text));
        let policies = PolicySet::new(Vec::new(), policy);
        let seen = keeps_its_promises(&text, None, &facts, &policies, &scope(placement));
        let context = || format!("{}", String::from_utf8_lossy(&text));
        let seen = seen.map_err(|error| TestCaseError::fail(format!("{error}\n=== of\n{}", context())))?;
        prop_assert!(seen.refused.is_empty(), "{:?}\n{}", seen.refused, context());
    }
}

// ---- The command.

fn run(folder: &Path, arguments: &[&str], input: &[u8]) -> CommandRun {
    transom_with(folder, &[&["fix"], arguments].concat(), input)
}

const POD: &str = "# web\napiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  nodeSelector:\n    \
                   beta.kubernetes.io/os: windows # old\n  securityContext:\n    runAsUser: 1000 # gone\n    \
                   windowsOptions: {runAsUserName: ContainerUser}\n  containers:\n  - name: web\n    image: \
                   mcr.microsoft.com/windows/nanoserver:ltsc2022\n    resources: {limits: {memory: 1Gi}}\n";

const FIXED: &str = "# web\napiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  nodeSelector:\n    \
                     kubernetes.io/os: windows # old\n  securityContext:\n    windowsOptions: {runAsUserName: \
                     ContainerUser}\n  containers:\n  - name: web\n    image: \
                     mcr.microsoft.com/windows/nanoserver:ltsc2022\n    resources: {limits: {memory: 1Gi}}\n";

fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    folder
}

#[test]
fn a_diff_applies_and_writing_gives_the_same() {
    let folder = folder(&[("app/web.yaml", POD.as_bytes()), ("app/other.yaml", b"a: 1\n")]);
    let diff = run(folder.path(), &["app"], b"");
    assert_eq!(diff.status, 1, "{}", diff.err);
    assert!(
        diff.out.starts_with("--- a/app/web.yaml\n+++ b/app/web.yaml\n"),
        "{}",
        diff.out
    );
    assert_eq!(
        fs::read_to_string(folder.path().join("app/web.yaml")).unwrap(),
        POD
    );
    let mut patch = Command::new("patch")
        .args(["-p1", "--quiet", "-o", "patched.yaml"])
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .spawn()
        .ok();
    if let Some(patch) = &mut patch {
        patch
            .stdin
            .take()
            .unwrap()
            .write_all(diff.out.as_bytes())
            .unwrap();
        assert!(patch.wait().unwrap().success());
        assert_eq!(
            fs::read_to_string(folder.path().join("patched.yaml")).unwrap(),
            FIXED
        );
        fs::remove_file(folder.path().join("patched.yaml")).unwrap();
    }
    let write = run(folder.path(), &["--write", "app"], b"");
    assert_eq!(
        (write.status, &*write.out),
        (0, "fixed app/web.yaml\n"),
        "{}",
        write.err
    );
    assert_eq!(
        fs::read_to_string(folder.path().join("app/web.yaml")).unwrap(),
        FIXED
    );
    let again = run(folder.path(), &["app"], b"");
    assert_eq!((again.status, &*again.out), (0, ""), "{}", again.err);
}

#[test]
fn standard_input_becomes_the_fixed_text() {
    let stream = run(Path::new("."), &["-"], POD.as_bytes());
    assert_eq!((stream.status, &*stream.out), (0, FIXED), "{}", stream.err);
    let user = "fixed TSM204 run-as-user: spec.securityContext.runAsUser (Windows ignores it: the pod loses the user";
    assert!(stream.err.contains(user), "{}", stream.err);
    assert!(
        stream.err.contains("left  TSM101 os-name-missing"),
        "{}",
        stream.err
    );
    let quiet = run(Path::new("."), &["-q", "-"], POD.as_bytes());
    assert_eq!((&*quiet.out, &*quiet.err), (FIXED, ""));
    let diff = run(Path::new("."), &["--diff", "-"], POD.as_bytes());
    assert!(diff.out.starts_with("--- a/stdin\n"), "{}", diff.out);
    assert_eq!(diff.status, 1);
    let unchanged = run(Path::new("."), &["-"], FIXED.as_bytes());
    assert_eq!((unchanged.status, &*unchanged.out), (0, FIXED));
    let written = run(Path::new("."), &["--write", "-"], POD.as_bytes());
    assert_eq!((written.status, &*written.out), (2, ""));
}

/// The pod as the content of an item of a list.
fn indented_pod() -> String {
    POD.lines().skip(1).fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "  {line}");
        text
    })
}

#[test]
fn rules_and_operating_systems_select() {
    let only = run(Path::new("."), &["--select", "run-as-user", "-"], POD.as_bytes());
    assert!(
        only.out.contains("beta.kubernetes.io/os") && !only.out.contains("runAsUser:"),
        "{}",
        only.out
    );
    assert!(
        only.err.contains(" fixed, 0 left, ") && only.err.contains(" of rules that are not selected\n"),
        "{}",
        only.err
    );
    let placed = run(
        Path::new("."),
        &["--placement", "--select", "TSM101,run-as-user", "-"],
        POD.as_bytes(),
    );
    assert!(
        placed.out.ends_with("  os:\n    name: windows\n"),
        "{}",
        placed.out
    );
    assert!(placed.out.contains("beta.kubernetes.io/os"), "{}", placed.out);
    let unknown = run(Path::new("."), &["--select", "run-as-usr", "-"], POD.as_bytes());
    assert_eq!(unknown.status, 2);
    assert!(
        unknown.err.contains("did you mean run-as-user?"),
        "{}",
        unknown.err
    );
    let linux = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  os: {name: Linux}\n  containers: [{name: a, \
                 image: a}]\n";
    let windows_only = run(Path::new("."), &["-"], linux.as_bytes());
    assert_eq!(windows_only.out, linux);
    let stated = run(Path::new("."), &["--os", "linux", "-"], linux.as_bytes());
    let selected = linux
        .replace("Linux", "linux")
        .replace("a}]\n", "a}]\n  nodeSelector:\n    kubernetes.io/os: linux\n");
    assert_eq!(stated.out, selected);
}

#[test]
fn pods_of_unknown_operating_system_are_counted_until_it_is_stated() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - {name: a, image: 'corp.example/a:1'}\n";
    let unknown = run(Path::new("."), &["-"], pod.as_bytes());
    assert_eq!((unknown.status, &*unknown.out), (0, pod), "{}", unknown.err);
    let line = "\n1 object of unknown operating system: if these pods are for Windows, add nodeSelector kubernetes.io/os: \
                windows; fix them with --os windows\n";
    assert!(unknown.err.ends_with(line), "{}", unknown.err);
    let stated = run(Path::new("."), &["--os", "windows", "-"], pod.as_bytes());
    assert!(stated.out.contains("kubernetes.io/os: windows"), "{}", stated.out);
    assert!(!stated.err.contains("unknown operating system"), "{}", stated.err);
}

/// A text, and what it becomes.
type FixedTexts = (Vec<u8>, Vec<u8>);

#[test]
fn bad_input_is_survived_without_writing() {
    let utf16: Vec<u8> = POD.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let level = |n: usize| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 10].join(", "));
    let levels: String = (1..12).map(level).collect();
    let bomb = format!("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n{levels}kind: Pod\n");
    let template = "kind: {{ .Values.kind }}\n";
    let alone = |text: &str| (text.as_bytes().to_vec(), text.as_bytes().to_vec());
    let after_pod = |text: &str| {
        (
            format!("{POD}---\n{text}").into_bytes(),
            format!("{FIXED}---\n{text}").into_bytes(),
        )
    };
    let cases: [(&str, FixedTexts); 6] = [
        ("utf16.yaml", (utf16.clone(), utf16)),
        (
            "flow.yaml",
            alone(&POD.replace("  securityContext:", "  securityContext: [\n   ")),
        ),
        ("bomb.yaml", after_pod(&bomb)),
        ("template.yaml", after_pod(template)),
        ("open.yaml", after_pod("a: [\n")),
        ("cut.json", alone("{\"apiVersion\": \"v1\", \"kind\":")),
    ];
    for (name, (bytes, expected)) in cases {
        let folder = folder(&[(name, &bytes), ("good.yaml", POD.as_bytes())]);
        let result = run(folder.path(), &["--write", "."], b"");
        assert_eq!(result.status, 2, "{name}: {}", result.err);
        assert!(
            result.err.contains(&format!("error: ./{name}")),
            "{name}: {}",
            result.err
        );
        assert_eq!(fs::read(folder.path().join(name)).unwrap(), expected, "{name}");
        assert_eq!(
            fs::read_to_string(folder.path().join("good.yaml")).unwrap(),
            FIXED,
            "{name}"
        );
        // Helm must go on with what can be read, and stop if nothing can.
        let stream = run(folder.path(), &["-"], &bytes);
        let printed = if expected == bytes {
            (2, &b""[..])
        } else {
            (0, &*expected)
        };
        assert_eq!((stream.status, stream.out.as_bytes()), printed, "{name}");
        assert!(stream.err.contains("error: -:"), "{name}: {}", stream.err);
        // Another input that cannot be read may have changed the result.
        let other = run(folder.path(), &["-", name], POD.as_bytes());
        assert_eq!((other.status, &*other.out), (2, ""), "{name}");
    }
}

#[test]
fn a_merge_key_blocks_only_the_fields_that_it_gives() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: merged}\nx-defaults: &defaults {runAsUser: 5, runAsNonRoot: true}\nspec:\n  \
                nodeSelector: {kubernetes.io/os: windows}\n  securityContext: {fsGroup: 1}\n  containers:\n  - name: a\n    \
                image: a\n    securityContext:\n      <<: *defaults\n      privileged: false\n  - name: b\n    image: \
                b\n    securityContext: &b\n      runAsNonRoot: true\n      runAsUser: 7\n      readOnlyRootFilesystem: true\n  - name: c\n    image: \
                c\n    securityContext: {<<: *b, privileged: false}\n";
    let fixed = run(Path::new("."), &["-"], text.as_bytes());
    assert_eq!(fixed.status, 0, "{}", fixed.err);
    let left =
        "containers:\n  - name: a\n    image: a\n    securityContext:\n      <<: *defaults\n  - name: b\n";
    assert!(fixed.out.contains(left), "{}", fixed.out);
    assert!(!fixed.out.contains("fsGroup"), "{}", fixed.out);
    let reason = "spec.containers[a].securityContext.runAsUser: its value comes from a merge key";
    assert!(fixed.err.contains(reason), "{}", fixed.err);
    assert!(
        fixed
            .err
            .contains("  fixed TSM214 privileged: spec.containers[a]"),
        "{}",
        fixed.err
    );
    let again = run(Path::new("."), &["-"], fixed.out.as_bytes());
    assert_eq!(again.out, fixed.out);
}

/// Pod Security's restricted profile requires these fields of a pod without `spec.os.name: windows`.
#[test]
fn what_pod_security_may_require_goes_only_together_with_os_name() {
    let pod = |more: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec:\n{more}  nodeSelector: {{kubernetes.io/os: windows}}\n  \
             securityContext: {{runAsNonRoot: true, seccompProfile: {{type: RuntimeDefault}}, fsGroup: 1}}\n  containers:\n  - \
             name: a\n    image: a\n    securityContext: {{allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}}\n"
        )
    };
    let fix =
        |arguments: &[&str], text: &str| run(Path::new("."), &[arguments, &["-"]].concat(), text.as_bytes());
    let three = ["seccompProfile", "allowPrivilegeEscalation", "capabilities"];
    let count = |result: &CommandRun| three.iter().filter(|field| result.out.contains(*field)).count();
    let says_windows =
        |result: &CommandRun| result.out.contains("os:\n    name: windows") || result.out.contains("os: {");
    let plain = fix(&[], &pod(""));
    assert_eq!((count(&plain), says_windows(&plain)), (3, false), "{}", plain.out);
    assert!(!plain.out.contains("fsGroup"), "{}", plain.out);
    let reason = "Pod Security may require it without spec.os.name: windows, which --placement adds";
    assert_eq!(plain.err.matches(reason).count(), 3, "{}", plain.err);
    for (arguments, more) in [
        (&["--placement"][..], ""),
        (&[], "  os: {name: windows}\n"),
        (
            &["--select", "TSM203,TSM212,TSM215,TSM209,TSM101", "--placement"],
            "",
        ),
    ] {
        let fixed = fix(arguments, &pod(more));
        assert_eq!(
            (count(&fixed), says_windows(&fixed)),
            (0, true),
            "{arguments:?} {}",
            fixed.out
        );
    }
    // Nothing writes it, or something else prevents it.
    for (arguments, more) in [
        (
            &["--placement", "--select", "TSM203,TSM212,TSM215,TSM209"][..],
            "",
        ),
        (&["--placement", "--select", "TSM212,TSM209,TSM101"], ""),
        (&["--placement"], "  resources: {limits: {memory: 1Gi}}\n"),
    ] {
        let fixed = fix(arguments, &pod(more));
        assert_eq!(
            (count(&fixed), says_windows(&fixed)),
            (3, false),
            "{arguments:?} {}{}",
            fixed.out,
            fixed.err
        );
        assert!(!fixed.out.contains("fsGroup"), "{}", fixed.out);
    }
    // An old profile exempts no pod.
    let old = "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n  labels: {pod-security.kubernetes.io/enforce: \
               restricted, pod-security.kubernetes.io/enforce-version: v1.24}\n";
    let fixed = fix(&["--placement", "-n", "shop"], &format!("{}{old}", pod("")));
    assert_eq!((count(&fixed), says_windows(&fixed)), (3, false), "{}", fixed.out);
    // A lower profile requires none of them, so a field that needs a decision does not keep them.
    let lower = "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n  labels: \
                 {pod-security.kubernetes.io/enforce: baseline}\n";
    for (arguments, more) in [
        (
            &["--placement", "-n", "shop"][..],
            "  resources: {limits: {memory: 1Gi}}\n",
        ),
        (&["-n", "shop"], ""),
    ] {
        let fixed = fix(arguments, &format!("{}{lower}", pod(more)));
        assert_eq!((count(&fixed), says_windows(&fixed)), (0, false), "{}", fixed.out);
    }
}

#[test]
fn a_toleration_is_written_if_a_node_or_a_policy_needs_it_and_listed_with_the_reason() {
    let policy = "apiVersion: transom.dev/v1alpha1\nkind: WindowsPodPolicy\nmetadata: {name: extra}\nspec:\n  mode: \
                  Enforce\n  placement:\n    toleratedTaints: [{key: pool, value: extra, effect: NoSchedule}]\n";
    let folder = folder(&[
        ("nodes.yaml", windows_nodes().as_bytes()),
        ("policy.yaml", policy.as_bytes()),
    ]);
    let fix = |arguments: &[&str]| {
        run(
            folder.path(),
            &[&["--placement", "-"], arguments].concat(),
            BARE_POD.as_bytes(),
        )
    };
    let alone = fix(&[]);
    assert!(!alone.out.contains("toleration"), "{}", alone.out);
    assert!(!alone.err.contains("toleration"), "{}", alone.err);
    let nodes = fix(&["nodes.yaml"]);
    assert!(
        nodes.out.contains("  tolerations:\n  - key: os\n"),
        "{}",
        nodes.out
    );
    assert!(
        nodes
            .err
            .contains("fixed TSM701 missing-windows-toleration: spec.tolerations"),
        "{}",
        nodes.err
    );
    let policy = fix(&["--policy", "policy.yaml"]);
    assert!(
        policy.out.contains("  tolerations:\n  - key: pool\n"),
        "{}",
        policy.out
    );
    let listed = "  also  spec.tolerations: placement.toleratedTaints of the policy extra lists the taint pool=extra:NoSchedule";
    assert!(policy.err.contains(listed), "{}", policy.err);
    // A list that nobody wrote is no reason.
    fs::write(
        folder.path().join("mode.yaml"),
        "apiVersion: transom.dev/v1alpha1\nkind: WindowsPodPolicy\nmetadata: {name: mode}\nspec: {mode: Enforce}\n",
    )
    .unwrap();
    let unlisted = fix(&["--policy", "mode.yaml"]);
    assert!(!unlisted.out.contains("toleration"), "{}", unlisted.out);
    // A policy among the inputs is no setting.
    let among = fix(&["policy.yaml"]);
    assert!(!among.out.contains("toleration"), "{}", among.out);
    let note = "note: policy.yaml:1: the policy \"extra\" does not apply; to apply: transom fix --policy policy.yaml PATHS\n";
    assert!(among.err.contains(note), "{}", among.err);
    let json: Value = serde_json::from_str(&fix(&["-o", "json", "policy.yaml"]).out).unwrap();
    assert_eq!(json["notes"][0]["source"], "policy.yaml", "{json:#}");
    // Both have the same path.
    let both = fix(&["nodes.yaml", "--policy", "policy.yaml"]);
    assert!(
        both.out.contains("- key: os\n") && both.out.contains("- key: pool\n"),
        "{}",
        both.out
    );
    assert!(both.err.contains(listed), "{}", both.err);
    assert_eq!(both.err.matches("also").count(), 1, "{}", both.err);
}

/// What `cat` would print is read; what it would wait for is not.
#[test]
#[cfg(unix)]
fn pipes_and_links_that_lead_nowhere() {
    let folder = folder(&[("in/good.yaml", POD.as_bytes())]);
    let path = |name: &str| folder.path().join(name);
    let pipe = |name: &str| assert!(Command::new("mkfifo").arg(path(name)).status().unwrap().success());
    pipe("in/pipe.yaml");
    pipe("in/notes.txt");
    pipe("named");
    std::os::unix::fs::symlink("nowhere.yaml", path("in/link.yaml")).unwrap();
    for command in ["check", "fix"] {
        let all = transom_with(folder.path(), &[command, "in"], b"");
        assert_eq!(all.status, 2, "{}", all.err);
        let said = format!("{}{}", all.out, all.err);
        for line in [
            "in/pipe.yaml: it is a pipe, not a regular file",
            "in/link.yaml: it is a symbolic link to nowhere.yaml, which does not exist",
        ] {
            assert!(said.contains(line), "{command}: {said}");
        }
        assert!(!said.contains("notes"), "{command}: {said}");
        let writer = std::thread::spawn({
            let named = path("named");
            move || fs::write(named, POD).unwrap()
        });
        let named = transom_with(folder.path(), &[command, "named"], b"");
        writer.join().unwrap();
        assert_eq!(named.status, 1, "{command}: {}", named.err);
        assert!(named.out.contains("named"), "{command}: {}", named.out);
    }
}

#[test]
fn many_objects_are_fixed_at_once() {
    let item = indented_pod();
    let list = format!(
        "apiVersion: v1\nkind: List\nitems:\n{}",
        format!("-{}", &item[1..]).repeat(2_000)
    );
    let result = run(Path::new("."), &["-q", "-"], list.as_bytes());
    assert_eq!(result.status, 0, "{}", result.err);
    assert_eq!(result.out.lines().count(), list.lines().count() - 2_000);
    // The edits are known, so the texts are not compared: that would take minutes.
    let folder = folder(&[("list.yaml", list.as_bytes())]);
    let diff = run(folder.path(), &["-q", "list.yaml"], b"");
    assert_eq!(diff.status, 1, "{}", diff.err);
    assert_eq!(
        diff.out.lines().filter(|line| line.starts_with("@@")).count(),
        2_000
    );
}

const MIXED: &str = "apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: wf, namespace: shop}
spec:
  entrypoint: lin
  securityContext: {runAsUser: 1000}
  templates:
  - name: lin
    container: {image: alpine:3, command: [sh]}
  - name: win
    nodeSelector: {kubernetes.io/os: windows}
    container: {image: \"mcr.microsoft.com/windows/nanoserver:ltsc2022\", command: [cmd], securityContext: {runAsUser: 1}}
";

#[test]
fn a_field_that_other_pods_of_the_object_use_too_is_left() {
    let fixed = run(folder(&[]).path(), &["-"], MIXED.as_bytes());
    assert_eq!(fixed.status, 0, "{}", fixed.err);
    assert!(
        fixed.out.contains("  securityContext: {runAsUser: 1000}"),
        "{}",
        fixed.out
    );
    assert!(
        !fixed.out.contains("runAsUser: 1}"),
        "a field of the Windows pod alone: {}",
        fixed.out
    );
    assert!(
        fixed.err.contains("spec.securityContext.runAsUser"),
        "{}",
        fixed.err
    );
}

#[test]
fn what_the_author_suppressed_is_left_and_listed() {
    let pod = POD.replace("# gone", "# transom:suppress run-as-user");
    let fixed = run(folder(&[]).path(), &["-"], pod.as_bytes());
    assert!(
        fixed
            .out
            .contains("runAsUser: 1000 # transom:suppress run-as-user"),
        "{}",
        fixed.out
    );
    assert!(fixed.err.contains("suppressed by -:"), "{}", fixed.err);
}

#[test]
fn what_is_left_to_admission_is_said_as_check_says_it() {
    let (_, ltsc2022) = windows_nodes()
        .rsplit_once("---\n")
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    let newer = ltsc2022.replace("20348", "26100");
    let nodes = format!("{}---\n{newer}", windows_nodes());
    let folder = folder(&[
        ("nodes.yaml", nodes.as_bytes()),
        ("pod.yaml", BARE_POD.replace("ltsc2019", "ltsc2022").as_bytes()),
    ]);
    let inputs = ["pod.yaml", "nodes.yaml"];
    let check = transom_with(folder.path(), &[&["check"], &inputs[..]].concat(), "");
    let of_rule = check
        .out
        .split("\n\n")
        .find(|part| part.contains("missing-build-selector"))
        .unwrap();
    assert!(of_rule.contains("(set at pod creation)"), "{of_rule}");
    for (placement, why) in [
        (
            &[][..],
            "spec.nodeSelector: --placement adds it if one value is certain",
        ),
        (&["--placement"], "and placement adds it to the pods in admission"),
    ] {
        let fix = run(folder.path(), &[placement, &inputs].concat(), b"");
        let left = fix.err.lines().find(|line| line.contains("left  TSM702"));
        assert!(left.is_some_and(|left| left.contains(why)), "{why}: {}", fix.err);
    }
}

/// A pod that is for Windows only by its image, and nodes that make placement certain of every part.
const BARE_POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - name: web\n    \
                        image: mcr.microsoft.com/windows/nanoserver:ltsc2019\n    resources: {limits: {memory: \
                        1Gi}}\n";

fn windows_nodes() -> String {
    let node = |build: &str| {
        format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: w-{build}, labels: {{kubernetes.io/os: windows, \
             kubernetes.io/arch: amd64, node.kubernetes.io/windows-build: {build}}}}}\nspec: {{taints: [{{key: os, value: \
             windows, effect: NoSchedule}}]}}\nstatus: {{nodeInfo: {{operatingSystem: windows, kernelVersion: \
             {build}.1}}}}\n"
        )
    };
    node("10.0.17763") + &node("10.0.20348")
}

#[test]
fn placement_writes_nothing_that_resolves_a_suppressed_finding() {
    let folder = folder(&[("nodes.yaml", windows_nodes().as_bytes())]);
    let fix = |text: &str| {
        run(
            folder.path(),
            &["--placement", "-", "nodes.yaml"],
            text.as_bytes(),
        )
    };
    let all = fix(BARE_POD);
    for (rule, written) in [
        ("missing-windows-toleration", "tolerations:"),
        ("os-name-missing", "  os:\n    name: windows\n"),
        ("missing-build-selector", "windows-build"),
        ("missing-os-selector", "    kubernetes.io/os: windows\n"),
    ] {
        assert!(all.out.contains(written), "{rule}: {}{}", all.out, all.err);
        let suppressed = format!("# transom:suppress {rule}\n{BARE_POD}");
        let left = fix(&suppressed);
        assert!(!left.out.contains(written), "{rule}: {}", left.out);
        assert!(left.err.contains("suppressed by -:"), "{rule}: {}", left.err);
        assert_ne!(left.out, suppressed, "{rule}: the other parts are written");
    }
}

#[test]
fn the_exit_status_does_not_depend_on_the_reader_of_the_messages() {
    let folder = folder(&[("web.yaml", POD.as_bytes()), ("broken.yaml", b"a: [")]);
    for (arguments, status) in [
        (&["fix", "web.yaml"][..], 1),
        (&["fix", "web.yaml", "broken.yaml"], 2),
        (&["fix", "--write", "web.yaml"], 0),
    ] {
        assert_eq!(status_unread(folder.path(), arguments), status, "{arguments:?}");
    }
}

#[test]
fn an_object_that_cannot_be_evaluated_is_an_error_and_stays() {
    let odd = "apiVersion: v1\nkind: Pod\nmetadata: {name: odd}\nspec: {hostPID: \"yes\", os: {name: windows}, containers: []}\n";
    let both = format!("{POD}---\n{odd}");
    let folder = folder(&[("a.yaml", both.as_bytes())]);
    let written = run(folder.path(), &["--write", "a.yaml"], b"");
    assert_eq!(written.status, 2, "{}", written.err);
    assert!(written.err.contains("spec.hostPID"), "{}", written.err);
    let text = fs::read_to_string(folder.path().join("a.yaml")).unwrap();
    assert_eq!(text, format!("{FIXED}---\n{odd}"));
    // Helm must go on.
    let stream = run(folder.path(), &["-"], both.as_bytes());
    assert_eq!((stream.status, stream.out.as_str()), (0, text.as_str()));
    assert!(stream.err.contains("spec.hostPID"), "{}", stream.err);
}

#[test]
fn a_key_that_is_given_twice_is_noted_and_its_mapping_stays() {
    let container = "  containers:\n  - name: web\n    image: web\n    securityContext: {runAsUser: 1, runAsUser: 2, windowsOptions: {}}\n";
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec:\n  hostPID: true\n  nodeSelector: {{kubernetes.io/os: \
         windows}}\n{container}"
    );
    let folder = folder(&[("pod.yaml", text.as_bytes())]);
    let fixed = run(folder.path(), &["--write", "pod.yaml"], b"");
    let note = "warning: pod.yaml:10:37: the key runAsUser is given twice in one mapping, on line 10: the last one \
                applies; remove one of them\n";
    assert!(fixed.err.contains(note), "{}", fixed.err);
    assert!(
        fixed.err.contains("a key is given twice in one mapping"),
        "{}",
        fixed.err
    );
    let after = fs::read_to_string(folder.path().join("pod.yaml")).unwrap();
    assert!(
        after.ends_with(container) && !after.contains("hostPID"),
        "{after}"
    );
}
