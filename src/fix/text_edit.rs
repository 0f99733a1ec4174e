//! Edits the text of one object, YAML or JSON: replaces what differs between two values of it, and nothing else. The
//! caller verifies the edited text.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use serde_json::{Map, Value};

use crate::manifest::{
    SyntaxEntry, SyntaxForm, SyntaxMapping, SyntaxNode, SyntaxObject, line_end, line_start,
};
use crate::model::text::is_plain_yaml;

/// A part of a text, and what replaces it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replacement {
    /// The bytes that are removed; empty for an insertion.
    pub range: Range<usize>,
    /// The new text.
    pub text: String,
}

/// Why an object cannot be changed as planned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The reason, in lower case, without the object.
    pub reason: String,
    /// The fields that stay as they are, each with its reason; empty if no change of the object can be made.
    pub fields: Vec<RefusedField>,
}

/// A field that cannot be changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefusedField {
    /// Its JSON Pointer in the object.
    pub pointer: String,
    /// The reason, in lower case.
    pub reason: String,
}

impl RefusedField {
    /// Whether a change at this JSON Pointer changes the field, or a part of it.
    pub fn is_touched_by(&self, pointer: &str) -> bool {
        let is_within = |inner: &str, outer: &str| {
            let rest = inner.strip_prefix(outer);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        is_within(pointer, &self.pointer) || is_within(&self.pointer, pointer)
    }
}

impl Refusal {
    /// Of the whole object.
    pub fn of_object(reason: impl Into<String>) -> Self {
        Refusal {
            reason: reason.into(),
            fields: Vec::new(),
        }
    }

    /// Of fields; there is at least one.
    pub fn of_fields(fields: Vec<RefusedField>) -> Self {
        let reason = fields.first().map(|field| field.reason.clone());
        Refusal {
            reason: reason.unwrap_or_default(),
            fields,
        }
    }
}

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
    let first_line = text.get(..line_end(text, root.span.start)).unwrap_or_default();
    let mut editor = TextEditor {
        text,
        line_break: if first_line.ends_with('\r') { "\r\n" } else { "\n" },
        is_json: matches!(&root.form, SyntaxForm::Mapping(mapping)
            if mapping.flow && mapping.entries.iter().all(|entry| starts(text, entry.key_span.start, '"'))),
        spacing: Spacing::of(text, root),
        object: root.span.clone(),
        aliases: object.aliases,
        path: Vec::new(),
        replaced: Vec::new(),
        refused: Vec::new(),
    };
    let changed = editor.change(root, before, after, Style::default());
    changed.map_err(Refusal::of_object)?;
    if !editor.refused.is_empty() {
        return Err(Refusal::of_fields(editor.refused));
    }
    let mut replaced = editor.replaced;
    replaced.sort_by_key(|replacement| (replacement.range.start, replacement.range.end));
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

/// The text with the replacements, which are sorted; `None` if they overlap.
pub fn apply<'r>(text: &str, replacements: impl IntoIterator<Item = &'r Replacement>) -> Option<String> {
    let mut edited = String::with_capacity(text.len());
    let mut at = 0;
    for Replacement { range, text: new } in replacements {
        edited.push_str(text.get(at..range.start)?);
        edited.push_str(new);
        at = range.end;
    }
    edited.push_str(text.get(at..)?);
    Some(edited)
}

/// How the author indents, as seen so far on the way to a node.
#[derive(Clone, Copy)]
struct Style {
    /// Spaces between a key and the keys below it.
    step: usize,
    /// Spaces between a key and the dashes below it.
    dash: usize,
}

impl Default for Style {
    fn default() -> Self {
        Style { step: 2, dash: 0 }
    }
}

