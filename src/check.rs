//! Checks manifests: collects facts from all objects, then evaluates every object. No output.

mod ambiguous_names;
mod baseline;
mod config;
mod document_file;
mod effective_policy;
pub mod files;
mod fix_function;
mod images;
mod manifest_fix;
mod objects;
mod parallel;
mod policies;
pub mod policy_tests;
mod rendered;
mod repository;
mod scope;
mod suppression;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use ambiguous_names::ambiguous_names;
use parallel::in_order;
use serde::Deserialize;
use serde_json::Value;

use self::baseline::BaselineUse;
pub use self::baseline::{BASELINE_SCHEMA, Baseline, BaselineEntry, BaselineWriter};
pub use self::config::{CONFIG_FILE, CheckConfig, ConfigFailOn, ConfigOs, KubernetesVersion, find_config};
pub use self::document_file::DocumentFileError;
pub use self::effective_policy::PolicyChoice;
pub use self::fix_function::FixFunction;
pub use self::images::{CheckedImage, ImageCounts};
pub use self::manifest_fix::{FixRules, FixScope, FixTarget, PlannedEdit, PlannedFix, with_edit};
pub use self::repository::Repository;
pub use self::scope::{Scope, StatedSystems};
pub use self::suppression::{
    CheckNote, NoteLevel, SUPPRESS_ANNOTATION, SuppressedBy, SuppressedFinding, Suppression,
};
use self::suppression::{CommentSuppressions, SuppressionUse, Suppressions};
use crate::api::{API_VERSION, NODE_POLICY, POD_POLICY, read_node_policy};
use crate::engine::namespace_selector;
use crate::engine::policy_set::{PolicyQuery, PolicySet};
use crate::engine::{Decision, Evaluation, action_reason, evaluate, infer_os};
use crate::manifest::{self, Document, Locator, NodeStep, Position};
use crate::model::facts::{Facts, NamespaceFacts, WindowsWorkload};
use crate::model::json_types::Str;
use crate::model::known_claims::{InputSource, ObjectSource};
use crate::model::object::{Object, ObjectError, ReviewStage};
use crate::model::os::{Os, Verdict};
use crate::model::path::{Path, Segment};
use crate::model::policy::{Action, IgnoredFields, PlacementMode};
use crate::model::requester::Origin;
use crate::model::resources::MetaOnly;
use crate::model::workload::Kind;
use crate::model::workload::configured::ConfiguredKind;
use crate::model::workload::custom::exclusion;
use crate::rules::{Finding, Rule};

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

/// As in `file.yaml:7: message`.
impl fmt::Display for UnreadableInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnreadableInput {
            source,
            line,
            message,
        } = self;
        match line {
            0 => write!(f, "{source}: {message}"),
            line => write!(f, "{source}:{line}: {message}"),
        }
    }
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
    /// The operating system that the author states for its input.
    pub stated_os: Option<Os>,
    /// The policy that applied.
    pub choice: PolicyChoice,
    /// Why admission would never review it; `None` if it would.
    pub not_reviewed: Option<String>,
    /// Why the effect of a finding differs from what its severity implies, in the order of the findings.
    pub action_reasons: Vec<Option<String>>,
    /// What admission would do. It does not know suppressions.
    pub decision: Decision,
    /// The evaluation, without the suppressed findings.
    pub evaluation: Evaluation,
    /// The suppressed findings.
    pub suppressed: Vec<SuppressedFinding>,
    used: SuppressionUse,
}

impl<'d> Checked<'d> {
    /// Whether only suppressed findings deny it.
    pub fn is_denial_suppressed(&self) -> bool {
        self.decision == Decision::Deny && self.evaluation.decision() != Decision::Deny
    }

    /// Whether nothing says for which operating system its pods are: no rule for Windows checks them.
    pub fn has_unknown_os(&self) -> bool {
        self.kind.has_pod() && self.evaluation.inference.verdict == Verdict::Unknown
    }

    /// Drops the findings of all other rules, as if these rules did not exist.
    pub fn keep_rules(&mut self, is_kept: impl Fn(&Rule) -> bool) {
        let Evaluation {
            findings, exempted, ..
        } = &mut self.evaluation;
        let reasons = std::mem::take(&mut self.action_reasons).into_iter();
        let kept = std::mem::take(findings).into_iter().zip(reasons);
        let kept = kept.filter(|(finding, _)| is_kept(finding.rule));
        (*findings, self.action_reasons) = kept.unzip();
        for (_, findings) in exempted {
            findings.retain(|finding| is_kept(finding.rule));
        }
        self.suppressed
            .retain(|suppressed| is_kept(suppressed.finding.rule));
        let mut reviewed = self.evaluation.clone();
        let suppressed = self.suppressed.iter().map(|suppressed| &suppressed.finding);
        reviewed.findings.extend(suppressed.cloned());
        self.decision = reviewed.decision();
    }

