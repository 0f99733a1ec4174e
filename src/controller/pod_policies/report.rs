//! What the status of a pod policy says, and which Events go with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::runtime::events::{Event, EventType};
use serde_json::Value;

use super::registered;
use crate::api::{
    API_VERSION, DecodedPolicy, MatchedNamespaces, POD_POLICY, WindowsPodPolicyStatus, cut, in_one_line,
};
use crate::cluster::policies::{Outcome, generation, text};
use crate::cluster::snapshot::Snapshot;
use crate::cluster::view::ClusterView;
use crate::engine::effective::PolicySet;
use crate::engine::namespace_labels;
use crate::model::build::RELEASES;
use crate::rules;

/// An Event is refused with a note of 1024 bytes or more.
pub(super) const LONGEST_NOTE: usize = 1000;
/// So many names are listed in one message.
const MOST_NAMES: usize = 10;
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
    pub notes: Vec<Note>,
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

/// One Event, as data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// Whether somebody has to do something.
    pub warning: bool,
    /// What it is about, in one word: the reason of the condition.
    pub reason: &'static str,
    /// The same in words.
    pub message: String,
}

impl Note {
    /// The Event.
    pub fn event(&self) -> Event {
        Event {
            type_: if self.warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: self.reason.to_owned(),
            note: Some(cut(&self.message, LONGEST_NOTE)),
            action: "ReadPolicy".to_owned(),
            secondary: None,
        }
    }
}

/// A condition before it has a time.
pub(super) struct Finding {
    pub(super) kind: &'static str,
    pub(super) holds: bool,
    /// Whether somebody has to do something.
    pub(super) bad: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// Where a policy counts, and with whom it is at odds.
#[derive(Default)]
struct Reach<'v> {
    selected: Vec<&'v str>,
    effective: i64,
    /// Policies of the same priority and the namespaces in question, and whether this one counts there.
    ties: BTreeMap<&'v str, (bool, Vec<&'v str>)>,
    /// The namespaces where it counts and labels do nothing, with those labels.
    ignored: Vec<String>,
}

/// The statuses that are to be written.
pub fn reports(snapshot: &Snapshot, now: Timestamp) -> Vec<Report> {
    let view = &*snapshot.view;
    let today = now.to_zoned(TimeZone::UTC).date();
    let reach = reach(&snapshot.policies, view);
    let others = snapshot.policies.stored().len();
    (snapshot.outcomes.iter())
        .filter_map(|(name, outcome)| {
            let object = view.pod_policies.get(name)?;
            let none = Reach::default();
            let reach = reach.get(name.as_str()).unwrap_or(&none);
            let mut findings = findings(name, outcome, reach, others, today);
            // After Ready. While it is not known what is registered, what was said of it stays.
            if let Some(known) = &snapshot.registered {
                let registered = registered::registered(outcome.in_force(), known, &snapshot.policies, view);
                findings.insert(1, registered);
            }
            let mut report = report(name, object, findings, reach, now)?;
            // An Event has less room than a condition.
            let short = ready(outcome, others, LONGEST_NOTE);
            let of_ready = report.notes.iter_mut().filter(|note| note.reason == short.reason);
            of_ready.for_each(|note| note.message.clone_from(&short.message));
            Some(report)
        })
        .collect()
}

