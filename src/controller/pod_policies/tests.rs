//! Pod policies that are created, changed and deleted: which version applies, and what their statuses report.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::date;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use super::{ControllerStates, EventDeduper, StatusUpdate, reports};
use crate::api::{NodePolicyMode, WindowsNodePolicy, WindowsNodePolicySpec};
use crate::cluster::cache::{CachedNamespace, ClusterCache, LabelAuthor};
use crate::cluster::node::NodeView;
use crate::cluster::policy_revisions::{PolicyRevision, revision_of};
use crate::cluster::policy_store::PolicyState;
use crate::cluster::snapshot::{Snapshot, SnapshotBuilder};
use crate::controller::reports::{ByPolicy, NextDenials, ReportingState};
use crate::engine::policy_set::{PolicyQuery, PolicySet};
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::{Action, PlacementMode, Policy};
use crate::model::nodes::node::{BUILD_LABEL, OS_LABEL};

/// Snapshots built from successive caches.
struct PolicyHistory {
    snapshots: SnapshotBuilder,
    latest: Snapshot,
}

impl Default for PolicyHistory {
    fn default() -> Self {
        let snapshots = SnapshotBuilder::new(Facts::new(Facts::KUBERNETES, date(2026, 6, 1)), []);
        PolicyHistory {
            latest: snapshots.unknown(),
            snapshots,
        }
    }
}

impl PolicyHistory {
    fn update(&mut self, cache: &ClusterCache) -> Arc<PolicySet> {
        let cache = Arc::new(cache.clone());
        self.latest = self
            .snapshots
            .take(&cache, None, "2026-06-01T00:00:00Z".parse().unwrap());
        Arc::clone(&self.latest.policies)
    }

    fn outcomes(&self) -> &BTreeMap<String, PolicyState> {
        &self.latest.outcomes
    }

    /// The status updates for the policies of a cache, given the last update.
    fn reports(&self, cache: &ClusterCache, now: Timestamp) -> Vec<StatusUpdate> {
        self.reports_with(cache, &ReportingState::Off, &NextDenials::default(), now)
    }

    /// The same, with custom resources whose controllers are not listed.
    fn reports_with(
        &self,
        cache: &ClusterCache,
        reporting: &ReportingState,
        next_denials: &NextDenials,
        now: Timestamp,
    ) -> Vec<StatusUpdate> {
        let states = ControllerStates {
            reporting,
            next_denials,
            unreached: None,
            registries: None,
            contested: None,
        };
        reports(&self.seen(cache), states, now).collect()
    }

    fn seen(&self, cache: &ClusterCache) -> Snapshot {
        Snapshot {
            cache: Arc::new(cache.clone()),
            ..self.latest.clone()
        }
    }
}

/// A stored policy of generation 1; its mode is Enforce unless `spec` sets another one.
fn stored(name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec.as_object_mut()
        .unwrap()
        .entry("mode")
        .or_insert_with(|| json!("Enforce"));
    json!({
        "apiVersion": "transom.dev/v1alpha1", "kind": "WindowsPodPolicy",
        "metadata": {"name": name, "uid": format!("{name}-1"), "generation": 1, "resourceVersion": "10"},
        "spec": spec,
    })
}

fn cache(policies: &[Value], namespaces: &[(&str, &[(&str, &str)])]) -> ClusterCache {
    let namespace = |(name, labels): &(&str, &[(&str, &str)])| {
        let labels: BTreeMap<String, String> = labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        let seen = CachedNamespace {
            left_out_by: Vec::new(),
            injections: BTreeMap::new(),
            uid: format!("{name}-1"),
            labels,
            ..CachedNamespace::default()
        };
        ((*name).to_owned(), Arc::new(seen))
    };
    ClusterCache {
        namespaces: namespaces.iter().map(namespace).collect(),
        pod_policies: (policies.iter())
            .map(|policy| (name_of(policy).to_owned(), Arc::new(policy.clone())))
            .collect(),
        ..ClusterCache::default()
    }
}

fn name_of(policy: &Value) -> &str {
    policy["metadata"]["name"].as_str().unwrap()
}

fn next_generation(policy: &Value, spec: &Value) -> Value {
    let mut next = policy.clone();
    next["metadata"]["generation"] = json!(policy["metadata"]["generation"].as_i64().unwrap() + 1);
    next["spec"] = spec.clone();
    let spec = next["spec"].as_object_mut().unwrap();
    spec.entry("mode").or_insert_with(|| json!("Enforce"));
    next
}

fn effective(set: &PolicySet) -> Policy {
    let query = PolicyQuery {
        namespace: "web",
        labels: None,
        user: "",
        groups: &[],
        today: jiff::civil::date(2026, 6, 1),
    };
    set.effective(&query).into_owned()
}

fn now() -> Timestamp {
    "2026-06-01T12:00:00.5Z".parse().unwrap()
}

fn report<'r>(reports: &'r [StatusUpdate], name: &str) -> &'r StatusUpdate {
    reports.iter().find(|report| report.name == name).unwrap()
}

fn condition<'r>(report: &'r StatusUpdate, kind: &str) -> &'r Condition {
    found(report, kind).unwrap()
}

/// A condition that may be absent.
fn found<'r>(report: &'r StatusUpdate, kind: &str) -> Option<&'r Condition> {
    (report.status.conditions.iter()).find(|condition| condition.type_ == kind)
}

/// The cache after the status updates were written.
fn written(mut cache: ClusterCache, reports: &[StatusUpdate]) -> ClusterCache {
    for report in reports {
        let policy = Arc::make_mut(cache.pod_policies.get_mut(&report.name).unwrap());
        policy["status"] = json!(report.status);
        // A merge patch removes fields that are null.
        policy["status"]
            .as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null());
    }
    cache
}