    /// The labels of the object.
    pub fn labels(&self) -> BTreeMap<String, String> {
        let object: MetaOnly<'_> = serde_json::from_str(self.document.json()).unwrap_or_default();
        object.metadata.labels.to_owned_map()
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
    /// Notes about what was read.
    notes: Vec<CheckNote>,
    /// The command that reads folders, as in `transom check`, if it notes what else can be checked.
    command: Option<&'static str>,
    keep_text: bool,
    scope: Scope,
    /// Custom resources that are evaluated everywhere.
    configured: Vec<ConfiguredKind>,
    /// Custom resources that a policy adds where it applies.
    of_policies: Vec<ConfiguredKind>,
    baseline: Option<Arc<Baseline>>,
    /// Whether objects are evaluated as in admission: without suppressions, and without API versions, which the API server
    /// converts.
    for_admission: bool,
    /// The file that sets actions of rules in place of the policies, and the IDs of these rules.
    rule_actions: Option<(String, Vec<&'static str>)>,
    /// The files that were read, by their real paths, if each is to be read once.
    read_once: Option<HashSet<PathBuf>>,
}

/// The source of documents.
struct DocumentSource {
    name: String,
    /// The same for facts and objects.
    origin: ObjectSource,
    text: Option<SourceLines>,
    role: SourceRole,
    /// The operating system that the author states for it.
    stated_os: Option<Os>,
    suppressions: CommentSuppressions,
}

/// Why a source is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SourceRole {
    /// The user named it.
    Named,
    /// It was found in a folder, which can contain files that are not manifests.
    Found,
    /// It describes the cluster: its objects are not checked.
    Facts,
}

/// What a run says in addition to the findings.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckOutcome {
    /// The parts of the input that could not be read.
    pub errors: Vec<UnreadableInput>,
    /// Notes about the inputs and about suppressions, in the order of the input.
    pub notes: Vec<CheckNote>,
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
        if matches!(bytes.as_slice(), [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..]) {
            // UTF-16 has no excerpts.
            return SourceLines {
                bytes,
                lines: Vec::new(),
                marks: Vec::new(),
            };
        }
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
    /// A kind that is not evaluated.
    Other {
        api_version: Cow<'a, str>,
        kind: String,
    },
}

impl Manifests {
    /// Without documents; `keep_text` keeps the texts for excerpts.
    pub fn new(keep_text: bool) -> Self {
        Manifests {
            documents: Vec::new(),
            sources: Vec::new(),
            errors: Vec::new(),
            notes: Vec::new(),
            command: None,
            keep_text,
            scope: Scope::default(),
            configured: Vec::new(),
            of_policies: Vec::new(),
            baseline: None,
            for_admission: false,
            rule_actions: None,
            read_once: None,
        }
    }

    /// Reads each file once, whatever names and symbolic links lead to it.
    #[must_use]
    pub fn reading_once(self) -> Self {
        Manifests {
            read_once: Some(HashSet::new()),
            ..self
        }
    }

    /// For a command of authors, as in `transom check`: notes folders that have to be rendered.
    #[must_use]
    pub fn for_command(self, command: &'static str) -> Self {
        Manifests {
            command: Some(command),
            ..self
        }
    }

    /// With the configuration that sets actions of rules, for the reasons of actions.
    #[must_use]
    pub fn configured_by(self, file: String, config: &CheckConfig) -> Self {
        Manifests {
            rule_actions: Some((file, config.rule_ids())),
            ..self
        }
    }

    /// Whether a file has to be read: not if it was read under another name, and each is to be read once.
    fn takes(&mut self, path: &std::path::Path) -> bool {
        match (&mut self.read_once, path.canonicalize()) {
            (Some(read), Ok(real)) => read.insert(real),
            _ => true,
        }
    }

    /// With the findings of a baseline suppressed.
    #[must_use]
    pub fn with_baseline(self, baseline: Option<Arc<Baseline>>) -> Self {
        Manifests { baseline, ..self }
    }

    /// Evaluated as in admission, which knows neither suppressions nor the API version of a file.
    #[must_use]
    pub fn as_admission(self) -> Self {
        Manifests {
            for_admission: true,
            ..self
        }
    }

