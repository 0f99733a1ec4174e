//! Writes the keys of mappings and detects duplicates; the parent module writes values.

use std::ops::Range;
use std::rc::Rc;

use saphyr_parser::Marker;

use super::{EventReader, Expect, ScanFailure, YamlResult, narrow, place, trouble};
use crate::model::json::string_at;

/// The number of keys from which a mapping gets an index for detecting duplicates.
const LARGE_MAPPING: usize = 24;

/// A key of an open mapping.
pub(super) struct MappingKey {
    /// Its range in the text, with quotes.
    pub(super) range: Range<usize>,
    pub(super) line: u32,
}

impl EventReader<'_, '_> {
    /// Starts a key: writes the comma and the mark. Returns the offset of the key.
    pub(super) fn begin_key(&mut self, at: Marker) -> usize {
        if let Some(frame) = self.frames.last_mut()
            && !std::mem::replace(&mut frame.empty, false)
        {
            self.to.out.push(',');
        }
        self.mark(place(at));
        self.to.out.len()
    }

    /// Ends a key: rejects a duplicate, and expects its value.
    pub(super) fn end_key(&mut self, start: usize, anchor: usize, at: Marker) -> YamlResult {
        if anchor > 0 {
            let fragment = self.copy(start, self.to.marks.len(), 0);
            self.spend(fragment.cost(), at)?;
            self.anchors.insert(anchor, Rc::new(fragment));
        }
        let range = start..self.to.out.len();
        let line = narrow(self.first_line - 1 + at.line());
        if let Some(first) = self.remember(range.clone(), line) {
            let key = string_at(&self.to.out, range).unwrap_or_default();
            return Err(trouble(
                at,
                format!(
                    "the key `{key}` is given twice in one mapping, at lines {first} and {line}: remove one of them"
                ),
            ));
        }
        self.to.out.push(':');
        if let Some(frame) = self.frames.last_mut() {
            frame.expect = Some(Expect::Value);
        }
        Ok(())
    }

    /// Records a key of the innermost mapping, or returns the line of its first occurrence.
    pub(super) fn remember(&mut self, range: Range<usize>, line: u32) -> Option<u32> {
        let frame = self.frames.last_mut()?;
        let out = &self.to.out;
        let key = out.get(range.clone())?;
        let seen = self.keys.get(frame.keys..).unwrap_or_default();
        if frame.index.is_empty() {
            if let Some(first) = seen.iter().find(|seen| out.get(seen.range.clone()) == Some(key)) {
                return Some(first.line);
            }
            if seen.len() < LARGE_MAPPING {
                self.keys.push(MappingKey { range, line });
                return None;
            }
            frame.index.extend(
                seen.iter()
                    .filter_map(|seen| Some((Box::from(out.get(seen.range.clone())?), seen.line))),
            );
        }
        if let Some(first) = frame.index.get(key) {
            return Some(*first);
        }
        frame.index.insert(Box::from(key), line);
        None
    }

    /// YAML parses `{{ .Values.x }}` as a mapping or sequence that is a key.
    pub(super) fn complex_key(&self, at: Marker) -> ScanFailure {
        let template = self.lines.get(at.line()).contains("{{");
        ScanFailure {
            template,
            ..trouble(
                at,
                "a key must be text, not a mapping or a list: put it in quotes if it is text".to_owned(),
            )
        }
    }
}
