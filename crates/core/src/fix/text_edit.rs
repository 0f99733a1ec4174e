//! Edits the text of one object, YAML or JSON: replaces what differs between two values of it, and nothing else. The
//! caller verifies the edited text.

mod mapping;
mod removal;

use std::collections::HashMap;
use std::ops::Range;

use serde_json::Value;

use super::notation::{Layout, Notation, is_empty};
use super::refusal::{Refusal, RefusedField};
use super::replacement::{Replacement, sort};
use crate::manifest::{SyntaxEntry, SyntaxForm, SyntaxNode, SyntaxObject, line_end, line_start};

/// The replacements that make the text of an object with the value `before` one with the value `after`.
///
/// # Errors
/// Why the text cannot be edited, and which fields cannot.
pub fn replacements(
    text: &str,
    object: SyntaxObject<'_>,
    before: &Value,
    after: &Value,
) -> Result<Vec<Replacement>, Refusal> {
    let root = object.node;
    let mut editor = TextEditor {
        text,
        notation: Notation::of(text, root),
        object: root.span.clone(),
        aliases: object.aliases,
        path: Vec::new(),
        replaced: Vec::new(),
        refused: Vec::new(),
    };
    let changed = editor.change(root, before, after, Layout::default());
    changed.map_err(Refusal::of_object)?;
    if !editor.refused.is_empty() {
        return Err(Refusal::of_fields(editor.refused));
    }
    let mut replaced = editor.replaced;
    sort(&mut replaced);
    join_at_the_end(text, &mut replaced);
    Ok(replaced)
}

/// Removing the last line of a text without a final line break leaves that of the line before. Lines that are then added
/// at the end must not begin with another one.
fn join_at_the_end(text: &str, replaced: &mut [Replacement]) {
    let end = text.len();
    let is_last_line = |it: &Replacement| {
        it.range.end == end
            && it.range.start < end
            && it.text.is_empty()
            && line_start(text, it.range.start) == it.range.start
    };
    if !text.ends_with('\n') && replaced.iter().any(is_last_line) {
        let added = replaced.iter_mut().find(|it| it.range == (end..end));
        if let Some(Replacement { text: lines, .. }) = added {
            *lines = lines.trim_start_matches(['\r', '\n']).to_owned();
        }
    }
}

struct TextEditor<'t> {
    text: &'t str,
    notation: Notation,
    /// The bytes of the object.
    object: Range<usize>,
    aliases: &'t HashMap<usize, Vec<usize>>,
    /// The way to the current node, for messages.
    path: Vec<String>,
    replaced: Vec<Replacement>,
    /// The fields that cannot be changed.
    refused: Vec<RefusedField>,
}

type EditResult<T = ()> = Result<T, String>;

/// The value of an entry, or an item of a sequence.
#[derive(Clone, Copy)]
struct Child<'t> {
    node: &'t SyntaxNode,
    /// `None` for an item.
    entry: Option<&'t SyntaxEntry>,
    layout: Layout,
}

impl<'t> Child<'t> {
    fn of(entry: &'t SyntaxEntry, layout: Layout) -> Self {
        Child {
            node: &entry.value,
            entry: Some(entry),
            layout,
        }
    }
}

impl<'t> TextEditor<'t> {
    fn replace(&mut self, range: Range<usize>, text: impl Into<String>) {
        let text = text.into();
        self.replaced.push(Replacement { range, text });
    }

    fn refuse<T>(&self, why: &str) -> EditResult<T> {
        let path = self.path.join(".");
        Err(if path.is_empty() {
            why.to_owned()
        } else {
            format!("{why} (at {path})")
        })
    }