    /// With custom resources that are evaluated too.
    #[must_use]
    pub fn with_pod_templates(self, configured: Vec<ConfiguredKind>) -> Self {
        Manifests { configured, ..self }
    }

    /// Adds the custom resources that these policies evaluate.
    pub fn add_policies(&mut self, policies: &PolicySet) {
        let stored = policies.stored().iter();
        let of_policies = stored.flat_map(|stored| stored.policy.pod_templates.iter().copied());
        self.of_policies.extend(of_policies);
    }

    /// The role of a document, with the configured kinds.
    fn role<'d>(&self, document: &'d Document) -> Result<DocumentRole<'d>, String> {
        let role = role(document)?;
        let DocumentRole::Other { api_version, kind } = role else {
            return Ok(role);
        };
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let mut configured = self.configured.iter().chain(&self.of_policies);
        Ok(match configured.find(|known| known.is(group, &kind)) {
            Some(known) => DocumentRole::Subject(Kind::Configured(*known), api_version),
            None => DocumentRole::Other { api_version, kind },
        })
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
        self.add_as(SourceRole::Named, input);
    }

    /// Parses another text. Documents of a text that was not named are skipped if they are not Kubernetes objects.
    pub fn add_as(&mut self, role: SourceRole, input: CheckInput) {
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
        self.notes
            .extend(parsed.warnings.into_iter().map(|warning| CheckNote {
                source: input.source.clone(),
                line: warning.position.line,
                column: warning.position.column,
                level: NoteLevel::Warning,
                message: warning.message,
            }));
        let suppressions = if !self.for_admission && role != SourceRole::Facts {
            CommentSuppressions::read(&input.source, parsed.directives, &mut self.errors)
        } else {
            CommentSuppressions::default()
        };
        self.sources.push(DocumentSource {
            stated_os: self.scope.systems.of(&input.source),
            origin: Some(Arc::new(InputSource {
                name: input.source.clone(),
                is_fact: role == SourceRole::Facts,
            })),
            name: input.source,
            text,
            role,
            suppressions,
        });
    }

    /// Whether something of the inputs is not what its author may expect: a key that is given twice, text that is not read.
    pub fn has_warnings(&self) -> bool {
        self.notes.iter().any(|note| note.level == NoteLevel::Warning)
    }

    /// Records a note about an input.
    pub fn add_note(&mut self, note: CheckNote) {
        self.notes.push(note);
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

    /// Whether a document of this input could be read.
    pub fn has_documents_of(&self, name: &str) -> bool {
        let is_meant = |source: usize| self.sources.get(source).is_some_and(|source| source.name == name);
        self.documents.iter().any(|(source, _)| is_meant(*source))
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
            |(_, document)| self.role(document),
            |role| roles.push(role),
        );
        let mut asks_for_workloads = false;
        let mut knows_namespaces = false;
        for ((source, document), role) in self.documents.iter().zip(&roles) {
            match role {
                Ok(DocumentRole::Namespace) => {
                    if let Ok(namespace) = serde_json::from_str::<MetaOnly<'_>>(document.json()) {
                        let name = namespace.metadata.name.to_string();
                        knows_namespaces = true;
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
                    if let Ok(mut subject) = self.subject_of(document, *kind, ReviewStage::Written, None) {
                        subject.source = self.origin(*source);
                        facts.learn(&subject);
                    }
                }
                _ => {}
            }
        }
        if knows_namespaces {
            namespace_selector::resolve(facts, policies);
        }
        if asks_for_workloads {
            let with_pods: Vec<(usize, &Document, Kind)> = (self.documents.iter().zip(&roles))
                .filter_map(|((source, document), role)| match role {
                    Ok(DocumentRole::Subject(kind, _)) if kind.has_pod() => Some((*source, document, *kind)),
                    _ => None,
                })
                .collect();
            self.learn_workloads(&with_pods, facts, policies);
        }
    }

    /// Records which of these objects are for Windows.
    fn learn_workloads(&self, objects: &[(usize, &Document, Kind)], facts: &mut Facts, policies: &PolicySet) {
        let mut workloads = Vec::new();
        let known = &*facts;
        let workload_of = |(source, document, kind): &(usize, &Document, Kind)| {
            let stated = self.stated_os(*source);
            let mut subject = (self.subject_of(document, *kind, ReviewStage::Written, stated)).ok()?;
            subject.source = self.origin(*source);
            let policy = policies.in_namespace(&subject.namespace, known);
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
        for (source, document) in &self.documents {
            let is_fact = (self.sources.get(*source)).is_some_and(|source| source.role == SourceRole::Facts);
            if let Ok(DocumentRole::Other { api_version, kind }) = self.role(document)
                && !is_fact
                && kind != "AdmissionReview"
                && let group = api_version.rsplit_once('/').map_or("core", |(group, _)| group)
                && exclusion(group, &kind).is_none()
                && carries_pod(document.json())
            {
                let is_other = Kind::ALL.iter().any(|known| known.as_str() == kind);
                let kind = if is_other { format!("{kind}.{group}") } else { kind };
                *skipped.entry(kind).or_default() += 1;
            }
        }
        skipped
    }

    /// The documents in folders that are not Kubernetes objects, as in `chart/values.yaml:1`.
    pub fn other_documents(&self) -> Vec<String> {
        let mut passed = Vec::new();
        for (source, document) in &self.documents {
            if let Some(source) = self.sources.get(*source)
                && source.role == SourceRole::Found
                && self.role(document).is_err()
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
        each: impl FnMut(Checked<'d>),
    ) -> Vec<UnreadableInput> {
        self.run(facts, policies, stage, each).errors
    }

    /// As [`Manifests::check`], with notes about the suppressions.
    pub fn run<'d>(
        &'d self,
        facts: &Facts,
        policies: &PolicySet,
        stage: ReviewStage,
        mut each: impl FnMut(Checked<'d>),
    ) -> CheckOutcome {
        let mut errors = self.errors.clone();
        let mut notes = self.notes.clone();
        let mut used_comments: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.sources.len()];
        let mut used_baseline = BaselineUse::default();
        let check = |(source, document): &'d (usize, Document)| {
            // Cannot be out of range: every index was the length of `sources` before its source was pushed.
            let from = &self.sources[*source];
            (*source, self.check_one(from, document, facts, policies, stage))
        };
        in_order(&self.documents, check, |(source, checked)| match checked {
            Ok(Some(mut checked)) => {
                let used = std::mem::take(&mut checked.used);
                if let Some(comments) = used_comments.get_mut(source) {
                    comments.extend(used.comments);
                }
                used_baseline.add(&used.baseline);
                notes.extend(used.notes);
                errors.extend(used.errors.into_iter().map(|(line, message)| UnreadableInput {
                    source: checked.source.to_owned(),
                    line,
                    message,
                }));
                each(checked);
            }
            Ok(None) => {}
            Err(error) => errors.push(error),
        });
        errors.sort_by(|a, b| (&a.source, a.line).cmp(&(&b.source, b.line)));
        for (source, used) in self.sources.iter().zip(&used_comments) {
            // What could not be read may be what the comment is about.
            if !errors.iter().any(|error| error.source == source.name) {
                notes.extend(self.suppressions(source, facts).notes(&source.name, used));
            }
        }
        if let (Some(baseline), unused @ 1..) = (&self.baseline, Baseline::unused(&used_baseline)) {
            notes.push(CheckNote {
                source: baseline.name.clone(),
                line: 0,
                column: 0,
                level: NoteLevel::Note,
                message: format!(
                    "entries of the baseline that match no finding: {unused}; write it again with --write-baseline"
                ),
            });
        }
        notes.sort();
        CheckOutcome { errors, notes }
    }

    fn suppressions<'s>(&'s self, source: &'s DocumentSource, facts: &Facts) -> Suppressions<'s> {
        Suppressions {
            comments: &source.suppressions,
            baseline: self.baseline.as_deref(),
            today: facts.today,
        }
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
        if source.role == SourceRole::Facts {
            return match self.role(document) {
                Ok(_) => Ok(None),
                Err(message) => Err(unreadable(start, message)),
            };
        }
        let (kind, api_version) = match self.role(document) {
            Ok(DocumentRole::Subject(kind, api_version)) => (kind, api_version.into_owned()),
            Ok(
                DocumentRole::Namespace
                | DocumentRole::Policy
                | DocumentRole::NodePolicy
                | DocumentRole::Other { .. },
            ) => return Ok(None),
            Err(_) if source.role == SourceRole::Found => return Ok(None),
            Err(message) => return Err(unreadable(start, message)),
        };
        let mut subject = (self.subject_of(document, kind, stage, source.stated_os)).map_err(|error| {
            let line = document.locate(&steps_of(&error)).line;
            unreadable(line, format!("this {kind} cannot be read: {error}"))
        })?;
        if !self.for_admission {
            subject.api_version = api_version.clone().into();
        }
        subject.source.clone_from(&source.origin);
        let query = PolicyQuery::without_user(&subject.namespace, facts);
        let mut policy = policies.effective(&query);
        if let Kind::Configured(configured) = kind
            && !self.configured.contains(&configured)
            && !policy.pod_templates.contains(&configured)
        {
            return Ok(None);
        }
        let choice = PolicyChoice::of(policies, &query, &policy);
        let not_reviewed = (self.scope.not_reviewed(&subject.namespace, facts)).filter(|_| kind.has_pod());
        if not_reviewed.is_some() {
            let off = policy.to_mut();
            (off.validation, off.placement, off.ignored_fields) =
                (Action::Disabled, PlacementMode::Disabled, IgnoredFields::Deny);
        }
        let evaluation = evaluate(&subject, facts, &policy);
        let why = |finding: &Finding| {
            let rules = self.rule_actions.as_ref();
            let rules = rules.filter(|(_, ids)| ids.contains(&finding.rule.id));
            let file = rules.map(|(file, _)| file.as_str());
            action_reason(finding, &subject, &policy, file).filter(|_| not_reviewed.is_none())
        };
        let written = subject.meta.namespace.to_string();
        let assumed = || self.scope.namespace.clone().unwrap_or_default();
        let mut checked = Checked {
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
            stated_os: source.stated_os,
            action_reasons: evaluation.findings.iter().map(why).collect(),
            choice,
            not_reviewed,
            decision: evaluation.decision(),
            evaluation,
            suppressed: Vec::new(),
            used: SuppressionUse::default(),
        };
        if !self.for_admission {
            let annotation = subject.meta.annotations.get(SUPPRESS_ANNOTATION);
            checked.used = (self.suppressions(source, facts)).apply(&mut checked, annotation.map(|it| &**it));
        }
        let notes = ambiguity_notes(&checked, &subject, facts);
        checked.used.notes.extend(notes);
        Ok(Some(checked))
    }

    /// Reads an object. If it has no namespace, it gets that of the scope, as when it is applied. If it names
    /// an owner, that owner's controller is assumed to have created it.
    fn subject_of<'d>(
        &self,
        document: &'d Document,
        kind: Kind,
        stage: ReviewStage,
        stated: Option<Os>,
    ) -> Result<Object<'d>, ObjectError> {
        self.subject_of_json(document.json(), kind, stage, stated)
    }

    /// The origin of the objects of a source.
    fn origin(&self, source: usize) -> ObjectSource {
        self.sources.get(source)?.origin.clone()
    }

    /// The operating system that the author states for a source.
    fn stated_os(&self, source: usize) -> Option<Os> {
        self.sources.get(source)?.stated_os
    }

    fn subject_of_json<'d>(
        &self,
        json: &'d str,
        kind: Kind,
        stage: ReviewStage,
        stated: Option<Os>,
    ) -> Result<Object<'d>, ObjectError> {
        let mut subject = Object::parse(kind, json, stage)?;
        subject.stated_os = stated;
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

