//! The ratchet: an update is judged by what it newly introduces, never by what was there before.

use std::collections::HashSet;

use super::inspect::Inspection;
use crate::model::policy::Action;

/// Lowers what the old object had already to a warning at most.
///
/// A finding is recognised by its rule and its path with container, volume and port names, so that reordering a list
/// introduces nothing.
pub fn lower_known(new: &mut Inspection, old: &Inspection) {
    let known: HashSet<_> = old.findings.iter().map(|finding| finding.identity()).collect();
    for finding in &mut new.findings {
        if known.contains(&finding.identity()) {
            finding.action = finding.action.min(Action::Warn);
            finding.wanted = finding.wanted.min(Action::Warn);
        }
    }
}
