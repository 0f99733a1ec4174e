//! Checks manifests: collects facts from all objects, then evaluates every object. No output.

mod effective_policy;
pub mod files;
mod manifest_fix;
mod objects;
mod parallel;
mod policies;
mod scope;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use parallel::in_order;
use serde::Deserialize;
use serde_json::Value;

pub use self::effective_policy::PolicyChoice;
pub use self::manifest_fix::{FixScope, PlannedFix, with_edit};
pub use self::scope::Scope;
use crate::api::{API_VERSION, NODE_POLICY, POD_POLICY, read_node_policy};
use crate::engine::policy_set::{PolicyQuery, PolicySet};
use crate::engine::{Evaluation, action_reason, evaluate, infer_os};
use crate::manifest::{self, Document, Locator, NodeStep, Position};
use crate::model::facts::{Facts, NamespaceFacts, WindowsWorkload};
use crate::model::json_types::Str;
use crate::model::object::{Object, ObjectError, ReviewStage};
use crate::model::os::Verdict;
use crate::model::path::{Path, Segment};
use crate::model::policy::{Action, IgnoredFields, PlacementMode};
use crate::model::requester::Origin;
use crate::model::resources::MetaOnly;
use crate::model::workload::Kind;

/// One text to check, and its name.
#[derive(Clone, Debug)]
pub struct CheckInput {
    /// The file's name, or `-` for standard input.
    pub source: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A part of the input that could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnreadableInput {
    /// The input's name.
    pub source: String,
    /// The line, from 1; 0 if the whole file could not be read.
    pub line: usize,
    /// The message and the remedy.
    pub message: String,
}

/// One evaluated object.
#[derive(Debug)]
pub struct Checked<'d> {
    /// The name of its input.
    pub source: &'d str,
    /// The text of its input, if it was kept.
    pub text: Option<&'d SourceLines>,
    /// Its JSON and positions.
    pub document: &'d Document,
    /// Its `apiVersion` as written.
    pub api_version: String,
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty if neither the object nor the [`Scope`] names one.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The owner whose controller is assumed to have created it, as in `Deployment web`: a file has no
    /// requester.
    pub owner: Option<String>,
    /// The policy that applied.
    pub choice: PolicyChoice,
    /// Why admission would never review it; `None` if it would.
    pub not_admitted: Option<String>,
    /// Why the effect of a finding differs from what its severity implies, in the order of the findings.
    pub because: Vec<Option<String>>,
    /// The evaluation.
    pub evaluation: Evaluation,
}

impl<'d> Checked<'d> {
    /// The labels of the object.
    pub fn labels(&self) -> BTreeMap<String, String> {
        let object: MetaOnly<'_> = serde_json::from_str(self.document.json()).unwrap_or_default();
        let labels = object.metadata.labels.iter();
        labels
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect()
    }

    /// Finds the positions of fields of the object.
    pub fn places(&self) -> FieldPositions<'d> {
        FieldPositions(self.document.locator())
    }
}

/// Finds the positions of fields of one object.
pub struct FieldPositions<'d>(Locator<'d>);

impl FieldPositions<'_> {
    /// The position of a field, or of its nearest existing parent.
    pub fn of(&mut self, path: &Path) -> Position {
        let steps: Vec<NodeStep<'_>> = (path.segments().iter())
            .map(|segment| match segment {
                Segment::Field(name) => NodeStep::Key(name),
                Segment::Key(key) => NodeStep::Key(key),
                Segment::Item(index, _) => NodeStep::Index(*index),
            })
            .collect();
        self.0.locate(&steps)
    }
}

/// Parsed manifests.
pub struct Manifests {
    documents: Vec<(usize, Document)>,
    sources: Vec<DocumentSource>,
    errors: Vec<UnreadableInput>,
    keep_text: bool,
    scope: Scope,
}

/// The source of documents.
struct DocumentSource {
    name: String,
    text: Option<SourceLines>,
    /// Whether the file was found in a folder, which can contain files that are not manifests.
    found: bool,
}

