//! Unified diffs, as `patch` and `git apply` read them, of texts whose replaced parts are known.

use std::io::Write as _;
use std::ops::Range;

use similar::{Algorithm, DiffOp, capture_diff_slices};

use super::replacement::Replacement;

/// The unchanged lines around a change.
const CONTEXT: usize = 3;

/// The changes of a file in the unified format with three lines of context; empty if there are none. `replaced` are the
/// replacements in the order of the text, which do not overlap.
pub fn unified(name: &str, before: &[u8], replaced: &[Replacement]) -> Vec<u8> {
    let lines: Vec<&[u8]> = before.split_inclusive(|byte| *byte == b'\n').collect();
    let changes = changes(before, &lines, replaced);
    let mut written = Vec::new();
    if changes.is_empty() {
        return written;
    }
    let name = name.strip_prefix("./").unwrap_or(name).replace('\\', "/");
    // git and patch remove the first folder of a relative path; an absolute path stays.
    let (old, new) = if name.starts_with('/') {
        (name.clone(), name)
    } else {
        (format!("a/{name}"), format!("b/{name}"))
    };
    // Writing to a vector cannot fail.
    let _ = writeln!(written, "--- {old}\n+++ {new}");
    let mut added = 0;
    for hunk in changes.chunk_by(|one, next| next.old.start <= one.old.end + 2 * CONTEXT) {
        write_hunk(hunk, &lines, &mut added, &mut written);
    }
    written
}

/// Lines that were replaced by others.
struct LineChange {
    /// The indexes of the lines.
    old: Range<usize>,
    new: Vec<Vec<u8>>,
}

/// The changed lines, in order.
fn changes(before: &[u8], lines: &[&[u8]], replaced: &[Replacement]) -> Vec<LineChange> {
    let mut starts = Vec::with_capacity(lines.len() + 1);
    let mut offset = 0;
    for line in lines {
        starts.push(offset);
        offset += line.len();
    }
    let line_of = |offset: usize| starts.partition_point(|start| *start <= offset).saturating_sub(1);
    let end_of = |line: usize| starts.get(line).copied().unwrap_or(before.len());
    let mut changes = Vec::new();
    let mut rest = replaced;
    while let Some(first) = rest.first() {
        // The lines of this replacement, and of those after it that begin on one of them.
        let from = line_of(first.range.start);
        let mut to = line_of(first.range.end) + 1;
        let mut count = 1;
        while let Some(next) = rest.get(count).filter(|next| line_of(next.range.start) < to) {
            to = to.max(line_of(next.range.end) + 1);
            count += 1;
        }
        let to = to.min(lines.len());
        let (together, others) = rest.split_at(count);
        rest = others;
        let mut new = Vec::new();
        let mut at = end_of(from);
        for Replacement { range, text } in together {
            new.extend_from_slice(before.get(at..range.start).unwrap_or_default());
            new.extend_from_slice(text.as_bytes());
            at = range.end;
        }
        new.extend_from_slice(before.get(at..end_of(to)).unwrap_or_default());
        let new: Vec<&[u8]> = new.split_inclusive(|byte| *byte == b'\n').collect();
        let old = lines.get(from..to).unwrap_or_default();
        for operation in capture_diff_slices(Algorithm::Myers, old, &new) {
            if matches!(operation, DiffOp::Equal { .. }) {
                continue;
            }
            let lines = operation.old_range();
            let new = new.get(operation.new_range()).unwrap_or_default();
            changes.push(LineChange {
                old: from + lines.start..from + lines.end,
                new: new.iter().map(|line| line.to_vec()).collect(),
            });
        }
    }
    changes
}

/// Writes changes with their context. `added`: how many lines the hunks before it added; negative if they removed lines.
fn write_hunk(hunk: &[LineChange], lines: &[&[u8]], added: &mut isize, out: &mut Vec<u8>) {
    let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else {
        return;
    };
    let old = first.old.start.saturating_sub(CONTEXT)..(last.old.end + CONTEXT).min(lines.len());
    let start = old.start.saturating_add_signed(*added);
    for change in hunk {
        *added += change.new.len().cast_signed() - change.old.len().cast_signed();
    }
    let end = old.end.saturating_add_signed(*added);
    let _ = writeln!(out, "@@ -{} +{} @@", numbers(&old), numbers(&(start..end)));
    let mut at = old.start;
    for change in hunk {
        for line in lines.get(at..change.old.start).unwrap_or_default() {
            write_line(b' ', line, out);
        }
        for line in lines.get(change.old.clone()).unwrap_or_default() {
            write_line(b'-', line, out);
        }
        for line in &change.new {
            write_line(b'+', line, out);
        }
        at = change.old.end;
    }
    for line in lines.get(at..old.end).unwrap_or_default() {
        write_line(b' ', line, out);
    }
}

/// The first line and the number of lines; the line before if there are none.
fn numbers(lines: &Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        several => format!("{},{several}", lines.start + 1),
    }
}

fn write_line(mark: u8, line: &[u8], out: &mut Vec<u8>) {
    out.push(mark);
    out.extend_from_slice(line);
    if !line.ends_with(b"\n") {
        out.extend_from_slice(b"\n\\ No newline at end of file\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(range: Range<usize>, text: &str) -> Replacement {
        Replacement {
            range,
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_diff_keeps_line_ends() {
        let diff = unified("./web.yaml", b"a\r\nb\r\nc", &[replaced(3..6, "")]);
        let expected =
            "--- a/web.yaml\n+++ b/web.yaml\n@@ -1,3 +1,2 @@\n a\r\n-b\r\n c\n\\ No newline at end of file\n";
        assert_eq!(String::from_utf8(diff).unwrap(), expected);
        assert_eq!(unified("a", b"x", &[]), b"");
        assert_eq!(unified("a", b"x\n", &[replaced(0..1, "x")]), b"");
        let diff = unified("a", b"x", &[replaced(1..1, "\ny")]);
        let expected = "--- a/a\n+++ b/a\n@@ -1 +1,2 @@\n-x\n\\ No newline at end of file\n+x\n+y\n\\ No newline at end of file\n";
        assert_eq!(String::from_utf8(diff).unwrap(), expected);
    }

    /// The hunks of a text with these edits are those that a comparison of the whole texts finds.
    #[test]
    fn known_edits_give_the_hunks_of_a_comparison() {
        let lines: Vec<String> = (0..40).map(|line| format!("line {line}\n")).collect();
        let text = lines.concat();
        let at = |line: usize| text.find(&format!("line {line}\n")).unwrap();
        for edits in [
            vec![replaced(at(0)..at(1), "")],
            vec![replaced(at(5)..at(5), "new\n")],
            vec![
                replaced(at(5) + 2..at(7) + 3, "X"),
                replaced(at(7) + 4..at(7) + 5, "Y"),
            ],
            vec![
                replaced(at(3)..at(4), ""),
                replaced(at(10)..at(11), "ten\n"),
                replaced(at(18)..at(18), "new\n"),
            ],
            vec![
                replaced(at(3)..at(4), ""),
                replaced(at(12)..at(13), ""),
                replaced(text.len()..text.len(), "end"),
            ],
            vec![replaced(0..text.len(), "")],
        ] {
            let after = super::super::replacement::apply(&text, &edits).unwrap();
            let whole = similar::TextDiff::from_lines(text.as_str(), &after);
            let whole = whole
                .unified_diff()
                .context_radius(3)
                .header("a/t", "b/t")
                .to_string();
            assert_eq!(
                String::from_utf8(unified("t", text.as_bytes(), &edits)).unwrap(),
                whole
            );
        }
    }
}
