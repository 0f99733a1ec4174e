//! Reads inputs into documents, and knows how their objects are to be evaluated. Does not read the objects.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::baseline::Baseline;
use super::document_role::ObjectType;
use super::environment::{CheckEnvironment, SingleThread, in_order};
use super::input::{CheckInput, DocumentSource, InputDocument, SourceRole};
use super::note::{CheckNote, NoteLevel, UnreadableInput};
use super::scope::Scope;
use super::source_lines::SourceLines;
use super::suppression::CommentSuppressions;
use crate::manifest::{self, Document, ParseError, Parsed, Position};
use crate::model::objects::known_claims::InputSource;
use crate::model::objects::workload::configured::ConfiguredKind;

/// How inputs are read and evaluated.
#[derive(Clone)]
pub struct CheckSettings {
    /// What the program adds.
    pub environment: &'static dyn CheckEnvironment,
    /// Whether the texts are kept, for excerpts and edits.
    pub keep_text: bool,
    /// Whether each file is read once, also if several names or symbolic links lead to it.
    pub read_once: bool,
    /// The command of authors, as in `transom check`, if it notes folders that have to be rendered.
    pub command: Option<&'static str>,
    /// Assumptions about every input.
    pub scope: Scope,
    /// Custom resources that are evaluated everywhere.
    pub pod_templates: Vec<ConfiguredKind>,
    /// Known findings, which are suppressed.
    pub baseline: Option<Arc<Baseline>>,
    /// Whether objects are evaluated as in admission: without suppressions, and without API versions, which the API server
    /// converts.
    pub for_admission: bool,
    /// The file that sets actions of rules in place of the policies, and the IDs of these rules.
    pub rule_actions: Option<(String, Vec<&'static str>)>,
}

impl Default for CheckSettings {
    fn default() -> Self {
        CheckSettings {
            environment: &SingleThread,
            keep_text: false,
            read_once: false,
            command: None,
            scope: Scope::default(),
            pod_templates: Vec::new(),
            baseline: None,
            for_admission: false,
            rule_actions: None,
        }
    }
}

/// All documents of the inputs, parsed, and what could not be.
#[derive(Default)]
pub struct Manifests {
    pub(super) settings: CheckSettings,
    pub(super) sources: Vec<DocumentSource>,
    pub(super) errors: Vec<UnreadableInput>,
    /// Notes about what was read.
    pub(super) notes: Vec<CheckNote>,
    /// The files that were read, by their real paths, if each is to be read once.
    read_files: HashSet<PathBuf>,
}

impl Manifests {
    /// No documents yet, with these settings.
    pub fn new(settings: CheckSettings) -> Self {
        Manifests {
            settings,
            ..Manifests::default()
        }
    }

    /// Parses texts; unreadable parts become errors, and the rest is parsed.
    pub fn parse(inputs: Vec<CheckInput>) -> Self {
        let mut all = Manifests::default();
        for input in inputs {
            all.add(input);
        }
        all
    }

    /// Parses another text, which the caller has named.
    pub fn add(&mut self, input: CheckInput) {
        self.add_as(SourceRole::Named, input);
    }

    /// Parses another text. Documents of a text that was not named are skipped if they are not Kubernetes objects.
    pub fn add_as(&mut self, role: SourceRole, input: CheckInput) {
        let CheckInput { source: name, bytes } = input;
        let text = self.settings.keep_text.then(|| SourceLines::new(bytes.clone()));
        let Parsed {
            documents,
            errors,
            warnings,
            directives,
            ..
        } = manifest::parse(bytes);
        let error = |error: ParseError| UnreadableInput::new(&name, error.line, error.message);
        self.errors.extend(errors.into_iter().map(error));
        self.notes.extend(warnings.into_iter().map(|warning| {
            let Position { line, column } = warning.position;
            CheckNote::new(&name, (line, column), NoteLevel::Warning, warning.message)
        }));
        let suppressions = if !self.settings.for_admission && role != SourceRole::Facts {
            CommentSuppressions::read(&name, directives, &mut self.errors)
        } else {
            CommentSuppressions::default()
        };
        let source = DocumentSource {
            index: self.sources.len(),
            documents: self.input_documents(documents),
            stated_os: self.settings.scope.systems.of(&name, self.settings.environment),
            origin: Some(Arc::new(InputSource {
                name: name.clone(),
                is_fact: role == SourceRole::Facts,
            })),
            name,
            text,
            role,
            suppressions,
        };
        self.sources.push(source);
    }