/// A text from which excerpts of lines are shown.
#[derive(Debug)]
pub struct SourceLines {
    bytes: Vec<u8>,
    lines: Vec<usize>,
    /// Marks inside long lines, so that finding a column does not read the whole line: JSON is often one line
    /// of megabytes.
    marks: Vec<LineMark>,
}

/// A byte offset in a line, and the number of characters of the line before it.
#[derive(Debug)]
struct LineMark {
    offset: usize,
    column: usize,
}

impl SourceLines {
    /// The distance between two marks, in bytes.
    const STRIDE: usize = 4096;

    /// A text of these bytes; invalid UTF-8 is replaced.
    pub fn new(bytes: Vec<u8>) -> Self {
        let (mut lines, mut marks) = (vec![0], Vec::new());
        let (mut column, mut until_mark) = (0, Self::STRIDE);
        for (offset, byte) in bytes.iter().enumerate() {
            if *byte == b'\n' {
                lines.push(offset + 1);
                (column, until_mark) = (0, Self::STRIDE);
            } else if starts_character(*byte) {
                if until_mark == 0 {
                    marks.push(LineMark { offset, column });
                    until_mark = Self::STRIDE;
                }
                column += 1;
            }
            until_mark = until_mark.saturating_sub(1);
        }
        SourceLines { bytes, lines, marks }
    }

    /// The bytes of the text.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The characters of a line (from 1) after the first `skip`, at most `most` of them.
    pub fn excerpt(&self, number: usize, skip: usize, most: usize) -> Option<Cow<'_, str>> {
        let start = *self.lines.get(number.checked_sub(1)?)?;
        let end = self.lines.get(number).map_or(self.bytes.len(), |next| next - 1);
        let line = self.bytes.get(start..end)?;
        let end = start + line.strip_suffix(b"\r").unwrap_or(line).len();
        // The last mark of this line at or before the position.
        let marks = self
            .marks
            .get(..self.marks.partition_point(|mark| mark.offset < end))?;
        let marks = marks.get(marks.partition_point(|mark| mark.offset < start)..)?;
        let passed = marks.partition_point(|mark| mark.column <= skip);
        let mark = passed.checked_sub(1).and_then(|last| marks.get(last));
        let (offset, column) = mark.map_or((start, 0), |mark| (mark.offset, mark.column));
        let from = self.after(offset, end, skip - column);
        let to = self.after(from, end, most);
        Some(String::from_utf8_lossy(self.bytes.get(from..to)?))
    }

    /// The offset a number of characters after another one, at most `end`.
    fn after(&self, offset: usize, end: usize, characters: usize) -> usize {
        let bytes = self.bytes.get(offset..end).unwrap_or_default();
        let starts = bytes
            .iter()
            .enumerate()
            .filter(|(_, byte)| starts_character(**byte));
        starts.map(|(at, _)| offset + at).nth(characters).unwrap_or(end)
    }
}

/// Whether a byte is the first one of a character in UTF-8.
fn starts_character(byte: u8) -> bool {
    byte & 0b1100_0000 != 0b1000_0000
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct DocumentHeader<'a> {
    #[serde(borrow)]
    api_version: Option<Str<'a>>,
    kind: Option<Str<'a>>,
}

/// The role of a document.
enum DocumentRole<'a> {
    Subject(Kind, Cow<'a, str>),
    Namespace,
    /// A WindowsPodPolicy.
    Policy,
    /// A WindowsNodePolicy: its pools become facts.
    NodePolicy,
    /// A kind that is not evaluated, with its name.
    Other(String),
}

impl Manifests {
    /// Without documents; `keep_text` keeps the texts for excerpts.
    pub fn new(keep_text: bool) -> Self {
        Manifests {
            documents: Vec::new(),
            sources: Vec::new(),
            errors: Vec::new(),
            keep_text,
            scope: Scope::default(),
        }
    }

    /// With assumptions about every input.
    #[must_use]
    pub fn within(self, scope: Scope) -> Self {
        Manifests { scope, ..self }
    }

    /// Parses texts; unreadable parts become errors, and the rest is parsed.
    pub fn parse(inputs: Vec<CheckInput>) -> Self {
        let mut all = Manifests::new(false);
        for input in inputs {
            all.add(input);
        }
        all
    }

