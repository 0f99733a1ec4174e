//! Applies suppressions to an evaluated object.

use std::collections::HashSet;

use jiff::civil::Date;

use super::baseline::{Baseline, BaselineUse};
use super::checked::Checked;
use super::note::CheckNote;
use super::suppression::{
    CommentSuppressions, SUPPRESS_ANNOTATION, SuppressedBy, SuppressedFinding, Suppression,
};
use crate::manifest::Locator;
use crate::model::syntax::path::{Path, Segment};

/// The suppressions of one run.
pub(super) struct Suppressions<'s> {
    /// Of the comments of the input.
    pub comments: &'s CommentSuppressions,
    /// The baseline, if there is one.
    pub baseline: Option<&'s Baseline>,
    /// Today, in UTC.
    pub today: Date,
}

/// What suppressions did for one object.
#[derive(Clone, Debug, Default)]
pub(super) struct SuppressionUse {
    /// The comments that matched, and which of their rules; those of the annotation follow.
    pub matched: Vec<(usize, usize)>,
    /// The entries of the baseline that are about the object, and whether they matched.
    pub baseline: BaselineUse,
    /// Notes about the annotation.
    pub notes: Vec<CheckNote>,
    /// Why lines of the annotation cannot be used, with their position.
    pub errors: Vec<(usize, String)>,
}

impl Suppressions<'_> {
    /// Moves the suppressed findings of an object out of its evaluation.
    pub fn apply(&self, checked: &mut Checked<'_>, annotation: Option<&str>) -> SuppressionUse {
        let mut used = SuppressionUse::default();
        if self.comments.all.is_empty() && self.baseline.is_none() && annotation.is_none() {
            return used;
        }
        let mut places = checked.places();
        let of_annotation = read_annotation(annotation.unwrap_or_default(), &mut places, &mut used);
        let entries = (self.baseline).map_or_else(Vec::new, |baseline| baseline.entries(checked));
        used.baseline.see(&entries);
        let start = checked.document.start().line;
        let findings = std::mem::take(&mut checked.evaluation.findings);
        let details = std::mem::take(&mut checked.details);
        // The suppressions of the annotation follow those of the comments.
        let first = self.comments.all.len();
        for (finding, detail) in findings.into_iter().zip(details) {
            let lines = lines_to(&mut places, &finding.path);
            let mut written = None;
            let of_comments = self.comments.candidates(start, &lines);
            for (index, suppression) in of_comments.chain((first..).zip(&of_annotation)) {
                if let Some(rule) = suppression.matches(&finding, self.today, start, &lines) {
                    used.matched.push((index, rule));
                    written.get_or_insert(suppression);
                }
            }
            let is_known = used.baseline.note(&entries, &finding);
            let baseline = self.baseline.filter(|_| is_known);
            let (by, place) = match (written, baseline) {
                (Some(written), _) => {
                    let place = format!("{}:{}", checked.source, written.line);
                    (SuppressedBy::Manifest, place)
                }
                (None, Some(baseline)) => (SuppressedBy::Baseline, baseline.name.clone()),
                (None, None) => {
                    checked.evaluation.findings.push(finding);
                    checked.details.push(detail);
                    continue;
                }
            };
            checked.suppressed.push(SuppressedFinding {
                finding,
                position: detail.position,
                by,
                place,
                until: written.and_then(|written| written.until),
                reason: written.and_then(|written| written.reason.clone()),
            });
        }
        let is_used = |found| used.matched.contains(&found);
        used.notes = notes(checked.source, self.today, (first..).zip(&of_annotation), is_used);
        used
    }

    /// Notes about the comments of one input, from what matched in all of its objects.
    pub fn notes(&self, source: &str, used: &[(usize, usize)]) -> Vec<CheckNote> {
        let used: HashSet<&(usize, usize)> = used.iter().collect();
        let comments = self.comments.all.iter().enumerate();
        notes(source, self.today, comments, |found| used.contains(&found))
    }
}

/// Notes about suppressions. `is_used`: whether a rule (by index) of a suppression (by index) matched.
fn notes<'s>(
    source: &str,
    today: Date,
    suppressions: impl Iterator<Item = (usize, &'s Suppression)>,
    is_used: impl Fn((usize, usize)) -> bool,
) -> Vec<CheckNote> {
    suppressions
        .flat_map(|(index, suppression)| suppression.notes(source, today, |rule| is_used((index, rule))))
        .collect()
}

/// The suppressions of an annotation; its lines that cannot be used are errors.
fn read_annotation(text: &str, places: &mut Locator<'_>, used: &mut SuppressionUse) -> Vec<Suppression> {
    let mut found = Vec::new();
    for written in text.lines().filter(|line| !line.trim().is_empty()) {
        let path = Path::of(&["metadata", "annotations"]).key(SUPPRESS_ANNOTATION);
        let line = places.of(&path).line;
        match Suppression::parse(written) {
            Ok(parsed) => found.push(Suppression { line, ..parsed }),
            Err(why) => {
                let message = format!("the annotation {SUPPRESS_ANNOTATION}: {why}");
                used.errors.push((line, message));
            }
        }
    }
    found
}

/// The line of each parent of a field, without the object itself.
fn lines_to(positions: &mut Locator<'_>, path: &Path) -> Vec<usize> {
    let mut lines = Vec::with_capacity(path.segments().len());
    let mut to = Path::ROOT;
    for segment in path.segments() {
        to = match segment {
            Segment::Field(name) => to.field(name),
            Segment::Key(key) | Segment::Unknown(key) => to.key(key),
            Segment::Item(index, _) => to.item(*index),
        };
        lines.push(positions.of(&to).line);
    }
    lines
}
