//! The status of a pod policy, and the Events for its changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::build_labels::build_labels;
use super::image_registries::{IMAGE_REGISTRIES_REACHABLE, image_registries};
use super::programmed::programmed;
use super::{ControllerStates, MOST_NAMES};
use crate::api::{
    API_VERSION, DecodedPolicy, EffectiveSettings, MatchedNamespaces, POD_POLICY, WindowsPodPolicyStatus,
    in_one_line,
};
use crate::cluster::policy_store::{PolicyState, generation, text};
use crate::cluster::snapshot::Snapshot;
use crate::controller::conditions::{
    ACCEPTED, AS_STORED, ConditionUpdate, EventPolicy, LONGEST_NOTE, conditions,
};
use crate::controller::events::reference;
use crate::controller::reports::{ByPolicy, ReportingState};
use crate::controller::writer::Write;
use crate::engine::exemption::matches;
use crate::engine::policy_set::{ExemptionState, SOON};
use crate::model::syntax::text::{count, cut, list};
use crate::model::windows::build::RELEASES;
use crate::rules;

/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The condition type for reports on stored objects.
const REPORTS_WRITTEN: &str = "ReportsWritten";
/// The condition type for custom resources whose controllers are not listed.
const CONTROLLERS_UNLISTED: &str = "ControllersUnlisted";
/// The condition type for workloads that their RuntimeClass makes Windows workloads.
const DENIED_BY_CLASS: &str = "RuntimeClassUsersDenied";
/// The condition type for namespaces without a policy.
const WITHOUT_POLICY: &str = "NamespacesWithoutPolicy";
/// The longest list of problems of a policy in its status, in bytes.
const LONGEST_PROBLEMS: usize = 3500;

/// A status that differs from the one that is stored.
#[derive(Clone, PartialEq, Debug)]
pub struct StatusUpdate {
    pub name: String,
    pub uid: String,
    /// The version that this was decided on.
    pub resource_version: String,
    pub status: WindowsPodPolicyStatus,
    /// Conditions that became worse or better since the stored status.
    pub news: Vec<ConditionUpdate>,
}

impl StatusUpdate {
    pub(super) fn to_write(&self) -> Write<DynamicObject> {
        let metadata = json!({"resourceVersion": self.resource_version});
        Write::PatchStatus {
            name: self.name.clone(),
            patch: json!({"metadata": metadata, "status": self.status}),
        }
    }

    /// The policy, as the regarding object of Events.
    pub fn reference(&self) -> ObjectReference {
        ObjectReference {
            // Without it the recorder counts another problem of the same kind as a repetition of the first one, with
            // the text of the first.
            resource_version: Some(self.resource_version.clone()),
            ..reference(API_VERSION, POD_POLICY, &self.name, &self.uid)
        }
    }
}

/// The namespaces where a policy applies, and the policies that it competes with.
#[derive(Default)]
struct PolicyReach<'v> {
    selected: Vec<&'v str>,
    effective: i32,
    /// The policies that take precedence in namespaces that it selects.
    overridden_by: BTreeSet<&'v str>,
    /// Whether it applies in any namespace, even one for which the webhooks are not called.
    applies_somewhere: bool,
    /// Policies of the same priority, the namespaces that both select, and whether this policy applies there.
    ties: BTreeMap<&'v str, (bool, Vec<&'v str>)>,
    /// The namespaces where it applies and labels have no effect, with those labels.
    ignored: Vec<String>,
}

impl PolicyReach<'_> {
    fn matched(&self) -> MatchedNamespaces {
        let names = self.selected.iter().take(MatchedNamespaces::MOST);
        MatchedNamespaces {
            count: i32::try_from(self.selected.len()).unwrap_or(i32::MAX),
            effective_count: self.effective,
            names: names.map(|name| (*name).to_owned()).collect(),
        }
    }
}

/// The status updates to write, computed lazily: each may hold a version of its policy.
pub fn reports<'s>(
    snapshot: &'s Snapshot,
    states: ControllerStates<'s>,
    now: Timestamp,
) -> impl Iterator<Item = StatusUpdate> + use<'s> {
    let (stored, reach) = (snapshot.policies.stored(), reach(snapshot));
    // One policy reports it for all: the one with the lowest priority, on which the others fall back.
    let reports_for_all = stored.last().map(|stored| &*stored.policy.name);
    (snapshot.outcomes.iter()).filter_map(move |(name, outcome)| {
        let none = PolicyReach::default();
        let policy = ReportedPolicy {
            name,
            object: snapshot.cache.pod_policies.get(name)?,
            outcome,
            reach: reach.get(name.as_str()).unwrap_or(&none),
            reports_for_all: reports_for_all == Some(name),
        };
        policy.update(snapshot, states, now)
    })
}

