//! Expands aliases and merge keys (`<<`) within bounds; does not read scanner events.

use std::rc::Rc;

use saphyr_parser::Marker;

use super::{EventReader, Expect, ScanFailure, TextMark, YamlPosition, YamlResult, narrow, place};
use crate::model::json::Members;

/// The maximum size that aliases and merge keys may add to all documents of an input, in bytes of text and
/// marks.
const MAX_EXPANSION: usize = 64 << 20;

/// An anchored node: its text, and its marks with offsets from its start.
pub(super) struct Fragment {
    pub(super) json: String,
    pub(super) marks: Vec<TextMark>,
    pub(super) height: u32,
}

impl Fragment {
    pub(super) fn cost(&self) -> usize {
        self.json.len() + self.marks.len() * size_of::<TextMark>()
    }
}

impl EventReader<'_, '_> {
    /// Handles `<<`: its value is written next, and removed again by `end`.
    pub(super) fn begin_merge(&mut self, at: Marker) {
        let (start, marks) = (self.to.out.len(), self.to.marks.len());
        if let Some(frame) = self.frames.last_mut() {
            frame.expect = Some(Expect::Merge { start, marks });
            frame.merge_line = at.line();
        }
    }

    pub(super) fn add_merge(&mut self, fragment: Fragment, line: usize) -> YamlResult {
        let mapping = |at: usize| fragment.json.as_bytes().get(at) == Some(&b'{');
        let fits = mapping(0)
            || (fragment.json.starts_with('[')
                && Members::of_array(&fragment.json, 0).all(|(_, item)| mapping(item.start)));
        if !fits {
            let message = "`<<` merges mappings: give it an alias of a mapping, or a list of them".to_owned();
            return Err(ScanFailure {
                line,
                column: 1,
                message,
                template: false,
            });
        }
        if let Some(frame) = self.frames.last_mut() {
            let levels = fragment.height.saturating_sub(u32::from(!mapping(0)));
            frame.height = frame.height.max(levels);
            frame.merges.push(Rc::new(fragment));
        }
        Ok(())
    }

    /// Handles the end of a mapping: writes the entries of its `<<` whose keys it does not have; the first
    /// occurrence of a key applies.
    pub(super) fn write_merges(&mut self, at: Marker) -> YamlResult {
        let merges = self
            .frames
            .last_mut()
            .map(|frame| std::mem::take(&mut frame.merges))
            .unwrap_or_default();
        for fragment in merges {
            self.spend(fragment.cost(), at)?;
            let json = &fragment.json;
            if json.starts_with('{') {
                self.write_merge(&fragment, 0);
                continue;
            }
            for (_, item) in Members::of_array(json, 0) {
                self.write_merge(&fragment, item.start);
            }
        }
        Ok(())
    }

    fn write_merge(&mut self, fragment: &Fragment, object: usize) {
        for (key, value) in Members::of_object(&fragment.json, object) {
            let Some(entry) = fragment.json.get(key.start..value.end) else {
                continue;
            };
            let first = fragment
                .marks
                .partition_point(|mark| (mark.offset as usize) < key.start);
            let last = fragment
                .marks
                .partition_point(|mark| (mark.offset as usize) < value.end);
            let comma = self.frames.last().is_some_and(|frame| !frame.empty);
            let before = self.to.out.len();
            if comma {
                self.to.out.push(',');
            }
            let start = self.to.out.len();
            let marks = self.to.marks.len();
            self.append(
                entry,
                fragment.marks.get(first..last).unwrap_or_default(),
                key.start,
            );
            if self.remember(start..start + key.len(), 0).is_some() {
                self.to.out.truncate(before);
                self.to.marks.truncate(marks);
            } else if let Some(frame) = self.frames.last_mut() {
                frame.empty = false;
            }
        }
    }

    /// Appends text that was written before; its marks are relative to `origin`.
    pub(super) fn append(&mut self, json: &str, marks: &[TextMark], origin: usize) {
        let start = self.to.out.len();
        self.to.out.push_str(json);
        self.to.marks.extend(marks.iter().map(|mark| TextMark {
            offset: narrow((mark.offset as usize).saturating_sub(origin) + start),
            ..*mark
        }));
    }

