//! What the status of a pod policy says, and which Events go with it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::Value;

use super::build_labels::build_labels;
use super::{MOST_NAMES, registered};
use crate::api::{
    API_VERSION, DecodedPolicy, LastGood, MatchedNamespaces, POD_POLICY, WindowsPodPolicyStatus, in_one_line,
};
use crate::cluster::policies::{Outcome, as_stored, generation, kept, text};
use crate::cluster::snapshot::{Reporting, Snapshot};
use crate::controller::conditions::{LONGEST_NOTE, Statement, Told, conditions};
use crate::engine::effective::{ExemptionState, SOON};
use crate::model::build::RELEASES;
use crate::model::text::{cut, list};
use crate::rules;

/// What this program says of itself.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The condition of reports on stored objects.
const REPORTS_WRITTEN: &str = "ReportsWritten";
/// The condition of namespaces without a policy.
const WITHOUT_POLICY: &str = "NamespacesWithoutPolicy";
/// So much is told of what is wrong with a policy, in its status.
const LONGEST_PROBLEMS: usize = 3500;

/// A status that differs from the one that is stored.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The policy.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The version that this was decided on.
    pub resource_version: String,
    /// What its status is to say.
    pub status: WindowsPodPolicyStatus,
    /// What has become worse or better since the stored status.
    pub news: Vec<Statement>,
}

impl Report {
    /// The policy, as Events point to it.
    pub fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(API_VERSION.to_owned()),
            kind: Some(POD_POLICY.to_owned()),
            name: Some(self.name.clone()),
            uid: Some(self.uid.clone()),
            // Without it the recorder counts another problem of the same kind as the first one once more, in the words
            // of the first.
            resource_version: Some(self.resource_version.clone()),
            ..ObjectReference::default()
        }
    }
}

/// Where a policy counts, and with which others it is at odds.
#[derive(Default)]
struct Reach<'v> {
    selected: Vec<&'v str>,
    effective: i64,
    /// Policies of the same priority and the namespaces in question, and whether this one counts there.
    ties: BTreeMap<&'v str, (bool, Vec<&'v str>)>,
    /// The namespaces where it counts and labels do nothing, with those labels.
    ignored: Vec<String>,
}

/// The statuses that are to be written, one made after the other: each may keep a version of its policy.
pub fn reports(snapshot: &Snapshot, now: Timestamp) -> impl Iterator<Item = Report> {
    let view = &*snapshot.view;
    let today = now.to_zoned(TimeZone::UTC).date();
    let reach = reach(snapshot);
    let others = snapshot.policies.stored().len();
    // One policy says it for all: that of the lowest priority, on which the others fall back.
    let last = snapshot.policies.stored().last();
    let last = last.map(|stored| stored.policy.name.as_str());
    (snapshot.outcomes.iter()).filter_map(move |(name, outcome)| {
        let object = view.pod_policies.get(name)?;
        let none = Reach::default();
        let reach = reach.get(name.as_str()).unwrap_or(&none);
        let mut statements = statements(name, outcome, reach, others, today);
        statements.push(build_labels(outcome.in_force(), &snapshot.facts));
        // After Ready. While it is not known what is registered, what was said of it stays.
        if let Some(known) = &snapshot.registered {
            let unreached = snapshot.unreached.as_deref();
            let registered =
                registered::registered(outcome.in_force(), known, unreached, &snapshot.policies, view);
            statements.insert(1, registered);
        }
        statements.extend(written(&snapshot.reporting));
        let mut retired = Vec::new();
        if let Reporting::Off = snapshot.reporting {
            retired.push(REPORTS_WRITTEN);
        }
        if last == Some(name.as_str()) {
            statements.push(without_policy(snapshot));
        } else {
            retired.push(WITHOUT_POLICY);
        }
        let last_good = last_good(outcome, object);
        report(name, object, last_good, statements, &retired, reach, now)
    })
}

