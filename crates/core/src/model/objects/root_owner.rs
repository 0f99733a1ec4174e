//! The workload that an object belongs to, determined from the object alone.

use jiff::civil::Date;

use super::resources::{Meta, OwnerReference};
use super::workload::Kind;

/// The label with which the Deployment controller distinguishes the ReplicaSets of a Deployment. Its value is also the
/// suffix of their names.
const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// The workload of an object, as in `Deployment web`: the owner that controls it, or that owner's own owner if its name
/// shows it. `Pod web-*` for an object without an owner whose name the API server generated; `None` if its own name is
/// enough.
///
/// Any author can write an ownerReference, so this is not proof.
pub fn root_owner(kind: Kind, meta: &Meta<'_>, today: Date) -> Option<String> {
    let Some(owner) = meta.controller() else {
        let prefix = &meta.generate_name;
        return (!prefix.is_empty()).then(|| format!("{kind} {prefix}*"));
    };
    if let Some((kind, name)) = owner_above(kind, meta, today) {
        return Some(format!("{kind} {name}"));
    }
    let known = Kind::of_api_version(&owner.api_version, &owner.kind);
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    // Kinds of different groups may have the same name.
    let is_own = known.is_some_and(|kind| !kind.is_custom());
    Some(if is_own || group.is_empty() {
        format!("{} {}", owner.kind, owner.name)
    } else {
        format!("{}.{group} {}", owner.kind, owner.name)
    })
}

/// The owner of the owner of a pod, if the names show it.
pub fn owner_above<'m>(kind: Kind, meta: &'m Meta<'_>, today: Date) -> Option<(Kind, &'m str)> {
    let owner = meta.controller().filter(|_| kind == Kind::Pod)?;
    match Kind::of_api_version(&owner.api_version, &owner.kind) {
        Some(Kind::ReplicaSet) => owning_deployment(owner, meta).map(|name| (Kind::Deployment, name)),
        Some(Kind::Job) => owning_cron_job(&owner.name, today).map(|name| (Kind::CronJob, name)),
        _ => None,
    }
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