/// A policy, with what its status depends on.
struct ReportedPolicy<'p> {
    name: &'p str,
    /// As it is stored.
    object: &'p Value,
    outcome: &'p PolicyState,
    reach: &'p PolicyReach<'p>,
    /// Whether it reports what concerns all policies.
    reports_for_all: bool,
}

impl ReportedPolicy<'_> {
    /// The new status, if it differs from the stored one.
    fn update(
        &self,
        snapshot: &Snapshot,
        states: ControllerStates<'_>,
        now: Timestamp,
    ) -> Option<StatusUpdate> {
        let stored = stored_status(self.object);
        let today = now.to_zoned(TimeZone::UTC).date();
        let (updates, retired) = self.conditions(snapshot, states, today);
        let news = updates.iter().filter(|update| update.is_news(&stored.conditions));
        let news = news.cloned().collect();
        let generation = generation(self.object);
        let status = WindowsPodPolicyStatus {
            observed_generation: Some(generation),
            message: (updates.iter().find(|update| update.is_bad)).map(|update| update.message.clone()),
            conditions: conditions(updates, &retired, &stored.conditions, generation, now),
            matched_namespaces: self.reach.matched(),
            effective: effective(self.outcome, self.object),
        };
        (status != stored).then(|| StatusUpdate {
            name: self.name.to_owned(),
            uid: text(self.object, "/metadata/uid").to_owned(),
            resource_version: text(self.object, "/metadata/resourceVersion").to_owned(),
            status,
            news,
        })
    }

    /// The conditions, the most severe first, and the types of those that it no longer has.
    fn conditions(
        &self,
        snapshot: &Snapshot,
        states: ControllerStates<'_>,
        today: Date,
    ) -> (Vec<ConditionUpdate>, Vec<&'static str>) {
        let in_force = self.outcome.in_force();
        let accepted = accepted(self.outcome, snapshot.policies.stored().len());
        let accepted = accepted.with_events(EventPolicy::Words);
        // While the registration is unknown, the previous condition stays.
        let registered = snapshot.registered.as_ref();
        let programmed = registered.map(|known| programmed(in_force, known, states, snapshot));
        let met = ("Ready", "the policy is accepted and programmed");
        let ready = ConditionUpdate::ready(&accepted, programmed.as_ref(), met);
        let mut updates: Vec<ConditionUpdate> = [accepted].into_iter().chain(programmed).collect();
        updates.push(ready);
        updates.extend(of_namespaces_and_exemptions(
            self.name, in_force, self.reach, today,
        ));
        updates.push(exemptions_unused(in_force, snapshot));
        updates.push(build_labels(in_force, snapshot));
        updates.extend(written(states.reporting));
        let mut retired = Vec::new();
        match image_registries(in_force, states.registries) {
            Some(update) => updates.push(update),
            None => retired.push(IMAGE_REGISTRIES_REACHABLE),
        }
        if *states.reporting == ReportingState::Off {
            retired.extend([REPORTS_WRITTEN, CONTROLLERS_UNLISTED, DENIED_BY_CLASS]);
        } else {
            updates.push(unlisted_controllers(self.name, &states.next_denials.rollouts));
            updates.push(denied_by_class(self.name, &states.next_denials.of_classes));
        }
        if self.reports_for_all {
            updates.push(without_policy(snapshot));
        } else {
            retired.push(WITHOUT_POLICY);
        }
        (updates, retired)
    }
}

fn stored_status(object: &Value) -> WindowsPodPolicyStatus {
    let status = object.get("status");
    status
        .and_then(|status| serde_json::from_value(status.clone()).ok())
        .unwrap_or_default()
}

/// Whether the reports on stored objects are written; `None` while that is unknown or reports are disabled.
fn written(reporting: &ReportingState) -> Option<ConditionUpdate> {
    let unmet = match reporting {
        ReportingState::Off | ReportingState::Unknown => return None,
        ReportingState::Written => None,
        ReportingState::Amiss(reason, message) => Some((*reason, message.clone())),
    };
    let met = ("Written", "the reports contain the findings of stored objects");
    Some(ConditionUpdate::expect_true(REPORTS_WRITTEN, unmet, met).with_events(EventPolicy::Reasons))
}

