//! Carrying out a plan: one merge patch that names its resourceVersion; on a conflict the node is read and planned anew.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::api::{Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Api, Client};
use tokio::time::Instant;

use super::plan::{Change, NodePlan};
use super::read::view_of;
use crate::cluster::errors::{Failure, answered};
use crate::cluster::lease::Leadership;
use crate::cluster::view::NodeView;
use crate::model::facts::BUILD_LABEL;

/// Who the API server says wrote it.
pub const FIELD_MANAGER: &str = "transom";
/// How often a node is planned anew because somebody else was faster.
const ATTEMPTS: u32 = 6;

/// Turns at a steady pace, shared by everybody who writes.
#[derive(Debug)]
pub struct Pace {
    gap: Duration,
    next: Mutex<Instant>,
}

impl Pace {
    /// So many turns in a second.
    pub fn per_second(turns: u32) -> Self {
        Pace {
            gap: Duration::from_secs(1) / turns.max(1),
            next: Mutex::new(Instant::now()),
        }
    }

    /// Waits for one's turn.
    pub async fn turn(&self) {
        let at = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let at = (*next).max(Instant::now());
            *next = at + self.gap;
            at
        };
        tokio::time::sleep_until(at).await;
    }
}

/// When an object may be written again: ever later, the more often somebody else undoes what was written.
#[derive(Debug)]
pub struct BackOff {
    first: Duration,
    written: HashMap<String, Written>,
}

#[derive(Clone, Copy, Debug)]
struct Written {
    times: u32,
    last: Instant,
    next: Instant,
}

impl BackOff {
    /// The longest wait.
    const MOST: Duration = Duration::from_secs(300);
    /// After how long without a write all is forgotten.
    const FORGET: Duration = Duration::from_secs(900);
    /// From how many writes on somebody is said to undo them.
    const RESTLESS: u32 = 5;

    /// Waits of `first`, twice that, and so on.
    pub fn new(first: Duration) -> Self {
        BackOff {
            first,
            written: HashMap::new(),
        }
    }

    /// When an object may be written; `None`: now.
    pub fn until(&self, key: &str, now: Instant) -> Option<Instant> {
        let next = self.written.get(key)?.next;
        (next > now).then_some(next)
    }

    /// An object was written, or a write failed.
    pub fn wrote(&mut self, key: &str, now: Instant) {
        let before = (self.written.get(key)).filter(|written| now < written.last + Self::FORGET);
        let times = before.map_or(0, |written| written.times).saturating_add(1);
        let wait = self
            .first
            .saturating_mul(1 << (times - 1).min(16))
            .min(Self::MOST);
        let written = Written {
            times,
            last: now,
            next: now + wait,
        };
        self.written.insert(key.to_owned(), written);
    }

    /// Whether an object is written again and again, because somebody undoes it.
    pub fn is_restless(&self, key: &str) -> bool {
        self.written
            .get(key)
            .is_some_and(|written| written.times >= Self::RESTLESS)
    }

    /// Forgets what was quiet for long.
    pub fn forget_quiet(&mut self, now: Instant) {
        self.written
            .retain(|_, written| now < written.last + Self::FORGET);
    }
}

/// How long after a look at the whole cluster in vain it is looked at again: each time twice as long, up to fifteen times.
/// What was found may stay as it is for months.
pub fn patience(every: Duration, in_vain: u32) -> Duration {
    let times = 2_u32.saturating_pow(in_vain.saturating_sub(1)).min(15);
    every.saturating_mul(times)
}

/// What became of one node.
#[derive(Debug)]
pub struct Outcome {
    /// The node as it is now; `None` where it is gone.
    pub node: Option<Arc<NodeView>>,
    /// Whether it was written.
    pub wrote: bool,
    /// Why it is not as it is to be.
    pub error: Option<String>,
}

/// Writes nodes.
pub struct Writer {
    nodes: Api<Node>,
    /// Asked before every write; `None` for a person who cleans up.
    leadership: Option<Leadership>,
    /// Tells people what was changed; `None` where nobody is told.
    recorder: Option<Recorder>,
    pace: Arc<Pace>,
}

impl Writer {
    /// A writer of nodes.
    pub fn new(
        client: Client,
        leadership: Option<Leadership>,
        recorder: Option<Recorder>,
        pace: Arc<Pace>,
    ) -> Self {
        Writer {
            nodes: Api::all(client),
            leadership,
            recorder,
            pace,
        }
    }