    /// Parses another text.
    pub fn add(&mut self, input: CheckInput) {
        self.add_source(input, false);
    }

    /// Parses a text that was found in a folder: documents that are not Kubernetes objects are skipped.
    pub fn add_found(&mut self, input: CheckInput) {
        self.add_source(input, true);
    }

    fn add_source(&mut self, input: CheckInput, found: bool) {
        let text = self.keep_text.then(|| SourceLines::new(input.bytes.clone()));
        let parsed = manifest::parse(input.bytes);
        let index = self.sources.len();
        self.documents
            .extend(parsed.documents.into_iter().map(|document| (index, document)));
        self.errors
            .extend(parsed.errors.into_iter().map(|error| UnreadableInput {
                source: input.source.clone(),
                line: error.line,
                message: error.message,
            }));
        self.sources.push(DocumentSource {
            name: input.source,
            text,
            found,
        });
    }

    /// Records a text that could not be opened.
    pub fn add_error(&mut self, error: UnreadableInput) {
        self.errors.push(error);
    }

    /// The parse errors so far.
    pub fn errors(&self) -> &[UnreadableInput] {
        &self.errors
    }

    /// How many documents there are.
    pub fn len(&self) -> usize {
        self.documents.len()
    }

    /// Whether there is nothing to check.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    /// Collects facts of the cluster from every object: namespaces, nodes, RuntimeClasses, claims, endpoints
    /// and Windows workloads.
    pub fn learn(&self, facts: &mut Facts, policies: &PolicySet) {
        let mut roles = Vec::with_capacity(self.documents.len());
        in_order(
            &self.documents,
            |(_, document)| role(document),
            |role| roles.push(role),
        );
        let mut asks_for_workloads = false;
        for ((_, document), role) in self.documents.iter().zip(&roles) {
            match role {
                Ok(DocumentRole::Namespace) => {
                    if let Ok(namespace) = serde_json::from_str::<MetaOnly<'_>>(document.json()) {
                        let name = namespace.metadata.name.to_string();
                        Arc::make_mut(&mut facts.namespaces)
                            .insert(name, NamespaceFacts::of(&namespace.metadata));
                    }
                }
                Ok(DocumentRole::NodePolicy) => {
                    if let Ok(declared) = read_node_policy(document) {
                        declared.add_to(facts);
                    }
                }
                Ok(DocumentRole::Subject(kind, _)) if !kind.has_pod() => {
                    asks_for_workloads = true;
                    if let Ok(subject) = self.subject_of(document, *kind, ReviewStage::Written) {
                        facts.learn(&subject);
                    }
                }
                _ => {}
            }
        }
        if asks_for_workloads {
            let with_pods: Vec<(&Document, Kind)> = (self.documents.iter().zip(&roles))
                .filter_map(|((_, document), role)| match role {
                    Ok(DocumentRole::Subject(kind, _)) if kind.has_pod() => Some((document, *kind)),
                    _ => None,
                })
                .collect();
            self.learn_workloads(&with_pods, facts, policies);
        }
    }

    /// Records which of these objects are for Windows.
    fn learn_workloads(&self, objects: &[(&Document, Kind)], facts: &mut Facts, policies: &PolicySet) {
        let mut workloads = Vec::new();
        let known = &*facts;
        let workload_of = |(document, kind): &(&Document, Kind)| {
            let subject = self.subject_of(document, *kind, ReviewStage::Written).ok()?;
            let policy = policies.effective(&no_user(&subject, known));
            let is_windows = infer_os(&subject, known, &policy).verdict == Verdict::Windows;
            is_windows.then(|| WindowsWorkload::of(&subject)).flatten()
        };
        in_order(objects, workload_of, |workload| workloads.extend(workload));
        facts.workloads.extend(workloads);
    }

    /// The number of objects with pods per kind that is not evaluated. Admission evaluates what their
    /// controllers create.
    pub fn skipped(&self) -> BTreeMap<String, usize> {
        let mut skipped = BTreeMap::new();
        for (_, document) in &self.documents {
            if let Ok(DocumentRole::Other(kind)) = role(document)
                && kind != "AdmissionReview"
                && carries_pod(document.json())
            {
                *skipped.entry(kind).or_default() += 1;
            }
        }
        skipped
    }

    /// The documents in folders that are not Kubernetes objects, as in `chart/values.yaml:1`.
    pub fn passed_over(&self) -> Vec<String> {
        let mut passed = Vec::new();
        for (source, document) in &self.documents {
            if let Some(source) = self.sources.get(*source)
                && source.found
                && role(document).is_err()
            {
                passed.push(format!("{}:{}", source.name, document.start().line));
            }
        }
        passed
    }

    /// Evaluates every object in input order, and passes each to `each`.
    pub fn check<'d>(
        &'d self,
        facts: &Facts,
        policies: &PolicySet,
        stage: ReviewStage,
        mut each: impl FnMut(Checked<'d>),
    ) -> Vec<UnreadableInput> {
        let mut errors = self.errors.clone();
        let check = |(source, document): &'d (usize, Document)| {
            // Cannot be out of range: every index was the length of `sources` before its source was pushed.
            let source = &self.sources[*source];
            self.check_one(source, document, facts, policies, stage)
        };
        in_order(&self.documents, check, |checked| match checked {
            Ok(Some(checked)) => each(checked),
            Ok(None) => {}
            Err(error) => errors.push(error),
        });
        errors.sort_by(|a, b| (&a.source, a.line).cmp(&(&b.source, b.line)));
        errors
    }
}

