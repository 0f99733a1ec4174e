//! The name of a workload: API group, kind, namespace, name and, where two of them may follow each other, uid. Here is also
//! which workload an object belongs to, as far as the object alone shows it.

use std::fmt;

use jiff::civil::Date;

use super::resources::{Meta, OwnerReference};
use super::workload::Kind;
use crate::model::syntax::text::object_title;

/// The label with which the Deployment controller distinguishes the ReplicaSets of a Deployment. Its value is also the
/// suffix of their names.
const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// A workload. Kinds of different API groups may have the same name, for example the StatefulSet of OpenKruise.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkloadName {
    pub namespace: String,
    pub kind: String,
    pub name: String,
    /// The API group of its kind; empty for the core group.
    pub group: Box<str>,
    /// Its uid; empty if it is not compared, because files have none.
    pub uid: Box<str>,
}

impl WorkloadName {
    /// From its parts, without a uid. A group that a kind of Kubernetes has left is replaced by the present one.
    pub fn new(group: &str, kind: &str, namespace: &str, name: &str) -> Self {
        WorkloadName {
            namespace: namespace.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            group: Kind::of(group, kind).map_or(Box::from(group), |kind| Box::from(kind.group())),
            uid: Box::default(),
        }
    }

    /// An object of this kind, without its uid.
    pub fn of(kind: Kind, namespace: &str, name: &str) -> Self {
        WorkloadName::new(kind.group(), kind.as_str(), namespace, name)
    }

    /// An object of a kind of this API version, without its uid.
    pub fn of_api_version(api_version: &str, kind: &str, namespace: &str, name: &str) -> Self {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        WorkloadName::new(group, kind, namespace, name)
    }

    /// The owner that controls an object of this namespace, without its uid.
    ///
    /// Any author can write an ownerReference, so this is not proof.
    pub fn owner_of(meta: &Meta<'_>, namespace: &str) -> Option<Self> {
        let owner = meta.controller()?;
        Some(WorkloadName::of_api_version(
            &owner.api_version,
            &owner.kind,
            namespace,
            &owner.name,
        ))
    }

    /// The owner of the owner of a pod, if the names show it: the Deployment of a ReplicaSet, the CronJob of a Job.
    pub fn owner_above(kind: Kind, meta: &Meta<'_>, namespace: &str, today: Date) -> Option<Self> {
        let owner = meta.controller().filter(|_| kind == Kind::Pod)?;
        let (kind, name) = match Kind::of_api_version(&owner.api_version, &owner.kind)? {
            Kind::ReplicaSet => (Kind::Deployment, owning_deployment(owner, meta)?),
            Kind::Job => (Kind::CronJob, owning_cron_job(&owner.name, today)?),
            _ => return None,
        };
        Some(WorkloadName::of(kind, namespace, name))
    }

    /// The workload of an object: the owner that controls it, or that owner's own owner if its name shows it.
    pub fn top_owner_of(kind: Kind, meta: &Meta<'_>, namespace: &str, today: Date) -> Option<Self> {
        WorkloadName::owner_above(kind, meta, namespace, today)
            .or_else(|| WorkloadName::owner_of(meta, namespace))
    }

    /// The same object with its uid.
    #[must_use]
    pub fn with_uid(self, uid: &str) -> Self {
        WorkloadName {
            uid: uid.into(),
            ..self
        }
    }

    /// As in `Deployment web`, for a reader who knows the namespace and the kind.
    pub fn in_namespace(&self) -> String {
        object_title(&self.kind, "", &self.name)
    }

    /// The kind as kubectl shows it: with its group, unless it is a kind of Kubernetes.
    fn qualified_kind(&self) -> String {
        if self.group.contains('.') {
            format!("{}.{}", self.kind, self.group)
        } else {
            self.kind.clone()
        }
    }

    /// The kind; `None` if Transom does not know it.
    pub fn known_kind(&self) -> Option<Kind> {
        Kind::of(&self.group, &self.kind)
    }
}

/// As in `Deployment shop/web`; a kind of another group as kubectl shows it, as in `CloneSet.apps.kruise.io shop/web`.
impl fmt::Display for WorkloadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&object_title(self.qualified_kind(), &self.namespace, &self.name))
    }
}

/// The workload of an object for people who know its namespace, as in `Deployment web`. `Pod web-*` for an object without an
/// owner whose name the API server generated; `None` if its own name is enough.
pub fn root_owner(kind: Kind, meta: &Meta<'_>, today: Date) -> Option<String> {
    let generated = || {
        let prefix = &meta.generate_name;
        (!prefix.is_empty()).then(|| format!("{kind} {prefix}*"))
    };
    let owner = WorkloadName::top_owner_of(kind, meta, "", today);
    let title = |owner: WorkloadName| object_title(owner.qualified_kind(), "", &owner.name);
    owner.map(title).or_else(generated)
}

/// The Deployment of a ReplicaSet: the ReplicaSet's name is that of the Deployment plus the hash, which the pod has as
/// a label.
fn owning_deployment<'m>(replica_set: &'m OwnerReference<'_>, pod: &Meta<'_>) -> Option<&'m str> {
    let hash = pod
        .labels
        .get(POD_TEMPLATE_HASH)
        .filter(|hash| !hash.is_empty())?;
    let name = replica_set.name.strip_suffix(hash.as_str())?.strip_suffix('-')?;
    (!name.is_empty()).then_some(name)
}

