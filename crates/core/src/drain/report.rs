//! What a drain did, for machines.

use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::classify::Outage;
use super::lacking_images::LackingImage;
use crate::plan::TargetBuild;

/// The schema of [`DrainReport`].
pub const DRAIN_SCHEMA: &str = "transom.dev/drain/v1";

/// The report of a drain.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "Report of transom drain -o json")]
pub struct DrainReport {
    /// The name and the version of this schema.
    #[schemars(extend("const" = DRAIN_SCHEMA))]
    pub schema: &'static str,
    /// The build of the nodes that pods move to; null if `--to` is not set.
    pub to: Option<TargetBuild>,
    /// The nodes, in the order in which they are drained.
    pub nodes: Vec<DrainedNode>,
    /// The pods that were to move when the drain began, in this order.
    pub pods: Vec<PodToMove>,
    /// How many pods stay: static pods, pods of DaemonSets, and pods that the selector does not select.
    pub ignored: usize,
    /// The workloads that have an outage whatever the drain does.
    pub outages: Vec<Outage>,
    /// The images that the other nodes lacked when the drain began.
    pub lacking_images: Vec<LackingImage>,
    /// How many nodes must be added at least; null if that is not known.
    pub nodes_to_add: Option<u64>,
    /// What to know.
    pub notes: Vec<String>,
    /// What happened, in order.
    pub events: Vec<DrainEvent>,
    /// How it ended.
    pub result: DrainResult,
    /// Why it ended before everything was moved; null if it did not.
    pub reason: Option<String>,
}

/// A node that is drained.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct DrainedNode {
    /// Its name.
    pub name: String,
    /// Its pool.
    pub pool: String,
}

/// A pod that moves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct PodToMove {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its node.
    pub node: String,
    /// Its workload, as in `Deployment shop/web`; null if it has no controller.
    pub workload: Option<String>,
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct DrainEvent {
    /// When.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub time: Timestamp,
    /// What.
    pub event: DrainEventKind,
    /// The node or the pod, or what the drain waits for.
    pub about: String,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum DrainEventKind {
    /// A node was cordoned.
    Cordoned,
    /// A node was uncordoned.
    Uncordoned,
    /// The eviction of a pod was accepted.
    Evicted,
    /// The eviction of a pod failed for another reason than a budget.
    Failed,
    /// Another node has the name of one that was to be drained, and is not drained.
    Replaced,
    /// The drain waits.
    Waiting,
}

impl DrainReport {
    /// Whether the drain has changed something.
    pub fn has_changes(&self) -> bool {
        self.events.iter().any(DrainEvent::is_change)
    }
}

impl DrainEvent {
    /// Whether it changed something in the cluster.
    pub fn is_change(&self) -> bool {
        matches!(
            self.event,
            DrainEventKind::Cordoned | DrainEventKind::Uncordoned | DrainEventKind::Evicted
        )
    }
}

/// As a line begins.
impl fmt::Display for DrainEventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DrainEventKind::Cordoned => "cordoned",
            DrainEventKind::Uncordoned => "uncordoned",
            DrainEventKind::Evicted => "evicted",
            DrainEventKind::Failed => "failed to evict",
            DrainEventKind::Replaced => "not drained, because another node has this name now:",
            DrainEventKind::Waiting => "waiting:",
        })
    }
}

/// How a drain ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum DrainResult {
    /// Everything is moved and available, or `--uncordon` is done.
    Done,
    /// It was a dry run, and nothing keeps the drain from beginning.
    Planned,
    /// It ended before everything was moved, or did not begin.
    Stopped,
    /// A signal ended it.
    Interrupted,
}
