//! The edits of texts that fix findings, for formats that offer them.

use serde_json::Value;

use crate::check::{Checked, SourceLines, with_edit};
use crate::engine::manifest_edits::safe_edit;
use crate::fix::{EditableText, Replacement};
use crate::manifest::Position;
use crate::rules::Finding;

/// A part of a text and its replacement: lines and columns from 1, the end exclusive.
pub(super) struct TextFix {
    pub start: Position,
    pub end: Position,
    pub text: String,
}

/// Finds the edits of findings, object by object. Reads the text of consecutive objects once.
pub(super) struct TextFixes<'r> {
    /// How many may still be computed: each one is verified by reading the text with it.
    left: usize,
    text: Option<(&'r SourceLines, EditableText<'r>)>,
}

impl<'r> TextFixes<'r> {
    /// The most edits that are computed.
    const MOST: usize = 2000;
    /// The largest text in bytes.
    const LARGEST: usize = 256 << 10;

    pub fn new() -> Self {
        TextFixes {
            left: Self::MOST,
            text: None,
        }
    }

    /// The edits of the text that `transom fix` makes for each finding of an object.
    pub fn of(&mut self, checked: &Checked<'r>) -> Vec<Vec<TextFix>> {
        let mut before = None;
        let findings = checked.evaluation.findings.iter();
        findings
            .map(|finding| self.fix(checked, finding, &mut before).unwrap_or_default())
            .collect()
    }

    /// `before` is the object as written, once it is read.
    fn fix(
        &mut self,
        checked: &Checked<'r>,
        finding: &Finding,
        before: &mut Option<Value>,
    ) -> Option<Vec<TextFix>> {
        let text = checked.text.filter(|text| text.bytes().len() <= Self::LARGEST)?;
        let edit = safe_edit(finding, checked.kind, false).filter(|_| finding.is_open())?;
        self.left = self.left.checked_sub(1)?;
        let read = || serde_json::from_str(checked.document.json()).unwrap_or_default();
        let after = with_edit(before.get_or_insert_with(read), edit)?;
        let replaced = self
            .editable(text)
            .replacements_of(checked.document.start(), after)?;
        let fix = |Replacement { range, text: new }: Replacement| TextFix {
            start: text.position(range.start),
            end: text.position(range.end),
            text: new,
        };
        Some(replaced.into_iter().map(fix).collect())
    }

    fn editable(&mut self, text: &'r SourceLines) -> &EditableText<'r> {
        let known = self.text.take().filter(|(known, _)| std::ptr::eq(*known, text));
        let read = || (text, EditableText::read(text.bytes()));
        &self.text.insert(known.unwrap_or_else(read)).1
    }
}