/// The CronJob of a Job: the Job's name is that of the CronJob plus the minute of its schedule since 1970. Only a
/// recent minute is accepted; other numbers can mean anything.
fn owning_cron_job(job: &str, today: Date) -> Option<&str> {
    /// A Job may wait and its pods may be created again, so a week is accepted.
    const DAYS: i32 = 7;
    const MINUTES_OF_A_DAY: i64 = 24 * 60;
    let (name, minute) = job.rsplit_once('-')?;
    if name.is_empty() || !minute.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let day = i32::try_from(minute.parse::<i64>().ok()? / MINUTES_OF_A_DAY).ok()?;
    let today = today.since(jiff::civil::date(1970, 1, 1)).ok()?.get_days();
    (today - DAYS..=today + 1).contains(&day).then_some(name)
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    #[test]
    fn a_kind_of_kubernetes_is_named_without_its_group() {
        for (group, kind, text) in [
            ("apps", "DaemonSet", "DaemonSet shop/agent"),
            ("", "Pod", "Pod shop/agent"),
            (
                "apps.kruise.io",
                "DaemonSet",
                "DaemonSet.apps.kruise.io shop/agent",
            ),
        ] {
            assert_eq!(WorkloadName::new(group, kind, "shop", "agent").to_string(), text);
        }
    }

    fn of(kind: Kind, json: &str) -> Option<String> {
        root_owner(kind, &serde_json::from_str(json).unwrap(), date(2026, 11, 22))
    }

    fn owned(owner: &str, labels: &str) -> String {
        let (kind, name) = owner.rsplit_once(' ').unwrap();
        let (api_version, kind) = kind.rsplit_once('/').unwrap();
        format!(
            r#"{{"generateName": "x-", "labels": {labels}, "ownerReferences": [
                {{"apiVersion": "v1", "kind": "ConfigMap", "name": "another"}},
                {{"apiVersion": "{api_version}", "kind": "{kind}", "name": "{name}", "controller": true}}]}}"#
        )
    }

    #[test]
    fn the_owner_is_named_and_the_deployment_above_a_replica_set() {
        const HASH: &str = r#"{"pod-template-hash": "5d4f8c7b9"}"#;
        // 2026-11-21T10:00Z is the minute 29920920.
        for (kind, owner, labels, expected) in [
            (
                Kind::Pod,
                "apps/v1/ReplicaSet web-5d4f8c7b9",
                HASH,
                "Deployment web",
            ),
            (
                Kind::Pod,
                "apps/v1/ReplicaSet web-5d4f8c7b9",
                "{}",
                "ReplicaSet web-5d4f8c7b9",
            ),
            (
                Kind::Pod,
                "apps/v1/ReplicaSet web-other",
                HASH,
                "ReplicaSet web-other",
            ),
            (
                Kind::Pod,
                "apps/v1/ReplicaSet web5d4f8c7b9",
                HASH,
                "ReplicaSet web5d4f8c7b9",
            ),
            (
                Kind::Pod,
                "apps/v1/ReplicaSet -5d4f8c7b9",
                HASH,
                "ReplicaSet -5d4f8c7b9",
            ),
            (
                Kind::Pod,
                "kruise.io/v1/ReplicaSet web-5d4f8c7b9",
                HASH,
                "ReplicaSet.kruise.io web-5d4f8c7b9",
            ),
            (Kind::Pod, "apps/v1/StatefulSet db", "{}", "StatefulSet db"),
            (
                Kind::Pod,
                "v1/ReplicationController rc",
                "{}",
                "ReplicationController rc",
            ),
            (
                Kind::Pod,
                "batch/v1/Job nightly-29920920",
                "{}",
                "CronJob nightly",
            ),
            (
                Kind::Pod,
                "batch/v1/Job nightly-20261121",
                "{}",
                "Job nightly-20261121",
            ),
            (
                Kind::Pod,
                "batch/v1/Job nightly-+29920920",
                "{}",
                "Job nightly-+29920920",
            ),
            (Kind::Pod, "batch/v1/Job migrate-2", "{}", "Job migrate-2"),
            (Kind::Job, "batch/v1/CronJob nightly", "{}", "CronJob nightly"),
            (Kind::ReplicaSet, "apps/v1/Deployment web", HASH, "Deployment web"),
            (
                Kind::ReplicaSet,
                "argoproj.io/v1alpha1/Rollout web",
                "{}",
                "Rollout.argoproj.io web",
            ),
        ] {
            assert_eq!(
                of(kind, &owned(owner, labels)).as_deref(),
                Some(expected),
                "{owner}"
            );
        }
    }

    #[test]
    fn an_object_without_an_owner_is_named_by_what_its_name_is_made_of() {
        assert_eq!(
            of(Kind::Pod, r#"{"generateName": "web-"}"#).as_deref(),
            Some("Pod web-*")
        );
        let named = r#"{"generateName": "web-", "name": "web-x7k2p"}"#;
        assert_eq!(of(Kind::Job, named).as_deref(), Some("Job web-*"));
        assert_eq!(of(Kind::Pod, r#"{"name": "web"}"#), None);
    }
}