impl Manifests {
    fn check_one<'d>(
        &self,
        source: &'d DocumentSource,
        document: &'d Document,
        facts: &Facts,
        policies: &PolicySet,
        stage: ReviewStage,
    ) -> Result<Option<Checked<'d>>, UnreadableInput> {
        let unreadable = |line: usize, message: String| UnreadableInput {
            source: source.name.clone(),
            line,
            message,
        };
        let start = document.start().line;
        let (kind, api_version) = match role(document) {
            Ok(DocumentRole::Subject(kind, api_version)) => (kind, api_version.into_owned()),
            Ok(
                DocumentRole::Namespace
                | DocumentRole::Policy
                | DocumentRole::NodePolicy
                | DocumentRole::Other(_),
            ) => return Ok(None),
            Err(_) if source.found => return Ok(None),
            Err(message) => return Err(unreadable(start, message)),
        };
        let subject = self.subject_of(document, kind, stage).map_err(|error| {
            let line = document.locate(&steps_of(&error)).line;
            unreadable(line, format!("this {kind} cannot be read: {error}"))
        })?;
        let query = no_user(&subject, facts);
        let mut policy = policies.effective(&query);
        let choice = PolicyChoice::of(policies, &query, &policy);
        let not_admitted = (self.scope.not_admitted(&subject.namespace, facts)).filter(|_| kind.has_pod());
        if not_admitted.is_some() {
            let off = policy.to_mut();
            (off.validation, off.placement, off.ignored_fields) =
                (Action::Disabled, PlacementMode::Disabled, IgnoredFields::Deny);
        }
        let evaluation = evaluate(&subject, facts, &policy);
        let why = |finding| action_reason(finding, &subject, &policy).filter(|_| not_admitted.is_none());
        let written = subject.meta.namespace.to_string();
        let assumed = || self.scope.namespace.clone().unwrap_or_default();
        Ok(Some(Checked {
            source: &source.name,
            text: source.text.as_ref(),
            document,
            api_version,
            kind,
            namespace: if written.is_empty() && kind.is_namespaced() {
                assumed()
            } else {
                written
            },
            name: subject.meta.display_name().to_owned(),
            owner: (subject.meta.controller())
                .filter(|_| subject.origin == Origin::Controller)
                .map(|owner| format!("{} {}", owner.kind, owner.name)),
            because: evaluation.findings.iter().map(why).collect(),
            choice,
            not_admitted,
            evaluation,
        }))
    }

    /// Reads an object. If it has no namespace, it gets that of the scope, as when it is applied. If it names
    /// an owner, that owner's controller is assumed to have created it.
    fn subject_of<'d>(
        &self,
        document: &'d Document,
        kind: Kind,
        stage: ReviewStage,
    ) -> Result<Object<'d>, ObjectError> {
        self.subject_of_json(document.json(), kind, stage)
    }

    fn subject_of_json<'d>(
        &self,
        json: &'d str,
        kind: Kind,
        stage: ReviewStage,
    ) -> Result<Object<'d>, ObjectError> {
        let mut subject = Object::parse(kind, json, stage)?;
        if subject.namespace.is_empty() {
            subject.namespace = self.scope.default_namespace().to_owned().into();
        }
        subject.origin = Origin::assumed(subject.owner_kind());
        // The author is responsible for the whole file, including ephemeral containers. A file is never a
        // mirror pod.
        subject.find_debugger(|_| true);
        Ok(subject)
    }
}