/// Notes about names of a pod that could mean several objects. What they mean does not matter to a Linux pod.
fn ambiguity_notes(checked: &Checked<'_>, subject: &Object<'_>, facts: &Facts) -> Vec<CheckNote> {
    if checked.evaluation.inference.verdict == Verdict::Linux {
        return Vec::new();
    }
    let note = |(path, message): (Path, String)| {
        let Position { line, column } = checked.places().of(&path);
        CheckNote {
            source: checked.source.to_owned(),
            line,
            column,
            level: NoteLevel::Note,
            message,
        }
    };
    ambiguous_names(subject, facts).into_iter().map(note).collect()
}

fn steps_of(error: &ObjectError) -> Vec<NodeStep<'_>> {
    let parts = error.path.split(['.', '[', ']']).filter(|part| !part.is_empty());
    parts
        .map(|part| part.parse().map_or(NodeStep::Key(part), NodeStep::Index))
        .collect()
}

fn role(document: &Document) -> Result<DocumentRole<'_>, String> {
    const NOT_KUBERNETES: &str = "this is not a Kubernetes object";
    if !document.json().starts_with('{') {
        return Err(format!("{NOT_KUBERNETES}: it is not a mapping"));
    }
    let header: DocumentHeader<'_> = serde_json::from_str(document.json())
        .map_err(|_| format!("{NOT_KUBERNETES}: its apiVersion or kind is not a string"))?;
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
        None => DocumentRole::Other {
            kind: kind.to_owned(),
            api_version,
        },
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
