//! Who created an object: its author, or a controller whose workload was evaluated instead.

use super::workload::Kind;

/// The user of all Kubernetes controllers if they have no individual credentials.
const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";

/// The prefix of the accounts that Kubernetes creates for its controllers. Anyone who may write in that namespace
/// controls the cluster.
const ACCOUNTS: &str = "system:serviceaccount:kube-system:";

/// The accounts of controllers that add node selectors to objects of others, in updates of suspended Jobs and of pods with
/// a scheduling gate: Kueue, as its manifests and its chart install it.
const QUEUES: [&str; 1] = ["system:serviceaccount:kueue-system:kueue-controller-manager"];

/// How the labels of objects in a queue of Kueue begin.
const QUEUE_LABELS: &str = "kueue.x-k8s.io/";

/// A user that a policy lists as the controller of some kinds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedController {
    /// The complete user name.
    pub username: String,
    /// The kinds, as in `Rollout.argoproj.io`; without a group for the core group.
    pub kinds: Vec<String>,
}

impl ListedController {
    /// Whether it is the controller of a kind.
    pub fn controls(&self, kind: Kind) -> bool {
        self.kinds.iter().any(|name| is_named(kind, name))
    }

    /// Whether this user is it, for this kind.
    fn is(&self, user: &str, kind: Kind) -> bool {
        !user.is_empty() && self.username == user && self.controls(kind)
    }
}

/// The name of a kind with its group, as in `Rollout.argoproj.io`; without one for the core group.
pub fn qualified(kind: Kind) -> String {
    match kind.group() {
        "" => kind.to_string(),
        group => format!("{kind}.{group}"),
    }
}

/// Whether a kind has this name, as in `Rollout.argoproj.io`.
pub fn is_named(kind: Kind, name: &str) -> bool {
    let (name, group) = name.split_once('.').unwrap_or((name, ""));
    kind.as_str() == name && kind.group() == group
}

/// Whether a user adds node selectors to an object of a kind that others wrote, and must not be blocked by what they wrote: the
/// account of a queue that the object is in by its labels, or a user that the policy lists as the controller of the kind.
pub fn adds_selectors<'l>(
    user: &str,
    kind: Kind,
    listed: &[ListedController],
    mut labels: impl Iterator<Item = &'l str>,
) -> bool {
    listed.iter().any(|listed| listed.is(user, kind))
        || QUEUES.contains(&user) && labels.any(|label| label.starts_with(QUEUE_LABELS))
}

/// Who created an object. Any author can write an ownerReference: it proves a controller only together with the
/// requester.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Origin {
    /// A person, a tool, or a controller of a kind for which the webhooks are not registered.
    #[default]
    Author,
    /// A requester that sets an owner but is not known as the controller of its kind: treated as an author.
    Unproven,
    /// The controller of its owner's kind: the owner was evaluated.
    Controller,
}

impl Origin {
    /// Who created an object with this owner, according to the requester and to the users that a policy lists as
    /// controllers.
    pub fn requester(owner: Option<Kind>, user: &str, listed: &[ListedController]) -> Self {
        match owner {
            None => Origin::Author,
            Some(owner) if is_controller_of(owner, user, listed) => Origin::Controller,
            Some(_) => Origin::Unproven,
        }
    }

    /// Whether a requester may be the controller that creates objects of a kind, if the owner of the object is unknown.
    pub fn may_be_controller(kind: Kind, user: &str, listed: &[ListedController]) -> bool {
        let creates = |owner: &Kind| owner.creates() == Some(kind);
        let mut owners = Kind::ALL.into_iter().filter(creates);
        owners.any(|owner| is_controller_of(owner, user, listed))
    }

    /// Who will create a stored object again: the controller of its owner, if that is a custom resource and the policy lists
    /// the controller of its kind.
    pub fn again(owner: Option<Kind>, listed: &[ListedController]) -> Self {
        match owner.filter(|owner| owner.is_custom()) {
            Some(owner) if listed.iter().any(|listed| listed.controls(owner)) => Origin::Controller,
            _ => Origin::Author,
        }
    }

    /// Who created a stored object, or one in a file, without a known requester: its owner reference is trusted.
    pub fn assumed(owner: Option<Kind>) -> Self {
        owner.map_or(Origin::Author, |_| Origin::Controller)
    }
}

/// Whether a user is the controller of a kind: the controller manager, the account that Kubernetes or a platform (with
/// another prefix) created for that controller, or a user that the policy lists for
/// the kind.
fn is_controller_of(owner: Kind, user: &str, listed: &[ListedController]) -> bool {
    if listed.iter().any(|listed| listed.is(user, owner)) {
        return true;
    }
    // If a project is not installed, a tenant may own the namespace and the ServiceAccount that it would have: only users
    // that the policy names count.
    if owner.is_custom() {
        return false;
    }
    if user == CONTROLLER_MANAGER {
        return true;
    }
    let Some(account) = user.strip_prefix(ACCOUNTS) else {
        return false;
    };
    accounts(owner).iter().any(|name| {
        let before = account.strip_suffix(name);
        before.is_some_and(|before| before.is_empty() || before.ends_with('-'))
    })
}

