//! The status of a node policy: conditions and counts, in words for people who have to act on them. Pure.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::events::{Event, EventType};

use super::nodes::assess::Standing;
use super::nodes::names::{BRIEF, first, shortened};
use super::policies::NodePolicy;
use crate::api::{BuildCount, Drift, NodeDrift, TaintMode, WindowsNodePolicyStatus};

/// How many nodes a message names.
const NAMED: usize = 20;
/// The longest text that is not a condition's own message, in characters. An Event is refused with a note of 1024 bytes.
const LONGEST_BRIEF: usize = 512;

/// What the guard has found for a policy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Guarded {
    /// It was not asked, or found nobody.
    #[default]
    Free,
    /// Somebody would be hurt.
    Refused {
        /// What to tell people.
        message: String,
        /// The same in one line.
        brief: String,
    },
    /// It could not find out.
    Unknown(String),
}

/// What is known of a policy besides how its nodes stand.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// What the guard has found.
    pub guarded: Guarded,
    /// Nodes that could not be written, with the reason.
    pub failures: Vec<String>,
    /// Nodes whose labels or taints somebody rewrites again and again.
    pub restless: Vec<String>,
    /// How its RuntimeClasses stand; `None` where it manages none.
    pub classes: Option<Classes>,
}

/// How the RuntimeClasses of a policy stand.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Classes {
    /// Those that there are.
    pub names: Vec<String>,
    /// What is worth knowing.
    pub notes: Vec<String>,
    /// What is wrong.
    pub problems: Vec<String>,
}

struct Says {
    kind: &'static str,
    holds: bool,
    reason: &'static str,
    message: String,
    /// The message in one line, for `lastProblem`, `Ready` and Events.
    brief: String,
}

/// The types of our conditions; the last is there only where RuntimeClasses are.
const OURS: [&str; 6] = [
    "Ready",
    "Contested",
    "TaintsRefused",
    "Overlapping",
    "UnsupportedBuilds",
    "RuntimeClassesReady",
];

/// The status of a policy; `before` is the one that stands, whose times are kept where nothing has changed.
pub fn status_of(
    policy: &NodePolicy,
    standing: &Standing,
    known: &Known,
    before: Option<&WindowsNodePolicyStatus>,
    now: Timestamp,
) -> WindowsNodePolicyStatus {
    let mut says = vec![
        contested(standing, known),
        refused(policy, standing, known),
        overlapping(policy, standing),
        unsupported(standing),
    ];
    says.extend(known.classes.as_ref().map(classes));
    let problem = problem(policy, known, &says);
    says.insert(0, ready(standing, problem.as_ref()));
    let builds: Vec<BuildCount> = (standing.builds.iter())
        .map(|(build, nodes)| BuildCount {
            build: build.to_string(),
            release: build.release().map(|release| release.name.to_owned()),
            nodes: number(*nodes),
        })
        .collect();
    WindowsNodePolicyStatus {
        observed_generation: Some(policy.generation),
        conditions: conditions(says, policy.generation, before, now),
        nodes: number(standing.nodes),
        build_summary: BuildCount::summary(&builds),
        builds,
        drift: Drift {
            count: number(standing.drift.len()),
            nodes: (standing.drift.iter().take(Drift::MOST))
                .map(|(name, what)| NodeDrift {
                    name: name.clone(),
                    what: shortened(&what.join("; "), 1024),
                })
                .collect(),
        },
        last_problem: problem.map(|(_, brief)| brief),
    }
}

