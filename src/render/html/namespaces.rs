//! The rows of the table of namespaces.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::scan::OwnerOutcome;
use crate::scan::report::{NamespaceReport, ScanReport};

pub(super) struct NamespaceRow<'r> {
    pub(super) namespace: &'r NamespaceReport,
    /// How many of its workloads are denied at their next create.
    pub(super) denied: usize,
    /// How many would be denied with `validation.action: Deny`.
    would_be_denied: usize,
}

/// The rows, those with the most denials first; equal rows keep the order of the report.
pub(super) fn most_denials_first(report: &ScanReport) -> Vec<NamespaceRow<'_>> {
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for owner in &report.owners {
        let (denied, would_be_denied) = counts.entry(&owner.namespace).or_default();
        *denied += usize::from(owner.outcome == OwnerOutcome::Denied);
        *would_be_denied += usize::from(owner.findings.iter().any(|found| found.would_deny));
    }
    let rows = report.namespaces.iter().map(|namespace| {
        let known = counts.get(namespace.name.as_str()).copied();
        let (denied, would_be_denied) = known.unwrap_or_default();
        NamespaceRow {
            namespace,
            denied,
            would_be_denied,
        }
    });
    let mut rows: Vec<NamespaceRow<'_>> = rows.collect();
    rows.sort_by_key(|row| Reverse((row.denied, row.would_be_denied)));
    rows
}
