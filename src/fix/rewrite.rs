//! Rewrites one text: edits the objects in it, reads the result again, and keeps only edits that change exactly what was
//! planned.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use super::text_edit::{Refusal, RefusedField, Replacement, apply, replacements};
use crate::manifest::{Document, Position, Syntax, parse};

/// A text with the edits that could be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rewritten {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What was replaced in the bytes before, in order.
    pub replaced: Vec<Replacement>,
    /// The objects that were not changed, by their position, with the reason.
    pub refused: BTreeMap<Position, Refusal>,
}

/// The byte order mark of UTF-8.
const MARK: &[u8] = b"\xEF\xBB\xBF";

/// Changes objects of a text, each from its position to its value afterwards. Everything else stays as it is, byte by
/// byte. An object that cannot be changed safely stays as it is too.
pub fn rewrite(bytes: &[u8], changes: &BTreeMap<Position, Value>) -> Rewritten {
    let mut rewritten = Rewritten {
        bytes: bytes.to_vec(),
        replaced: Vec::new(),
        refused: BTreeMap::new(),
    };
    let text = match ParsedText::read(bytes) {
        Ok(text) => text,
        Err(reason) => {
            let refusal = Refusal::of_object(reason);
            let all = changes.keys().map(|position| (*position, refusal.clone()));
            rewritten.refused = all.collect();
            return rewritten;
        }
    };
    let mut edits = BTreeMap::new();
    for (position, planned) in text.plan(changes) {
        match planned {
            Ok(replacements) => drop(edits.insert(position, replacements)),
            Err(refusal) => drop(rewritten.refused.insert(position, refusal)),
        }
    }
    if edits.is_empty() {
        return rewritten;
    }
    let mut search = Search {
        text: &text,
        changes,
        edits: &edits,
        left: ATTEMPTS,
        refused: BTreeMap::new(),
        found: None,
    };
    let all: Vec<Position> = edits.keys().copied().collect();
    let mut kept = search.accepted(all.clone());
    let found = search.found.take().filter(|found| found.objects == kept.len());
    let result = match found {
        Some(found) => found.text,
        // Edits that are right alone can be wrong together.
        None => search.attempt(&kept).unwrap_or_else(|_| {
            kept.clear();
            text.text.to_owned()
        }),
    };
    let kept: HashSet<Position> = kept.into_iter().collect();
    for position in all.iter().filter(|position| !kept.contains(position)) {
        let known = search.refused.remove(position);
        let refusal = known.unwrap_or_else(|| Refusal::of_object(NOT_AS_PLANNED));
        rewritten.refused.insert(*position, refusal);
    }
    let edits = edits.iter().filter(|(position, _)| kept.contains(position));
    rewritten.replaced = edits
        .flat_map(|(_, replaced)| replaced.iter().cloned())
        .map(|Replacement { range, text: new }| Replacement {
            range: range.start + text.mark..range.end + text.mark,
            text: new,
        })
        .collect();
    sort(&mut rewritten.replaced);
    rewritten.bytes.truncate(text.mark);
    rewritten.bytes.extend(result.into_bytes());
    rewritten
}

fn sort(replaced: &mut [Replacement]) {
    replaced.sort_by_key(|replacement| (replacement.range.start, replacement.range.end));
}

/// Why a change is not made whose text would not be right.
const NOT_AS_PLANNED: &str =
    "the edited text would not have exactly the planned value (an alias, a merge key or an unusual notation)";

/// The verified replacements for one change of one object; `None` if it cannot be made. Offsets are those after a byte
/// order mark.
pub fn replacements_of(bytes: &[u8], position: Position, after: &Value) -> Option<Vec<Replacement>> {
    let text = ParsedText::read(bytes).ok()?;
    let changes = BTreeMap::from([(position, after.clone())]);
    let planned = text.plan(&changes).pop()?.1.ok()?;
    let edits = BTreeMap::from([(position, planned)]);
    Search {
        text: &text,
        changes: &changes,
        edits: &edits,
        left: 1,
        refused: BTreeMap::new(),
        found: None,
    }
    .attempt(&[position])
    .ok()?;
    edits.into_values().next()
}

/// The line and the column (from 1, in characters) of an offset after a byte order mark.
pub fn line_and_column(bytes: &[u8], offset: usize) -> (usize, usize) {
    let text = bytes.strip_prefix(MARK).unwrap_or(bytes);
    let before = String::from_utf8_lossy(text.get(..offset).unwrap_or(text));
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let column = before.get(start..).map_or(0, |line| line.chars().count()) + 1;
    (before.matches('\n').count() + 1, column)
}

/// A text, and what could be read of it.
struct ParsedText<'t> {
    text: &'t str,
    /// The length of the byte order mark.
    mark: usize,
    documents: Vec<Document>,
    /// The number of documents that could not be read; they stay as they are.
    unreadable: usize,
}

impl<'t> ParsedText<'t> {
    fn read(bytes: &'t [u8]) -> Result<Self, String> {
        let rest = bytes.strip_prefix(MARK).unwrap_or(bytes);
        let parsed = parse(bytes.to_vec());
        let text = std::str::from_utf8(rest).map_err(|_| "the file is not UTF-8".to_owned())?;
        Ok(ParsedText {
            text,
            mark: bytes.len() - rest.len(),
            unreadable: parsed.errors.len(),
            documents: parsed.documents,
        })
    }

    /// The replacements for each change.
    fn plan(
        &self,
        changes: &BTreeMap<Position, Value>,
    ) -> Vec<(Position, Result<Vec<Replacement>, Refusal>)> {
        let positions: Vec<Position> = changes.keys().copied().collect();
        let syntax = Syntax::of(self.text, &positions);
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
                    Some(object) if *times == 1 => replacements(self.text, *object, &before, after),
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
    text: &'s ParsedText<'s>,
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

impl Search<'_> {
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
        let edited = apply(self.text.text, &replacements).ok_or(Wrong::Text)?;
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
