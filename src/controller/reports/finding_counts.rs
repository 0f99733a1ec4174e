//! How many findings stored objects have, by namespace, rule and action. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::report::reported;
use crate::scan::{FindingOutcome, FindingResult, OwnerResult};

/// The namespace, the rule, and the action of the finding.
pub type Series = (Arc<str>, &'static str, &'static str);

/// The value of the metric's label `action` for a finding; `None` if it is not counted.
pub fn action(found: &FindingResult) -> Option<&'static str> {
    match found.outcome {
        FindingOutcome::Denied => Some("deny"),
        FindingOutcome::Warned | FindingOutcome::Audited if found.would_deny => Some("would-deny"),
        FindingOutcome::Warned => Some("warn"),
        FindingOutcome::Audited | FindingOutcome::Reported => Some("audit"),
        FindingOutcome::Fixed
        | FindingOutcome::Fixable
        | FindingOutcome::Exempted
        | FindingOutcome::NotReviewed => None,
    }
}

/// The findings of one owner, by rule and action.
pub type OwnerFindings = Box<[(&'static str, &'static str, u32)]>;

/// The findings of an owner.
pub fn findings_of(owner_result: &OwnerResult) -> OwnerFindings {
    let mut counts: BTreeMap<(&'static str, &'static str), u32> = BTreeMap::new();
    for found in reported(owner_result) {
        if let Some(action) = action(found) {
            *counts.entry((found.rule, action)).or_default() += 1;
        }
    }
    let counts = counts.into_iter();
    counts
        .map(|((rule, action), count)| (rule, action, count))
        .collect()
}

/// The findings of all owners.
#[derive(Debug, Default)]
pub struct FindingCounts(BTreeMap<Series, u64>);

impl FindingCounts {
    /// Adds the findings of an owner.
    pub fn add(&mut self, namespace: &Arc<str>, findings: &OwnerFindings) {
        for (rule, action, count) in findings {
            let series = (Arc::clone(namespace), *rule, *action);
            *self.0.entry(series).or_default() += u64::from(*count);
        }
    }

    /// Removes the findings of an owner.
    pub fn remove(&mut self, namespace: &Arc<str>, findings: &OwnerFindings) {
        for (rule, action, count) in findings {
            let series = (Arc::clone(namespace), *rule, *action);
            if let Some(sum) = self.0.get_mut(&series) {
                *sum = sum.saturating_sub(u64::from(*count));
                if *sum == 0 {
                    self.0.remove(&series);
                }
            }
        }
    }

    /// Findings by namespace, rule and action.
    pub fn series(&self) -> impl Iterator<Item = (&Series, u64)> {
        self.0.iter().map(|(series, count)| (series, *count))
    }
}