/// The Events that go with a status: one when taints begin to be refused or contested, or are for another reason, and one
/// when that is over. `before` is the status that stood.
pub fn news_of(
    policy: &NodePolicy,
    standing: &Standing,
    known: &Known,
    before: Option<&WindowsNodePolicyStatus>,
) -> Vec<Event> {
    let says = [refused(policy, standing, known), contested(standing, known)];
    let news = says.into_iter().filter(|says| {
        let mut held = before.into_iter().flat_map(|before| &before.conditions);
        let held = held.find(|old| old.type_ == says.kind && old.status == "True");
        match held {
            Some(old) => !says.holds || old.reason != says.reason,
            None => says.holds,
        }
    });
    news.map(|says| Event {
        type_: if says.holds {
            EventType::Warning
        } else {
            EventType::Normal
        },
        reason: says.reason.to_owned(),
        note: Some(says.brief),
        action: "KeepTaints".to_owned(),
        secondary: None,
    })
    .collect()
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn conditions(
    says: Vec<Says>,
    generation: i64,
    before: Option<&WindowsNodePolicyStatus>,
    now: Timestamp,
) -> Vec<Condition> {
    let ours = says.into_iter().map(|says| {
        let status = if says.holds { "True" } else { "False" };
        let same = (before.into_iter().flat_map(|before| &before.conditions))
            .find(|old| old.type_ == says.kind && old.status == status);
        Condition {
            type_: says.kind.to_owned(),
            status: status.to_owned(),
            reason: says.reason.to_owned(),
            // The API server takes no more than 32768 characters.
            message: shortened(&says.message, 16 * 1024),
            observed_generation: Some(generation),
            last_transition_time: same.map_or(Time(now), |old| old.last_transition_time.clone()),
        }
    });
    // Those of other writers stay.
    let others = before.into_iter().flat_map(|before| &before.conditions);
    ours.chain(others.filter(|other| !OURS.contains(&&*other.type_)).cloned())
        .collect()
}

/// What keeps the policy from being ready, most urgent first: a reason, and a line.
fn problem(policy: &NodePolicy, known: &Known, says: &[Says]) -> Option<(&'static str, String)> {
    if let Some(why) = &policy.unusable {
        let text = format!("{why}; until it can be read nothing is set and nothing taken back");
        return Some(("InvalidSelector", shortened(&text, LONGEST_BRIEF)));
    }
    let abnormal = |kind: &str, bad: bool| says.iter().find(|s| s.kind == kind && s.holds == bad);
    for (kind, bad) in [
        ("TaintsRefused", true),
        ("Contested", true),
        ("Overlapping", true),
        ("RuntimeClassesReady", false),
    ] {
        if let Some(says) = abnormal(kind, bad) {
            return Some((says.kind, says.brief.clone()));
        }
    }
    if let Some(first) = known.failures.first() {
        let text = format!("{} nodes could not be written: {first}", known.failures.len());
        return Some(("WriteFailed", shortened(&text, LONGEST_BRIEF)));
    }
    let left_out = || shortened(&policy.left_out.join("; "), LONGEST_BRIEF);
    (!policy.left_out.is_empty()).then(|| ("LeftOut", left_out()))
}

fn ready(standing: &Standing, problem: Option<&(&'static str, String)>) -> Says {
    let nodes = standing.nodes;
    let (holds, reason, message) = match problem {
        Some((reason, message)) => (false, *reason, message.clone()),
        None if standing.unwritten > 0 => (
            false,
            "Converging",
            format!(
                "{} of {nodes} Windows nodes are still to be written",
                standing.unwritten
            ),
        ),
        None if nodes == 0 => (
            true,
            "NoNodes",
            "it selects no Windows node at present".to_owned(),
        ),
        None if standing.drift.is_empty() => (
            true,
            "AsWanted",
            format!("all {nodes} Windows nodes are as they are to be"),
        ),
        None => (
            true,
            "Reported",
            format!(
                "what Transom writes is written; status.drift says what is not as it is to be on {} of {nodes} Windows \
                 nodes",
                standing.drift.len()
            ),
        ),
    };
    Says {
        kind: "Ready",
        holds,
        reason,
        brief: message.clone(),
        message,
    }
}

fn contested(standing: &Standing, known: &Known) -> Says {
    let parts = |most: usize| {
        let mut parts = Vec::new();
        if !standing.contested.is_empty() {
            let taints: BTreeSet<String> = standing
                .contested
                .values()
                .flatten()
                .map(ToString::to_string)
                .collect();
            parts.push(format!(
                "another writer took {} away three times on {}: it is not set there any more; set it where that writer \
                 reads it (the node pool), or change the policy to try again",
                first(taints.iter().map(String::as_str), most),
                first(standing.contested.keys().map(String::as_str), most)
            ));
        }
        if !known.restless.is_empty() {
            parts.push(format!(
                "another writer undoes what is written to {} again and again; it is corrected ever more slowly: find that \
                 writer in metadata.managedFields of the node",
                first(known.restless.iter().map(String::as_str), most)
            ));
        }
        parts
    };
    let quiet = "nobody undoes what is written";
    let says = says("Contested", &parts(NAMED), "OtherWriter", "NoOtherWriter", quiet);
    match parts(BRIEF).as_slice() {
        [] => says,
        brief => Says {
            brief: shortened(&brief.join("; "), LONGEST_BRIEF),
            ..says
        },
    }
}

fn refused(policy: &NodePolicy, standing: &Standing, known: &Known) -> Says {
    let waits = !standing.waiting.is_empty() && policy.stored.spec.taints.mode == TaintMode::Apply;
    let quiet = "no taint is held back";
    let of = |parts: &[String], reason| says("TaintsRefused", parts, reason, "NobodyHurt", quiet);
    match &known.guarded {
        Guarded::Refused { message, brief } if waits => Says {
            brief: shortened(brief, LONGEST_BRIEF),
            ..of(std::slice::from_ref(message), "WouldHurt")
        },
        Guarded::Unknown(message) if waits => of(
            &[format!(
                "not set, because it cannot be known whether anybody would be hurt: {message}"
            )],
            "NotKnown",
        ),
        _ => of(&[], "WouldHurt"),
    }
}

fn overlapping(policy: &NodePolicy, standing: &Standing) -> Says {
    let parts = standing.overlapping.iter().map(|(other, node)| {
        let first = policy.name.as_str().min(other);
        format!(
            "node {node} is selected by {} and {other}: {first} counts, as the first by name; make their nodeSelectors \
             exclude each other",
            policy.name
        )
    });
    says(
        "Overlapping",
        &parts.collect::<Vec<_>>(),
        "SameNodes",
        "NoOther",
        "no other policy selects its nodes",
    )
}

fn unsupported(standing: &Standing) -> Says {
    let parts = standing.unsupported.iter().map(|(build, nodes)| {
        let product = build.release().map_or("an unknown release", |release| release.product);
        format!(
            "{nodes} nodes run {build} ({product}), which this Kubernetes release is not documented to support; nothing \
             is done about it here: move their workloads to a supported release"
        )
    });
    says(
        "UnsupportedBuilds",
        &parts.collect::<Vec<_>>(),
        "OldOrNew",
        "Supported",
        "every known build is supported, or not known",
    )
}

fn classes(classes: &Classes) -> Says {
    let mut message = match classes.names.as_slice() {
        [] => "there is no Windows node, and no class, yet".to_owned(),
        names => names.join(", "),
    };
    let holds = classes.problems.is_empty();
    for more in classes.problems.iter().chain(&classes.notes) {
        message.push_str("; ");
        message.push_str(more);
    }
    Says {
        kind: "RuntimeClassesReady",
        holds,
        reason: if holds { "AsWanted" } else { "Problem" },
        brief: in_brief(&classes.problems, &message),
        message,
    }
}

/// A condition that holds where something is to be told.
fn says(kind: &'static str, parts: &[String], yes: &'static str, no: &'static str, quiet: &str) -> Says {
    let holds = !parts.is_empty();
    Says {
        kind,
        holds,
        reason: if holds { yes } else { no },
        message: if holds { parts.join("; ") } else { quiet.to_owned() },
        brief: in_brief(parts, quiet),
    }
}

/// The first part, and how many more there are.
fn in_brief(parts: &[String], quiet: &str) -> String {
    match parts {
        [] => shortened(quiet, LONGEST_BRIEF),
        [only] => shortened(only, LONGEST_BRIEF),
        [one, more @ ..] => format!("{}; and {} more", shortened(one, LONGEST_BRIEF - 32), more.len()),
    }
}

#[cfg(test)]
mod tests;
