//! The state of reporting: each problem is logged once, and a condition reports it while it lasts.

use std::sync::PoisonError;

use super::basis::Invalidation;
use super::ledger::MOST_OWNERS;
use super::session::ReportsController;
use crate::cluster::snapshot::ReportingState;

/// How many unreadable objects are named.
const NAMED: usize = 3;

/// How many failed report writes are kept at most.
const MOST_TROUBLES: usize = 100;

impl ReportsController<'_> {
    /// A report could not be written or deleted; the next list of its namespace retries it. Of many failures only the
    /// first is logged.
    pub fn trouble(&self, uid: &str, namespace: &str, text: String) {
        self.context.reconcile.failed();
        self.is_late(Invalidation::None.with(namespace.to_owned()));
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        if troubles.is_empty() {
            tracing::warn!("{text}");
        } else {
            tracing::debug!("{text}");
        }
        if troubles.len() < MOST_TROUBLES || troubles.contains_key(uid) {
            troubles.insert(uid.into(), text);
        }
    }

    /// Drops all failures: the reports that they were about no longer exist.
    pub fn forget_troubles(&self) {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        troubles.clear();
    }

    /// One of the failed report writes, and the number of others.
    fn first_trouble(&self) -> Option<String> {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        if troubles.is_empty() {
            return None;
        }
        let ledger = self.ledger();
        troubles.retain(|uid, _| ledger.is_behind(uid));
        drop(ledger);
        let (_, first) = troubles.first_key_value()?;
        Some(match troubles.len() {
            1 => first.clone(),
            count => format!("{first} (and {} more)", count - 1),
        })
    }

    /// Logs a problem once, until it changes.
    pub fn complain(&self, doing: &str, text: &str) {
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        if complaints.get(doing).map(String::as_str) != Some(text) {
            tracing::warn!("{doing}: {text}");
            complaints.insert(doing.to_owned(), text.to_owned());
        }
    }

    /// Clears the problem.
    pub fn works(&self, doing: &str) {
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        complaints.remove(doing);
    }

    /// Publishes the state of reporting.
    pub fn say(&self) {
        let said = self.amiss().map_or(ReportingState::Written, |(reason, message)| {
            ReportingState::Amiss(reason, message)
        });
        self.context.reporting.send_if_modified(|before| {
            let is_new = *before != said;
            if is_new {
                *before = said;
            }
            is_new
        });
    }

    fn amiss(&self) -> Option<(&'static str, String)> {
        let complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        let first = complaints
            .iter()
            .next()
            .map(|(doing, text)| format!("{doing}: {text}"));
        drop(complaints);
        if let Some(text) = first.or_else(|| self.first_trouble()) {
            return Some(("Refused", text));
        }
        if self.dialect().is_none() {
            return Some((
                "NoReportApi",
                "the API server has neither reports of openreports.io/v1alpha1 nor policyreports of wgpolicyk8s.io/v1alpha2: \
                 install one of these CustomResourceDefinitions; metrics and Events continue without reports"
                    .to_owned(),
            ));
        }
        let ledger = self.ledger();
        if ledger.is_full() {
            let text = format!("more than {MOST_OWNERS} objects have findings; the others have no report");
            return Some(("TooMany", text));
        }
        let unreadable = ledger.all_unreadable();
        let count = unreadable.len();
        if count == 0 {
            return None;
        }
        let named = unreadable.take(NAMED);
        let named: Vec<String> = named
            .map(|it| format!("{} {} ({})", it.kind, it.name, it.why))
            .collect();
        Some((
            "Unreadable",
            format!(
                "{count} stored objects cannot be read and are skipped: {}",
                named.join(", ")
            ),
        ))
    }
}
