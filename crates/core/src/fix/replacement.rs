//! Replacements of parts of a text.

use std::ops::Range;

/// A part of a text, and what replaces it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replacement {
    /// The bytes that are removed; empty for an insertion.
    pub range: Range<usize>,
    pub text: String,
}

/// Sorts replacements by their place in the text.
pub(super) fn sort(replaced: &mut [Replacement]) {
    replaced.sort_by_key(|replacement| (replacement.range.start, replacement.range.end));
}

/// The text with the replacements, which are sorted; `None` if they overlap.
pub(super) fn apply<'r>(
    text: &str,
    replacements: impl IntoIterator<Item = &'r Replacement>,
) -> Option<String> {
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