/// Whether the reports on stored objects are written: nothing while that is not known, or none are asked for.
fn written(reporting: &Reporting) -> Option<Statement> {
    let amiss = match reporting {
        Reporting::Off | Reporting::Unknown => return None,
        Reporting::Written => None,
        Reporting::Amiss(reason, message) => Some((*reason, message.clone())),
    };
    let well = ("Written", "the reports say what was found of stored objects");
    Some(Statement::wanted(REPORTS_WRITTEN, amiss, well).told(Told::Reasons))
}

fn reach(snapshot: &Snapshot) -> BTreeMap<&str, Reach<'_>> {
    let (set, view) = (&*snapshot.policies, &*snapshot.view);
    let mut reach: BTreeMap<&str, Reach<'_>> = BTreeMap::new();
    for (namespace, seen) in &view.namespaces {
        let labels = &seen.labels;
        let selecting = set
            .stored()
            .iter()
            .filter(|stored| stored.namespace_selector.selects(labels));
        let is_asked = snapshot.is_asked_about(namespace, labels);
        let mut first: Option<(&str, i32)> = None;
        for stored in selecting {
            let name = stored.policy.name.as_str();
            let entry = reach.entry(name).or_default();
            entry.selected.push(namespace);
            match first {
                None => {
                    entry.effective += i64::from(is_asked);
                    let ignored = set.ignored_labels(labels);
                    if !ignored.is_empty() {
                        let ignored = ignored
                            .iter()
                            .map(|label| format!("{}={}", label.key, label.value));
                        let labels = list(ignored, MOST_NAMES);
                        entry.ignored.push(format!("{namespace} ({})", cut(&labels, 128)));
                    }
                    first = Some((name, stored.priority));
                }
                Some((winner, priority)) if priority == stored.priority && is_asked => {
                    entry.ties.entry(winner).or_default().1.push(namespace);
                    let tie = reach.entry(winner).or_default().ties.entry(name).or_default();
                    tie.0 = true;
                    tie.1.push(namespace);
                }
                Some(_) => (),
            }
        }
    }
    reach
}

fn report(
    name: &str,
    object: &Value,
    last_good: Option<LastGood>,
    statements: Vec<Statement>,
    retired: &[&str],
    reach: &Reach<'_>,
    now: Timestamp,
) -> Option<Report> {
    let stored: WindowsPodPolicyStatus = object
        .get("status")
        .and_then(|status| serde_json::from_value(status.clone()).ok())
        .unwrap_or_default();
    let generation = generation(object);
    let news = statements.iter().filter(|said| said.is_news(&stored.conditions));
    let news = news.cloned().collect();
    let status = WindowsPodPolicyStatus {
        observed_generation: Some(generation),
        last_problem: (statements.iter().find(|said| said.is_bad)).map(|said| said.message.clone()),
        conditions: conditions(statements, retired, &stored.conditions, generation, now),
        matched_namespaces: MatchedNamespaces {
            count: i64::try_from(reach.selected.len()).unwrap_or(i64::MAX),
            effective: reach.effective,
            names: (reach.selected.iter().take(MatchedNamespaces::MOST))
                .map(|name| (*name).to_owned())
                .collect(),
        },
        last_good,
    };
    (status != stored).then(|| Report {
        name: name.to_owned(),
        uid: text(object, "/metadata/uid").to_owned(),
        resource_version: text(object, "/metadata/resourceVersion").to_owned(),
        status,
        news,
    })
}

/// The version that is kept from now on. What this program cannot use stays: another version of it may.
fn last_good(outcome: &Outcome, object: &Value) -> Option<LastGood> {
    let good = match outcome {
        Outcome::InForce(_) => as_stored(object),
        Outcome::LastGood { kept, .. } => kept.clone(),
        Outcome::Skipped { .. } => return kept(object),
    };
    (good.spec.len() <= LastGood::LONGEST).then_some(good)
}