    /// Changes a field below the current node. If it cannot be changed, it stays, and the fields next to it do not.
    fn at(&mut self, field: &str, edit: impl FnOnce(&mut Self) -> EditResult) {
        let (depth, replaced) = (self.path.len(), self.replaced.len());
        self.path.push(field.to_owned());
        if let Err(reason) = edit(self) {
            self.replaced.truncate(replaced);
            self.path.truncate(depth + 1);
            let escaped = self
                .path
                .iter()
                .map(|step| step.replace('~', "~0").replace('/', "~1"));
            let pointer = escaped.flat_map(|step| ["/".to_owned(), step]).collect();
            self.refused.push(RefusedField { pointer, reason });
        }
        self.path.truncate(depth);
    }

    fn part(&self, range: Range<usize>) -> &'t str {
        self.text.get(range).unwrap_or_default()
    }

    /// The column of an offset, if only blanks and the dashes of sequences are before it on its line.
    fn column(&self, at: usize) -> EditResult<usize> {
        let before = self.part(line_start(self.text, at)..at);
        if before.contains(|c| c != ' ' && c != '-') || before.contains("---") {
            return self.refuse("it is on the same line as something else");
        }
        Ok(before.len())
    }

    /// Changes a node; both values are containers of the same kind.
    fn change(&mut self, node: &'t SyntaxNode, before: &Value, after: &Value, layout: Layout) -> EditResult {
        if before == after {
            return Ok(());
        }
        self.check_anchors(node)?;
        match (&node.form, before, after) {
            // The anchored node is changed where it is written. If that is not enough, the verification fails.
            (SyntaxForm::Alias(_), ..) => Ok(()),
            (SyntaxForm::Mapping(mapping), Value::Object(before), Value::Object(after)) => {
                let layout = self.layout_in(node, mapping, layout)?;
                self.mapping(node, before, after, layout)
            }
            (SyntaxForm::Sequence { items, .. }, Value::Array(before), Value::Array(after)) => {
                if before.len() != items.len() || after.len() < before.len() {
                    return self.refuse("a list would lose items");
                }
                for (index, (node, (before, after))) in items.iter().zip(before.iter().zip(after)).enumerate()
                {
                    let entry = None;
                    let item = Child { node, entry, layout };
                    self.at(&index.to_string(), |editor| editor.child(item, before, after));
                }
                match after.get(before.len()..) {
                    Some(new @ [_, ..]) => self.add_items(node, items, new, layout),
                    _ => Ok(()),
                }
            }
            _ => self.refuse("its syntax and its value differ"),
        }
    }

    /// Adds items to the end of a sequence.
    fn add_items(
        &mut self,
        node: &SyntaxNode,
        items: &[SyntaxNode],
        new: &[Value],
        layout: Layout,
    ) -> EditResult {
        if node.form.is_flow() {
            let new: Vec<_> = new
                .iter()
                .map(|value| self.notation.member(None, value))
                .collect();
            let last = items.last().map(|item| item.span.clone());
            return self.add_in_flow(node, last, &new, false);
        }
        let column = Some(self.column(node.span.start)?);
        let layout = Layout { column, ..layout };
        let lines: String = new
            .iter()
            .map(|value| self.notation.item(value, layout))
            .collect();
        self.insert_lines(node.span.end, &lines);
        Ok(())
    }

    /// Changes a child: a container in place, everything else as a whole.
    fn child(&mut self, child: Child<'t>, before: &Value, after: &Value) -> EditResult {
        if before == after {
            return Ok(());
        }
        let node = child.node;
        self.check_anchors(node)?;
        let empties = is_empty(after) && matches!(after, Value::Object(_) | Value::Array(_));
        let is_in_place = matches!(
            (&node.form, before, after),
            (SyntaxForm::Alias(_), ..)
                | (SyntaxForm::Mapping(_), Value::Object(_), Value::Object(_))
                | (SyntaxForm::Sequence { .. }, Value::Array(_), Value::Array(_))
        );
        if is_in_place && !empties {
            return self.change(node, before, after, child.layout);
        }
        if node.form == SyntaxForm::Block {
            return self.refuse("a block scalar would become something else");
        }
        self.check_removal(node)?;
        if is_empty(after) {
            return self.replace_by_scalar(child, after);
        }
        // A missing value becomes a container.
        let (Some(entry), Value::Null) = (child.entry, before) else {
            return self.refuse("a value of another kind is in its place");
        };
        let is_written = !node.span.is_empty();
        if child.layout.column.is_none() {
            let new = self.notation.flow(after);
            let space = if is_written { "" } else { " " };
            self.replace(node.span.clone(), format!("{space}{new}"));
            return Ok(());
        }
        if is_written {
            self.replace(self.after_colon(entry)..node.span.end, "");
        }
        let lines = self.notation.below(after, child.layout);
        self.insert_lines(node.span.end, &lines);
        Ok(())
    }

    /// Replaces a child by a scalar or an empty container.
    fn replace_by_scalar(&mut self, child: Child<'t>, after: &Value) -> EditResult {
        let node = child.node;
        if let (Some(entry), SyntaxForm::Mapping(mapping)) = (child.entry, &node.form)
            && !mapping.flow
        {
            // `{}` is written after the key; comments on lines of their own stay.
            let at = self.after_colon(entry);
            let new = self.notation.scalar(after, &SyntaxForm::Plain);
            self.replace(at..at, format!(" {new}"));
            return self.remove_lines(mapping, &(0..mapping.entries.len()).collect());
        }
        let new = self.notation.scalar(after, &node.form);
        let after_key = child.entry.map(|entry| (entry, self.after_colon(entry)));
        let (range, space) = match after_key {
            Some(_) if node.span.is_empty() => (node.span.clone(), " "),
            // A block collection: `{}` moves up to the key.
            Some((entry, after_key)) if line_start(self.text, node.span.start) > entry.key_span.end => {
                (after_key..node.span.end, " ")
            }
            _ => (node.span.clone(), ""),
        };
        if self.part(range.clone()).contains('#') {
            return self.refuse("a comment would be lost");
        }
        self.replace(range, format!("{space}{new}"));
        Ok(())
    }

    /// Refuses to change a node that an alias outside of the object repeats.
    fn check_anchors(&self, node: &SyntaxNode) -> EditResult {
        let aliases = self.aliases.get(&node.anchor).filter(|_| node.anchor > 0);
        let is_outside = |alias: &usize| !self.object.contains(alias);
        if aliases.is_some_and(|aliases| aliases.iter().any(is_outside)) {
            return self
                .refuse("another object uses its anchor (`&name`) with an alias: write the value out");
        }
        Ok(())
    }

    /// Adds members to a container in brackets. `last`: the bytes of the last member that stays; `is_emptied` if every member
    /// was removed.
    fn add_in_flow(
        &mut self,
        node: &SyntaxNode,
        last: Option<Range<usize>>,
        new: &[String],
        is_emptied: bool,
    ) -> EditResult {
        let comma = self.notation.comma;
        let Some(last) = last else {
            let open = node.span.start + 1;
            let inside = self.part(open..node.span.end.max(open + 1) - 1);
            if !is_emptied && !inside.trim().is_empty() {
                return self.refuse("an empty list or map has a comment inside");
            }
            self.replace(open..open, new.join(comma));
            return Ok(());
        };
        let begin = line_start(self.text, last.start);
        let before = self.part(begin..last.start);
        let own_line = begin > node.span.start && before.chars().all(|c| matches!(c, ' ' | '\t'));
        let comma = if own_line {
            format!(",{}{before}", self.notation.line_break)
        } else {
            comma.to_owned()
        };
        let text: String = new
            .iter()
            .flat_map(|member| [comma.as_str(), member.as_str()])
            .collect();
        self.replace(last.end..last.end, text);
        Ok(())
    }

    /// Inserts lines after the line of an offset.
    fn insert_lines(&mut self, after: usize, lines: &str) {
        let end = line_end(self.text, after);
        if end < self.text.len() {
            self.replace(end + 1..end + 1, lines);
        } else {
            let line_break = self.notation.line_break;
            let lines = lines.strip_suffix(line_break).unwrap_or(lines);
            self.replace(end..end, format!("{line_break}{lines}"));
        }
    }
}