fn steps_of(error: &ObjectError) -> Vec<NodeStep<'_>> {
    let parts = error.path.split(['.', '[', ']']).filter(|part| !part.is_empty());
    parts
        .map(|part| part.parse().map_or(NodeStep::Key(part), NodeStep::Index))
        .collect()
}

/// A query without a requester, for the object's own namespace.
fn no_user<'q>(subject: &'q Object<'_>, facts: &'q Facts) -> PolicyQuery<'q> {
    let namespace = &*subject.namespace;
    let labels: Option<&BTreeMap<String, String>> = facts.namespaces.get(namespace).map(|n| &n.labels);
    PolicyQuery {
        namespace,
        labels,
        user: "",
        groups: &[],
        today: facts.today,
    }
}

fn role(document: &Document) -> Result<DocumentRole<'_>, String> {
    const NOT_KUBERNETES: &str = "this is not a Kubernetes object";
    if !document.json().starts_with('{') {
        return Err(format!("{NOT_KUBERNETES}: it is no mapping"));
    }
    let header: DocumentHeader<'_> = serde_json::from_str(document.json())
        .map_err(|_| format!("{NOT_KUBERNETES}: its apiVersion or kind is no text"))?;
    let of_item = document
        .list_kind()
        .and_then(|kind| kind.strip_suffix("List"))
        .filter(|kind| !kind.is_empty());
    let kind = header.kind.as_deref().or(of_item);
    let api_version = match header.api_version {
        Some(version) => Some(version.0),
        None => of_item
            .and_then(|_| document.list_api_version())
            .map(Cow::Borrowed),
    };
    let (Some(kind), Some(api_version)) = (kind, api_version) else {
        let missing = if kind.is_none() { "kind" } else { "apiVersion" };
        return Err(format!("{NOT_KUBERNETES}: it has no {missing}"));
    };
    Ok(match Kind::of_api_version(&api_version, kind) {
        Some(kind) => DocumentRole::Subject(kind, api_version),
        None if kind == "Namespace" && api_version == "v1" => DocumentRole::Namespace,
        None if kind == POD_POLICY && same_group(&api_version, API_VERSION) => DocumentRole::Policy,
        None if kind == NODE_POLICY && same_group(&api_version, API_VERSION) => DocumentRole::NodePolicy,
        // Knative also has a kind Service.
        None if Kind::ALL.iter().any(|known| known.as_str() == kind) => {
            let group = api_version.rsplit_once('/').map_or("core", |(group, _)| group);
            DocumentRole::Other(format!("{kind}.{group}"))
        }
        None => DocumentRole::Other(kind.to_owned()),
    })
}

fn same_group(version: &str, other: &str) -> bool {
    version.split('/').next() == other.split('/').next()
}

/// Whether an object of any kind contains containers with images.
fn carries_pod(json: &str) -> bool {
    fn has_containers(value: &Value) -> bool {
        let has_image = |list: &Value| {
            let mut items = list.as_array().into_iter().flatten();
            items.any(|item| item.get("image").is_some())
        };
        match value {
            Value::Array(items) => items.iter().any(has_containers),
            Value::Object(fields) => {
                fields.get("containers").is_some_and(has_image) || fields.values().any(has_containers)
            }
            _ => false,
        }
    }
    json.contains("\"containers\"") && serde_json::from_str(json).is_ok_and(|value| has_containers(&value))
}

#[cfg(test)]
mod tests;