/// Whether the policy does not list the account of the controller of stored custom resources with problems: their next
/// rollout is denied.
fn unlisted_controllers(name: &str, unlisted: &ByPolicy) -> ConditionUpdate {
    let message = |owners: &BTreeSet<String>| {
        let kinds: BTreeSet<&str> = owners
            .iter()
            .filter_map(|owner| owner.split(' ').next())
            .collect();
        format!(
            "once errors are denied, the next rollout of {} is denied: {}; list the accounts of the controllers of {} in \
             cluster.controllers of the chart's values (transom preflight proposes them)",
            count(owners.len(), "stored object"),
            list(owners, MOST_NAMES),
            list(kinds, MOST_NAMES)
        )
    };
    let unmet = unlisted
        .get(name)
        .map(|owners| ("NextRolloutDenied", message(owners)));
    let met = (
        "ControllersListed",
        "the controllers of all custom resources with errors are listed",
    );
    ConditionUpdate::expect_false(CONTROLLERS_UNLISTED, unmet, met).with_events(EventPolicy::Turns)
}

/// Whether stored workloads would be denied that are for Windows only by their RuntimeClass: nobody evaluated those that are
/// older than the class.
fn denied_by_class(name: &str, denied: &ByPolicy) -> ConditionUpdate {
    let message = |owners: &BTreeSet<String>| {
        format!(
            "once errors are denied, {} cannot be created again: {}; only the RuntimeClass says that they are for Windows, and it may \
             be newer than they are; correct the templates (transom scan shows their findings)",
            count(owners.len(), "stored workload"),
            list(owners, MOST_NAMES)
        )
    };
    let unmet = denied
        .get(name)
        .map(|owners| ("NextCreateDenied", message(owners)));
    let met = (
        "NoneDenied",
        "no workload with errors is for Windows only by its RuntimeClass",
    );
    ConditionUpdate::expect_false(DENIED_BY_CLASS, unmet, met).with_events(EventPolicy::Turns)
}