/// The accounts of a kind's controller; none if it creates nothing that is admitted on its behalf.
fn accounts(owner: Kind) -> &'static [&'static str] {
    match owner {
        Kind::Deployment => &["deployment-controller"],
        Kind::ReplicaSet => &["replicaset-controller"],
        Kind::StatefulSet => &["statefulset-controller"],
        // The second is the name of the controller's flag.
        Kind::DaemonSet => &["daemon-set-controller", "daemonset-controller"],
        Kind::Job => &["job-controller"],
        Kind::CronJob => &["cronjob-controller"],
        Kind::ReplicationController => &["replication-controller"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(username: &str, kinds: &[&str]) -> [ListedController; 1] {
        [ListedController {
            username: username.to_owned(),
            kinds: kinds.iter().map(ToString::to_string).collect(),
        }]
    }

    const OF_PLATFORM: [&str; 7] = [
        "Deployment.apps",
        "ReplicaSet.apps",
        "StatefulSet.apps",
        "DaemonSet.apps",
        "Job.batch",
        "CronJob.batch",
        "ReplicationController",
    ];

    fn made(owner: Kind, user: &str) -> Origin {
        Origin::requester(Some(owner), user, &listed("platform:workloads", &OF_PLATFORM))
    }

    #[test]
    fn a_listed_user_is_the_controller_of_its_kinds_only() {
        let rollouts = "system:serviceaccount:argo-rollouts:argo-rollouts";
        let listed = listed(rollouts, &["Rollout.argoproj.io", "DaemonSet.apps.kruise.io"]);
        let of = |kind, user: &str| Origin::requester(Some(kind), user, &listed);
        for kind in [Kind::Rollout, Kind::AdvancedDaemonSet] {
            assert_eq!(of(kind, rollouts), Origin::Controller, "{kind}");
            assert_eq!(
                of(kind, "system:serviceaccount:team:argo-rollouts"),
                Origin::Unproven
            );
        }
        // A kind of the same name in another group, and kinds that are not listed.
        for kind in [Kind::DaemonSet, Kind::ReplicaSet, Kind::CloneSet] {
            assert_eq!(of(kind, rollouts), Origin::Unproven, "{kind}");
        }
        assert!(Origin::may_be_controller(Kind::ReplicaSet, rollouts, &listed));
        assert!(!Origin::may_be_controller(Kind::Job, rollouts, &listed));
        assert!(adds_selectors(
            rollouts,
            Kind::Rollout,
            &listed,
            std::iter::empty()
        ));
        assert!(!adds_selectors(rollouts, Kind::Job, &listed, std::iter::empty()));
    }

    #[test]
    fn each_controller_of_kubernetes_is_known_for_its_own_kind() {
        let accounts = [
            (Kind::Deployment, "deployment-controller"),
            (Kind::ReplicaSet, "replicaset-controller"),
            (Kind::StatefulSet, "statefulset-controller"),
            (Kind::DaemonSet, "daemon-set-controller"),
            (Kind::Job, "job-controller"),
            (Kind::CronJob, "cronjob-controller"),
            (Kind::ReplicationController, "replication-controller"),
        ];
        for (owner, _) in accounts {
            assert!(owner.creates_unchanged().is_some(), "{owner}");
            for (kind, account) in accounts {
                let expected = if kind == owner {
                    Origin::Controller
                } else {
                    Origin::Unproven
                };
                for name in [account.to_owned(), format!("cloud-{account}")] {
                    let user = format!("system:serviceaccount:kube-system:{name}");
                    assert_eq!(made(owner, &user), expected, "{owner} {user}");
                }
            }
            assert_eq!(made(owner, "system:kube-controller-manager"), Origin::Controller);
            assert_eq!(made(owner, "platform:workloads"), Origin::Controller);
        }
    }

    #[test]
    fn without_an_owner_a_user_may_be_any_controller_that_makes_the_kind() {
        let of = |account: &str| format!("system:serviceaccount:kube-system:{account}");
        let may = |kind, user: &str| {
            Origin::may_be_controller(kind, user, &listed("platform:workloads", &OF_PLATFORM))
        };
        for kind in [Kind::Pod, Kind::ReplicaSet, Kind::Job] {
            for user in ["system:kube-controller-manager", "platform:workloads"] {
                assert!(may(kind, user), "{kind} {user}");
            }
            assert!(!may(kind, "alice") && !may(kind, ""), "{kind}");
        }
        assert!(may(Kind::Pod, &of("replicaset-controller")) && may(Kind::Pod, &of("job-controller")));
        assert!(!may(Kind::Pod, &of("deployment-controller")));
        assert!(may(Kind::ReplicaSet, &of("deployment-controller")));
        assert!(may(Kind::Job, &of("cronjob-controller")));
        assert!(
            !may(Kind::Deployment, "system:kube-controller-manager"),
            "no controller makes these"
        );
    }

    #[test]
    fn no_other_user_is_a_controller() {
        for user in [
            "",
            "alice",
            "kubernetes-admin",
            "replicaset-controller",
            "system:serviceaccount:default:replicaset-controller",
            "system:serviceaccount:kube-system-2:replicaset-controller",
            "system:serviceaccount:kube-system:default",
            "system:serviceaccount:kube-system:generic-garbage-collector",
            "system:serviceaccount:kube-system:myreplicaset-controller",
            "system:serviceaccount:kube-system:replicaset-controller-2",
            "system:serviceaccount:argo-rollouts:argo-rollouts",
            "system:kube-controller-manager-2",
            "system:kube-scheduler",
            "system:node:win-1",
            "platform:*",
        ] {
            assert_eq!(made(Kind::ReplicaSet, user), Origin::Unproven, "{user}");
            assert_eq!(
                Origin::requester(None, user, &listed(user, &["ReplicaSet.apps"])),
                Origin::Author
            );
        }
        let unknown = Origin::requester(Some(Kind::ReplicaSet), "", &listed("", &["ReplicaSet.apps"]));
        assert_eq!(unknown, Origin::Unproven, "an unknown user is in no list");
    }
}
