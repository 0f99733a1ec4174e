//! The workloads because of which a taint is refused. Between two surveys only their metadata is read: a change of
//! one of them may be enough to allow the taint, and a survey reads every workload of the cluster.

use std::time::Duration;

use kube::Client;
use tokio::time::Instant;

use super::Impact;
use crate::cluster::errors::ApiError;
use crate::cluster::list::Listing;
use crate::cluster::workload_survey::WorkloadSurvey;
use crate::model::syntax::json::at;

/// How many workloads are read at most; the condition names the same number.
const MOST: usize = 20;

/// The workloads because of which a taint is refused.
pub(super) struct AffectedWorkloads {
    workloads: Vec<RefusingWorkload>,
    every: Duration,
    due: Instant,
}

struct RefusingWorkload {
    listing: Listing,
    name: String,
    /// Its generation, if known.
    generation: Option<i64>,
}

/// What happened to a workload since it was last read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WorkloadChange {
    Deleted,
    Generation(i64),
    /// It could not be read.
    NotKnown,
}

impl AffectedWorkloads {
    /// No workloads: nothing is refused.
    pub(super) fn none() -> Self {
        AffectedWorkloads {
            workloads: Vec::new(),
            every: Duration::ZERO,
            due: Instant::now(),
        }
    }

    /// The workloads of an impact, with the generations that the survey found. They are read at this interval.
    pub(super) fn new(impact: &Impact, survey: &WorkloadSurvey, every: Duration) -> Self {
        let readable = impact.0.iter().filter_map(|(key, affected)| {
            let listing = survey.listing(&key.group, &key.kind)?;
            let workload = RefusingWorkload {
                listing: listing.in_namespace(&key.namespace).metadata_only(),
                name: key.name.clone(),
                generation: affected.generation,
            };
            (!key.name.is_empty()).then_some(workload)
        });
        AffectedWorkloads {
            workloads: readable.take(MOST).collect(),
            every,
            due: Instant::now() + every,
        }
    }

    /// When to read them next; `None` if there are none.
    pub(super) fn due(&self) -> Option<Instant> {
        (!self.workloads.is_empty()).then_some(self.due)
    }

    /// Reads them. Returns whether one has another generation than before, or is deleted.
    pub(super) async fn have_changed(&mut self, client: &Client) -> bool {
        self.due = Instant::now() + self.every;
        let mut changed = false;
        for workload in &mut self.workloads {
            let now = workload.read(client).await;
            changed |= has_changed(&mut workload.generation, now);
        }
        changed
    }

    /// Reads the workloads of which the survey found only pods.
    pub(super) async fn read_unknown(&mut self, client: &Client) {
        for workload in self.workloads.iter_mut().filter(|it| it.generation.is_none()) {
            let now = workload.read(client).await;
            has_changed(&mut workload.generation, now);
        }
    }
}

impl RefusingWorkload {
    async fn read(&self, client: &Client) -> WorkloadChange {
        let name = &self.name;
        match self.listing.get(client, name).await {
            Ok(json) => at(&json, &["metadata", "generation"])
                .and_then(|generation| generation.parse().ok())
                .map_or(WorkloadChange::NotKnown, WorkloadChange::Generation),
            Err(ApiError::NotFound) => WorkloadChange::Deleted,
            Err(error) => {
                let resource = self.listing.resource();
                tracing::debug!(resource, name, error = %error, "cannot read a workload that blocks a taint");
                WorkloadChange::NotKnown
            }
        }
    }
}

/// Records the generation of a workload. Returns whether it was different before.
fn has_changed(known: &mut Option<i64>, now: WorkloadChange) -> bool {
    match now {
        WorkloadChange::NotKnown => false,
        WorkloadChange::Deleted => true,
        WorkloadChange::Generation(generation) => known
            .replace(generation)
            .is_some_and(|before| before != generation),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::node_policies::guard::impact::AffectedWorkload;
    use crate::model::objects::workload::Kind;
    use crate::model::objects::workload_name::WorkloadName;

    #[test]
    fn another_generation_is_a_change_and_the_first_is_none() {
        let mut known = None;
        assert!(!has_changed(&mut known, WorkloadChange::NotKnown));
        assert!(!has_changed(&mut known, WorkloadChange::Generation(3)));
        assert!(!has_changed(&mut known, WorkloadChange::Generation(3)));
        assert!(has_changed(&mut known, WorkloadChange::Generation(4)));
        assert!(!has_changed(&mut known, WorkloadChange::NotKnown));
        assert!(has_changed(&mut known, WorkloadChange::Deleted));
    }

    #[test]
    fn only_what_can_be_read_is_kept() {
        let impact = |group: &str, kind: &str, count: usize| {
            let affected = AffectedWorkload {
                why: "x".to_owned(),
                remedy: None,
                generation: None,
            };
            let key = |at| WorkloadName::new(group, kind, "shop", &format!("agent-{at}"));
            Impact((0..count).map(|at| (key(at), affected.clone())).collect())
        };
        let survey = WorkloadSurvey::listing_custom([Kind::AdvancedDaemonSet]);
        let kept = |impact: &Impact| AffectedWorkloads::new(impact, &survey, Duration::ZERO).workloads;
        assert_eq!(kept(&impact("apps", "DaemonSet", 30)).len(), MOST);
        assert_eq!(kept(&impact("apps.kruise.io", "DaemonSet", 1)).len(), 1);
        assert_eq!(kept(&impact("argoproj.io", "Rollout", 1)).len(), 0);
    }
}
