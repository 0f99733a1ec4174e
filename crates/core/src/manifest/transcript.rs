//! Writes a syntax tree as compact JSON text and records the position of each key and item: expands aliases and merge
//! keys (`<<`) within bounds. Of several entries with the same key, the last one applies, as for `kubectl`.

use std::collections::HashMap;
use std::ops::Range;

use super::ParseWarning;
use super::locate::{TextMark, narrow};
use super::syntax::{Place, SyntaxEntry, SyntaxForm, SyntaxMapping, SyntaxNode, SyntaxRoot};
use super::yaml::{MAX_DEPTH, TOO_DEEP, YamlError};
use crate::model::syntax::json::write_string;
use crate::model::syntax::text::shown;

/// The maximum size that aliases and merge keys may add to all documents of an input, in bytes of text and
/// marks.
const MAX_EXPANSION: usize = 64 << 20;

/// The JSON text of all documents written so far.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    out: String,
    marks: Vec<TextMark>,
    expanded: usize,
}

impl Transcript {
    /// Adds a document and returns its range in the text. After an error nothing is added. `input` is the text of the
    /// tree.
    pub(super) fn add(
        &mut self,
        input: &str,
        root: &SyntaxRoot,
        warnings: &mut Vec<ParseWarning>,
    ) -> Result<Range<usize>, YamlError> {
        let (before, known) = (self.checkpoint(), warnings.len());
        let mut writer = TreeWriter {
            input,
            to: self,
            anchors: HashMap::new(),
            warnings,
            depth: 0,
            in_alias: 0,
        };
        if !root.aliases.is_empty() {
            writer.collect_anchors(&root.node);
        }
        writer.mark(root.node.place);
        let written = writer.node(&root.node);
        if let Err(error) = written {
            self.reset(before);
            warnings.truncate(known);
            return Err(error);
        }
        Ok(before.0..self.out.len())
    }

    /// The state to go back to.
    pub(super) fn checkpoint(&self) -> (usize, usize) {
        (self.out.len(), self.marks.len())
    }

    /// Removes what was added after a checkpoint.
    pub(super) fn reset(&mut self, (text, marks): (usize, usize)) {
        self.out.truncate(text);
        self.marks.truncate(marks);
    }

    /// The text, and the marks of its keys, items and documents, sorted by offset.
    pub(super) fn into_parts(self) -> (String, Vec<TextMark>) {
        (self.out, self.marks)
    }
}

struct TreeWriter<'t, 'o> {
    input: &'t str,
    to: &'o mut Transcript,
    /// The nodes with an anchor, by its number.
    anchors: HashMap<usize, &'t SyntaxNode>,
    warnings: &'o mut Vec<ParseWarning>,
    depth: usize,
    /// The number of aliases and merge keys that lead to the current node.
    in_alias: usize,
}

type TranscriptResult = Result<(), YamlError>;

/// An entry that a mapping has, and whether it comes from a merge key.
type EffectiveEntry<'t> = (&'t SyntaxEntry, bool);