#[test]
fn a_policy_names_the_workloads_that_are_denied_only_by_their_runtime_class() {
    let cache = cache(&[stored("base", &json!({}))], &[]);
    let mut history = PolicyHistory::default();
    history.update(&cache);
    let of = |policy: &str| {
        let title = BTreeSet::from(["Deployment shop/web (RuntimeClass ours)".to_owned()]);
        let denials = NextDenials {
            of_classes: [(policy.to_owned(), title)].into(),
            ..NextDenials::default()
        };
        let updates = history.reports_with(&cache, &ReportingState::Written, &denials, Timestamp::UNIX_EPOCH);
        let condition = found(report(&updates, "base"), "RuntimeClassUsersDenied")?;
        Some((
            condition.status.clone(),
            condition.reason.clone(),
            condition.message.clone(),
        ))
    };
    assert_eq!(of("other"), None);
    let (status, reason, message) = of("base").unwrap();
    assert_eq!((&*status, &*reason), ("True", "NextCreateDenied"));
    assert!(message.contains("shop/web (RuntimeClass ours)"), "{message}");
}

#[test]
fn unlisted_controllers_of_custom_resources_with_errors_are_reported_with_whose_next_rollout_is_denied() {
    let cache = cache(&[stored("base", &json!({}))], &[]);
    let mut history = PolicyHistory::default();
    history.update(&cache);
    let of = |unlisted: &ByPolicy| {
        let denials = NextDenials {
            rollouts: unlisted.clone(),
            ..NextDenials::default()
        };
        let updates = history.reports_with(&cache, &ReportingState::Written, &denials, Timestamp::UNIX_EPOCH);
        let conditions = updates.into_iter().flat_map(|update| update.status.conditions);
        let found = conditions
            .into_iter()
            .find(|condition| condition.type_ == "ControllersUnlisted");
        found.map(|found| (found.status, found.reason, found.message))
    };
    assert_eq!(of(&ByPolicy::new()), None);
    let rollout = BTreeSet::from(["Rollout.argoproj.io shop/web".to_owned()]);
    assert_eq!(of(&[("other".to_owned(), rollout.clone())].into()), None);
    let (status, reason, message) = of(&[("base".to_owned(), rollout)].into()).unwrap();
    assert_eq!((&*status, &*reason), ("True", "NextRolloutDenied"));
    for part in [
        "the next rollout of 1 stored object is denied",
        "shop/web",
        "controllers of Rollout.argoproj.io in",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn without_a_stored_policy_nothing_is_denied_or_changed() {
    let policy = effective(&PolicyHistory::default().update(&cache(&[], &[])));
    assert_eq!(
        (policy.validation, policy.placement),
        (Action::Audit, PlacementMode::Audit)
    );
}

#[test]
fn pruning_the_last_policy_takes_enforcement_away() {
    let mut policies = PolicyHistory::default();
    let deny = stored("p", &json!({"mode": "Enforce"}));
    assert_eq!(
        effective(&policies.update(&cache(&[deny], &[]))).validation,
        Action::Deny
    );
    assert_eq!(
        effective(&policies.update(&cache(&[], &[]))).validation,
        Action::Audit
    );
    assert!(policies.outcomes().is_empty());
}

#[test]
fn a_policy_that_becomes_unusable_goes_on_as_it_was() {
    let mut policies = PolicyHistory::default();
    let good = stored("p", &json!({"mode": "Warn"}));
    policies.update(&cache(std::slice::from_ref(&good), &[]));
    let bad = next_generation(&good, &json!({"mode": "Deny"}));
    let seen = cache(std::slice::from_ref(&bad), &[]);
    assert_eq!(effective(&policies.update(&seen)).validation, Action::Warn);
    let reports = policies.reports(&seen, now());
    let ready = condition(report(&reports, "p"), "Ready");
    assert_eq!(
        (ready.status.as_str(), ready.reason.as_str()),
        ("False", "UsingLastValid")
    );
    let ready = condition(report(&reports, "p"), "Accepted");
    assert_eq!(
        ready.message,
        "spec.mode: unknown value \"Deny\"; use one of Audit, Warn, Enforce; correct it: until then generation 1 of the \
         policy applies"
    );
    let effective_settings = reports[0].status.effective.as_ref().unwrap();
    assert_eq!(
        (
            effective_settings.generation,
            effective_settings.validation.as_str()
        ),
        (1, "Warn")
    );
    assert_eq!(reports[0].status.observed_generation, Some(2));
    assert_eq!(reports[0].status.message.as_ref(), Some(&ready.message));
    assert!(reports[0].news[0].is_bad && reports[0].news[0].message == ready.message);

    // A corrected policy reports it once.
    let seen = written(seen, &reports);
    let corrected = next_generation(&seen.pod_policies["p"], &json!({"mode": "Enforce"}));
    let seen = cache(&[corrected], &[]);
    assert_eq!(effective(&policies.update(&seen)).validation, Action::Deny);
    let reports = policies.reports(&seen, now());
    assert_eq!(condition(&reports[0], "Ready").status, "True");
    assert_eq!(reports[0].news.len(), 1);
    assert!(!reports[0].news[0].is_bad);
    assert_eq!(reports[0].status.message, None);
}

/// The same cache with the revision of this version of a policy.
fn keeping(mut cache: ClusterCache, version: &Value) -> ClusterCache {
    let revision = revision_of("transom-system", version);
    let name = revision.metadata.name.clone().unwrap();
    cache
        .policy_revisions
        .insert(name, Arc::new(PolicyRevision::of(revision).unwrap()));
    cache
}

#[test]
fn a_replica_that_starts_goes_by_the_last_version_that_the_leader_has_kept() {
    let mut leader = PolicyHistory::default();
    let good = stored("p", &json!({"mode": "Enforce"}));
    leader.update(&cache(std::slice::from_ref(&good), &[]));
    let bad = next_generation(&good, &json!({"mode": "Deny"}));
    let seen = cache(std::slice::from_ref(&bad), &[]);
    let kept = keeping(seen.clone(), &good);

    let mut starts = PolicyHistory::default();
    assert_eq!(effective(&starts.update(&kept)).validation, Action::Deny);
    assert!(starts.seen(&kept).lacking().is_empty());
    // A new leader reports the same as the previous one.
    leader.update(&kept);
    let reports = starts.reports(&kept, now());
    assert_eq!(reports, leader.reports(&kept, now()));
    assert_eq!(condition(&reports[0], "Accepted").reason, "UsingLastValid");
    assert_eq!(reports[0].status.effective.as_ref().unwrap().generation, 1);

    // The revision may arrive after the policy.
    let mut late = PolicyHistory::default();
    assert_eq!(effective(&late.update(&seen)).validation, Action::Audit);
    assert_eq!(effective(&late.update(&kept)).validation, Action::Deny);

    // Of several revisions, the newest one that this version can read applies.
    let older = stored("p", &json!({"mode": "Warn"}));
    let mut newer = next_generation(&bad, &json!({"mode": "Deny"}));
    newer["metadata"]["generation"] = json!(4);
    let mut unreadable = good.clone();
    unreadable["metadata"]["generation"] = json!(3);
    unreadable["spec"] = json!({"mode": "OfTomorrow"});
    let mut second = good;
    second["metadata"]["generation"] = json!(2);
    let several = [&older, &second, &unreadable];
    let several = several.into_iter().fold(cache(&[newer], &[]), keeping);
    assert_eq!(
        effective(&PolicyHistory::default().update(&several)).validation,
        Action::Deny
    );
}

/// A user who may write the status of a policy, or the revision of another policy, cannot change what is enforced.
#[test]
fn neither_a_status_nor_the_revision_of_another_policy_or_of_a_later_generation_counts() {
    let good = stored("p", &json!({"mode": "Enforce"}));
    let mut bad = next_generation(&good, &json!({"mode": "Deny"}));
    let weak = json!({"mode": "Audit", "validation": {"action": "Disabled"}});
    bad["status"] = json!({"lastGood": {"generation": 1, "spec": weak.to_string()},
        "effective": {"generation": 1, "validation": "Disabled"}});
    let seen = cache(std::slice::from_ref(&bad), &[]);
    let mut knows = PolicyHistory::default();
    knows.update(&cache(std::slice::from_ref(&good), &[]));
    assert_eq!(effective(&knows.update(&seen)).validation, Action::Deny);
    let mut of_another = stored("p", &weak);
    of_another["metadata"]["uid"] = json!("another");
    let mut later = next_generation(&bad, &weak);
    later["metadata"]["uid"] = bad["metadata"]["uid"].clone();
    let same_generation = next_generation(&good, &weak);
    for planted in [of_another, later, same_generation] {
        let seen = keeping(seen.clone(), &planted);
        let set = PolicyHistory::default().update(&seen);
        // The built-in policy applies: no earlier version is known.
        assert_eq!(effective(&set).validation, Action::Audit, "{planted}");
        assert_eq!(
            effective(&knows.update(&seen)).validation,
            Action::Deny,
            "{planted}"
        );
    }
}

#[test]
fn a_replica_knows_where_another_one_enforces_more_than_it_can() {
    let bad = |status: &Value| {
        let mut bad = stored("p", &json!({"mode": "Deny"}));
        bad["status"] = status.clone();
        bad
    };
    let accepted = |status: &str, reason: &str| json!({"conditions": [{"type": "Accepted", "status": status, "reason": reason}]});
    for (status, lacking) in [
        // The only policy of a cluster was invalid before Transom was installed: Transom starts, and the built-in
        // policy applies.
        (json!({}), false),
        (accepted("False", "Invalid"), false),
        (accepted("False", "UsingLastValid"), true),
        // Another version of Transom can read it.
        (accepted("True", "Accepted"), true),
    ] {
        let mut starts = PolicyHistory::default();
        let seen = cache(&[bad(&status)], &[]);
        assert_eq!(
            effective(&starts.update(&seen)).validation,
            Action::Audit,
            "{status}"
        );
        assert_eq!(!starts.seen(&seen).lacking().is_empty(), lacking, "{status}");
        // Once it leads it reports the problem, and has the same state as another replica.
        let reports = starts.reports(&seen, now());
        let seen = written(seen, &reports);
        starts.update(&seen);
        assert!(starts.seen(&seen).lacking().is_empty(), "{status}");
    }
}

#[test]
fn every_problem_is_reported_and_an_event_still_says_what_counts() {
    let mut policies = PolicyHistory::default();
    let good = stored("p", &json!({}));
    policies.update(&cache(std::slice::from_ref(&good), &[]));
    let exemptions: Vec<Value> = (0..30)
        .map(|i| {
            json!({"name": format!("{i}"), "owner": "a", "reason": "b", "rules": ["*"], "groups": ["g"],
                "expiresOn": "x".repeat(100)})
        })
        .collect();
    let selector =
        json!({"matchLabels": {"not a key!": "x"}, "matchExpressions": [{"key": "a", "operator": "In"}]});
    let bad = next_generation(
        &good,
        &json!({"namespaceSelector": selector, "exemptions": exemptions}),
    );
    let seen = cache(&[bad], &[]);
    policies.update(&seen);
    let reports = policies.reports(&seen, now());
    let text = &condition(&reports[0], "Accepted").message;
    for part in [
        "32 problems: (1) spec.exemptions[0].expiresOn: ",
        "; (10) spec.exemptions[9].expiresOn: ",
        "; and 22 more; correct them: until then generation 1 of the policy applies",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let reported = reports[0].news[0].event("ReadPolicy").note.unwrap();
    assert!(
        reported.starts_with("32 problems: (1) spec.exemptions[0]"),
        "{reported}"
    );
    assert!(
        reported.ends_with("more; correct them: until then generation 1 of the policy applies"),
        "{reported}"
    );
    assert!(reported.len() < 1024);
}

#[test]
fn a_policy_made_anew_under_an_old_name_does_not_inherit_what_counted() {
    let mut policies = PolicyHistory::default();
    policies.update(&cache(&[stored("p", &json!({"mode": "Warn"}))], &[]));
    let mut other = stored("p", &json!({"mode": "Deny"}));
    other["metadata"]["uid"] = json!("p-2");
    policies.update(&cache(&[other], &[]));
    assert!(matches!(policies.outcomes()["p"], PolicyState::Skipped { .. }));
}

#[test]
fn an_unusable_policy_that_was_never_good_does_not_count_and_says_what_does() {
    let mut policies = PolicyHistory::default();
    let bad = stored("bad", &json!({"mode": "Deny"}));
    let alone = cache(std::slice::from_ref(&bad), &[]);
    assert_eq!(effective(&policies.update(&alone)).validation, Action::Audit);
    let message = condition(&policies.reports(&alone, now())[0], "Accepted")
        .message
        .clone();
    assert!(
        message.contains("no other policy can be used either"),
        "{message}"
    );
    assert!(message.contains("built-in: mode Audit"), "{message}");

    let both = cache(&[bad, stored("good", &json!({}))], &[]);
    assert_eq!(effective(&policies.update(&both)).validation, Action::Deny);
    let reports = policies.reports(&both, now());
    let message = &condition(report(&reports, "bad"), "Accepted").message;
    assert!(message.contains("other policies apply instead"), "{message}");
    assert_eq!(condition(report(&reports, "good"), "Ready").status, "True");
}

#[test]
fn after_a_rollback_the_rest_of_a_policy_counts() {
    let mut policies = PolicyHistory::default();
    let spec = json!({"mode": "Warn", "tomorrow": 1,
        "validation": {"rules": [{"name": "run-as-usr", "action": "Deny"}, {"name": "host-pid", "action": "Audit"}]},
        "placement": {"runtimeClasses": {"names": [{"release": "ltsc2040", "name": "windows-2040"}]}}});
    let seen = cache(&[stored("p", &spec)], &[]);
    let policy = effective(&policies.update(&seen));
    assert_eq!((policy.validation, policy.actions.len()), (Action::Warn, 1));
    let reports = policies.reports(&seen, now());
    assert_eq!(condition(&reports[0], "Ready").status, "True");
    let accepted = condition(&reports[0], "Accepted");
    assert_eq!(
        (accepted.status.as_str(), accepted.reason.as_str()),
        ("True", "PartiallyInvalid")
    );
    for part in [
        "does not know the rules run-as-usr (did you mean run-as-user?), the releases ltsc2040, the fields spec.tomorrow;",
        "the known releases are ltsc2016",
    ] {
        assert!(accepted.message.contains(part), "{}", accepted.message);
    }
    assert_eq!(reports[0].news.len(), 1);
    assert_eq!(reports[0].status.message.as_ref(), Some(&accepted.message));
}

#[test]
fn a_status_that_says_it_already_is_not_written_again() {
    let mut policies = PolicyHistory::default();
    let spec = json!({"validation": {"rules": [{"name": "unknown-one", "action": "Deny"}]}});
    let seen = cache(&[stored("a", &spec), stored("b", &json!({}))], &[("web", &[])]);
    let set = policies.update(&seen);
    let reports = policies.reports(&seen, now());
    assert_eq!(reports.len(), 2);
    let seen = written(seen, &reports);
    // Nothing that applies has changed, so evaluation can keep using the same policy set.
    assert!(Arc::ptr_eq(&set, &policies.update(&seen)));
    let later = now() + jiff::SignedDuration::from_hours(1);
    assert_eq!(policies.reports(&seen, later), []);
}

#[test]
fn conditions_of_others_and_the_time_of_the_last_change_are_kept() {
    let mut policies = PolicyHistory::default();
    let foreign = json!({"type": "Reviewed", "status": "True", "reason": "ByTeam", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let ready = json!({"type": "Ready", "status": "True", "reason": "Old", "message": "old",
        "lastTransitionTime": "2026-02-02T00:00:00Z"});
    let mut policy = stored("p", &json!({}));
    policy["status"] = json!({"conditions": [foreign, ready]});
    let seen = cache(&[policy], &[]);
    policies.update(&seen);
    let reports = policies.reports(&seen, now());
    assert_eq!(json!(condition(&reports[0], "Reviewed")), foreign);
    assert_eq!(
        json!(condition(&reports[0], "Ready"))["lastTransitionTime"],
        "2026-02-02T00:00:00Z"
    );
    assert_eq!(
        json!(condition(&reports[0], "Accepted"))["lastTransitionTime"],
        "2026-06-01T12:00:00Z"
    );
}

#[test]
fn of_two_policies_with_one_priority_both_say_which_one_counts_where() {
    let mut policies = PolicyHistory::default();
    let team = json!({"priority": 5, "namespaceSelector": {"matchLabels": {"team": "x"}}});
    let all = [
        stored("a", &json!({})),
        stored("b", &json!({})),
        stored("c", &team),
    ];
    let namespaces: [(&str, &[(&str, &str)]); 4] = [
        ("one", &[]),
        ("two", &[]),
        ("x", &[("team", "x")]),
        ("out", &[("transom.dev/ignore", "true")]),
    ];
    let seen = cache(&all, &namespaces);
    policies.update(&seen);
    let reports = policies.reports(&seen, now());
    let text = |name: &str| {
        let overlapping = condition(report(&reports, name), "Overlapping");
        (overlapping.status.clone(), overlapping.message.clone())
    };
    let end = "; if priorities are equal, the name that sorts first takes precedence; give one of them another priority";
    assert_eq!(
        text("a"),
        (
            "True".into(),
            format!("b has the same priority and selects one, two too: a applies there{end}")
        )
    );
    assert_eq!(
        text("b"),
        (
            "True".into(),
            format!("a has the same priority and selects one, two too: a applies there{end}")
        )
    );
    // If another priority decides, there is no tie.
    assert_eq!(found(report(&reports, "c"), "Overlapping"), None);
    let matched = |name: &str| {
        let matched = &report(&reports, name).status.matched_namespaces;
        (matched.count, matched.effective_count)
    };
    assert_eq!(
        (matched("a"), matched("b"), matched("c")),
        ((4, 2), (4, 0), (1, 1))
    );

    // Another namespace changes only the message, so there is no Event.
    let seen = written(seen, &reports);
    let mut more = seen.clone();
    more.namespaces.insert("three".into(), Arc::default());
    policies.update(&more);
    let reports = policies.reports(&more, now());
    assert!(
        condition(report(&reports, "a"), "Overlapping")
            .message
            .contains("one, three, two")
    );
    assert!(reports.iter().all(|report| report.news.is_empty()), "{reports:?}");
}

#[test]
fn labels_that_do_nothing_are_named_by_the_policy_that_counts_there() {
    let mut policies = PolicyHistory::default();
    let team = json!({"priority": 5, "namespaceSelector": {"matchLabels": {"team": "x"}}});
    let all = [stored("base", &json!({"mode": "Warn"})), stored("team", &team)];
    let namespaces: [(&str, &[(&str, &str)]); 5] = [
        ("audit", &[("transom.dev/mode", "Audit")]),
        ("db", &[("team", "x"), ("transom.dev/ignore", "yes")]),
        ("good", &[("transom.dev/mode", "Enforce")]),
        (
            "out",
            &[("transom.dev/ignore", "true"), ("transom.dev/mode", "x")],
        ),
        (
            "web",
            &[("transom.dev/mdoe", "Warn"), ("transom.dev/mode", "enforce")],
        ),
    ];
    let seen = cache(&all, &namespaces);
    policies.update(&seen);
    let reports = policies.reports(&seen, now());
    let text = |name: &str| {
        let ignored = condition(report(&reports, name), "NamespaceLabelsIgnored");
        format!("{} {}: {}", ignored.status, ignored.reason, ignored.message)
    };
    assert_eq!(
        text("base"),
        "True LabelsIgnored: labels without effect are on 2 of the namespaces where the policy applies: audit \
         (transom.dev/mode=Audit), web (transom.dev/mdoe=Warn, transom.dev/mode=enforce); their Events \
         give the reason and the remedy: kubectl get events -n default --field-selector reason=LabelIgnored"
    );
    assert!(
        text("team")
            .contains("on 1 of the namespaces where the policy applies: db (transom.dev/ignore=yes);")
    );
    let notes = |reports: &[StatusUpdate]| -> Vec<&str> {
        let notes = reports.iter().flat_map(|report| &report.news);
        notes.map(|note| note.reason).collect()
    };
    assert_eq!(notes(&reports), ["LabelsIgnored", "LabelsIgnored"]);

    // One namespace more or less changes only the message, without an Event; removing the last one causes an Event.
    let mut less = written(seen, &reports);
    less.namespaces.remove("web");
    policies.update(&less);
    let reports = policies.reports(&less, now());
    assert!(reports.len() == 1 && reports[0].news.is_empty(), "{reports:?}");
    let mut none = written(less, &reports);
    none.namespaces.remove("audit");
    policies.update(&none);
    let reports = policies.reports(&none, now());
    assert_eq!(notes(&reports), ["NoLabelsIgnored"]);
}

#[test]
fn a_label_that_does_nothing_is_reported_once_for_each_namespace_with_what_to_write() {
    let mut policies = PolicyHistory::default();
    let namespaces: [(&str, &[(&str, &str)]); 4] = [
        ("audit", &[("transom.dev/mode", "Audit")]),
        ("db", &[("transom.dev/ignore", "")]),
        ("good", &[("transom.dev/mode", "Enforce")]),
        (
            "web",
            &[("transom.dev/mdoe", "Warn"), ("transom.dev/mode", "enforce")],
        ),
    ];
    let mut seen = cache(&[stored("base", &json!({"mode": "Warn"}))], &namespaces);
    policies.update(&seen);
    let mut deduper = EventDeduper::default();
    let (due, more) = deduper.due(&policies.seen(&seen), now());
    assert!(!more);
    let messages: Vec<&str> = due.iter().filter_map(|note| note.note.as_deref()).collect();
    assert_eq!(
        messages,
        [
            "the label transom.dev/mode=Audit of namespace audit has no effect: WindowsPodPolicy base allows labels \
             only to make it stricter (namespaceOverrides: Stricter); remove it: kubectl label namespace audit \
             transom.dev/mode-; or set namespaceOverrides: Any in WindowsPodPolicy base, to make the label effective",
            "the label transom.dev/ignore=\"\" of namespace db has no effect: only the value true excludes a namespace; \
             remove it: kubectl label namespace db transom.dev/ignore-",
            "the label transom.dev/mdoe=Warn of namespace web has no effect: Transom does not know this label; use \
             transom.dev/mode, transom.dev/ignore; remove it: kubectl label namespace web transom.dev/mdoe-",
            "the label transom.dev/mode=enforce of namespace web has no effect: the value is unknown; use Audit, Warn, \
             Enforce; did you mean Enforce? kubectl label --overwrite namespace web transom.dev/mode=Enforce",
        ]
    );
    for note in &due {
        deduper.publish(note.clone());
    }
    assert_eq!(deduper.due(&policies.seen(&seen), now()), (vec![], false));

    // After a restart the Events have the same names, so the API server refuses to store them twice.
    let (again, _) = EventDeduper::default().due(&policies.seen(&seen), now());
    assert_eq!(again, due);
    // A namespace that was deleted and created again under the same name is a different namespace.
    let web = seen.namespaces.get_mut("web").unwrap();
    Arc::make_mut(web).uid = "web-2".to_owned();
    let (anew, _) = deduper.due(&policies.seen(&seen), now());
    assert_eq!(anew.len(), 2);
    assert!(
        anew.iter().all(
            |note| note.regarding.as_ref().unwrap().name.as_deref() == Some("web") && !due.contains(note)
        )
    );
}

#[test]
fn a_label_that_took_a_namespace_out_lately_is_reported_with_who_wrote_it() {
    let author = |label, hours: i64| LabelAuthor {
        label,
        manager: "kubectl-label".to_owned(),
        at: Some(now() - jiff::SignedDuration::from_hours(hours)),
    };
    let mut seen = cache(&[], &[]);
    for (name, authors) in [
        ("web", vec![author("transom.dev/ignore", 0)]),
        ("long-ago", vec![author("transom.dev/ignore", 1)]),
        (
            "unknown",
            vec![LabelAuthor {
                at: None,
                ..author("transom.dev/ignore", 0)
            }],
        ),
        ("kube-system", vec![author("transom.dev/ignore", 0)]),
    ] {
        let namespace = CachedNamespace {
            uid: name.to_owned(),
            left_out_by: authors,
            ..CachedNamespace::default()
        };
        seen.namespaces.insert(name.to_owned(), Arc::new(namespace));
    }
    let mut policies = PolicyHistory::default();
    policies.update(&seen);
    let (due, _) = EventDeduper::default().due(&policies.seen(&seen), now());
    let text: Vec<_> = due
        .iter()
        .map(|note| (note.reason.as_deref().unwrap(), note.note.as_deref().unwrap()))
        .collect();
    assert_eq!(
        text,
        [(
            "NamespaceExcluded",
            "the label transom.dev/ignore excludes namespace web: the API server does not call Transom there, so \
             Windows pods are neither checked nor placed. Field manager kubectl-label set it at 2026-06-01T12:00:00.5Z; \
             to remove it: kubectl label namespace web transom.dev/ignore-"
        )]
    );
}

#[test]
fn many_labels_that_do_nothing_are_reported_a_few_at_a_time() {
    let mut seen = cache(&[], &[]);
    for i in 0..45 {
        let namespace = CachedNamespace {
            uid: i.to_string(),
            labels: [("transom.dev/validation".to_owned(), "no".to_owned())].into(),
            ..CachedNamespace::default()
        };
        seen.namespaces.insert(format!("n{i}"), Arc::new(namespace));
    }
    let mut policies = PolicyHistory::default();
    policies.update(&seen);
    let mut deduper = EventDeduper::default();
    let rounds = (0..4).map(|_| {
        let (due, more) = deduper.due(&policies.seen(&seen), now());
        let count = due.len();
        for note in due {
            deduper.publish(note);
        }
        (count, more)
    });
    assert_eq!(
        rounds.collect::<Vec<_>>(),
        [(20, true), (20, true), (5, false), (0, false)]
    );
}

#[test]
fn an_exemption_that_has_expired_is_named_from_the_day_after() {
    let mut policies = PolicyHistory::default();
    let exemption = |expires: &str| {
        json!({"name": expires, "expiresOn": expires, "owner": "team-a", "reason": "old chart", "rules": ["*"],
            "groups": ["g"]})
    };
    let spec = json!({"exemptions": [exemption("2026-05-31"), exemption("2026-06-01")]});
    let seen = cache(&[stored("p", &spec)], &[]);
    policies.update(&seen);
    let reports = policies.reports(&seen, now());
    let expired = condition(&reports[0], "ExemptionsExpiring");
    assert_eq!(
        (expired.status.as_str(), expired.message.as_str()),
        (
            "True",
            "expired exemptions: \"team-a until 2026-05-31: old chart\"; renew or remove them; exemptions that expire within 14 \
             days: \"team-a until 2026-06-01: old chart\"; renew them, or fix the exempted findings before"
        )
    );
    let seen = written(seen, &reports);
    let tomorrow = now() + jiff::SignedDuration::from_hours(24);
    let reports = policies.reports(&seen, tomorrow);
    assert!(
        condition(&reports[0], "ExemptionsExpiring")
            .message
            .contains("until 2026-06-01: old chart\"; renew or remove them")
    );
    let bad = reports[0].news.iter().filter(|text| text.is_bad);
    assert_eq!(bad.count(), 1);
}

#[test]
fn an_exemption_for_a_namespace_that_does_not_exist_is_named() {
    let of = |pattern: &str| {
        let exemption = json!({"name": "old", "expiresOn": "2026-12-31", "owner": "team-a", "reason": "old chart",
            "rules": ["*"], "namespaces": [pattern]});
        let seen = cache(
            &[stored("p", &json!({"exemptions": [exemption]}))],
            &[("legacy-shop", &[])],
        );
        let mut policies = PolicyHistory::default();
        policies.update(&seen);
        let reports = policies.reports(&seen, now());
        let unused = found(&reports[0], "ExemptionsUnused")?;
        Some((unused.status.clone(), unused.message.clone()))
    };
    assert_eq!(of("legacy-*"), None);
    let (status, message) = of("legcay-*").unwrap();
    assert_eq!(status, "True");
    assert!(
        message.contains("legcay-* (\"team-a until 2026-12-31: old chart\")"),
        "{message}"
    );
}

#[test]
fn an_exemption_is_reported_before_its_last_day() {
    let mut policies = PolicyHistory::default();
    let exemption = |expires: &str| {
        json!({"name": expires, "expiresOn": expires, "owner": "team-a", "reason": "old chart", "rules": ["*"],
            "groups": ["g"]})
    };
    let spec =
        json!({"exemptions": [exemption("2026-06-15"), exemption("2026-06-16"), exemption("2026-05-01")]});
    let seen = cache(&[stored("p", &spec)], &[]);
    policies.update(&seen);
    let report = &policies.reports(&seen, now())[0];
    let expiring = condition(report, "ExemptionsExpiring");
    assert_eq!(
        (&*expiring.reason, &*expiring.message),
        (
            "Expired",
            "expired exemptions: \"team-a until 2026-05-01: old chart\"; renew or remove them; exemptions that expire within 14 \
             days: \"team-a until 2026-06-15: old chart\"; renew them, or fix the exempted findings before"
        )
    );
    // An Event reports it too, and another Event follows if another exemption is about to end.
    let announces = |reports: &[StatusUpdate]| {
        let mut news = reports.iter().flat_map(|report| &report.news);
        news.any(|text| text.is_bad && text.message.contains("expire within 14 days"))
    };
    let reports = policies.reports(&seen, now());
    assert!(announces(&reports));
    let seen = written(seen, &reports);
    assert!(!announces(&policies.reports(&seen, now())));
    let tomorrow = now() + jiff::SignedDuration::from_hours(24);
    assert!(announces(&policies.reports(&seen, tomorrow)));
}

#[test]
fn a_policy_counts_where_it_causes_a_call_and_nowhere_else() {
    let mut policies = PolicyHistory {
        snapshots: SnapshotBuilder::new(
            Facts::new(Facts::KUBERNETES, date(2026, 6, 1)),
            ["transom-system".to_owned()],
        ),
        ..PolicyHistory::default()
    };
    let namespaces: [(&str, &[(&str, &str)]); 6] = [
        ("web", &[]),
        ("db", &[("transom.dev/ignore", "false")]),
        ("out", &[("transom.dev/ignore", "true")]),
        ("aks", &[("kubernetes.azure.com/managedby", "aks")]),
        ("kube-system", &[]),
        ("transom-system", &[]),
    ];
    let seen = cache(&[stored("p", &json!({}))], &namespaces);
    policies.update(&seen);
    let matched = &policies.reports(&seen, now())[0].status.matched_namespaces;
    assert_eq!((matched.count, matched.effective_count), (6, 2));
}

#[test]
fn messages_stay_within_what_the_api_server_takes() {
    let mut policies = PolicyHistory::default();
    let rules: Vec<Value> = (0..500)
        .map(|i| json!({"name": format!("{i}{}", "ü".repeat(200)), "action": "Deny"}))
        .collect();
    let exemptions: Vec<Value> = (0..256)
        .map(|i| {
            json!({"name": format!("{i}"), "expiresOn": "2020-01-01", "owner": "ö".repeat(256),
                "reason": "r".repeat(1024), "rules": ["*"], "groups": ["g"]})
        })
        .collect();
    let long = "ä".repeat(40_000);
    let all = [
        stored(
            "a",
            &json!({"validation": {"rules": rules}, "exemptions": exemptions}),
        ),
        stored("b", &json!({"mode": long})),
    ];
    let seen = cache(&all, &[]);
    policies.update(&seen);
    let reports = policies.reports(&seen, now());
    assert_eq!(reports.len(), 2);
    for report in &reports {
        assert!(
            report
                .status
                .conditions
                .iter()
                .all(|condition| condition.message.len() < 4096)
        );
        let events = report
            .news
            .iter()
            .map(|note| note.event("ReadPolicy").note.unwrap());
        assert!(events.clone().all(|note| note.len() < 1024));
        assert!(events.count() > 0);
    }
    let message = &condition(&reports[0], "ExemptionsExpiring").message;
    assert!(message.contains(" and 246 more"), "{message}");
}

#[test]
fn nonsense_in_place_of_an_object_is_skipped() {
    let mut seen = ClusterCache::default();
    for (i, object) in [
        json!(null),
        json!([]),
        json!({"spec": 5, "metadata": 7, "status": "x"}),
    ]
    .into_iter()
    .enumerate()
    {
        seen.pod_policies.insert(format!("p{i}"), Arc::new(object));
    }
    let mut policies = PolicyHistory::default();
    policies.update(&seen);
    assert_eq!(policies.reports(&seen, now()).len(), 3);
    assert!(matches!(policies.outcomes()["p2"], PolicyState::Skipped { .. }));
}

#[test]
fn nodes_without_the_label_that_placement_requires_are_named_until_a_node_policy_keeps_it() {
    let node = |name: &str, build: &str, labelled: bool| {
        let node = NodeView {
            name: name.to_owned(),
            operating_system: "windows".to_owned(),
            kernel_version: format!("{build}.1"),
            labels: Arc::new(
                (labelled
                    .then(|| (BUILD_LABEL.to_owned(), build.to_owned()))
                    .into_iter())
                .chain([(OS_LABEL.to_owned(), "windows".to_owned())])
                .collect(),
            ),
            ..NodeView::default()
        };
        (name.to_owned(), Arc::new(node))
    };
    let content = |spec: Value, nodes: &[(&str, &str, bool)], keeps: bool| {
        let mut cache = cache(&[stored("p", &spec)], &[]);
        cache.nodes = nodes
            .iter()
            .map(|(name, build, labelled)| node(name, build, *labelled))
            .collect();
        if keeps {
            let keeper = WindowsNodePolicy::new(
                "default",
                WindowsNodePolicySpec {
                    mode: NodePolicyMode::Reconcile,
                    ..WindowsNodePolicySpec::default()
                },
            );
            cache.node_policies.insert("default".to_owned(), Arc::new(keeper));
        }
        let mut policies = PolicyHistory::default();
        policies.update(&cache);
        let reports = policies.reports(&cache, now());
        let text = condition(report(&reports, "p"), "BuildLabelsPresent");
        (text.status.clone(), text.message.clone())
    };
    let mixed = [
        ("a", "10.0.17763", true),
        ("b", "10.0.20348", false),
        ("c", "10.0.20348", true),
    ];
    let (status, message) = content(json!({}), &mixed, false);
    assert_eq!(status, "False");
    assert!(
        message.starts_with(
            "1 Windows node carries no label node.kubernetes.io/windows-build with its build: b;"
        ),
        "{message}"
    );
    let trusted = json!({"placement": {"buildLabel": "NodeRestriction"}});
    assert!(
        content(trusted.clone(), &mixed, false)
            .1
            .contains("node-restriction.kubernetes.io/windows-build with their build: a, b, c;")
    );
    let unrequired = "1 Windows node without the label of the build, which placement does not require now: b";
    for (spec, nodes, keeps, expected) in [
        (
            json!({}),
            &mixed[..],
            true,
            "which a WindowsNodePolicy has not written yet: b",
        ),
        (
            trusted,
            &mixed[..],
            true,
            "which a WindowsNodePolicy has not written yet: a, b, c",
        ),
        // A node lacks it, and nothing requires it.
        (
            json!({"placement": {"mode": "Disabled"}}),
            &mixed[..],
            false,
            unrequired,
        ),
        (
            json!({"placement": {"fields": ["OSName"]}}),
            &mixed[..],
            false,
            unrequired,
        ),
        // With one build there is nothing to require.
        (json!({}), &mixed[1..], false, unrequired),
        (json!({}), &mixed[2..], false, ""),
        (json!({}), &[], false, ""),
    ] {
        let (status, message) = content(spec.clone(), nodes, keeps);
        let is_met = expected.is_empty();
        assert_eq!(
            status,
            if is_met { "True" } else { "False" },
            "{spec} {nodes:?} {keeps}"
        );
        assert!(message.ends_with(expected), "{message}");
    }
}

#[test]
fn namespaces_without_a_policy_are_named_by_the_policy_of_the_lowest_priority() {
    let team = |priority: i64, team: &str| json!({"priority": priority, "namespaceSelector": {"matchLabels": {"team": team}}});
    let first = stored("first", &team(1, "a"));
    let last = stored("last", &team(0, "b"));
    let out: &[(&str, &str)] = &[("transom.dev/ignore", "true")];
    let mut seen = cache(
        &[first, last],
        &[
            ("a", &[("team", "a")]),
            ("b", &[("team", "b")]),
            ("web", &[]),
            ("ignored", out),
            ("kube-system", &[]),
        ],
    );
    let mut policies = PolicyHistory::default();
    policies.update(&seen);
    let reports = policies.reports(&seen, now());
    let without = condition(report(&reports, "last"), "NamespacesWithoutPolicy");
    assert_eq!(
        (without.status.as_str(), without.reason.as_str()),
        ("True", "NotSelected")
    );
    assert!(
        without.message.starts_with(
            "no policy selects 1 of the namespaces that the webhooks select: web; the built-in policy applies"
        ),
        "{}",
        without.message
    );
    // This can be intended, so it is not a problem; and only the last policy reports it.
    assert_eq!(report(&reports, "last").status.message, None);
    let conditions = &report(&reports, "first").status.conditions;
    assert!(
        conditions
            .iter()
            .all(|text| text.type_ != "NamespacesWithoutPolicy")
    );

    Arc::make_mut(seen.namespaces.get_mut("web").unwrap())
        .labels
        .insert("team".to_owned(), "b".to_owned());
    policies.update(&seen);
    let reports = policies.reports(&seen, now());
    assert_eq!(found(report(&reports, "last"), "NamespacesWithoutPolicy"), None);
}

#[test]
fn a_namespace_that_loses_its_policy_is_reported_once() {
    let selected: &[(&str, &str)] = &[("windows", "yes")];
    let selector = json!({"namespaceSelector": {"matchLabels": {"windows": "yes"}}});
    let mut seen = cache(
        &[stored("base", &selector)],
        &[
            ("web", selected),
            ("db", selected),
            ("never", &[]),
            ("kube-system", selected),
        ],
    );
    let mut policies = PolicyHistory::default();
    let mut deduper = EventDeduper::default();
    let mut due = |seen: &ClusterCache| {
        policies.update(seen);
        let (due, _) = deduper.due(&policies.seen(seen), now());
        for note in &due {
            deduper.publish(note.clone());
        }
        due
    };
    // A namespace that had no policy since this replica started is not reported.
    assert_eq!(due(&seen), vec![]);
    let without_label = |seen: &mut ClusterCache, name: &str| {
        Arc::make_mut(seen.namespaces.get_mut(name).unwrap())
            .labels
            .clear();
    };
    without_label(&mut seen, "web");
    without_label(&mut seen, "kube-system");
    let reported = due(&seen);
    let reported: Vec<_> = reported
        .iter()
        .map(|note| (note.reason.as_deref().unwrap(), note.note.as_deref().unwrap()))
        .collect();
    assert_eq!(
        reported,
        [(
            "NamespaceWithoutPolicy",
            "no WindowsPodPolicy selects namespace web any more; until now base did. The built-in policy applies there \
             (validation Audit, placement Audit), so nothing is denied. Compare the labels of the namespace with the \
             namespaceSelector of the policies: kubectl get namespace web --show-labels"
        )]
    );
    assert_eq!(due(&seen), vec![]);
    // Without the last policy the built-in one applies everywhere; no single namespace has lost its policy.
    seen.pod_policies.clear();
    assert_eq!(due(&seen), vec![]);
}
