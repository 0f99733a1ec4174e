//! The workloads because of which a taint is refused. Between two surveys only their metadata is read: a change of
//! one of them may be enough to allow the taint, and a survey reads every workload of the cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use tokio::time::Instant;

use super::ObjectKey;
use crate::cluster::errors::{ApiError, answered};
use crate::cluster::list::POD_CARRIERS;
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
        let known = |(_, kind, name): &ObjectKey| resource(kind).is_some() && !name.is_empty();
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

/// The resource of a kind that the guard surveys.
fn resource(kind: &str) -> Option<ApiResource> {
    let (kind, path) = POD_CARRIERS.iter().find(|(listed, _)| listed.as_str() == kind)?;
    let (group_version, plural) = path.rsplit_once('/')?;
    let (group, version) = match group_version.strip_prefix("/apis/") {
        Some(group_version) => group_version.split_once('/')?,
        None => ("", group_version.strip_prefix("/api/")?),
    };
    let gvk = GroupVersionKind::gvk(group, version, Kind::as_str(*kind));
    Some(ApiResource::from_gvk_with_plural(&gvk, plural))
}

async fn read(client: &Client, (namespace, kind, name): &ObjectKey) -> WorkloadChange {
    let Some(resource) = resource(kind) else {
        return WorkloadChange::NotKnown;
    };
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    match answered(api.get_metadata(name)).await {
        Ok(object) => object
            .metadata
            .generation
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
    fn every_kind_of_the_survey_has_its_resource_and_others_have_none() {
        let shown = |kind: &str| resource(kind).map(|it| format!("{} {}", it.api_version, it.plural));
        assert_eq!(shown("DaemonSet").as_deref(), Some("apps/v1 daemonsets"));
        assert_eq!(shown("Pod").as_deref(), Some("v1 pods"));
        assert!(
            POD_CARRIERS
                .iter()
                .all(|(kind, _)| shown(kind.as_str()).is_some())
        );
        assert_eq!(shown("Rollout"), None);
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