fn reach<'v>(set: &'v PolicySet, view: &'v ClusterView) -> BTreeMap<&'v str, Reach<'v>> {
    let mut reach: BTreeMap<&str, Reach<'_>> = BTreeMap::new();
    for (namespace, seen) in &view.namespaces {
        let labels = &seen.labels;
        let selecting = set
            .stored()
            .iter()
            .filter(|stored| stored.namespace_selector.selects(labels));
        let is_out = namespace_labels::is_out(labels);
        let mut first: Option<(&str, i32)> = None;
        for stored in selecting {
            let name = stored.policy.name.as_str();
            let entry = reach.entry(name).or_default();
            entry.selected.push(namespace);
            match first {
                None => {
                    entry.effective += i64::from(!is_out);
                    let ignored = set.ignored_labels(labels);
                    if !ignored.is_empty() {
                        let ignored = ignored
                            .iter()
                            .map(|label| format!("{}={}", label.key, label.value));
                        let labels = list(ignored);
                        entry.ignored.push(format!("{namespace} ({})", cut(&labels, 128)));
                    }
                    first = Some((name, stored.priority));
                }
                Some((winner, priority)) if priority == stored.priority && !is_out => {
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
    findings: Vec<Finding>,
    reach: &Reach<'_>,
    now: Timestamp,
) -> Option<Report> {
    let stored: WindowsPodPolicyStatus = object
        .get("status")
        .and_then(|status| serde_json::from_value(status.clone()).ok())
        .unwrap_or_default();
    let generation = generation(object);
    let last_problem = findings
        .iter()
        .find(|finding| finding.bad)
        .map(|f| f.message.clone());
    let (mut conditions, mut notes) = (Vec::new(), Vec::new());
    for finding in findings {
        let before = stored
            .conditions
            .iter()
            .find(|condition| condition.type_ == finding.kind);
        notes.extend(note(&finding, before));
        conditions.push(condition(finding, before, generation, now));
    }
    // Conditions of other writers stay.
    let is_ours = |other: &&Condition| conditions.iter().any(|ours| ours.type_ == other.type_);
    let others: Vec<Condition> = stored
        .conditions
        .iter()
        .filter(|c| !is_ours(c))
        .cloned()
        .collect();
    conditions.extend(others);
    let status = WindowsPodPolicyStatus {
        observed_generation: Some(generation),
        conditions,
        matched_namespaces: MatchedNamespaces {
            count: i64::try_from(reach.selected.len()).unwrap_or(i64::MAX),
            effective: reach.effective,
            names: (reach.selected.iter().take(MatchedNamespaces::MOST))
                .map(|name| (*name).to_owned())
                .collect(),
        },
        last_problem,
    };
    (status != stored).then(|| Report {
        name: name.to_owned(),
        uid: text(object, "/metadata/uid").to_owned(),
        resource_version: text(object, "/metadata/resourceVersion").to_owned(),
        status,
        notes,
    })
}

fn condition(finding: Finding, before: Option<&Condition>, generation: i64, now: Timestamp) -> Condition {
    let status = if finding.holds { "True" } else { "False" };
    let same = before.filter(|before| before.status == status);
    // Kubernetes writes times by the second.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    Condition {
        type_: finding.kind.to_owned(),
        status: status.to_owned(),
        observed_generation: Some(generation),
        last_transition_time: same.map_or(Time(now), |before| before.last_transition_time.clone()),
        reason: finding.reason.to_owned(),
        message: finding.message,
    }
}

/// An Event where something has become bad, bad in another way, or good again. Ties, labels, and what is not registered,
/// come and go with namespaces: of ties and labels only the first is told, of the other every new reason.
fn note(finding: &Finding, before: Option<&Condition>) -> Option<Note> {
    let turned = |before: &Condition| (before.status == "True") != finding.holds;
    let tell = match before {
        None => finding.bad,
        Some(before) if turned(before) => true,
        Some(_) if matches!(finding.kind, "Overlapping" | "NamespaceLabelsIgnored") => false,
        Some(before) if finding.kind == registered::KIND => finding.bad && before.reason != finding.reason,
        Some(before) => finding.bad && before.message != finding.message,
    };
    tell.then(|| Note {
        warning: finding.bad,
        reason: finding.reason,
        message: finding.message.clone(),
    })
}

/// The conditions of a policy, the gravest first.
fn findings(name: &str, outcome: &Outcome, reach: &Reach<'_>, in_force: usize, today: Date) -> Vec<Finding> {
    let decoded = outcome.in_force();
    vec![
        ready(outcome, in_force, LONGEST_PROBLEMS),
        rules_known(decoded),
        releases_known(decoded),
        fields_known(decoded),
        overlapping(name, reach),
        exemptions_expired(decoded, today),
        labels_ignored(reach),
    ]
}

/// Whether the policy counts; problems are told as far as they fit into so many bytes, and never at the cost of what
/// counts instead.
fn ready(outcome: &Outcome, in_force: usize, room: usize) -> Finding {
    let (reason, error, consequence) = match outcome {
        Outcome::InForce(_) => {
            return Finding {
                kind: "Ready",
                holds: true,
                bad: false,
                reason: "InForce",
                message: "the policy counts as it is stored".to_owned(),
            };
        }
        Outcome::LastGood {
            generation, error, ..
        } => (
            "KeptLastGood",
            error,
            format!("until then the policy counts as it was at generation {generation}"),
        ),
        Outcome::Skipped { error } => {
            let instead = if in_force == 0 {
                "no other policy can be used either, so that the built-in one counts everywhere"
            } else {
                "other policies count in its place, and the built-in one where none selects a namespace"
            };
            let consequence = format!(
                "until then the policy does not count, because no good version of it has been seen since the start; \
                 {instead} (built-in: validation Audit, placement DryRun)"
            );
            ("Unusable", error, consequence)
        }
    };
    let it = if error.problems.len() == 1 { "it" } else { "them" };
    let end = format!("; correct {it}: {consequence}");
    let problems = in_one_line(&error.problems, room.saturating_sub(end.len()));
    Finding {
        kind: "Ready",
        holds: false,
        bad: true,
        reason,
        message: format!("{problems}{end}"),
    }
}

fn rules_known(decoded: Option<&DecodedPolicy>) -> Finding {
    let none = BTreeSet::new();
    let unknown = decoded.map_or(&none, |decoded| &decoded.unknown_rules);
    let name = |name: &String| match rules::nearest(name) {
        Some(nearest) => format!("{} (did you mean {nearest}?)", cut(name, 64)),
        None => cut(name, 64),
    };
    let (holds, reason, message) = if unknown.is_empty() {
        (
            true,
            "AllKnown",
            "every rule that the policy names is known".to_owned(),
        )
    } else {
        let names = list(unknown.iter().map(name));
        let message = format!(
            "Transom {} has no rule {names}; what the policy says of them is left out, the rest counts; correct the \
             names, or go back to the version that has them",
            env!("CARGO_PKG_VERSION")
        );
        (false, "UnknownRules", message)
    };
    Finding {
        kind: "RulesKnown",
        holds,
        bad: !holds,
        reason,
        message,
    }
}

fn releases_known(decoded: Option<&DecodedPolicy>) -> Finding {
    let none = BTreeSet::new();
    let unknown = decoded.map_or(&none, |decoded| &decoded.unknown_releases);
    let (holds, reason, message) = if unknown.is_empty() {
        (
            true,
            "AllKnown",
            "every release that the policy names is known".to_owned(),
        )
    } else {
        let names = list(unknown.iter().map(|name| cut(name, 64)));
        let known: Vec<&str> = RELEASES.iter().map(|release| release.name).collect();
        let message = format!(
            "spec.runtimeClasses: Transom {} has no release {names}; those entries are left out, the rest counts; there \
             are {}; correct the names, or go back to the version that has them",
            env!("CARGO_PKG_VERSION"),
            known.join(", ")
        );
        (false, "UnknownReleases", message)
    };
    Finding {
        kind: "ReleasesKnown",
        holds,
        bad: !holds,
        reason,
        message,
    }
}

fn fields_known(decoded: Option<&DecodedPolicy>) -> Finding {
    let none = BTreeSet::new();
    let unknown = decoded.map_or(&none, |decoded| &decoded.unknown_fields);
    let (holds, reason, message) = if unknown.is_empty() {
        (
            true,
            "AllKnown",
            "every field that the policy has is known".to_owned(),
        )
    } else {
        let names = list(unknown.iter().map(|name| cut(name, 128)));
        let message = format!(
            "Transom {} does not know {names}; that is left out, the rest counts; remove it, or go back to the version \
             that knows it",
            env!("CARGO_PKG_VERSION")
        );
        (false, "UnknownFields", message)
    };
    Finding {
        kind: "FieldsKnown",
        holds,
        bad: !holds,
        reason,
        message,
    }
}

fn overlapping(name: &str, reach: &Reach<'_>) -> Finding {
    let ties: Vec<String> = (reach.ties.iter())
        .map(|(other, (wins, namespaces))| {
            let counts = if *wins { name } else { other };
            let places = list(namespaces.iter().map(|name| (*name).to_owned()));
            format!("{other} has the same priority and selects {places} too: there {counts} counts")
        })
        .collect();
    let holds = !ties.is_empty();
    let (reason, message) = if holds {
        let message = format!(
            "{}; of equal priorities the name decides that sorts first; give one of them another priority",
            list(ties.into_iter())
        );
        ("SamePriority", message)
    } else {
        let message = "no policy of the same priority selects the same namespaces".to_owned();
        ("Unambiguous", message)
    };
    Finding {
        kind: "Overlapping",
        holds,
        bad: holds,
        reason,
        message,
    }
}

fn exemptions_expired(decoded: Option<&DecodedPolicy>, today: Date) -> Finding {
    let exemptions = decoded.map_or(&[][..], |decoded| &decoded.policy.exemptions);
    let expired: Vec<String> = (exemptions.iter())
        .filter(|dated| dated.expires < today)
        .map(|dated| format!("\"{}\"", cut(&dated.exemption.note, 128)))
        .collect();
    let holds = !expired.is_empty();
    let (reason, message) = if holds {
        let names = list(expired.into_iter());
        (
            "Expired",
            format!("exemptions that no longer count: {names}; renew or remove them"),
        )
    } else {
        ("NoneExpired", "no exemption has expired".to_owned())
    };
    Finding {
        kind: "ExemptionsExpired",
        holds,
        bad: holds,
        reason,
        message,
    }
}

fn labels_ignored(reach: &Reach<'_>) -> Finding {
    let count = reach.ignored.len();
    let (reason, message) = if count > 0 {
        let namespaces = list(reach.ignored.iter().cloned());
        let message = format!(
            "labels that do nothing are on {count} of the namespaces where the policy counts: {namespaces}; the Events of \
             each say why and what to write: kubectl get events -n default --field-selector reason=LabelIgnored"
        );
        ("WithoutEffect", message)
    } else {
        let message = "every label for Transom counts on the namespaces where the policy does".to_owned();
        ("AllCount", message)
    };
    Finding {
        kind: "NamespaceLabelsIgnored",
        holds: count > 0,
        bad: count > 0,
        reason,
        message,
    }
}

/// Names for a message: the first of them, and how many more there are.
fn list(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(MOST_NAMES);
    let mut text = names.take(MOST_NAMES).collect::<Vec<_>>().join(", ");
    if more > 0 {
        let _ = write!(text, " and {more} more");
    }
    text
}