/// The conditions of a policy, the gravest first. Ties and labels come and go with namespaces: only the first is told.
fn statements(
    name: &str,
    outcome: &Outcome,
    reach: &Reach<'_>,
    in_force: usize,
    today: Date,
) -> Vec<Statement> {
    let decoded = outcome.in_force();
    let nothing = BTreeSet::new();
    let unknown = |of: fn(&DecodedPolicy) -> &BTreeSet<String>| decoded.map_or(&nothing, of);
    vec![
        ready(outcome, in_force).told(Told::Words),
        rules_known(unknown(|decoded| &decoded.unknown_rules)).told(Told::Words),
        releases_known(unknown(|decoded| &decoded.unknown_releases)).told(Told::Words),
        fields_known(unknown(|decoded| &decoded.unknown_fields)).told(Told::Words),
        overlapping(name, reach).told(Told::Turns),
        exemptions_expired(decoded, today).told(Told::Words),
        exemptions_expiring(decoded, today).told(Told::Words),
        labels_ignored(reach).told(Told::Turns),
    ]
}

/// Whether the policy counts.
fn ready(outcome: &Outcome, in_force: usize) -> Statement {
    let well = ("InForce", "the policy counts as it is stored");
    let (reason, error, consequence) = match outcome {
        Outcome::InForce(_) => return Statement::wanted("Ready", None, well),
        Outcome::LastGood { kept, error, .. } => (
            "KeptLastGood",
            error,
            format!(
                "until then the policy counts as it was at generation {}",
                kept.generation
            ),
        ),
        Outcome::Skipped { error } => {
            let instead = if in_force == 0 {
                "no other policy can be used either, so that the built-in one counts everywhere"
            } else {
                "other policies count in its place, and the built-in one where none selects a namespace"
            };
            let consequence = format!(
                "until then the policy does not count, because no good version of it is known; \
                 {instead} (built-in: validation Audit, placement DryRun)"
            );
            ("Unusable", error, consequence)
        }
    };
    let it = if error.problems.len() == 1 { "it" } else { "them" };
    let end = format!("; correct {it}: {consequence}");
    // As far as they fit into so many bytes, and never at the cost of what counts instead.
    let told = |room: usize| {
        let problems = in_one_line(&error.problems, room.saturating_sub(end.len()));
        format!("{problems}{end}")
    };
    Statement {
        brief: told(LONGEST_NOTE),
        ..Statement::wanted("Ready", Some((reason, told(LONGEST_PROBLEMS))), well)
    }
}

fn rules_known(unknown: &BTreeSet<String>) -> Statement {
    let name = |name: &String| match rules::nearest(name) {
        Some(nearest) => format!("{} (did you mean {nearest}?)", cut(name, 64)),
        None => cut(name, 64).into_owned(),
    };
    let message = |names| {
        format!(
            "Transom {VERSION} has no rule {names}; what the policy says of them is left out, the rest counts; correct the \
             names, or go back to the version that has them"
        )
    };
    let amiss = listed(unknown.iter().map(name)).map(|names| ("UnknownRules", message(names)));
    Statement::wanted(
        "RulesKnown",
        amiss,
        ("AllKnown", "every rule that the policy names is known"),
    )
}

fn releases_known(unknown: &BTreeSet<String>) -> Statement {
    let known: Vec<&str> = RELEASES.iter().map(|release| release.name).collect();
    let message = |names| {
        format!(
            "spec.runtimeClasses: Transom {VERSION} has no release {names}; those entries are left out, the rest counts; \
             there are {}; correct the names, or go back to the version that has them",
            known.join(", ")
        )
    };
    let amiss =
        listed(unknown.iter().map(|name| cut(name, 64))).map(|names| ("UnknownReleases", message(names)));
    let well = ("AllKnown", "every release that the policy names is known");
    Statement::wanted("ReleasesKnown", amiss, well)
}

fn fields_known(unknown: &BTreeSet<String>) -> Statement {
    let message = |names| {
        format!(
            "Transom {VERSION} does not know {names}; that is left out, the rest counts; remove it, or go back to the version \
             that knows it"
        )
    };
    let amiss =
        listed(unknown.iter().map(|name| cut(name, 128))).map(|names| ("UnknownFields", message(names)));
    let well = ("AllKnown", "every field that the policy has is known");
    Statement::wanted("FieldsKnown", amiss, well)
}

