//! The state of reporting: each problem is logged once, and a condition reports it while it lasts.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::owner_index::{MOST_OWNERS, OwnerIndex};
use super::report_api::ReportApi;
use crate::cluster::follow::ActivityProblems;

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

/// The current problems.
#[derive(Debug, Default)]
pub struct ReportHealth(Mutex<Problems>);

#[derive(Debug, Default)]
struct Problems {
    /// By activity.
    activities: ActivityProblems,
    /// Reports that could not be written or deleted, by the uid of their owners, until they are up to date.
    writes: BTreeMap<Box<str>, String>,
}

impl ReportHealth {
    /// An activity fails. It is logged once, until the reason changes.
    pub fn fails(&self, activity: &str, why: &str) {
        if self.problems().activities.fails(activity, why) {
            tracing::warn!("{activity}: {why}");
        }
    }

    /// An activity works.
    pub fn works(&self, activity: &str) {
        self.problems().activities.works(activity);
    }

    /// A report could not be written or deleted. Of many failures only the first is logged as a warning.
    pub fn write_failed(&self, uid: &str, text: String) {
        let writes = &mut self.problems().writes;
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
    pub fn forget_writes(&self) {
        self.problems().writes.clear();
    }

    /// The state of reporting.
    pub fn state(&self, api: Option<ReportApi>, index: &OwnerIndex) -> ReportingState {
        self.problem(api, index)
            .map_or(ReportingState::Written, |(reason, message)| {
                ReportingState::Amiss(reason, message)
            })
    }

    fn problem(&self, api: Option<ReportApi>, index: &OwnerIndex) -> Option<(&'static str, String)> {
        if let Some(text) = self.problems().first(index) {
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

    fn problems(&self) -> MutexGuard<'_, Problems> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Problems {
    /// One problem: an activity that fails, or else a failed write and the number of others.
    fn first(&mut self, index: &OwnerIndex) -> Option<String> {
        if let Some((activity, why)) = self.activities.first() {
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
    use super::super::owner_index::{ReportAction, UnreadableObject};
    use super::super::tests::owner_result;
    use super::*;
    use crate::model::workload::Kind;
    use crate::scan::FindingOutcome;

    const API: Option<ReportApi> = Some(ReportApi::OpenReports);

    fn amiss(health: &ReportHealth, index: &OwnerIndex) -> (&'static str, String) {
        match health.state(API, index) {
            ReportingState::Amiss(reason, message) => (reason, message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_problem_lasts_until_its_activity_works() {
        let (health, index) = (ReportHealth::default(), OwnerIndex::default());
        assert_eq!(health.state(API, &index), ReportingState::Written);
        health.fails("cannot list /api/v1/pods", "not today");
        health.fails("cannot watch the reports", "forbidden");
        assert_eq!(
            amiss(&health, &index),
            ("RequestFailed", "cannot list /api/v1/pods: not today".to_owned())
        );
        health.works("cannot list /api/v1/pods");
        assert_eq!(amiss(&health, &index).1, "cannot watch the reports: forbidden");
        health.works("cannot watch the reports");
        assert_eq!(health.state(API, &index), ReportingState::Written);
    }

    #[test]
    fn a_failed_write_counts_until_the_report_is_up_to_date() {
        let (health, mut index) = (ReportHealth::default(), OwnerIndex::default());
        let mut contents = Vec::new();
        for uid in ["a", "b"] {
            let ReportAction::Write(content) =
                index.record_result(&owner_result(uid, &[FindingOutcome::Denied]), 1)
            else {
                panic!("a new report");
            };
            contents.push(content);
            health.write_failed(uid, format!("the report of {uid} cannot be written"));
        }
        let (reason, message) = amiss(&health, &index);
        assert_eq!(
            (reason, message.as_str()),
            ("RequestFailed", "the report of a cannot be written (and 1 more)")
        );
        index.written("a", Some(contents[0]), None);
        assert_eq!(amiss(&health, &index).1, "the report of b cannot be written");
        index.written("b", Some(contents[1]), None);
        assert_eq!(health.state(API, &index), ReportingState::Written);
        health.write_failed("b", "again".to_owned());
        health.forget_writes();
        assert_eq!(health.state(API, &index), ReportingState::Written);
    }

    #[test]
    fn failed_writes_are_bounded() {
        let health = ReportHealth::default();
        for uid in 0..=MOST_FAILED_WRITES {
            health.write_failed(&uid.to_string(), "no".to_owned());
        }
        assert_eq!(health.problems().writes.len(), MOST_FAILED_WRITES);
    }

    #[test]
    fn objects_that_cannot_be_read_are_named_and_a_missing_report_api_comes_first() {
        let (health, mut index) = (ReportHealth::default(), OwnerIndex::default());
        for number in 0..5 {
            let object = UnreadableObject {
                kind: Kind::Pod,
                name: format!("shop/web-{number}"),
                why: "no list".to_owned(),
            };
            index.unreadable(&number.to_string(), object, 1);
        }
        let (reason, message) = amiss(&health, &index);
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
