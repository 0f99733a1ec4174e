//! Pod policies as they come and go: what counts, and what their statuses say of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::date;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use super::{Report, Teller, reports};
use crate::api::{WindowsNodePolicy, WindowsNodePolicySpec};
use crate::cluster::node::NodeView;
use crate::cluster::policies::Outcome;
use crate::cluster::snapshot::{Snapshot, Snapshots};
use crate::cluster::view::{ClusterView, LabelAuthor, NamespaceView};
use crate::engine::effective::{Asker, PolicySet};
use crate::model::facts::Facts;
use crate::model::node::{BUILD_LABEL, OS_LABEL};
use crate::model::policy::{Action, Policy, Switch};

/// Snapshots of views that follow one another.
struct Policies {
    snapshots: Snapshots,
    latest: Snapshot,
}

impl Default for Policies {
    fn default() -> Self {
        let snapshots = Snapshots::new(Facts::new(Facts::KUBERNETES, date(2026, 6, 1)), []);
        Policies {
            latest: snapshots.unknown(),
            snapshots,
        }
    }
}

impl Policies {
    fn update(&mut self, view: &ClusterView) -> Arc<PolicySet> {
        let view = Arc::new(view.clone());
        self.latest = self
            .snapshots
            .take(&view, None, "2026-06-01T00:00:00Z".parse().unwrap());
        Arc::clone(&self.latest.policies)
    }

    fn outcomes(&self) -> &BTreeMap<String, Outcome> {
        &self.latest.outcomes
    }

    /// The reports on policies as they stand in a view, given the last update.
    fn reports(&self, view: &ClusterView, now: Timestamp) -> Vec<Report> {
        reports(&self.seen(view), now).collect()
    }

    fn seen(&self, view: &ClusterView) -> Snapshot {
        Snapshot {
            view: Arc::new(view.clone()),
            ..self.latest.clone()
        }
    }
}

/// A stored policy of the first generation.
fn stored(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "transom.dev/v1alpha1", "kind": "WindowsPodPolicy",
        "metadata": {"name": name, "uid": format!("{name}-1"), "generation": 1, "resourceVersion": "10"},
        "spec": spec,
    })
}

fn view(policies: &[Value], namespaces: &[(&str, &[(&str, &str)])]) -> ClusterView {
    let namespace = |(name, labels): &(&str, &[(&str, &str)])| {
        let labels: BTreeMap<String, String> = labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        let seen = NamespaceView {
            left_out_by: Vec::new(),
            injections: BTreeMap::new(),
            uid: format!("{name}-1"),
            labels,
            ..NamespaceView::default()
        };
        ((*name).to_owned(), Arc::new(seen))
    };
    ClusterView {
        namespaces: namespaces.iter().map(namespace).collect(),
        pod_policies: (policies.iter())
            .map(|policy| (name_of(policy).to_owned(), Arc::new(policy.clone())))
            .collect(),
        ..ClusterView::default()
    }
}

fn name_of(policy: &Value) -> &str {
    policy["metadata"]["name"].as_str().unwrap()
}

fn next_generation(policy: &Value, spec: &Value) -> Value {
    let mut next = policy.clone();
    next["metadata"]["generation"] = json!(policy["metadata"]["generation"].as_i64().unwrap() + 1);
    next["spec"] = spec.clone();
    next
}

fn effective(set: &PolicySet) -> Policy {
    let asker = Asker {
        namespace: "web",
        labels: None,
        user: "",
        groups: &[],
        today: jiff::civil::date(2026, 6, 1),
    };
    set.effective(&asker).into_owned()
}

fn now() -> Timestamp {
    "2026-06-01T12:00:00.5Z".parse().unwrap()
}

fn report<'r>(reports: &'r [Report], name: &str) -> &'r Report {
    reports.iter().find(|report| report.name == name).unwrap()
}

fn condition<'r>(report: &'r Report, kind: &str) -> &'r Condition {
    (report.status.conditions.iter())
        .find(|condition| condition.type_ == kind)
        .unwrap()
}

/// The view as it is after the reports were written.
fn written(mut view: ClusterView, reports: &[Report]) -> ClusterView {
    for report in reports {
        let policy = Arc::make_mut(view.pod_policies.get_mut(&report.name).unwrap());
        policy["status"] = json!(report.status);
        // A merge patch takes away what is null.
        policy["status"]
            .as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null());
    }
    view
}

#[test]
fn without_a_stored_policy_nothing_is_denied_or_changed() {
    let policy = effective(&Policies::default().update(&view(&[], &[])));
    assert_eq!(
        (policy.validation, policy.placement),
        (Action::Audit, Switch::DryRun)
    );
}