    /// Finds the types of documents.
    fn input_documents(&self, documents: Vec<Document>) -> Vec<InputDocument> {
        let mut types = Vec::with_capacity(documents.len());
        in_order(
            self.settings.environment,
            &documents,
            ObjectType::of,
            |object_type| types.push(object_type),
        );
        let documents = documents.into_iter().zip(types);
        let input = |(content, mut object_type): (Document, Result<ObjectType, String>)| {
            if let Ok(object_type) = &mut object_type {
                object_type.recognize(&self.settings.pod_templates);
            }
            InputDocument { content, object_type }
        };
        documents.map(input).collect()
    }

    /// Every document with its source, in the order of the input.
    pub(super) fn documents(&self) -> impl Iterator<Item = (&DocumentSource, &InputDocument)> {
        self.sources.iter().flat_map(|source| {
            let documents = source.documents.iter();
            documents.map(move |document| (source, document))
        })
    }

    /// Whether the file with this real path has to be read: not if it was read under another name, and each is to be read
    /// once.
    pub fn takes(&mut self, real_path: Option<PathBuf>) -> bool {
        match real_path {
            Some(real) if self.settings.read_once => self.read_files.insert(real),
            _ => true,
        }
    }

    /// Records a text that could not be opened.
    pub fn add_error(&mut self, error: UnreadableInput) {
        self.errors.push(error);
    }

    /// Adds a note about the inputs.
    pub fn add_note(&mut self, note: CheckNote) {
        self.notes.push(note);
    }

    /// The command of authors, if it notes folders that have to be rendered.
    pub fn command(&self) -> Option<&'static str> {
        self.settings.command
    }

    /// Whether something of the inputs is not what its author may expect: a key that is given twice, text that is not read.
    pub fn has_warnings(&self) -> bool {
        self.notes.iter().any(|note| note.level == NoteLevel::Warning)
    }

    /// The parse errors so far.
    pub fn errors(&self) -> &[UnreadableInput] {
        &self.errors
    }

    /// How many documents there are.
    pub fn len(&self) -> usize {
        self.sources.iter().map(|source| source.documents.len()).sum()
    }

    /// Whether there is nothing to check.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a document of this input could be read.
    pub fn has_documents_of(&self, name: &str) -> bool {
        self.documents().any(|(source, _)| source.name == name)
    }

    /// The documents in folders that are not Kubernetes objects, as in `chart/values.yaml:1`.
    pub fn other_documents(&self) -> Vec<String> {
        let others = self.documents().filter_map(|(source, document)| {
            let is_other = source.role == SourceRole::Found && document.object_type.is_err();
            is_other.then(|| format!("{}:{}", source.name, document.content.start().line))
        });
        others.collect()
    }

    /// The name and the bytes of every input; of several inputs with one name the last one.
    pub fn texts(&self) -> BTreeMap<&str, &[u8]> {
        let texts = self.sources.iter();
        texts
            .filter_map(|source| Some((source.name.as_str(), source.text.as_ref()?.bytes())))
            .collect()
    }

    /// The same inputs, some of them with other texts.
    #[must_use]
    pub fn with_texts(&self, texts: &BTreeMap<&str, &[u8]>) -> Manifests {
        let mut others = Manifests::new(self.settings.clone());
        for source in &self.sources {
            let text = texts.get(source.name.as_str()).copied();
            let text = text.or_else(|| source.text.as_ref().map(SourceLines::bytes));
            let input = CheckInput {
                source: source.name.clone(),
                bytes: text.unwrap_or_default().to_vec(),
            };
            others.add_as(source.role, input);
        }
        others
    }
}