fn overlapping(name: &str, reach: &Reach<'_>) -> Statement {
    let ties = reach
        .ties
        .iter()
        .take(MOST_NAMES)
        .map(|(other, (wins, namespaces))| {
            let counts = if *wins { name } else { other };
            let places = list(namespaces, MOST_NAMES);
            format!("{other} has the same priority and selects {places} too: there {counts} counts")
        });
    let mut ties: Vec<String> = ties.collect();
    if reach.ties.len() > ties.len() {
        ties.push(format!("and {} more", reach.ties.len() - ties.len()));
    }
    let message = || {
        format!(
            "{}; of equal priorities the name decides that sorts first; give one of them another priority",
            ties.join(", ")
        )
    };
    let amiss = (!ties.is_empty()).then(|| ("SamePriority", message()));
    let well = (
        "Unambiguous",
        "no policy of the same priority selects the same namespaces",
    );
    Statement::unwanted("Overlapping", amiss, well)
}

fn exemptions_expired(decoded: Option<&DecodedPolicy>, today: Date) -> Statement {
    let message = |names| format!("exemptions that no longer count: {names}; renew or remove them");
    let amiss = exemptions(decoded, ExemptionState::Expired, today).map(|names| ("Expired", message(names)));
    Statement::unwanted(
        "ExemptionsExpired",
        amiss,
        ("NoneExpired", "no exemption has expired"),
    )
}

fn exemptions_expiring(decoded: Option<&DecodedPolicy>, today: Date) -> Statement {
    let message = |names| {
        format!("exemptions that end within {SOON} days: {names}; renew them, or mend what they lift before")
    };
    let amiss =
        exemptions(decoded, ExemptionState::Expiring, today).map(|names| ("ExpireSoon", message(names)));
    let well = ("NoneExpires", "no exemption expires soon");
    Statement::unwanted("ExemptionsExpiring", amiss, well)
}

/// The exemptions that stand so, by their notes.
fn exemptions(decoded: Option<&DecodedPolicy>, state: ExemptionState, today: Date) -> Option<String> {
    let all = decoded.map_or(&[][..], |decoded| &decoded.policy.exemptions);
    let so = all.iter().filter(|dated| dated.state(today) == state);
    listed(so.map(|dated| format!("\"{}\"", cut(&dated.exemption.note, 128))))
}

fn labels_ignored(reach: &Reach<'_>) -> Statement {
    let message = |namespaces| {
        format!(
            "labels that do nothing are on {} of the namespaces where the policy counts: {namespaces}; the Events of each say \
             why and what to write: kubectl get events -n default --field-selector reason=LabelIgnored",
            reach.ignored.len()
        )
    };
    let amiss = listed(&reach.ignored).map(|namespaces| ("WithoutEffect", message(namespaces)));
    let well = (
        "AllCount",
        "every label for Transom counts on the namespaces where the policy does",
    );
    Statement::unwanted("NamespaceLabelsIgnored", amiss, well)
}

/// Whether there are namespaces without a policy. That can be intended, so it is not bad: Events report each namespace that
/// loses its policy.
fn without_policy(snapshot: &Snapshot) -> Statement {
    let names: Vec<&str> = snapshot.namespaces_without_policy().collect();
    let message = |namespaces| {
        format!(
            "no policy selects {} of the namespaces that admission asks about: {namespaces}; the built-in policy counts there \
             (validation Audit, placement DryRun); a policy without namespaceSelector selects every namespace",
            names.len()
        )
    };
    let some = listed(&names).map(|namespaces| ("SelectedByNone", message(namespaces)));
    let well = (
        "AllSelected",
        "every namespace that admission asks about has a policy",
    );
    Statement {
        is_bad: false,
        ..Statement::unwanted(WITHOUT_POLICY, some, well)
    }
}

/// Names for a message, if there are any.
fn listed<N: AsRef<str>>(names: impl IntoIterator<Item = N>) -> Option<String> {
    Some(list(names, MOST_NAMES)).filter(|names| !names.is_empty())
}