#[test]
fn pruning_the_last_policy_takes_enforcement_away() {
    let mut policies = Policies::default();
    let deny = stored("p", &json!({"validation": "Deny"}));
    assert_eq!(
        effective(&policies.update(&view(&[deny], &[]))).validation,
        Action::Deny
    );
    assert_eq!(
        effective(&policies.update(&view(&[], &[]))).validation,
        Action::Audit
    );
    assert!(policies.outcomes().is_empty());
}

#[test]
fn a_policy_that_becomes_unusable_goes_on_as_it_was() {
    let mut policies = Policies::default();
    let good = stored("p", &json!({"validation": "Warn"}));
    policies.update(&view(std::slice::from_ref(&good), &[]));
    let bad = next_generation(&good, &json!({"validation": "Enforce"}));
    let seen = view(std::slice::from_ref(&bad), &[]);
    assert_eq!(effective(&policies.update(&seen)).validation, Action::Warn);
    let reports = policies.reports(&seen, now());
    let ready = condition(report(&reports, "p"), "Ready");
    assert_eq!(
        (ready.status.as_str(), ready.reason.as_str()),
        ("False", "KeptLastGood")
    );
    assert_eq!(
        ready.message,
        "spec.validation: there is no value \"Enforce\"; there are Off, Audit, Warn, Deny; correct it: until then the \
         policy counts as it was at generation 1"
    );
    assert_eq!(reports[0].status.observed_generation, Some(2));
    assert_eq!(reports[0].status.last_problem.as_ref(), Some(&ready.message));
    assert!(reports[0].news[0].is_bad && reports[0].news[0].message == ready.message);

    // Corrected, it says so once.
    let seen = written(seen, &reports);
    let corrected = next_generation(&seen.pod_policies["p"], &json!({"validation": "Deny"}));
    let seen = view(&[corrected], &[]);
    assert_eq!(effective(&policies.update(&seen)).validation, Action::Deny);
    let reports = policies.reports(&seen, now());
    assert_eq!(condition(&reports[0], "Ready").status, "True");
    assert_eq!(reports[0].news.len(), 1);
    assert!(!reports[0].news[0].is_bad);
    assert_eq!(reports[0].status.last_problem, None);
}

#[test]
fn a_replica_that_starts_goes_by_the_last_good_version_that_the_leader_has_kept() {
    let mut leader = Policies::default();
    let good = stored("p", &json!({"validation": "Deny"}));
    let seen = view(std::slice::from_ref(&good), &[]);
    leader.update(&seen);
    let seen = written(seen.clone(), &leader.reports(&seen, now()));
    let bad = next_generation(&seen.pod_policies["p"], &json!({"validation": "Enforce"}));
    let seen = view(std::slice::from_ref(&bad), &[]);

    let mut starts = Policies::default();
    assert_eq!(effective(&starts.update(&seen)).validation, Action::Deny);
    assert!(starts.seen(&seen).lacking().is_empty());
    // It leads, and says the same as the leader of before.
    leader.update(&seen);
    let reports = starts.reports(&seen, now());
    assert_eq!(reports, leader.reports(&seen, now()));
    assert_eq!(condition(&reports[0], "Ready").reason, "KeptLastGood");
    assert_eq!(reports[0].status.last_good.as_ref().unwrap().generation, 1);

    // What a replica has seen itself comes before what a status says: others than the leader may have written it.
    let newer = next_generation(&good, &json!({"validation": "Warn"}));
    let kept = written(view(std::slice::from_ref(&newer), &[]), &{
        let mut leader = Policies::default();
        let seen = view(std::slice::from_ref(&newer), &[]);
        leader.update(&seen);
        leader.reports(&seen, now())
    });
    let bad = next_generation(&kept.pod_policies["p"], &json!({"validation": "Enforce"}));
    let mut missed = Policies::default();
    missed.update(&view(&[good], &[]));
    assert_eq!(
        effective(&missed.update(&view(std::slice::from_ref(&bad), &[]))).validation,
        Action::Deny
    );
    assert_eq!(
        effective(&Policies::default().update(&view(&[bad], &[]))).validation,
        Action::Warn
    );
}

#[test]
fn a_status_weakens_no_policy_that_was_seen_and_none_by_a_version_that_cannot_be() {
    let spec = r#"{"validation":"Off","placement":"Off"}"#;
    let good = stored("p", &json!({"validation": "Deny"}));
    for generation in [1, 2, 3, i64::MAX] {
        let mut bad = next_generation(&good, &json!({"validation": "Enforce"}));
        bad["status"] = json!({"lastGood": {"generation": generation, "spec": spec}});
        let seen = view(&[bad], &[]);
        let mut knows = Policies::default();
        knows.update(&view(std::slice::from_ref(&good), &[]));
        assert_eq!(
            effective(&knows.update(&seen)).validation,
            Action::Deny,
            "{generation}"
        );
        // The stored version is the second one. Only an earlier one can have been kept.
        let mut starts = Policies::default();
        let expected = if generation < 2 {
            Action::Off
        } else {
            Action::Audit
        };
        assert_eq!(
            effective(&starts.update(&seen)).validation,
            expected,
            "{generation}"
        );
        // The leader does not keep what cannot be true, so that no later edit makes it so.
        let reports = starts.reports(&seen, now());
        assert_eq!(reports[0].status.last_good.is_some(), generation < 2);
    }
}