    /// Makes a node as it is to be. `decide` is asked anew for every version of it.
    pub async fn bring_about(
        &self,
        node: Arc<NodeView>,
        decide: &(dyn Fn(&NodeView) -> NodePlan + Send + Sync),
    ) -> Outcome {
        let mut node = node;
        for attempt in 0..ATTEMPTS {
            let plan = decide(&node);
            let Some(patch) = plan.patch(&node) else {
                return Outcome::of(Some(node), false);
            };
            // Without a version the write would be unconditional.
            if !node.resource_version.is_empty() {
                self.pace.turn().await;
                if self.leadership.as_ref().is_some_and(|leader| !leader.holds()) {
                    return Outcome::failed(node, "leadership was lost".to_owned());
                }
                let params = PatchParams {
                    field_manager: Some(FIELD_MANAGER.to_owned()),
                    ..PatchParams::default()
                };
                let patch = Patch::Merge(&patch);
                match answered(self.nodes.patch(&node.name, &params, &patch)).await {
                    Ok(written) => {
                        self.tell(&node, &plan.changes).await;
                        return Outcome::of(Some(Arc::new(view_of(&written))), true);
                    }
                    Err(Failure::Gone) => return Outcome::of(None, false),
                    Err(Failure::Conflict) => tokio::time::sleep(jitter(attempt)).await,
                    Err(Failure::Other(error)) => return Outcome::failed(node, error),
                }
            }
            match answered(self.nodes.get(&node.name)).await {
                Ok(fresh) => node = Arc::new(view_of(&fresh)),
                Err(Failure::Gone) => return Outcome::of(None, false),
                Err(Failure::Conflict) => {}
                Err(Failure::Other(error)) => return Outcome::failed(node, error),
            }
        }
        Outcome::failed(
            node,
            format!("somebody else was faster {ATTEMPTS} times in a row"),
        )
    }

    /// Tells people on the node what was changed. Where that fails, the log has it.
    async fn tell(&self, node: &NodeView, changes: &[Change]) {
        for change in changes {
            tracing::info!(node = node.name, %change, "node changed");
            let (Some(recorder), Some(event)) = (&self.recorder, event_of(change)) else {
                continue;
            };
            self.pace.turn().await;
            let reference = ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(node.name.clone()),
                uid: Some(node.uid.clone()).filter(|uid| !uid.is_empty()),
                ..ObjectReference::default()
            };
            if let Err(error) = answered(recorder.publish(&event, &reference)).await {
                tracing::warn!(node = node.name, %change, error = %error, "no Event could be written");
            }
        }
    }
}

impl Outcome {
    fn of(node: Option<Arc<NodeView>>, wrote: bool) -> Self {
        Outcome {
            node,
            wrote,
            error: None,
        }
    }

    fn failed(node: Arc<NodeView>, error: String) -> Self {
        Outcome {
            node: Some(node),
            wrote: false,
            error: Some(error),
        }
    }
}

/// The Event for a change. A mirror that is set for the first time, or taken away, is no news.
fn event_of(change: &Change) -> Option<Event> {
    let (type_, reason, action) = match change {
        Change::Label {
            key,
            from,
            to: Some(_),
        } if *key == BUILD_LABEL || from.is_some() => {
            (EventType::Normal, "LabelCorrected", format!("Correct {key}"))
        }
        Change::Label { .. } => return None,
        Change::TaintSet(taint) => (EventType::Normal, "TaintSet", format!("Set {taint}")),
        Change::TaintTaken(taint) => (EventType::Normal, "TaintTakenBack", format!("Take {taint}")),
        Change::AnnotationLost(_) => (EventType::Warning, "OwnerAnnotationLost", "Mend".to_owned()),
    };
    Some(Event {
        type_,
        reason: reason.to_owned(),
        // Longer ones are refused.
        note: Some(change.to_string().chars().take(900).collect()),
        action: action.chars().take(128).collect(),
        secondary: None,
    })
}

/// A wait that grows, and differs from that of whoever collided with us.
fn jitter(attempt: u32) -> Duration {
    use std::hash::{BuildHasher as _, RandomState};
    let most = 20_u64 << attempt.min(6);
    Duration::from_millis(most / 2 + RandomState::new().hash_one(attempt) % most)
}

/// Whether a version is older than another one. Since Kubernetes 1.35 versions are comparable as numbers by contract;
/// they have been for as long as etcd makes them.
pub fn is_older(version: &str, than: &str) -> bool {
    match (version.parse::<u128>(), than.parse::<u128>()) {
        (Ok(version), Ok(than)) => version < than,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_undone_again_and_again_is_written_ever_later() {
        let start = Instant::now();
        let mut back_off = BackOff::new(Duration::from_secs(1));
        let (mut now, mut writes) = (start, 0);
        while now < start + Duration::from_secs(3600) {
            back_off.wrote("w1", now);
            writes += 1;
            now = back_off.until("w1", now).unwrap();
        }
        assert!((10..30).contains(&writes), "{writes} writes in an hour");
        assert!(back_off.is_restless("w1") && !back_off.is_restless("w2"));
        back_off.forget_quiet(now + BackOff::FORGET);
        assert!(!back_off.is_restless("w1"));
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(is_older("9", "10"));
        assert!(!is_older("10", "10"));
        assert!(!is_older("a", "10"));
    }

    #[tokio::test]
    async fn turns_come_no_faster_than_the_pace() {
        let pace = Pace::per_second(1000);
        let start = Instant::now();
        for _ in 0..101 {
            pace.turn().await;
        }
        assert!(start.elapsed() >= Duration::from_millis(100));
    }

    #[test]
    fn a_guard_that_says_no_is_asked_ever_later_up_to_a_quarter_of_an_hour() {
        let minutes: Vec<u64> = (1..=6)
            .chain([u32::MAX])
            .map(|refusals| patience(Duration::from_secs(60), refusals).as_secs() / 60)
            .collect();
        assert_eq!(minutes, [1, 2, 4, 8, 15, 15, 15]);
    }
}
