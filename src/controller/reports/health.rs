//! The state of reporting: each problem is logged once, and a condition reports it while it lasts.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::owner_index::{MOST_OWNERS, OwnerIndex};
use super::report_api::ReportApi;
use crate::cluster::watch_problems::WatchProblems;

/// How many unreadable objects are named.
const NAMED: usize = 3;

/// How many failed report writes are kept at most.
const MOST_FAILED_WRITES: usize = 100;

/// The state of the reports on stored objects.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ReportingState {
    /// Reports are disabled.
    #[default]
    Off,
    /// Unknown: another replica leads.
    Unknown,
    /// All reports are up to date, or will be shortly.
    Written,
    /// Some reports are not written: reason and message.
    Amiss(&'static str, String),
}

impl ReportingState {
    /// The state before this replica leads.
    pub fn at_start(is_enabled: bool) -> Self {
        if is_enabled {
            ReportingState::Unknown
        } else {
            ReportingState::Off
        }
    }
}

/// The problems that keep reports from being up to date.
#[derive(Debug, Default)]
pub struct ReportHealth {
    /// By activity.
    activities: WatchProblems,
    /// Reports that could not be written or deleted, by the uid of their owners, until they are up to date.
    writes: BTreeMap<Box<str>, String>,
}

impl ReportHealth {
    /// An activity fails. It is a problem if it fails repeatedly, and is logged once, until the reason changes.
    pub fn fails(&mut self, activity: &str, why: &str) {
        if self.activities.fails(activity, why.to_owned(), Instant::now()) {
            tracing::warn!("{activity}: {why}");
        }
    }

    /// An activity works again: its problem ends.
    pub fn works(&mut self, activity: &str) {
        self.activities.works(activity);
    }

    /// Whether an activity has failed.
    pub fn has_failures(&self) -> bool {
        !self.activities.is_empty()
    }

    /// A report could not be written or deleted. Of many failures only the first is logged as a warning.
    pub fn write_failed(&mut self, uid: &str, text: String) {
        let writes = &mut self.writes;
        if writes.is_empty() {
            tracing::warn!("{text}");
        } else {
            tracing::debug!("{text}");
        }
        if writes.len() < MOST_FAILED_WRITES || writes.contains_key(uid) {
            writes.insert(uid.into(), text);
        }
    }

    /// Drops all failed writes: the reports that they were about no longer exist.
    pub fn forget_writes(&mut self) {
        self.writes.clear();
    }

    /// The state of reporting.
    pub fn state(&mut self, api: Option<ReportApi>, index: &OwnerIndex) -> ReportingState {
        self.problem(api, index)
            .map_or(ReportingState::Written, |(reason, message)| {
                ReportingState::Amiss(reason, message)
            })
    }

    fn problem(&mut self, api: Option<ReportApi>, index: &OwnerIndex) -> Option<(&'static str, String)> {
        if let Some(text) = self.failure(index) {
            return Some(("RequestFailed", text));
        }
        if api.is_none() {
            return Some((
                "ReportAPIMissing",
                "the API server has neither reports of openreports.io/v1alpha1 nor policyreports of wgpolicyk8s.io/v1alpha2: \
                 install one of these CustomResourceDefinitions; metrics and Events continue without reports"
                    .to_owned(),
            ));
        }
        if index.is_full() {
            let text = format!("more than {MOST_OWNERS} objects have findings; the others have no report");
            return Some(("TooManyOwners", text));
        }
        let unreadable = index.all_unreadable();
        let count = unreadable.len();
        if count == 0 {
            return None;
        }
        let named = unreadable.take(NAMED);
        let named: Vec<String> = named
            .map(|it| format!("{} {} ({})", it.kind, it.name, it.why))
            .collect();
        Some((
            "Unparseable",
            format!(
                "{count} stored objects cannot be read and are skipped: {}",
                named.join(", ")
            ),
        ))
    }