    /// The text from `start`, and the marks from index `marks`.
    pub(super) fn copy(&self, start: usize, marks: usize, height: u32) -> Fragment {
        let relative = |mark: &TextMark| TextMark {
            offset: mark.offset.saturating_sub(narrow(start)),
            ..*mark
        };
        Fragment {
            json: self.to.out.get(start..).unwrap_or_default().to_owned(),
            marks: self
                .to
                .marks
                .get(marks..)
                .unwrap_or_default()
                .iter()
                .map(relative)
                .collect(),
            height,
        }
    }

    /// Fails if aliases have added more than a legitimate file needs.
    pub(super) fn spend(&mut self, bytes: usize, at: Marker) -> YamlResult {
        self.spend_at(bytes, place(at))
    }

    pub(super) fn spend_at(&mut self, bytes: usize, at: YamlPosition) -> YamlResult {
        self.to.expanded = self.to.expanded.saturating_add(bytes);
        if self.to.expanded > MAX_EXPANSION {
            let message =
                "aliases (`*name`) make this text grow beyond 64 MiB: write the values out".to_owned();
            return Err(ScanFailure {
                line: at.line,
                column: at.column,
                message,
                template: false,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Transcriber;
    use crate::manifest::locate::{Walker, marked};
    use crate::manifest::{NodeStep, Position};

    #[track_caller]
    fn check(text: &str, expected: &str) -> Transcriber {
        let mut transcriber = Transcriber::default();
        transcriber.document(text, 1).unwrap();
        assert!(transcriber.marks.is_sorted_by_key(|mark| mark.offset));
        assert_eq!(transcriber.out, expected, "{text}");
        transcriber
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
    fn explicit_keys_win_over_merged_ones() {
        check(
            "a: &x {p: 1, q: 2}\nb:\n  <<: *x\n  q: 3\n",
            r#"{"a":{"p":1,"q":2},"b":{"q":3,"p":1}}"#,
        );
        check(
            "a: &x {p: 1, q: 2}\nb:\n  q: 3\n  <<: *x\n",
            r#"{"a":{"p":1,"q":2},"b":{"q":3,"p":1}}"#,
        );
        check(
            "a: &x {p: 1}\nb: {<<: *x}\nc: {<<: {}}\n",
            r#"{"a":{"p":1},"b":{"p":1},"c":{}}"#,
        );
        check(
            "- &x {p: 1}\n- &y {p: 2, q: 2}\n- <<: [*x, *y, {r: 3}]\n",
            r#"[{"p":1},{"p":2,"q":2},{"p":1,"q":2,"r":3}]"#,
        );
        // A quoted `<<` is an ordinary key.
        check("'<<': 1\n", r#"{"<<":1}"#);
        check("a: <<\n", r#"{"a":"<<"}"#);
    }

    #[test]
    fn merged_mappings_can_be_merged_again() {
        let text =
            "a: &x {p: {z: 1}}\nb: &y\n  <<: *x\n  q: 2\nc:\n  <<: &w {s: 1}\n  t: *y\nd:\n  <<: [*y, *w]\n";
        let expected = r#"{"a":{"p":{"z":1}},"b":{"q":2,"p":{"z":1}},"c":{"t":{"q":2,"p":{"z":1}},"s":1},"d":{"q":2,"p":{"z":1},"s":1}}"#;
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
        let failure = Transcriber::default().document(&text, 1).unwrap_err();
        assert_eq!(
            failure.message,
            "aliases (`*name`) make this text grow beyond 64 MiB: write the values out"
        );
        // The same with depth: every alias adds a level around the previous one.
        let lines: Vec<_> = (1..200).map(|n| format!("a{n}: &a{n} [*a{}]\n", n - 1)).collect();
        let text = lines.concat();
        let text = format!("a0: &a0 [x]\n{text}");
        let failure = Transcriber::default().document(&text, 1).unwrap_err();
        assert_eq!(
            failure.message,
            "nested deeper than 127 levels: no Kubernetes object is, make it flatter"
        );
    }
}
