//! The workloads because of which a taint is refused. Between two surveys only their metadata is read: a change of
//! one of them may be enough to allow the taint, and a survey reads every workload of the cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Client;
use tokio::time::Instant;

use super::ObjectKey;
use crate::cluster::errors::ApiError;
use crate::cluster::list::Listing;
use crate::model::json::at;
use crate::model::workload::Kind;

/// How many workloads are read at most; the condition names the same number.
const MOST: usize = 20;

/// The workloads because of which a taint is refused.
pub(super) struct AffectedWorkloads {
    /// Each with its generation, if known.
    workloads: BTreeMap<ObjectKey, Option<i64>>,
    every: Duration,
    due: Instant,
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
        AffectedWorkloads::new(BTreeMap::new(), Duration::ZERO)
    }

    /// These workloads, with the generations that the survey found. They are read at this interval.
    pub(super) fn new(workloads: BTreeMap<ObjectKey, Option<i64>>, every: Duration) -> Self {
        let known = |(_, kind, name): &ObjectKey| listing(kind).is_some() && !name.is_empty();
        let workloads = workloads.into_iter().filter(|(place, _)| known(place));
        AffectedWorkloads {
            workloads: workloads.take(MOST).collect(),
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
        for (place, known) in &mut self.workloads {
            changed |= has_changed(known, read(client, place).await);
        }
        changed
    }

    /// Reads the workloads of which the survey found only pods.
    pub(super) async fn read_unknown(&mut self, client: &Client) {
        for (place, known) in self.workloads.iter_mut().filter(|(_, known)| known.is_none()) {
            has_changed(known, read(client, place).await);
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

/// The list of a kind that the guard surveys.
fn listing(kind: &str) -> Option<Listing> {
    let kind = Kind::ALL.into_iter().find(|known| known.as_str() == kind)?;
    Listing::of_pod_carrier(kind)
}

async fn read(client: &Client, (namespace, kind, name): &ObjectKey) -> WorkloadChange {
    let Some(listing) = listing(kind) else {
        return WorkloadChange::NotKnown;
    };
    let listing = listing.in_namespace(namespace).metadata_only();
    match listing.get(client, name).await {
        Ok(json) => at(&json, &["metadata", "generation"])
            .and_then(|generation| generation.parse().ok())
            .map_or(WorkloadChange::NotKnown, WorkloadChange::Generation),
        Err(ApiError::NotFound) => WorkloadChange::Deleted,
        Err(error) => {
            tracing::debug!(kind, namespace, name, error = %error, "cannot read a workload that blocks a taint");
            WorkloadChange::NotKnown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let place = |kind: &str, name: String| (("shop".to_owned(), kind.to_owned(), name), None);
        let many = (0..30).map(|at| place("DaemonSet", format!("agent-{at}")));
        assert_eq!(
            AffectedWorkloads::new(many.collect(), Duration::ZERO)
                .workloads
                .len(),
            MOST
        );
        let other = AffectedWorkloads::new([place("Rollout", "web".to_owned())].into(), Duration::ZERO);
        assert_eq!(other.due(), None);
    }
}