fn reach(snapshot: &Snapshot) -> BTreeMap<&str, PolicyReach<'_>> {
    let (set, cache) = (&*snapshot.policies, &*snapshot.cache);
    let mut reach: BTreeMap<&str, PolicyReach<'_>> = BTreeMap::new();
    for (namespace, seen) in &cache.namespaces {
        let labels = &seen.labels;
        let selecting = set
            .stored()
            .iter()
            .filter(|stored| stored.namespace_selector.selects(labels));
        let is_reviewed = snapshot.is_reviewed_in(namespace, labels);
        let mut first: Option<(&str, i32)> = None;
        for stored in selecting {
            let name = stored.policy.name.as_str();
            let entry = reach.entry(name).or_default();
            entry.selected.push(namespace);
            entry.overridden_by.extend(first.map(|(winner, _)| winner));
            match first {
                None => {
                    entry.effective += i32::from(is_reviewed);
                    entry.applies_somewhere = true;
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
                Some((winner, priority)) if priority == stored.priority && is_reviewed => {
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

/// The settings of the version that applies; `None` if none applies.
fn effective(outcome: &PolicyState, object: &Value) -> Option<EffectiveSettings> {
    let (decoded, generation) = match outcome {
        PolicyState::InForce(decoded) => (decoded, generation(object)),
        PolicyState::LastGood { good, generation, .. } => (good, *generation),
        PolicyState::Skipped { .. } => return None,
    };
    let policy = &decoded.policy.policy;
    Some(EffectiveSettings {
        generation,
        validation: policy.validation.to_string(),
        ignored_fields: policy.effective_ignored_fields().to_string(),
        placement: policy.placement.to_string(),
        linux_pods: policy.linux_pods.to_string(),
    })
}

/// The conditions about namespaces and exemptions, the most severe first. Ties and ignored labels change with namespaces, so
/// an Event reports only the first one.
fn of_namespaces_and_exemptions(
    name: &str,
    decoded: Option<&DecodedPolicy>,
    reach: &PolicyReach<'_>,
    today: Date,
) -> [ConditionUpdate; 4] {
    [
        overridden(reach).with_events(EventPolicy::Turns),
        overlapping(name, reach).with_events(EventPolicy::Turns),
        exemptions_expiring(decoded, today).with_events(EventPolicy::Words),
        labels_ignored(reach).with_events(EventPolicy::Turns),
    ]
}

/// Whether the stored version can be used, completely or without the parts that this version of Transom does not
/// know.
fn accepted(outcome: &PolicyState, in_force: usize) -> ConditionUpdate {
    let (reason, error, consequence) = match outcome {
        PolicyState::InForce(decoded) => return left_out(decoded),
        PolicyState::LastGood {
            generation, error, ..
        } => (
            "UsingLastValid",
            error,
            format!("until then generation {generation} of the policy applies"),
        ),
        PolicyState::Skipped { error } => {
            let instead = if in_force == 0 {
                "no other policy can be used either, so the built-in policy applies everywhere"
            } else {
                "other policies apply instead, and the built-in policy if none selects a namespace"
            };
            let consequence = format!(
                "until then the policy does not apply, because no earlier valid version is known; {instead} (built-in: mode \
                 Audit)"
            );
            ("Invalid", error, consequence)
        }
    };
    let it = if error.problems.len() == 1 { "it" } else { "them" };
    let end = format!("; correct {it}: {consequence}");
    // The problems are cut to the given length in bytes; the part about what applies instead is never cut.
    let problem_text = |room: usize| {
        let problems = in_one_line(&error.problems, room.saturating_sub(end.len()));
        format!("{problems}{end}")
    };
    ConditionUpdate {
        brief: problem_text(LONGEST_NOTE),
        ..ConditionUpdate::expect_true(
            ACCEPTED,
            Some((reason, problem_text(LONGEST_PROBLEMS))),
            AS_STORED,
        )
    }
}

/// The parts of a policy that this version of Transom does not know are ignored, and the rest applies.
fn left_out(decoded: &DecodedPolicy) -> ConditionUpdate {
    if !decoded.is_partial() {
        return ConditionUpdate::expect_true(ACCEPTED, None, AS_STORED);
    }
    let rule = |name: &String| match rules::nearest(name) {
        Some(nearest) => format!("{} (did you mean {nearest}?)", cut(name, 64)),
        None => cut(name, 64).into_owned(),
    };
    let of = |names: &BTreeSet<String>| listed(names.iter().map(|name| cut(name, 128)));
    let unknown = [
        ("the rules", listed(decoded.unknown_rules.iter().map(rule))),
        ("the releases", of(&decoded.unknown_releases)),
        ("the fields", of(&decoded.unknown_fields)),
    ];
    let names: Vec<String> = (unknown.into_iter())
        .filter_map(|(what, names)| Some(format!("{what} {}", names?)))
        .collect();
    let mut message = format!(
        "Transom {VERSION} does not know {}; they are ignored, and the rest of the policy applies; correct the names, or return \
         to the version that knows them",
        names.join(", ")
    );
    if !decoded.unknown_releases.is_empty() {
        let known: Vec<&str> = RELEASES.iter().map(|release| release.name).collect();
        let _ = write!(message, "; the known releases are {}", known.join(", "));
    }
    ConditionUpdate::partially_invalid(message)
}

/// Whether the policy applies nowhere, because others take precedence in every namespace that it selects.
fn overridden(reach: &PolicyReach<'_>) -> ConditionUpdate {
    let is_overridden = !reach.selected.is_empty() && !reach.applies_somewhere;
    let unmet = is_overridden.then(|| {
        let message = format!(
            "other policies take precedence in all {} namespaces that this policy selects: {}; give this one a higher priority, or \
             delete it",
            reach.selected.len(),
            list(&reach.overridden_by, MOST_NAMES)
        );
        ("Overridden", message)
    });
    let met = (
        "NotOverridden",
        "the policy applies in at least one namespace, or selects none",
    );
    ConditionUpdate::expect_false("Overridden", unmet, met)
}

fn overlapping(name: &str, reach: &PolicyReach<'_>) -> ConditionUpdate {
    let ties = reach
        .ties
        .iter()
        .take(MOST_NAMES)
        .map(|(other, (wins, namespaces))| {
            let counts = if *wins { name } else { other };
            let places = list(namespaces, MOST_NAMES);
            format!("{other} has the same priority and selects {places} too: {counts} applies there")
        });
    let mut ties: Vec<String> = ties.collect();
    if reach.ties.len() > ties.len() {
        ties.push(format!("and {} more", reach.ties.len() - ties.len()));
    }
    let message = || {
        format!(
            "{}; if priorities are equal, the name that sorts first takes precedence; give one of them another priority",
            ties.join(", ")
        )
    };
    ConditionUpdate::overlapping((!ties.is_empty()).then(message))
}

/// Whether exemptions have expired, or are about to.
fn exemptions_expiring(decoded: Option<&DecodedPolicy>, today: Date) -> ConditionUpdate {
    let expired = exemptions(decoded, ExemptionState::Expired, today)
        .map(|names| format!("expired exemptions: {names}; renew or remove them"));
    let expiring = exemptions(decoded, ExemptionState::Expiring, today).map(|names| {
        format!(
            "exemptions that expire within {SOON} days: {names}; renew them, or fix the exempted findings before"
        )
    });
    let reason = if expired.is_some() { "Expired" } else { "Expiring" };
    let parts: Vec<String> = expired.into_iter().chain(expiring).collect();
    let unmet = (!parts.is_empty()).then(|| (reason, parts.join("; ")));
    let met = ("NoneExpiring", "no exemption has expired or expires soon");
    ConditionUpdate::expect_false("ExemptionsExpiring", unmet, met)
}

/// Exemptions for namespaces none of which exists: a name may be misspelled. It may also be for a namespace that is to come,
/// so the condition is not bad.
fn exemptions_unused(decoded: Option<&DecodedPolicy>, snapshot: &Snapshot) -> ConditionUpdate {
    let all = decoded.map_or(&[][..], |decoded| &decoded.policy.exemptions);
    let exists = |pattern: &String| {
        let mut names = snapshot.cache.namespaces.keys();
        names.any(|name| matches(pattern, name))
    };
    let unused = all.iter().filter(|dated| {
        let namespaces = &dated.namespaces;
        !namespaces.is_empty() && !namespaces.iter().any(exists)
    });
    let unused = unused.map(|dated| {
        let note = cut(&dated.exemption.note, 128);
        format!("{} (\"{note}\")", list(&dated.namespaces, MOST_NAMES))
    });
    let message =
        |names| format!("exemptions for namespaces that do not exist: {names}; correct or remove them");
    let unused = listed(unused).map(|names| ("NamespaceNotFound", message(names)));
    ConditionUpdate::notice("ExemptionsUnused", unused)
}

/// The exemptions in this state, by their notes.
fn exemptions(decoded: Option<&DecodedPolicy>, state: ExemptionState, today: Date) -> Option<String> {
    let all = decoded.map_or(&[][..], |decoded| &decoded.policy.exemptions);
    let so = all.iter().filter(|dated| dated.state(today) == state);
    listed(so.map(|dated| format!("\"{}\"", cut(&dated.exemption.note, 128))))
}

fn labels_ignored(reach: &PolicyReach<'_>) -> ConditionUpdate {
    let message = |namespaces| {
        format!(
            "labels without effect are on {} of the namespaces where the policy applies: {namespaces}; their Events give the \
             reason and the remedy: kubectl get events -n default --field-selector reason=LabelIgnored",
            reach.ignored.len()
        )
    };
    let unmet = listed(&reach.ignored).map(|namespaces| ("LabelsIgnored", message(namespaces)));
    let met = (
        "NoLabelsIgnored",
        "every label for Transom has its effect in the namespaces where the policy applies",
    );
    ConditionUpdate::expect_false("NamespaceLabelsIgnored", unmet, met)
}

/// Whether there are namespaces without a policy. This can be intended, so the condition is not bad: Events report
/// each namespace that loses its policy.
fn without_policy(snapshot: &Snapshot) -> ConditionUpdate {
    let names: Vec<&str> = snapshot.namespaces_without_policy().collect();
    let message = |namespaces| {
        format!(
            "no policy selects {} of the namespaces that the webhooks select: {namespaces}; the built-in policy applies there \
             (mode Audit); a policy without namespaceSelector selects every namespace",
            names.len()
        )
    };
    let some = listed(&names).map(|namespaces| ("NotSelected", message(namespaces)));
    ConditionUpdate::notice(WITHOUT_POLICY, some)
}

/// A list of names for a message; `None` if it is empty.
fn listed<N: AsRef<str>>(names: impl IntoIterator<Item = N>) -> Option<String> {
    Some(list(names, MOST_NAMES)).filter(|names| !names.is_empty())
}
