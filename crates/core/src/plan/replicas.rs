//! What the planner reads of an object in addition to its pod template: the desired number of pods, and their status.

use serde::Deserialize;

use super::workload_images::names_linux;
use crate::model::objects::mirror::{Witness, is_mirror};
use crate::model::objects::object_status::ObjectStatus;
use crate::model::objects::pod::PodSpec;
use crate::model::objects::resources::{Meta, OwnerReference};
use crate::model::objects::workload::Kind;
use crate::model::objects::workload_name::WorkloadName;
use crate::model::syntax::json_types::Flag;

/// A workload without its template.
#[derive(Deserialize, Default)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct WorkloadOutline<'a> {
    /// The metadata that every object has.
    pub metadata: Meta<'a>,
    spec: Option<ReplicasSpec>,
    status: Option<ObjectStatus<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ReplicasSpec {
    replicas: Option<u64>,
    parallelism: Option<u64>,
    /// Of a Deployment.
    paused: Flag,
    /// Of a Job or CronJob.
    suspend: Flag,
}

impl WorkloadOutline<'_> {
    /// The desired number of pods; `None` if the object does not specify it: a DaemonSet depends on nodes, a
    /// CronJob on its schedule, and no controller creates pods from a PodTemplate.
    pub fn replicas(&self, kind: Kind) -> Option<u64> {
        let spec = self.spec.as_ref();
        match kind {
            Kind::DaemonSet | Kind::AdvancedDaemonSet | Kind::CronJob | Kind::PodTemplate => None,
            Kind::Job => Some(spec.and_then(|spec| spec.parallelism).unwrap_or(1)),
            Kind::Rollout | Kind::CloneSet => Some(spec.and_then(|spec| spec.replicas).unwrap_or(1)),
            kind if kind.is_custom() => spec.and_then(|spec| spec.replicas),
            _ => Some(spec.and_then(|spec| spec.replicas).unwrap_or(1)),
        }
    }

    /// Whether its controller creates no pods until somebody changes it.
    pub fn rests(&self) -> bool {
        self.spec
            .as_ref()
            .is_some_and(|spec| spec.paused.0 || spec.suspend.0)
    }

    /// Whether it is a Job that has finished.
    pub(super) fn has_ended(&self, kind: Kind) -> bool {
        self.status.as_ref().is_some_and(|status| status.has_ended(kind))
    }
}

#[derive(Deserialize, Default)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct PlacedPod<'a> {
    pub metadata: Meta<'a>,
    pub spec: Option<PodSpec<'a>>,
    status: Option<ObjectStatus<'a>>,
}

impl PlacedPod<'_> {
    pub(super) fn has_ended(&self) -> bool {
        let status = self.status.as_ref();
        status.is_some_and(|status| status.has_ended(Kind::Pod))
    }

    pub(super) fn is_ready(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.is_true("Ready"))
    }

    pub(super) fn namespace(&self) -> &str {
        Some(&*self.metadata.namespace)
            .filter(|name| !name.is_empty())
            .unwrap_or("default")
    }

    /// Its owner; without one, itself.
    pub(super) fn workload(&self) -> WorkloadName {
        WorkloadName::owner_of(&self.metadata, self.namespace())
            .unwrap_or_else(|| WorkloadName::of(Kind::Pod, self.namespace(), self.metadata.display_name()))
    }

    /// Whether a DaemonSet created it.
    pub(super) fn is_daemon(&self) -> bool {
        let owner = self.metadata.controller();
        owner.is_some_and(|owner| &*owner.kind == "DaemonSet")
    }

    /// Whether it may be for its node: neither a pod that a node never started nor a Linux image makes a workload a Windows
    /// workload.
    pub(super) fn is_at_home(&self) -> bool {
        let has_started = !self.status.as_ref().is_some_and(ObjectStatus::is_pending);
        self.spec.as_ref().is_some_and(|spec| {
            let mut containers = spec.init_containers.iter().chain(spec.containers.iter());
            self.is_ready()
                || has_started && !containers.any(|it| it.image.as_deref().is_some_and(names_linux))
        })
    }

    /// Whether the kubelet created it from a file on its node; `uid_of` returns the uid of a known node.
    pub(super) fn is_mirror<'w>(&self, uid_of: &'w dyn Fn(&str) -> Option<&'w str>) -> bool {
        is_mirror(
            Kind::Pod,
            &self.metadata,
            self.node_name(),
            &Witness::Stored(uid_of),
        )
    }

    /// Whether its node owns it without controlling it, as the pods do that pull images for a node: nothing creates it on another
    /// node.
    pub(super) fn is_of_node(&self) -> bool {
        let is_node = |owner: &OwnerReference<'_>| {
            &*owner.api_version == "v1" && &*owner.kind == "Node" && owner.controller != Some(true)
        };
        let mut owners = self.metadata.owner_references.iter();
        owners.any(|owner| is_node(owner) && self.node_name() == Some(&*owner.name))
    }

    pub(super) fn node_name(&self) -> Option<&str> {
        let name = self.spec.as_ref()?.node_name.as_deref()?;
        (!name.is_empty()).then_some(name)
    }
}