struct TextEditor<'t> {
    text: &'t str,
    line_break: &'static str,
    is_json: bool,
    spacing: Spacing,
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
    fn change(&mut self, node: &'t SyntaxNode, before: &Value, after: &Value, style: Style) -> EditResult {
        if before == after {
            return Ok(());
        }
        self.check_anchors(node)?;
        match (&node.form, before, after) {
            // The anchored node is changed where it is written. If that is not enough, the verification fails.
            (SyntaxForm::Alias(_), ..) => Ok(()),
            (SyntaxForm::Mapping(mapping), Value::Object(before), Value::Object(after)) => {
                self.mapping(node, mapping, before, after, style)
            }
            (SyntaxForm::Sequence { flow, items }, Value::Array(before), Value::Array(after)) => {
                if before.len() != items.len() || after.len() < before.len() {
                    return self.refuse("a list would lose items");
                }
                for (index, (item, (before, after))) in items.iter().zip(before.iter().zip(after)).enumerate()
                {
                    self.at(&index.to_string(), |editor| {
                        editor.child(None, item, before, after, style)
                    });
                }
                let new = after.get(before.len()..).unwrap_or_default();
                if new.is_empty() {
                    return Ok(());
                }
                if *flow {
                    let new: Vec<_> = new.iter().map(|value| (None, value)).collect();
                    let last = items.last().map(|item| (item.span.start, item.span.end));
                    self.add_in_flow(node, last, &new, false)
                } else {
                    let column = self.column(node.span.start)?;
                    let lines: String = new.iter().map(|value| self.item(value, column, style)).collect();
                    self.insert_lines(node.span.end, &lines);
                    Ok(())
                }
            }
            _ => self.refuse("its syntax and its value differ"),
        }
    }

    /// Changes a child: a container in place, everything else as a whole.
    fn child(
        &mut self,
        entry: Option<(&'t SyntaxEntry, usize)>,
        node: &'t SyntaxNode,
        before: &Value,
        after: &Value,
        style: Style,
    ) -> EditResult {
        if before == after {
            return Ok(());
        }
        self.check_anchors(node)?;
        let empties = match after {
            Value::Object(after) => after.is_empty(),
            Value::Array(after) => after.is_empty(),
            _ => false,
        };
        let is_in_place = matches!(
            (&node.form, before, after),
            (SyntaxForm::Alias(_), ..)
                | (SyntaxForm::Mapping(_), Value::Object(_), Value::Object(_))
                | (SyntaxForm::Sequence { .. }, Value::Array(_), Value::Array(_))
        );
        if is_in_place && !empties {
            return self.change(node, before, after, style);
        }
        if node.form == SyntaxForm::Block {
            return self.refuse("a block scalar would become something else");
        }
        let is_written = !node.span.is_empty();
        if !matches!(after, Value::Object(_) | Value::Array(_)) || empties {
            if let (Some((key, _)), SyntaxForm::Mapping(mapping)) = (entry, &node.form)
                && !mapping.flow
            {
                // `{}` stands at the key; comments on lines of their own stay.
                self.check_removal(node)?;
                let place = self.after_colon(key);
                self.replace(
                    place..place,
                    format!(" {}", self.scalar(after, &SyntaxForm::Plain)),
                );
                return self.remove_lines(mapping, &(0..mapping.entries.len()).collect());
            }
            let new = self.scalar(after, &node.form);
            if self.part(node.span.clone()).contains('#') {
                return self.refuse("a comment would be lost");
            }
            let Some((key, _)) = entry else {
                self.replace(node.span.clone(), new);
                return Ok(());
            };
            if !is_written {
                self.replace(node.span.clone(), format!(" {new}"));
            } else if line_start(self.text, node.span.start) > key.key_span.end {
                // A block collection: `{}` moves up to the key.
                let after_key = self.after_colon(key);
                if self.part(after_key..node.span.start).contains('#') {
                    return self.refuse("a comment would be lost");
                }
                self.replace(after_key..node.span.end, format!(" {new}"));
            } else {
                self.replace(node.span.clone(), new);
            }
            return Ok(());
        }
        // A missing value becomes a container.
        let (Some((key, column)), Value::Null) = (entry, before) else {
            return self.refuse("a value of another kind is in its place");
        };
        if column == usize::MAX {
            let new = self.flow(after);
            let space = if is_written { "" } else { " " };
            self.replace(node.span.clone(), format!("{space}{new}"));
            return Ok(());
        }
        if is_written {
            self.replace(self.after_colon(key)..node.span.end, "");
        }
        let lines = self.below(after, column, style);
        self.insert_lines(node.span.end, &lines);
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

    fn mapping(
        &mut self,
        node: &'t SyntaxNode,
        mapping: &'t SyntaxMapping,
        before: &Map<String, Value>,
        after: &Map<String, Value>,
        style: Style,
    ) -> EditResult {
        if mapping.has_duplicates {
            return self.refuse("a key is given twice in one mapping: remove one of them");
        }
        let mut removed: Vec<&str> = before
            .keys()
            .filter(|key| !after.contains_key(*key))
            .map(String::as_str)
            .collect();
        let mut added: Vec<(&str, &Value)> = after
            .iter()
            .filter(|(key, _)| !before.contains_key(*key))
            .map(|(key, value)| (key.as_str(), value))
            .collect();
        let column = if mapping.flow {
            usize::MAX
        } else {
            self.column(node.span.start)?
        };
        let style = self.style_in(mapping, column, style);
        // A scalar whose key has a new name stays where it is, and may get a new value.
        let mut renamed = Vec::new();
        for has_new_value in [false, true] {
            removed.retain(|old| {
                let value = before.get(*old).filter(|value| value.is_string());
                let is_same = |new: &Value| new.is_string() && (has_new_value || Some(new) == value);
                let new = value.and_then(|_| added.iter().position(|(_, new)| is_same(new)));
                if let Some(new) = new {
                    renamed.push((*old, added.remove(new).0));
                }
                new.is_none()
            });
        }
        for (old, new) in renamed {
            self.at(old, |editor| {
                let Some((_, entry)) = editor.entry(mapping, old)? else {
                    return editor.refuse("its key comes from a merge key (`<<`): write it out");
                };
                if let (Some(before), Some(after)) = (before.get(old), after.get(new)) {
                    editor.child(Some((entry, column)), &entry.value, before, after, style)?;
                }
                let span = entry.key_span.clone();
                let quote = editor.part(span.clone()).chars().next();
                let new = Value::from(new);
                let new = match quote {
                    Some('"') => editor.scalar(&new, &SyntaxForm::DoubleQuoted),
                    Some('\'') => editor.scalar(&new, &SyntaxForm::SingleQuoted),
                    Some('&' | '!' | '?') => return editor.refuse("its key has an anchor or a tag"),
                    _ => editor.scalar(&new, &SyntaxForm::Plain),
                };
                editor.replace(span, new);
                Ok(())
            });
        }
        for (key, before) in before {
            let Some(after) = after.get(key).filter(|after| *after != before) else {
                continue;
            };
            self.at(key, |editor| {
                let Some((_, entry)) = editor.entry(mapping, key)? else {
                    return Ok(());
                };
                let below = editor.style_below(entry, column, style);
                editor.child(Some((entry, column)), &entry.value, before, after, below)
            });
        }
        let mut gone = BTreeSet::new();
        for key in removed {
            self.at(key, |editor| {
                if let Some((index, entry)) = editor.entry(mapping, key)? {
                    editor.check_removal(&entry.value)?;
                    gone.insert(index);
                }
                Ok(())
            });
        }
        if mapping.flow {
            self.remove_from_flow(mapping, &gone)?;
        } else {
            self.remove_lines(mapping, &gone)?;
        }
        if added.is_empty() {
            return Ok(());
        }
        if mapping.flow {
            let mut kept = mapping.entries.iter().enumerate();
            let last = kept.rfind(|(index, _)| !gone.contains(index));
            let new: Vec<_> = added.iter().map(|(key, value)| (Some(*key), *value)).collect();
            let place = last.map(|(_, entry)| (entry.key_span.start, entry.value.span.end));
            return self.add_in_flow(node, place, &new, !gone.is_empty());
        }
        let lines: String = added
            .iter()
            .map(|(key, value)| self.entry_lines(key, value, column, style))
            .collect();
        self.insert_lines(node.span.end, &lines);
        Ok(())
    }

    /// The entry of a key, and its index. `None` if a merge key has the entry: it is changed where it is written. If that is
    /// not enough, the verification fails.
    fn entry(&self, mapping: &'t SyntaxMapping, key: &str) -> EditResult<Option<(usize, &'t SyntaxEntry)>> {
        let found = mapping
            .find(key)
            .and_then(|index| Some((index, mapping.entries.get(index)?)));
        if found.is_none() && mapping.entries.iter().all(|entry| entry.key.is_some()) {
            return self.refuse("its key is written in a way that is not known");
        }
        Ok(found)
    }

    /// The style that the children of a mapping show.
    fn style_in(&self, mapping: &SyntaxMapping, column: usize, style: Style) -> Style {
        let dash = mapping.entries.iter().find_map(|entry| match &entry.value.form {
            SyntaxForm::Sequence { flow: false, .. } => {
                let dash = self.column(entry.value.span.start).ok()?;
                dash.checked_sub(column)
            }
            _ => None,
        });
        Style {
            dash: dash.unwrap_or(style.dash),
            ..style
        }
    }

    fn style_below(&self, entry: &SyntaxEntry, column: usize, style: Style) -> Style {
        let step = match &entry.value.form {
            SyntaxForm::Mapping(SyntaxMapping { flow: false, .. }) => self
                .column(entry.value.span.start)
                .ok()
                .and_then(|below| below.checked_sub(column)),
            _ => None,
        };
        Style {
            step: step.filter(|step| *step > 0).unwrap_or(style.step),
            ..style
        }
    }

    /// Refuses to remove a node if another object refers to a part of it.
    fn check_removal(&self, node: &SyntaxNode) -> EditResult {
        self.check_anchors(node)?;
        match &node.form {
            SyntaxForm::Mapping(mapping) => {
                let mut entries = mapping.entries.iter();
                entries.try_for_each(|entry| self.check_removal(&entry.value))
            }
            SyntaxForm::Sequence { items, .. } => items.iter().try_for_each(|item| self.check_removal(item)),
            _ => Ok(()),
        }
    }

    fn remove_lines(&mut self, mapping: &SyntaxMapping, gone: &BTreeSet<usize>) -> EditResult {
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

    /// The end of an entry: of its value, or of its colon.
    fn end_of(&self, entry: &SyntaxEntry) -> usize {
        self.after_colon(entry).max(entry.value.span.end)
    }

    /// The offset after the colon of an entry.
    fn after_colon(&self, entry: &SyntaxEntry) -> usize {
        let rest = self.part(entry.key_span.end..self.text.len());
        let blanks = rest.len() - rest.trim_start().len();
        entry.key_span.end
            + match rest.get(blanks..) {
                Some(rest) if rest.starts_with(':') => blanks + 1,
                _ => 0,
            }
    }

    fn remove_from_flow(&mut self, mapping: &SyntaxMapping, gone: &BTreeSet<usize>) -> EditResult {
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

    /// Adds members to a container in brackets. `last` is the last member that stays, from key to end; `is_emptied` if
    /// every member was removed.
    fn add_in_flow(
        &mut self,
        node: &SyntaxNode,
        last: Option<(usize, usize)>,
        new: &[(Option<&str>, &Value)],
        is_emptied: bool,
    ) -> EditResult {
        let spacing = self.spacing;
        let Some((start, end)) = last else {
            let open = node.span.start + 1;
            let inside = self.part(open..node.span.end.max(open + 1) - 1);
            if !is_emptied && !inside.trim().is_empty() {
                return self.refuse("an empty list or map has a comment inside");
            }
            let members: Vec<String> = new.iter().map(|(key, value)| self.member(*key, value)).collect();
            self.replace(open..open, members.join(spacing.comma));
            return Ok(());
        };
        let begin = line_start(self.text, start);
        let before = self.part(begin..start);
        let own_line = begin > node.span.start && before.chars().all(|c| matches!(c, ' ' | '\t'));
        let mut text = String::new();
        for (key, value) in new {
            let member = self.member(*key, value);
            text.push(',');
            if own_line {
                text.push_str(self.line_break);
                text.push_str(before);
            } else {
                text.push_str(spacing.comma.trim_start_matches(','));
            }
            text.push_str(&member);
        }
        self.replace(end..end, text);
        Ok(())
    }

    fn member(&self, key: Option<&str>, value: &Value) -> String {
        let value = self.flow(value);
        match key {
            Some(key) => format!("{}{}{value}", self.key(key), self.spacing.colon),
            None => value,
        }
    }

    fn key(&self, key: &str) -> String {
        let form = if self.is_json {
            SyntaxForm::DoubleQuoted
        } else {
            SyntaxForm::Plain
        };
        self.scalar(&Value::from(key), &form)
    }

    /// A value in one line.
    fn flow(&self, value: &Value) -> String {
        match value {
            Value::Object(entries) => {
                let members: Vec<String> = entries
                    .iter()
                    .map(|(key, value)| self.member(Some(key), value))
                    .collect();
                format!("{{{}}}", members.join(self.spacing.comma))
            }
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| self.flow(item)).collect();
                format!("[{}]", items.join(self.spacing.comma))
            }
            _ if self.is_json => value.to_string(),
            _ => self.scalar(value, &SyntaxForm::Plain),
        }
    }

    /// A scalar, or an empty container, in the form of the one that it replaces.
    fn scalar(&self, value: &Value, form: &SyntaxForm) -> String {
        match value.as_str() {
            Some(text) if *form == SyntaxForm::SingleQuoted && !text.contains(['\n', '\r']) => {
                format!("'{}'", text.replace('\'', "''"))
            }
            Some(text) if *form != SyntaxForm::DoubleQuoted && !self.is_json && is_plain_yaml(text) => {
                text.to_owned()
            }
            _ => value.to_string(),
        }
    }

    /// The lines of an entry of a block mapping.
    fn entry_lines(&self, key: &str, value: &Value, column: usize, style: Style) -> String {
        let key = self.key(key);
        let blank = " ".repeat(column);
        let is_container = match value {
            Value::Object(entries) => !entries.is_empty(),
            Value::Array(items) => !items.is_empty(),
            _ => false,
        };
        if is_container {
            let below = self.below(value, column, style);
            return format!("{blank}{key}:{}{below}", self.line_break);
        }
        let value = self.scalar(value, &SyntaxForm::Plain);
        format!("{blank}{key}: {value}{}", self.line_break)
    }

    /// The lines of a container below a key in this column.
    fn below(&self, value: &Value, column: usize, style: Style) -> String {
        match value {
            Value::Object(entries) => {
                let lines = entries.iter();
                lines
                    .map(|(key, value)| self.entry_lines(key, value, column + style.step, style))
                    .collect()
            }
            Value::Array(items) => {
                let lines = items.iter();
                lines
                    .map(|item| self.item(item, column + style.dash, style))
                    .collect()
            }
            _ => String::new(),
        }
    }

    /// The lines of an item of a block sequence.
    fn item(&self, value: &Value, column: usize, style: Style) -> String {
        let blank = " ".repeat(column);
        match value {
            Value::Object(entries) if !entries.is_empty() => {
                let lines = entries.iter();
                let lines: String = lines
                    .map(|(key, value)| self.entry_lines(key, value, column + 2, style))
                    .collect();
                format!("{blank}- {}", lines.trim_start())
            }
            Value::Array(_) => format!("{blank}- {}{}", self.flow(value), self.line_break),
            _ => format!(
                "{blank}- {}{}",
                self.scalar(value, &SyntaxForm::Plain),
                self.line_break
            ),
        }
    }

    /// Inserts lines after the line of an offset.
    fn insert_lines(&mut self, after: usize, lines: &str) {
        let end = line_end(self.text, after);
        if end < self.text.len() {
            self.replace(end + 1..end + 1, lines);
        } else {
            let lines = lines.strip_suffix(self.line_break).unwrap_or(lines);
            self.replace(end..end, format!("{}{lines}", self.line_break));
        }
    }
}

/// The blanks of a container in brackets.
#[derive(Clone, Copy)]
struct Spacing {
    comma: &'static str,
    colon: &'static str,
}

impl Spacing {
    /// As between the first key of an object and its value.
    fn of(text: &str, object: &SyntaxNode) -> Self {
        let first = match &object.form {
            SyntaxForm::Mapping(mapping) if mapping.flow => mapping.entries.first(),
            _ => None,
        };
        let between = first.and_then(|entry| text.get(entry.key_span.end..entry.value.span.start));
        let is_compact = between == Some(":");
        Spacing {
            comma: if is_compact { "," } else { ", " },
            colon: if is_compact { ":" } else { ": " },
        }
    }
}

fn starts(text: &str, at: usize, with: char) -> bool {
    text.get(at..).is_some_and(|rest| rest.starts_with(with))
}
