//! How the reports stand: what does not work, in the log once and in a condition for as long as it is so.

use std::sync::PoisonError;

use super::ledger::MOST_OWNERS;
use super::session::Session;
use crate::cluster::errors::Failure;
use crate::cluster::snapshot::Reporting;

/// So many objects that cannot be read are named.
const NAMED: usize = 3;

impl Session<'_> {
    /// A write did not go; it is tried again with the next reading.
    pub fn trouble(&self, doing: &str, name: &str, failure: &Failure) {
        self.is_late();
        self.complain(doing, &format!("{name}: {failure}"));
    }

    /// A write went well.
    pub fn went_well(&self) {
        self.works("the report cannot be written");
    }

    /// Something does not work: the log says so once, until it is something else.
    pub fn complain(&self, doing: &str, text: &str) {
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        if complaints.get(doing).map(String::as_str) != Some(text) {
            tracing::warn!("{doing}: {text}");
            complaints.insert(doing.to_owned(), text.to_owned());
        }
    }

    /// It works.
    pub fn works(&self, doing: &str) {
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        complaints.remove(doing);
    }

    /// Says how the reports stand.
    pub fn say(&self) {
        let said = self.amiss().map_or(Reporting::Written, |(reason, message)| {
            Reporting::Amiss(reason, message)
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
        if let Some(text) = first {
            return Some(("Refused", text));
        }
        if self.dialect().is_none() {
            return Some((
                "NoReportApi",
                "the API server has neither reports of openreports.io/v1alpha1 nor policyreports of wgpolicyk8s.io/v1alpha2: \
                 install one of these CustomResourceDefinitions; metrics and Events go on without"
                    .to_owned(),
            ));
        }
        let ledger = self.ledger();
        if ledger.is_full() {
            let text =
                format!("more than {MOST_OWNERS} objects have findings; no report tells of the others");
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
                "{count} stored objects cannot be read and are passed over: {}",
                named.join(", ")
            ),
        ))
    }
}
