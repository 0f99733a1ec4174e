//! Rewrites one text: edits the objects in it, reads the result again, and keeps only edits that change exactly what was
//! planned.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use super::refusal::{Refusal, RefusedField};
use super::replacement::{Replacement, apply, sort};
use super::text_edit::replacements;
use crate::manifest::{Document, Position, Syntax, parse};

/// A text with the edits that could be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rewritten {
    pub bytes: Vec<u8>,
    /// What was replaced in the bytes before, in order.
    pub replaced: Vec<Replacement>,
    /// The objects that were not changed, by their position, with the reason.
    pub refused: BTreeMap<Position, Refusal>,
}

/// The byte order mark of UTF-8.
const MARK: &[u8] = b"\xEF\xBB\xBF";

/// Why a change is not made whose text would not be right.
const NOT_AS_PLANNED: &str =
    "the edited text would not have exactly the planned value (an alias, a merge key or an unusual notation)";

/// A text that is read once, and written until every planned change is made or refused.
pub struct EditableText<'t> {
    bytes: &'t [u8],
    /// The text after a byte order mark; `None` if it is not UTF-8.
    text: Option<&'t str>,
    documents: Vec<Document>,
    /// The number of documents that could not be read; they stay as they are.
    unreadable: usize,
}

impl<'t> EditableText<'t> {
    /// Reads a text that may be edited.
    pub fn read(bytes: &'t [u8]) -> Self {
        let parsed = parse(bytes.to_vec());
        EditableText {
            bytes,
            text: std::str::from_utf8(bytes.strip_prefix(MARK).unwrap_or(bytes)).ok(),
            documents: parsed.documents,
            unreadable: parsed.errors.len(),
        }
    }

    fn text(&self) -> &'t str {
        self.text.unwrap_or_default()
    }

    /// Changes objects of the text, each from its position to its value afterwards. Everything else stays as it is, byte by
    /// byte. An object that cannot be changed safely stays as it is too.
    pub fn rewrite(&self, changes: &BTreeMap<Position, Value>) -> Rewritten {
        let mut rewritten = Rewritten {
            bytes: self.bytes.to_vec(),
            replaced: Vec::new(),
            refused: BTreeMap::new(),
        };
        let mut edits = BTreeMap::new();
        for (position, planned) in self.plan(changes) {
            match planned {
                Ok(replacements) => drop(edits.insert(position, replacements)),
                Err(refusal) => drop(rewritten.refused.insert(position, refusal)),
            }
        }
        if edits.is_empty() {
            return rewritten;
        }
        let mut search = Search::new(self, changes, &edits);
        let (kept, result) = search.run();
        for position in edits.keys().filter(|position| !kept.contains(position)) {
            let known = search.refused.remove(position);
            let refusal = known.unwrap_or_else(|| Refusal::of_object(NOT_AS_PLANNED));
            rewritten.refused.insert(*position, refusal);
        }
        let mark = self.bytes.len() - self.text().len();
        let edits = edits.iter().filter(|(position, _)| kept.contains(position));
        rewritten.replaced = edits
            .flat_map(|(_, replaced)| replaced.iter().cloned())
            .map(|Replacement { range, text }| Replacement {
                range: range.start + mark..range.end + mark,
                text,
            })
            .collect();
        sort(&mut rewritten.replaced);
        rewritten.bytes.truncate(mark);
        rewritten.bytes.extend(result.into_bytes());
        rewritten
    }

    /// The replacements for each change.
    fn plan(
        &self,
        changes: &BTreeMap<Position, Value>,
    ) -> Vec<(Position, Result<Vec<Replacement>, Refusal>)> {
        let positions: Vec<Position> = changes.keys().copied().collect();
        let syntax = Syntax::of(self.text(), &positions);
        let objects = syntax.objects();
        let mut planned = Vec::with_capacity(changes.len());
        let mut known = BTreeMap::new();
        for document in &self.documents {
            let position = document.start();
            if let Some(after) = changes.get(&position) {
                let times = known.entry(position).or_insert(0);
                *times += 1;
                let before: Value = serde_json::from_str(document.json()).unwrap_or_default();
                let replaced = match objects.get(&position) {
                    _ if self.text.is_none() => Err(Refusal::of_object("the file is not UTF-8")),
                    Some(object) if *times == 1 => replacements(self.text(), *object, &before, after),
                    Some(_) => Err(Refusal::of_object(
                        "an alias repeats the whole object: write it out",
                    )),
                    None => Err(Refusal::of_object(
                        "its place in the text is not known (an anchor or a tag)",
                    )),
                };
                planned.push((position, replaced));
            }
        }
        for position in positions.iter().filter(|position| !known.contains_key(position)) {
            planned.push((*position, Err(Refusal::of_object("it is not in this text"))));
        }
        planned
    }
}