    /// One failure: an activity, or else a write and the number of others.
    fn failure(&mut self, index: &OwnerIndex) -> Option<String> {
        if let Some((activity, why)) = self.activities.first(Instant::now()) {
            return Some(format!("{activity}: {why}"));
        }
        self.writes.retain(|uid, _| index.is_behind(uid));
        let (_, first) = self.writes.first_key_value()?;
        Some(match self.writes.len() {
            1 => first.clone(),
            count => format!("{first} (and {} more)", count - 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::owner_index::UnreadableObject;
    use super::super::report::content;
    use super::super::tests::owner_result;
    use super::super::write_queue::ObservationSource;
    use super::*;
    use crate::model::objects::workload::Kind;
    use crate::scan::FindingOutcome;

    const API: Option<ReportApi> = Some(ReportApi::OpenReports);

    fn amiss(health: &mut ReportHealth, index: &OwnerIndex) -> (&'static str, String) {
        match health.state(API, index) {
            ReportingState::Amiss(reason, message) => (reason, message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_problem_lasts_until_its_activity_works() {
        let (mut health, index) = (ReportHealth::default(), OwnerIndex::default());
        assert_eq!(health.state(API, &index), ReportingState::Written);
        for _ in 0..3 {
            health.fails("cannot list /api/v1/pods", "not today");
            health.fails("cannot watch the reports", "forbidden");
        }
        assert_eq!(
            amiss(&mut health, &index),
            ("RequestFailed", "cannot list /api/v1/pods: not today".to_owned())
        );
        health.works("cannot list /api/v1/pods");
        assert_eq!(
            amiss(&mut health, &index).1,
            "cannot watch the reports: forbidden"
        );
        health.works("cannot watch the reports");
        assert_eq!(health.state(API, &index), ReportingState::Written);
    }

    #[test]
    fn a_failed_write_counts_until_the_report_is_up_to_date() {
        let (mut health, mut index) = (ReportHealth::default(), OwnerIndex::default());
        let mut contents = Vec::new();
        for uid in ["a", "b"] {
            let result = owner_result(uid, &[FindingOutcome::Denied]);
            index.record_result(&result, ObservationSource::List);
            contents.push(content(&result).unwrap());
            health.write_failed(uid, format!("the report of {uid} cannot be written"));
        }
        let (reason, message) = amiss(&mut health, &index);
        assert_eq!(
            (reason, message.as_str()),
            ("RequestFailed", "the report of a cannot be written (and 1 more)")
        );
        index.written("a", Some(contents[0]), None);
        assert_eq!(amiss(&mut health, &index).1, "the report of b cannot be written");
        index.written("b", Some(contents[1]), None);
        assert_eq!(health.state(API, &index), ReportingState::Written);
        health.write_failed("b", "again".to_owned());
        health.forget_writes();
        assert_eq!(health.state(API, &index), ReportingState::Written);
    }

    #[test]
    fn failed_writes_are_bounded() {
        let mut health = ReportHealth::default();
        for uid in 0..=MOST_FAILED_WRITES {
            health.write_failed(&uid.to_string(), "no".to_owned());
        }
        assert_eq!(health.writes.len(), MOST_FAILED_WRITES);
    }

    #[test]
    fn objects_that_cannot_be_read_are_named_and_a_missing_report_api_comes_first() {
        let (mut health, mut index) = (ReportHealth::default(), OwnerIndex::default());
        for number in 0..5 {
            let object = UnreadableObject {
                kind: Kind::Pod,
                name: format!("shop/web-{number}"),
                why: "no list".to_owned(),
            };
            index.unreadable(&number.to_string(), object);
        }
        let (reason, message) = amiss(&mut health, &index);
        assert_eq!(reason, "Unparseable");
        assert!(
            message.starts_with("5 stored objects cannot be read"),
            "{message}"
        );
        assert!(
            message.contains("Pod shop/web-2 (no list)") && !message.contains("web-3"),
            "{message}"
        );
        let ReportingState::Amiss(reason, _) = health.state(None, &index) else {
            panic!("there is no report API");
        };
        assert_eq!(reason, "ReportAPIMissing");
    }
}
