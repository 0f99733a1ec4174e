//! Removes entries of mappings, with their lines or their commas.

use std::collections::BTreeSet;
use std::ops::Range;

use super::{EditResult, TextEditor};
use crate::manifest::{SyntaxEntry, SyntaxForm, SyntaxMapping, SyntaxNode, line_end, line_start};

impl TextEditor<'_> {
    /// Refuses to remove a node if another object refers to a part of it, or if a mapping in it has a key twice: the value that
    /// does not apply may be the one that is meant.
    pub(super) fn check_removal(&self, node: &SyntaxNode) -> EditResult {
        self.check_anchors(node)?;
        match &node.form {
            SyntaxForm::Mapping(mapping) if mapping.has_duplicates => {
                self.refuse("a key is given twice in a mapping that would be removed: remove one of them")
            }
            SyntaxForm::Mapping(mapping) => {
                let mut entries = mapping.entries.iter();
                entries.try_for_each(|entry| self.check_removal(&entry.value))
            }
            SyntaxForm::Sequence { items, .. } => items.iter().try_for_each(|item| self.check_removal(item)),
            _ => Ok(()),
        }
    }

    pub(super) fn remove_lines(&mut self, mapping: &SyntaxMapping, gone: &BTreeSet<usize>) -> EditResult {
        let mut skip_until = 0;
        for &index in gone {
            let Some(entry) = mapping.entries.get(index).filter(|_| index >= skip_until) else {
                continue;
            };
            let start = entry.key_span.start;
            let begin = line_start(self.text, start);
            let before = self.part(begin..start);
            if before.chars().all(|c| c == ' ') {
                let end = line_end(self.text, self.end_of(entry));
                self.replace(begin..(end + 1).min(self.text.len()), "");
                continue;
            }
            self.column(start)?;
            // On the line of a dash: the next entry moves up to it.
            let next = (index..mapping.entries.len()).find(|index| !gone.contains(index));
            let Some((next, last)) = next.and_then(|next| {
                skip_until = next;
                Some((
                    mapping.entries.get(next)?,
                    mapping.entries.get(next.checked_sub(1)?)?,
                ))
            }) else {
                return self.refuse("an item of a list would lose all of its fields");
            };
            let end = self.end_of(last);
            if self.part(end..next.key_span.start).contains('#') {
                let kept = before.trim_end().len();
                self.replace(begin + kept..end, "");
            } else {
                self.replace(start..next.key_span.start, "");
            }
        }
        Ok(())
    }

    pub(super) fn remove_from_flow(&mut self, mapping: &SyntaxMapping, gone: &BTreeSet<usize>) -> EditResult {
        let entries = &mapping.entries;
        let mut runs: Vec<Range<usize>> = Vec::new();
        for &index in gone {
            match runs.last_mut() {
                Some(run) if run.end == index => run.end += 1,
                _ => runs.push(index..index + 1),
            }
        }
        for run in runs {
            let (Some(first), Some(last)) = (entries.get(run.start), entries.get(run.end - 1)) else {
                continue;
            };
            let end = self.end_of(last);
            let before = run.start.checked_sub(1).and_then(|before| entries.get(before));
            let range = match (entries.get(run.end), before) {
                (Some(next), _) => first.key_span.start..next.key_span.start,
                (None, Some(before)) => self.end_of(before)..end,
                (None, None) => first.key_span.start..end,
            };
            if self.part(range.clone()).contains('#') {
                return self.refuse("a comment would be lost");
            }
            self.replace(range, "");
        }
        Ok(())
    }

    /// The end of an entry: of its value, or of its colon.
    fn end_of(&self, entry: &SyntaxEntry) -> usize {
        self.after_colon(entry).max(entry.value.span.end)
    }

    /// The offset after the colon of an entry.
    pub(super) fn after_colon(&self, entry: &SyntaxEntry) -> usize {
        let rest = self.part(entry.key_span.end..self.text.len());
        let blanks = rest.len() - rest.trim_start().len();
        entry.key_span.end
            + match rest.get(blanks..) {
                Some(rest) if rest.starts_with(':') => blanks + 1,
                _ => 0,
            }
    }
}