#[test]
fn a_replica_knows_where_another_one_enforces_more_than_it_can() {
    let bad = |status: &Value| {
        let mut bad = stored("p", &json!({"validation": "Enforce"}));
        bad["status"] = status.clone();
        bad
    };
    let ready = |status: &str, reason: &str| json!({"conditions": [{"type": "Ready", "status": status, "reason": reason}]});
    let kept = |spec: &str| {
        let mut status = ready("False", "KeptLastGood");
        status["lastGood"] = json!({"generation": 0, "spec": spec});
        status
    };
    for (status, lacking, validation) in [
        // The only policy of a cluster was broken before Transom was there: it starts, and the built-in policy counts.
        (json!({}), false, Action::Audit),
        (ready("False", "Unusable"), false, Action::Audit),
        (ready("False", "KeptLastGood"), true, Action::Audit),
        // Another version of Transom can read it.
        (ready("True", "InForce"), true, Action::Audit),
        (kept(r#"{"validation":"Deny"}"#), false, Action::Deny),
        (kept(r#"{"validation":"Enforce"}"#), true, Action::Audit),
        (kept("rubbish"), true, Action::Audit),
    ] {
        let mut starts = Policies::default();
        let seen = view(&[bad(&status)], &[]);
        assert_eq!(
            effective(&starts.update(&seen)).validation,
            validation,
            "{status}"
        );
        assert_eq!(!starts.seen(&seen).lacking().is_empty(), lacking, "{status}");
        // Once it leads it says so, and lacks nothing that another replica has.
        let reports = starts.reports(&seen, now());
        let seen = written(seen, &reports);
        starts.update(&seen);
        assert!(starts.seen(&seen).lacking().is_empty(), "{status}");
        // What this version cannot read may be of use to another one.
        assert_eq!(
            seen.pod_policies["p"]["status"].get("lastGood"),
            status.get("lastGood")
        );
    }
}

#[test]
fn a_version_that_is_too_long_is_not_kept() {
    let owners = "x".repeat(256);
    let exemption = json!({"namespaces": [owners], "expires": "2030-01-01", "owner": owners, "reason": "r"});
    for (exemptions, kept) in [(10, true), (600, false)] {
        let mut policies = Policies::default();
        let spec = json!({"exemptions": vec![&exemption; exemptions]});
        let seen = view(&[stored("p", &spec)], &[]);
        policies.update(&seen);
        let reports = policies.reports(&seen, now());
        assert_eq!(condition(&reports[0], "Ready").reason, "InForce");
        assert_eq!(reports[0].status.last_good.is_some(), kept);
    }
}

#[test]
fn every_problem_is_told_and_an_event_still_says_what_counts() {
    let mut policies = Policies::default();
    let good = stored("p", &json!({}));
    policies.update(&view(std::slice::from_ref(&good), &[]));
    let pools: Vec<Value> = (0..30)
        .map(|i| json!({"name": format!("{i}"), "build": "x".repeat(100)}))
        .collect();
    let selector =
        json!({"matchLabels": {"not a key!": "x"}, "matchExpressions": [{"key": "a", "operator": "In"}]});
    let bad = next_generation(&good, &json!({"namespaceSelector": selector, "pools": pools}));
    let seen = view(&[bad], &[]);
    policies.update(&seen);
    let reports = policies.reports(&seen, now());
    let said = &condition(&reports[0], "Ready").message;
    for part in [
        "32 problems: (1) spec.namespaceSelector.matchExpressions[0].values: In needs at least one value;",
        "; (2) spec.namespaceSelector.matchLabels: \"not a key!\" is no key of a label:",
        "; (3) spec.pools[0].build: ",
        "; (10) spec.pools[7].build: ",
        "; and 22 more; correct them: until then the policy counts as it was at generation 1",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let told = reports[0].news[0].event("ReadPolicy").note.unwrap();
    assert!(
        told.starts_with("32 problems: (1) spec.namespaceSelector"),
        "{told}"
    );
    assert!(
        told.ends_with("more; correct them: until then the policy counts as it was at generation 1"),
        "{told}"
    );
    assert!(told.len() < 1024);
}

#[test]
fn a_policy_made_anew_under_an_old_name_does_not_inherit_what_counted() {
    let mut policies = Policies::default();
    policies.update(&view(&[stored("p", &json!({"validation": "Warn"}))], &[]));
    let mut other = stored("p", &json!({"validation": "Enforce"}));
    other["metadata"]["uid"] = json!("p-2");
    policies.update(&view(&[other], &[]));
    assert!(matches!(policies.outcomes()["p"], Outcome::Skipped { .. }));
}

#[test]
fn an_unusable_policy_that_was_never_good_does_not_count_and_says_what_does() {
    let mut policies = Policies::default();
    let bad = stored("bad", &json!({"validation": "Enforce"}));
    let alone = view(std::slice::from_ref(&bad), &[]);
    assert_eq!(effective(&policies.update(&alone)).validation, Action::Audit);
    let message = condition(&policies.reports(&alone, now())[0], "Ready")
        .message
        .clone();
    assert!(
        message.contains("no other policy can be used either"),
        "{message}"
    );
    assert!(
        message.contains("validation Audit, placement DryRun"),
        "{message}"
    );

    let both = view(&[bad, stored("good", &json!({}))], &[]);
    assert_eq!(effective(&policies.update(&both)).validation, Action::Deny);
    let reports = policies.reports(&both, now());
    let message = &condition(report(&reports, "bad"), "Ready").message;
    assert!(message.contains("other policies count in its place"), "{message}");
    assert_eq!(condition(report(&reports, "good"), "Ready").status, "True");
}

#[test]
fn after_a_rollback_the_rest_of_a_policy_counts() {
    let mut policies = Policies::default();
    let spec = json!({"validation": "Warn", "tomorrow": 1, "rules": {"run-as-usr": "Deny", "host-pid": "Audit"},
            "runtimeClasses": {"ltsc2040": "windows-2040"}});
    let seen = view(&[stored("p", &spec)], &[]);
    let policy = effective(&policies.update(&seen));
    assert_eq!((policy.validation, policy.actions.len()), (Action::Warn, 1));
    let reports = policies.reports(&seen, now());
    assert_eq!(condition(&reports[0], "Ready").status, "True");
    let rules = condition(&reports[0], "RulesKnown");
    assert_eq!(
        (rules.status.as_str(), rules.reason.as_str()),
        ("False", "UnknownRules")
    );
    assert!(
        rules
            .message
            .contains("no rule run-as-usr (did you mean run-as-user?);"),
        "{}",
        rules.message
    );
    let fields = condition(&reports[0], "FieldsKnown");
    assert!(fields.status == "False" && fields.message.contains("does not know spec.tomorrow;"));
    let releases = condition(&reports[0], "ReleasesKnown");
    assert_eq!(
        (releases.status.as_str(), releases.reason.as_str()),
        ("False", "UnknownReleases")
    );
    assert!(
        releases.message.contains("has no release ltsc2040;") && releases.message.contains("ltsc2022"),
        "{}",
        releases.message
    );
    assert_eq!(reports[0].news.len(), 3);
}

#[test]
fn a_status_that_says_it_already_is_not_written_again() {
    let mut policies = Policies::default();
    let spec = json!({"rules": {"unknown-one": "Deny"}});
    let seen = view(&[stored("a", &spec), stored("b", &json!({}))], &[("web", &[])]);
    let set = policies.update(&seen);
    let reports = policies.reports(&seen, now());
    assert_eq!(reports.len(), 2);
    let seen = written(seen, &reports);
    // Nothing that counts has changed, so those who judge need not take up another set.
    assert!(Arc::ptr_eq(&set, &policies.update(&seen)));
    let later = now() + jiff::SignedDuration::from_hours(1);
    assert_eq!(policies.reports(&seen, later), []);
}

#[test]
fn conditions_of_others_and_the_time_of_the_last_change_are_kept() {
    let mut policies = Policies::default();
    let foreign = json!({"type": "Reviewed", "status": "True", "reason": "ByTeam", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let ready = json!({"type": "Ready", "status": "True", "reason": "Old", "message": "old",
        "lastTransitionTime": "2026-02-02T00:00:00Z"});
    let mut policy = stored("p", &json!({}));
    policy["status"] = json!({"conditions": [foreign, ready]});
    let seen = view(&[policy], &[]);
    policies.update(&seen);
    let reports = policies.reports(&seen, now());
    assert_eq!(json!(condition(&reports[0], "Reviewed")), foreign);
    assert_eq!(
        json!(condition(&reports[0], "Ready"))["lastTransitionTime"],
        "2026-02-02T00:00:00Z"
    );
    assert_eq!(
        json!(condition(&reports[0], "Overlapping"))["lastTransitionTime"],
        "2026-06-01T12:00:00Z"
    );
}

#[test]
fn of_two_policies_with_one_priority_both_say_which_one_counts_where() {
    let mut policies = Policies::default();
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
    let seen = view(&all, &namespaces);
    policies.update(&seen);
    let reports = policies.reports(&seen, now());
    let said = |name: &str| {
        let overlapping = condition(report(&reports, name), "Overlapping");
        (overlapping.status.clone(), overlapping.message.clone())
    };
    let end = "; of equal priorities the name decides that sorts first; give one of them another priority";
    assert_eq!(
        said("a"),
        (
            "True".into(),
            format!("b has the same priority and selects one, two too: there a counts{end}")
        )
    );
    assert_eq!(
        said("b"),
        (
            "True".into(),
            format!("a has the same priority and selects one, two too: there a counts{end}")
        )
    );
    // Where another priority decides there is no doubt.
    assert_eq!(said("c").0, "False");
    let matched = |name: &str| {
        let matched = &report(&reports, name).status.matched_namespaces;
        (matched.count, matched.effective)
    };
    assert_eq!(
        (matched("a"), matched("b"), matched("c")),
        ((4, 2), (4, 0), (1, 1))
    );

    // One namespace more changes the words and is no news.
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
    let mut policies = Policies::default();
    let team = json!({"priority": 5, "namespaceSelector": {"matchLabels": {"team": "x"}}});
    let all = [
        stored("base", &json!({"validation": "Warn"})),
        stored("team", &team),
    ];
    let namespaces: [(&str, &[(&str, &str)]); 5] = [
        ("audit", &[("transom.dev/validation", "Audit")]),
        ("db", &[("team", "x"), ("transom.dev/ignore", "yes")]),
        ("good", &[("transom.dev/validation", "Deny")]),
        (
            "out",
            &[("transom.dev/ignore", "true"), ("transom.dev/validation", "x")],
        ),
        (
            "web",
            &[
                ("transom.dev/plaecment", "Apply"),
                ("transom.dev/validation", "deny"),
            ],
        ),
    ];
    let seen = view(&all, &namespaces);
    policies.update(&seen);
    let reports = policies.reports(&seen, now());
    let said = |name: &str| {
        let ignored = condition(report(&reports, name), "NamespaceLabelsIgnored");
        format!("{} {}: {}", ignored.status, ignored.reason, ignored.message)
    };
    assert_eq!(
        said("base"),
        "True WithoutEffect: labels that do nothing are on 2 of the namespaces where the policy counts: audit \
         (transom.dev/validation=Audit), web (transom.dev/plaecment=Apply, transom.dev/validation=deny); the Events of \
         each say why and what to write: kubectl get events -n default --field-selector reason=LabelIgnored"
    );
    assert!(
        said("team").contains("on 1 of the namespaces where the policy counts: db (transom.dev/ignore=yes);")
    );
    let notes = |reports: &[Report]| -> Vec<&str> {
        let notes = reports.iter().flat_map(|report| &report.news);
        notes.map(|note| note.reason).collect()
    };
    assert_eq!(notes(&reports), ["WithoutEffect", "WithoutEffect"]);

    // One namespace more or less changes the words and is no news; without any it is.
    let mut less = written(seen, &reports);
    less.namespaces.remove("web");
    policies.update(&less);
    let reports = policies.reports(&less, now());
    assert!(reports.len() == 1 && reports[0].news.is_empty(), "{reports:?}");
    let mut none = written(less, &reports);
    none.namespaces.remove("audit");
    policies.update(&none);
    let reports = policies.reports(&none, now());
    assert_eq!(notes(&reports), ["AllCount"]);
}

#[test]
fn a_label_that_does_nothing_is_told_once_for_each_namespace_with_what_to_write() {
    let mut policies = Policies::default();
    let namespaces: [(&str, &[(&str, &str)]); 4] = [
        ("audit", &[("transom.dev/validation", "Audit")]),
        ("db", &[("transom.dev/ignore", "")]),
        ("good", &[("transom.dev/validation", "Deny")]),
        (
            "web",
            &[
                ("transom.dev/plaecment", "Apply"),
                ("transom.dev/validation", "deny"),
            ],
        ),
    ];
    let mut seen = view(&[stored("base", &json!({"validation": "Warn"}))], &namespaces);
    policies.update(&seen);
    let mut teller = Teller::default();
    let (due, more) = teller.due(&policies.seen(&seen), now());
    assert!(!more);
    let messages: Vec<&str> = due.iter().map(|note| note.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "the label transom.dev/validation=Audit of namespace audit does nothing: WindowsPodPolicy base allows labels \
             only to make it stricter (namespaceOverrides: Stricter); take it away: kubectl label namespace audit \
             transom.dev/validation-; or set namespaceOverrides: Any in WindowsPodPolicy base, to let the label count",
            "the label transom.dev/ignore=\"\" of namespace db does nothing: only the value true takes a namespace out; \
             take it away: kubectl label namespace db transom.dev/ignore-",
            "the label transom.dev/plaecment=Apply of namespace web does nothing: Transom knows no such label; there are \
             transom.dev/validation, transom.dev/placement, transom.dev/ignore; did you mean \
             transom.dev/placement=Apply? kubectl label namespace web transom.dev/plaecment- \
             transom.dev/placement=Apply",
            "the label transom.dev/validation=deny of namespace web does nothing: there is no such value; there are Deny, \
             Warn, Audit, Off; did you mean Deny? kubectl label --overwrite namespace web transom.dev/validation=Deny",
        ]
    );
    for note in &due {
        teller.tell(note.clone());
    }
    assert_eq!(teller.due(&policies.seen(&seen), now()), (vec![], false));

    // After a restart the Events have the same names, so that the API server refuses to store them twice.
    let (again, _) = Teller::default().due(&policies.seen(&seen), now());
    assert_eq!(again, due);
    // What is made anew under an old name is another namespace.
    let web = seen.namespaces.get_mut("web").unwrap();
    Arc::make_mut(web).uid = "web-2".to_owned();
    let (anew, _) = teller.due(&policies.seen(&seen), now());
    assert_eq!(anew.len(), 2);
    assert!(
        anew.iter()
            .all(|note| note.namespace == "web" && !due.contains(note))
    );
}

#[test]
fn a_label_that_took_a_namespace_out_lately_is_told_with_who_wrote_it() {
    let author = |label, hours: i64| LabelAuthor {
        label,
        manager: "kubectl-label".to_owned(),
        at: Some(now() - jiff::SignedDuration::from_hours(hours)),
    };
    let mut seen = view(&[], &[]);
    for (name, authors) in [
        ("web", vec![author("transom.dev/ignore", 0)]),
        ("long-ago", vec![author("control-plane", 1)]),
        (
            "unknown",
            vec![LabelAuthor {
                at: None,
                ..author("control-plane", 0)
            }],
        ),
        ("kube-system", vec![author("control-plane", 0)]),
    ] {
        let namespace = NamespaceView {
            uid: name.to_owned(),
            left_out_by: authors,
            ..NamespaceView::default()
        };
        seen.namespaces.insert(name.to_owned(), Arc::new(namespace));
    }
    let mut policies = Policies::default();
    policies.update(&seen);
    let (due, _) = Teller::default().due(&policies.seen(&seen), now());
    let said: Vec<_> = due
        .iter()
        .map(|note| (note.reason, note.message.as_str()))
        .collect();
    assert_eq!(
        said,
        [(
            "NamespaceExcluded",
            "the label transom.dev/ignore takes namespace web out: the API server asks Transom about nothing there, so \
             Windows pods are neither checked nor placed. Field manager kubectl-label wrote it at 2026-06-01T12:00:00.5Z; \
             to take it away: kubectl label namespace web transom.dev/ignore-"
        )]
    );
}

#[test]
fn many_labels_that_do_nothing_are_told_a_few_at_a_time() {
    let mut seen = view(&[], &[]);
    for i in 0..45 {
        let namespace = NamespaceView {
            uid: i.to_string(),
            labels: [("transom.dev/validation".to_owned(), "no".to_owned())].into(),
            ..NamespaceView::default()
        };
        seen.namespaces.insert(format!("n{i}"), Arc::new(namespace));
    }
    let mut policies = Policies::default();
    policies.update(&seen);
    let mut teller = Teller::default();
    let rounds = (0..4).map(|_| {
        let (due, more) = teller.due(&policies.seen(&seen), now());
        let count = due.len();
        for note in due {
            teller.tell(note);
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
    let mut policies = Policies::default();
    let exemption = |expires: &str| json!({"expires": expires, "owner": "team-a", "reason": "old chart"});
    let spec = json!({"exemptions": [exemption("2026-05-31"), exemption("2026-06-01")]});
    let seen = view(&[stored("p", &spec)], &[]);
    policies.update(&seen);
    let reports = policies.reports(&seen, now());
    let expired = condition(&reports[0], "ExemptionsExpired");
    assert_eq!(
        (expired.status.as_str(), expired.message.as_str()),
        (
            "True",
            "exemptions that no longer count: \"team-a until 2026-05-31: old chart\"; renew or remove them"
        )
    );
    let seen = written(seen, &reports);
    let tomorrow = now() + jiff::SignedDuration::from_hours(24);
    let reports = policies.reports(&seen, tomorrow);
    assert!(
        condition(&reports[0], "ExemptionsExpired")
            .message
            .contains("until 2026-06-01")
    );
    let bad = reports[0].news.iter().filter(|said| said.is_bad);
    assert_eq!(bad.count(), 1);
}

#[test]
fn an_exemption_is_told_of_before_its_last_day() {
    let mut policies = Policies::default();
    let exemption = |expires: &str| json!({"expires": expires, "owner": "team-a", "reason": "old chart"});
    let spec =
        json!({"exemptions": [exemption("2026-06-15"), exemption("2026-06-16"), exemption("2026-05-01")]});
    let seen = view(&[stored("p", &spec)], &[]);
    policies.update(&seen);
    let report = &policies.reports(&seen, now())[0];
    assert_eq!(
        condition(report, "ExemptionsExpiring").message,
        "exemptions that end within 14 days: \"team-a until 2026-06-15: old chart\"; renew them, or mend what they lift before"
    );
    // An Event says it too, and once more when another one is near.
    let tells = |reports: &[Report]| {
        let mut news = reports.iter().flat_map(|report| &report.news);
        news.any(|said| said.is_bad && said.message.contains("end within 14 days"))
    };
    let reports = policies.reports(&seen, now());
    assert!(tells(&reports));
    let seen = written(seen, &reports);
    assert!(!tells(&policies.reports(&seen, now())));
    let tomorrow = now() + jiff::SignedDuration::from_hours(24);
    assert!(tells(&policies.reports(&seen, tomorrow)));
}

#[test]
fn a_policy_counts_where_it_is_asked_about_and_nowhere_else() {
    let mut policies = Policies {
        snapshots: Snapshots::new(
            Facts::new(Facts::KUBERNETES, date(2026, 6, 1)),
            ["transom-system".to_owned()],
        ),
        ..Policies::default()
    };
    let namespaces: [(&str, &[(&str, &str)]); 6] = [
        ("web", &[]),
        ("db", &[("transom.dev/ignore", "false")]),
        ("out", &[("transom.dev/ignore", "true")]),
        ("aks", &[("control-plane", "x")]),
        ("kube-system", &[]),
        ("transom-system", &[]),
    ];
    let seen = view(&[stored("p", &json!({}))], &namespaces);
    policies.update(&seen);
    let matched = &policies.reports(&seen, now())[0].status.matched_namespaces;
    assert_eq!((matched.count, matched.effective), (6, 2));
}

#[test]
fn messages_stay_within_what_the_api_server_takes() {
    let mut policies = Policies::default();
    let rules: serde_json::Map<String, Value> = (0..500)
        .map(|i| (format!("{i}{}", "ü".repeat(200)), json!("Deny")))
        .collect();
    let exemptions: Vec<Value> = (0..256)
        .map(|_| json!({"expires": "2020-01-01", "owner": "ö".repeat(256), "reason": "r".repeat(1024)}))
        .collect();
    let long = "ä".repeat(40_000);
    let all = [
        stored("a", &json!({"rules": rules, "exemptions": exemptions})),
        stored("b", &json!({"validation": long})),
    ];
    let seen = view(&all, &[]);
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
    let message = &condition(&reports[0], "ExemptionsExpired").message;
    assert!(message.contains(" and 246 more"), "{message}");
}

#[test]
fn nonsense_in_place_of_an_object_is_skipped() {
    let mut seen = ClusterView::default();
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
    let mut policies = Policies::default();
    policies.update(&seen);
    assert_eq!(policies.reports(&seen, now()).len(), 3);
    assert!(matches!(policies.outcomes()["p2"], Outcome::Skipped { .. }));
}

#[test]
fn nodes_without_the_label_that_placement_requires_are_named_until_a_node_policy_keeps_it() {
    let node = |name: &str, build: &str, labelled: bool| {
        let node = NodeView {
            name: name.to_owned(),
            operating_system: "windows".to_owned(),
            kernel_version: format!("{build}.1"),
            labels: (labelled
                .then(|| (BUILD_LABEL.to_owned(), build.to_owned()))
                .into_iter())
            .chain([(OS_LABEL.to_owned(), "windows".to_owned())])
            .collect(),
            ..NodeView::default()
        };
        (name.to_owned(), Arc::new(node))
    };
    let says = |spec: Value, nodes: &[(&str, &str, bool)], keeps: bool| {
        let mut view = view(&[stored("p", &spec)], &[]);
        view.nodes = nodes
            .iter()
            .map(|(name, build, labelled)| node(name, build, *labelled))
            .collect();
        if keeps {
            let keeper = WindowsNodePolicy::new("default", WindowsNodePolicySpec::default());
            view.node_policies.insert("default".to_owned(), Arc::new(keeper));
        }
        let mut policies = Policies::default();
        policies.update(&view);
        let reports = policies.reports(&view, now());
        let said = condition(report(&reports, "p"), "BuildLabelsPresent");
        (said.status.clone(), said.message.clone())
    };
    let mixed = [
        ("a", "10.0.17763", true),
        ("b", "10.0.20348", false),
        ("c", "10.0.20348", true),
    ];
    let (status, message) = says(json!({}), &mixed, false);
    assert_eq!(status, "False");
    assert!(
        message.starts_with(
            "1 Windows node carries no label node.kubernetes.io/windows-build with its build: b;"
        ),
        "{message}"
    );
    let trusted = json!({"build": {"trusted": true}});
    assert!(
        says(trusted.clone(), &mixed, false)
            .1
            .contains("node-restriction.kubernetes.io/windows-build with their build: a, b, c;")
    );
    for (spec, nodes, keeps) in [
        (json!({}), &mixed[..], true),
        (trusted, &mixed[..], true),
        (json!({"placement": "Off"}), &mixed[..], false),
        (json!({"placementParts": {"build": false}}), &mixed[..], false),
        // With one build there is nothing to require.
        (json!({}), &mixed[1..], false),
        (json!({}), &[], false),
    ] {
        assert_eq!(
            says(spec.clone(), nodes, keeps).0,
            "True",
            "{spec} {nodes:?} {keeps}"
        );
    }
}

#[test]
fn namespaces_without_a_policy_are_named_by_the_policy_of_the_lowest_priority() {
    let team = |priority: i64, team: &str| json!({"priority": priority, "namespaceSelector": {"matchLabels": {"team": team}}});
    let first = stored("first", &team(1, "a"));
    let last = stored("last", &team(0, "b"));
    let out: &[(&str, &str)] = &[("transom.dev/ignore", "true")];
    let mut seen = view(
        &[first, last],
        &[
            ("a", &[("team", "a")]),
            ("b", &[("team", "b")]),
            ("web", &[]),
            ("ignored", out),
            ("kube-system", &[]),
        ],
    );
    let mut policies = Policies::default();
    policies.update(&seen);
    let reports = policies.reports(&seen, now());
    let without = condition(report(&reports, "last"), "NamespacesWithoutPolicy");
    assert_eq!(
        (without.status.as_str(), without.reason.as_str()),
        ("True", "SelectedByNone")
    );
    assert!(
        without.message.starts_with(
            "no policy selects 1 of the namespaces that admission asks about: web; the built-in policy counts"
        ),
        "{}",
        without.message
    );
    // It can be intended, so it is not a problem; and only the last policy reports it.
    assert_eq!(report(&reports, "last").status.last_problem, None);
    let conditions = &report(&reports, "first").status.conditions;
    assert!(
        conditions
            .iter()
            .all(|said| said.type_ != "NamespacesWithoutPolicy")
    );

    Arc::make_mut(seen.namespaces.get_mut("web").unwrap())
        .labels
        .insert("team".to_owned(), "b".to_owned());
    policies.update(&seen);
    let reports = policies.reports(&seen, now());
    let without = condition(report(&reports, "last"), "NamespacesWithoutPolicy");
    assert_eq!(
        (without.status.as_str(), without.reason.as_str()),
        ("False", "AllSelected")
    );
}

#[test]
fn a_namespace_that_loses_its_policy_is_told_once() {
    let selected: &[(&str, &str)] = &[("windows", "yes")];
    let selector = json!({"namespaceSelector": {"matchLabels": {"windows": "yes"}}});
    let mut seen = view(
        &[stored("base", &selector)],
        &[
            ("web", selected),
            ("db", selected),
            ("never", &[]),
            ("kube-system", selected),
        ],
    );
    let mut policies = Policies::default();
    let mut teller = Teller::default();
    let mut due = |seen: &ClusterView| {
        policies.update(seen);
        let (due, _) = teller.due(&policies.seen(seen), now());
        for note in &due {
            teller.tell(note.clone());
        }
        due
    };
    // What has had none since this replica began is not told.
    assert_eq!(due(&seen), vec![]);
    let without_label = |seen: &mut ClusterView, name: &str| {
        Arc::make_mut(seen.namespaces.get_mut(name).unwrap())
            .labels
            .clear();
    };
    without_label(&mut seen, "web");
    without_label(&mut seen, "kube-system");
    let told = due(&seen);
    let told: Vec<_> = told
        .iter()
        .map(|note| (note.reason, note.message.as_str()))
        .collect();
    assert_eq!(
        told,
        [(
            "NamespaceWithoutPolicy",
            "no WindowsPodPolicy selects namespace web any more; until now base did. The built-in policy counts there \
             (validation Audit, placement DryRun), so nothing is denied. Compare the labels of the namespace with the \
             namespaceSelector of the policies: kubectl get namespace web --show-labels"
        )]
    );
    assert_eq!(due(&seen), vec![]);
    // Without the last policy the built-in one counts everywhere; no single namespace has lost its policy.
    seen.pod_policies.clear();
    assert_eq!(due(&seen), vec![]);
}
