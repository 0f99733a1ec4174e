//! Rewrites one text: edits the objects in it, reads the result again, and keeps only edits that change exactly what was
//! planned.

use std::collections::BTreeMap;

use serde_json::Value;

use super::text_edit::{Replacement, apply, replacements};
use crate::manifest::{Document, Position, Syntax, parse};

/// A text with the edits that could be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rewritten {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The objects that were not changed, by their position, with the reason.
    pub refused: BTreeMap<Position, String>,
}

/// The byte order mark of UTF-8.
const MARK: &[u8] = b"\xEF\xBB\xBF";

/// Changes objects of a text, each from its position to its value afterwards. Everything else stays as it is, byte by
/// byte. An object that cannot be changed safely stays as it is too.
pub fn rewrite(bytes: &[u8], changes: &BTreeMap<Position, Value>) -> Rewritten {
    let text = ParsedText::read(bytes);
    let mut refused = BTreeMap::new();
    let mut edits = BTreeMap::new();
    match &text {
        Ok(text) => {
            for (position, planned) in text.plan(changes) {
                match planned {
                    Ok(replacements) => drop(edits.insert(position, replacements)),
                    Err(reason) => drop(refused.insert(position, reason)),
                }
            }
        }
        Err(reason) => refused.extend(changes.keys().map(|position| (*position, reason.clone()))),
    }
    let mut edited = bytes.to_vec();
    if let (Ok(text), false) = (&text, edits.is_empty()) {
        let mut search = Search {
            text,
            changes,
            edits: &edits,
            left: ATTEMPTS,
        };
        let all: Vec<Position> = edits.keys().copied().collect();
        let mut kept = search.accepted(&all);
        let mut result = search.attempt(&kept);
        if result.is_none() {
            // Edits that are right alone can be wrong together.
            kept.clear();
            result = Some(text.text.to_owned());
        }
        for position in all.iter().filter(|position| !kept.contains(position)) {
            refused.insert(
                *position,
                "the edited text would not have exactly the planned value (an alias, a merge key or an unusual \
                 notation)"
                    .to_owned(),
            );
        }
        if !kept.is_empty() {
            edited.truncate(text.mark);
            edited.extend(result.unwrap_or_default().into_bytes());
        }
    }
    Rewritten {
        bytes: edited,
        refused,
    }
}

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
    }
    .attempt(&[position])?;
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

/// A text that was read without errors.
struct ParsedText<'t> {
    text: &'t str,
    /// The length of the byte order mark.
    mark: usize,
    documents: Vec<Document>,
}

impl<'t> ParsedText<'t> {
    fn read(bytes: &'t [u8]) -> Result<Self, String> {
        let rest = bytes.strip_prefix(MARK).unwrap_or(bytes);
        let parsed = parse(bytes.to_vec());
        if let Some(error) = parsed.errors.first() {
            return Err(format!("the file cannot be read at {error}; correct that first"));
        }
        let text = std::str::from_utf8(rest).map_err(|_| "the file is not UTF-8".to_owned())?;
        Ok(ParsedText {
            text,
            mark: bytes.len() - rest.len(),
            documents: parsed.documents,
        })
    }

    /// The replacements for each change.
    fn plan(&self, changes: &BTreeMap<Position, Value>) -> Vec<(Position, Result<Vec<Replacement>, String>)> {
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
                    Some(_) => Err("an alias repeats the whole object: write it out".to_owned()),
                    None => Err("its place in the text is not known (an anchor or a tag)".to_owned()),
                };
                planned.push((position, replaced));
            }
        }
        for position in positions.iter().filter(|position| !known.contains_key(position)) {
            planned.push((*position, Err("it is not in this text".to_owned())));
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
}

impl Search<'_> {
    /// Those of these objects whose edits can be made.
    fn accepted(&mut self, objects: &[Position]) -> Vec<Position> {
        if objects.is_empty() || self.left == 0 {
            return Vec::new();
        }
        self.left -= 1;
        if self.attempt(objects).is_some() {
            return objects.to_vec();
        }
        if objects.len() == 1 {
            return Vec::new();
        }
        let (first, second) = objects.split_at(objects.len() / 2);
        let mut accepted = self.accepted(first);
        accepted.extend(self.accepted(second));
        accepted
    }

    /// The text with the edits of these objects, if exactly these objects then have their planned values.
    fn attempt(&self, objects: &[Position]) -> Option<String> {
        let mut replacements: Vec<&Replacement> = objects
            .iter()
            .filter_map(|position| self.edits.get(position))
            .flatten()
            .collect();
        replacements.sort_by_key(|replacement| (replacement.range.start, replacement.range.end));
        let edited = apply(self.text.text, replacements)?;
        let parsed = parse(edited.clone().into_bytes());
        let before = &self.text.documents;
        if !parsed.errors.is_empty() || parsed.documents.len() != before.len() {
            return None;
        }
        let is_as_planned = |(old, new): (&Document, &Document)| {
            let position = old.start();
            match self
                .changes
                .get(&position)
                .filter(|_| objects.contains(&position))
            {
                Some(after) => serde_json::from_str::<Value>(new.json()).is_ok_and(|value| value == *after),
                None => old.json() == new.json(),
            }
        };
        let all = before.iter().zip(&parsed.documents).all(is_as_planned);
        all.then_some(edited)
    }
}