impl<'t> TreeWriter<'t, '_> {
    fn collect_anchors(&mut self, node: &'t SyntaxNode) {
        if node.anchor > 0 {
            self.anchors.insert(node.anchor, node);
        }
        match &node.form {
            SyntaxForm::Mapping(mapping) => {
                for entry in &mapping.entries {
                    self.collect_anchors(&entry.value);
                }
            }
            SyntaxForm::Sequence { items, .. } => {
                for item in items {
                    self.collect_anchors(item);
                }
            }
            _ => {}
        }
    }

    fn node(&mut self, node: &'t SyntaxNode) -> TranscriptResult {
        match &node.form {
            SyntaxForm::Alias(anchor) if node.json.is_empty() => {
                if let Some(anchored) = self.anchors.get(anchor).copied() {
                    self.in_alias += 1;
                    self.node(anchored)?;
                    self.in_alias -= 1;
                }
            }
            SyntaxForm::Mapping(mapping) => {
                self.deeper(node)?;
                self.to.out.push('{');
                self.mapping(node, mapping)?;
                self.to.out.push('}');
                self.depth -= 1;
            }
            SyntaxForm::Sequence { items, .. } => {
                self.deeper(node)?;
                self.to.out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        self.to.out.push(',');
                    }
                    self.mark(item.place);
                    self.node(item)?;
                }
                self.to.out.push(']');
                self.depth -= 1;
            }
            _ => {
                let json = if node.json.is_empty() {
                    self.input.get(node.span.clone()).unwrap_or("null")
                } else {
                    &node.json
                };
                self.spend(json.len(), node)?;
                self.to.out.push_str(json);
            }
        }
        Ok(())
    }

    fn mapping(&mut self, node: &'t SyntaxNode, mapping: &'t SyntaxMapping) -> TranscriptResult {
        let has_merge = mapping.entries.iter().any(|entry| entry.key.is_none());
        if !has_merge && !mapping.has_duplicates {
            for (index, entry) in mapping.entries.iter().enumerate() {
                self.entry(index == 0, (entry, false))?;
            }
            return Ok(());
        }
        if mapping.has_duplicates && self.in_alias == 0 {
            self.report_duplicates(mapping);
        }
        let mut effective = Vec::new();
        self.effective(node, mapping, false, &mut effective)?;
        // The last entry with a key applies.
        let mut last = HashMap::new();
        for (index, (entry, _)) in effective.iter().enumerate() {
            last.insert(entry.key.as_deref(), index);
        }
        let mut is_first = true;
        for (index, entry) in effective.iter().enumerate() {
            if last.get(&entry.0.key.as_deref()) == Some(&index) {
                self.entry(is_first, *entry)?;
                is_first = false;
            }
        }
        Ok(())
    }

    /// The entries of a mapping, with those of its merge keys in their place: a later entry replaces an earlier one, and
    /// of several mappings that are merged, the first replaces the others.
    fn effective(
        &mut self,
        node: &'t SyntaxNode,
        mapping: &'t SyntaxMapping,
        is_merged: bool,
        into: &mut Vec<EffectiveEntry<'t>>,
    ) -> TranscriptResult {
        self.deeper(node)?;
        for entry in &mapping.entries {
            if entry.key.is_some() {
                into.push((entry, is_merged));
                continue;
            }
            self.in_alias += 1;
            self.spend(size_of::<EffectiveEntry<'_>>() * (into.len() + 1), &entry.value)?;
            match &entry.value.form {
                SyntaxForm::Sequence { items, .. } => {
                    for item in items.iter().rev() {
                        self.merge(entry, item, into)?;
                    }
                }
                _ => self.merge(entry, &entry.value, into)?,
            }
            self.in_alias -= 1;
        }
        self.depth -= 1;
        Ok(())
    }

    fn merge(
        &mut self,
        entry: &'t SyntaxEntry,
        node: &'t SyntaxNode,
        into: &mut Vec<EffectiveEntry<'t>>,
    ) -> TranscriptResult {
        let merged = match &node.form {
            SyntaxForm::Alias(anchor) => self.anchors.get(anchor).copied().unwrap_or(node),
            _ => node,
        };
        match &merged.form {
            SyntaxForm::Mapping(mapping) => self.effective(merged, mapping, true, into),
            _ => Err(YamlError::new(
                entry.key_place.position(),
                "`<<` merges mappings: give it an alias of a mapping, or a list of them",
            )),
        }
    }

    fn entry(&mut self, is_first: bool, (entry, is_merged): EffectiveEntry<'t>) -> TranscriptResult {
        let Some(key) = &entry.key else { return Ok(()) };
        self.in_alias += usize::from(is_merged);
        self.spend(key.len(), &entry.value)?;
        if !is_first {
            self.to.out.push(',');
        }
        self.mark(entry.key_place);
        write_string(&mut self.to.out, key);
        self.to.out.push(':');
        self.node(&entry.value)?;
        self.in_alias -= usize::from(is_merged);
        Ok(())
    }

    fn report_duplicates(&mut self, mapping: &SyntaxMapping) {
        let mut first: HashMap<&str, usize> = HashMap::new();
        for entry in &mapping.entries {
            let Some(key) = entry.key.as_deref() else { continue };
            let position = entry.key_place.position();
            match first.get(key) {
                Some(first) => {
                    let lines = match position.line {
                        line if line == *first => format!("on line {line}"),
                        line => format!("at lines {first} and {line}"),
                    };
                    self.warnings.push(ParseWarning {
                        message: format!(
                            "the key {} is given twice in one mapping, {lines}: the last one applies; remove one of them",
                            shown(key)
                        ),
                        position,
                        offset: Some(self.to.out.len()),
                    });
                }
                None => drop(first.insert(key, position.line)),
            }
        }
    }

    fn mark(&mut self, place: Place) {
        self.to.marks.push(TextMark {
            offset: narrow(self.to.out.len()),
            line: place.line,
            column: place.column,
        });
    }

    /// Enters a mapping or sequence: aliases can nest deeper than the text does.
    fn deeper(&mut self, node: &SyntaxNode) -> TranscriptResult {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(YamlError::new(node.place.position(), TOO_DEEP));
        }
        self.spend(0, node)
    }

    /// Fails if aliases have added more than a legitimate file needs.
    fn spend(&mut self, bytes: usize, node: &SyntaxNode) -> TranscriptResult {
        if self.in_alias == 0 {
            return Ok(());
        }
        self.to.expanded = self.to.expanded.saturating_add(bytes + size_of::<TextMark>());
        if self.to.expanded > MAX_EXPANSION {
            return Err(YamlError::new(
                node.place.position(),
                "aliases (`*name`) make this text grow beyond 64 MiB: write the values out",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::locate::{Walker, marked};
    use super::super::{NodeStep, Position, yaml};
    use super::*;

    fn write(text: &str) -> Result<Transcript, String> {
        let chunk = super::super::input::split(text).remove(0);
        let mut transcript = Transcript::default();
        let root = yaml::read(text, &chunk, None).map_err(|error| error.message)?;
        let root = root.root.ok_or_else(|| "empty".to_owned())?;
        transcript
            .add(text, &root, &mut Vec::new())
            .map_err(|error| error.message)?;
        assert!(transcript.marks.is_sorted_by_key(|mark| mark.offset));
        Ok(transcript)
    }

    #[track_caller]
    fn check(text: &str, expected: &str) -> Transcript {
        let transcript = write(text).unwrap();
        assert_eq!(transcript.out, expected, "{text}");
        transcript
    }

    #[test]
    fn aliases_are_written_out_and_stand_at_their_anchor() {
        let text = "a: &x\n  b: [1, &y 2]\nc: *x\nd: [*y, *x]\n";
        let read = check(text, r#"{"a":{"b":[1,2]},"c":{"b":[1,2]},"d":[2,{"b":[1,2]}]}"#);
        let at = |path: &[NodeStep<'_>]| marked(&read.marks, Walker::new(&read.out, 0).walk(path));
        assert_eq!(at(&[NodeStep::Key("c")]), Position { line: 3, column: 1 });
        assert_eq!(
            at(&[NodeStep::Key("c"), NodeStep::Key("b")]),
            Position { line: 2, column: 3 }
        );
        assert_eq!(
            at(&[NodeStep::Key("c"), NodeStep::Key("b"), NodeStep::Index(1)]),
            Position { line: 2, column: 10 }
        );
        assert_eq!(
            at(&[NodeStep::Key("d"), NodeStep::Index(1)]),
            Position { line: 4, column: 9 }
        );
    }

    #[test]
    fn the_last_entry_with_a_key_applies_merged_or_not() {
        check(
            "a: &x {p: 1, q: 2}\nb:\n  <<: *x\n  q: 3\n",
            r#"{"a":{"p":1,"q":2},"b":{"p":1,"q":3}}"#,
        );
        // A merge key that comes later replaces the entries before it: go-yaml inserts in the order of the text.
        check(
            "a: &x {p: 1, q: 2}\nb:\n  q: 3\n  <<: *x\n",
            r#"{"a":{"p":1,"q":2},"b":{"p":1,"q":2}}"#,
        );
        check(
            "a: &x {p: 1}\nb: {<<: *x}\nc: {<<: {}}\n",
            r#"{"a":{"p":1},"b":{"p":1},"c":{}}"#,
        );
        check(
            "- &x {p: 1}\n- &y {p: 2, q: 2}\n- <<: [*x, *y, {r: 3}]\n",
            r#"[{"p":1},{"p":2,"q":2},{"r":3,"q":2,"p":1}]"#,
        );
        // A quoted `<<` is an ordinary key.
        check("'<<': 1\n", r#"{"<<":1}"#);
        check("a: <<\n", r#"{"a":"<<"}"#);
    }

    #[test]
    fn merged_mappings_can_be_merged_again() {
        let text =
            "a: &x {p: {z: 1}}\nb: &y\n  <<: *x\n  q: 2\nc:\n  <<: &w {s: 1}\n  t: *y\nd:\n  <<: [*y, *w]\n";
        let expected = r#"{"a":{"p":{"z":1}},"b":{"p":{"z":1},"q":2},"c":{"s":1,"t":{"p":{"z":1},"q":2}},"d":{"s":1,"p":{"z":1},"q":2}}"#;
        let read = check(text, expected);
        let path = [NodeStep::Key("d"), NodeStep::Key("p"), NodeStep::Key("z")];
        let at = marked(&read.marks, Walker::new(&read.out, 0).walk(&path));
        assert_eq!(at, Position { line: 1, column: 12 });
    }

    #[test]
    fn laughs_are_bounded() {
        let line = |n: usize, previous: usize| {
            format!("a{n}: &a{n} [{}]\n", vec![format!("*a{previous}"); 10].join(", "))
        };
        let text: String = (1..20).map(|n| line(n, n - 1)).collect();
        let text = format!("a0: &a0 [{}]\n{text}", "x, ".repeat(10));
        let failure = write(&text).unwrap_err();
        assert_eq!(
            failure,
            "aliases (`*name`) make this text grow beyond 64 MiB: write the values out"
        );
        // The same with depth: every alias adds a level around the previous one.
        let lines: Vec<_> = (1..200).map(|n| format!("a{n}: &a{n} [*a{}]\n", n - 1)).collect();
        let text = lines.concat();
        let text = format!("a0: &a0 [x]\n{text}");
        let failure = write(&text).unwrap_err();
        assert_eq!(
            failure,
            "nested deeper than 127 levels: no Kubernetes object is, make it flatter"
        );
    }

    #[test]
    fn an_alias_of_an_entry_that_another_one_replaces_keeps_its_value() {
        check("a: &x {b: 1}\na: 2\nc: *x\n", r#"{"a":2,"c":{"b":1}}"#);
        check("&k a: 1\nb: *k\n*k : 3\n", r#"{"b":"a","a":3}"#);
    }
}
