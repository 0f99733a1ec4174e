//! The ratchet: an update is judged by what it newly introduces, never by what was there before.

use std::collections::HashSet;

use super::inspect::Inspection;
use crate::model::policy::Action;
use crate::model::workload::Kind;
use crate::rules::Finding;

/// Lowers what the old object had already: to a warning at most, or to nothing that the user sees where the object is a
/// pod, which cannot be mended any more.
///
/// A finding is recognised by its rule and its path with container, volume and port names, so that reordering a list
/// introduces nothing.
pub fn lower_known(kind: Kind, new: &mut Inspection, old: &Inspection) {
    let most = if kind == Kind::Pod {
        Action::Audit
    } else {
        Action::Warn
    };
    let known: HashSet<_> = old.findings.iter().map(Finding::identity).collect();
    for finding in &mut new.findings {
        if known.contains(&finding.identity()) {
            finding.action = finding.action.min(most);
            finding.wanted = finding.wanted.min(most);
        }
    }
}