/// The number of times that a text is edited and read, to find the edits that cannot be made.
const ATTEMPTS: usize = 64;

/// The search for the edits that can be made together.
struct Search<'s> {
    text: &'s EditableText<'s>,
    changes: &'s BTreeMap<Position, Value>,
    edits: &'s BTreeMap<Position, Vec<Replacement>>,
    left: usize,
    /// The fields of objects that would not have their planned values.
    refused: BTreeMap<Position, Refusal>,
    /// The last text that is right.
    found: Option<FoundText>,
}

/// A text in which exactly the edited objects have new values.
struct FoundText {
    text: String,
    /// The number of edited objects.
    objects: usize,
}

/// What is wrong with an edited text.
enum Wrong {
    /// It has other documents, or objects that were not edited have other values.
    Text,
    /// These edited objects do not have their planned values.
    Objects(BTreeMap<Position, Refusal>),
}

impl<'s> Search<'s> {
    fn new(
        text: &'s EditableText<'s>,
        changes: &'s BTreeMap<Position, Value>,
        edits: &'s BTreeMap<Position, Vec<Replacement>>,
    ) -> Self {
        Search {
            text,
            changes,
            edits,
            left: ATTEMPTS,
            refused: BTreeMap::new(),
            found: None,
        }
    }

    /// The objects whose edits can be made together, and the text with these.
    fn run(&mut self) -> (HashSet<Position>, String) {
        let kept = self.accepted(self.edits.keys().copied().collect());
        let found = self.found.take().filter(|found| found.objects == kept.len());
        let text = match found {
            Some(found) => Ok(found.text),
            // Edits that are right alone can be wrong together.
            None => self.attempt(&kept),
        };
        match text {
            Ok(text) => (kept.into_iter().collect(), text),
            Err(_) => (HashSet::new(), self.text.text().to_owned()),
        }
    }

    /// Those of these objects whose edits can be made.
    fn accepted(&mut self, mut objects: Vec<Position>) -> Vec<Position> {
        while !objects.is_empty() && self.left > 0 {
            self.left -= 1;
            match self.attempt(&objects) {
                Ok(text) => {
                    let found = FoundText {
                        text,
                        objects: objects.len(),
                    };
                    self.found = Some(found);
                    return objects;
                }
                Err(Wrong::Objects(wrong)) => {
                    objects.retain(|position| !wrong.contains_key(position));
                    self.refused.extend(wrong);
                }
                Err(Wrong::Text) if objects.len() == 1 => break,
                Err(Wrong::Text) => {
                    let second = objects.split_off(objects.len() / 2);
                    let mut accepted = self.accepted(objects);
                    accepted.extend(self.accepted(second));
                    return accepted;
                }
            }
        }
        Vec::new()
    }

    /// The text with the edits of these objects, if exactly these objects then have their planned values.
    fn attempt(&self, objects: &[Position]) -> Result<String, Wrong> {
        let mut replacements: Vec<Replacement> = objects
            .iter()
            .filter_map(|position| self.edits.get(position))
            .flatten()
            .cloned()
            .collect();
        sort(&mut replacements);
        let edited = apply(self.text.text(), &replacements).ok_or(Wrong::Text)?;
        let parsed = parse(edited.clone().into_bytes());
        let before = &self.text.documents;
        if parsed.errors.len() != self.text.unreadable || parsed.documents.len() != before.len() {
            return Err(Wrong::Text);
        }
        let edited_objects: HashSet<&Position> = objects.iter().collect();
        let mut wrong = BTreeMap::new();
        for (old, new) in before.iter().zip(&parsed.documents) {
            let position = old.start();
            let planned = self.changes.get(&position);
            match planned.filter(|_| edited_objects.contains(&position)) {
                Some(after) => {
                    let value = serde_json::from_str::<Value>(new.json()).map_err(|_| Wrong::Text)?;
                    if value != *after {
                        wrong.insert(position, differences(after, &value));
                    }
                }
                None if old.json() == new.json() => {}
                None => return Err(Wrong::Text),
            }
        }
        if wrong.is_empty() {
            Ok(edited)
        } else {
            Err(Wrong::Objects(wrong))
        }
    }
}

/// The fields of an object that would not have their planned values.
fn differences(planned: &Value, value: &Value) -> Refusal {
    let fields = json_patch::diff(planned, value)
        .0
        .into_iter()
        .map(|operation| RefusedField {
            pointer: operation.path().to_string(),
            reason: "its value comes from a merge key (`<<`) or an alias: write it out".to_owned(),
        });
    Refusal::of_fields(fields.collect())
}
