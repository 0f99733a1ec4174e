//! Draining Windows nodes without an outage: which pods are evicted, what cannot be moved without one, and the next step.
//! Pure: reads JSON that the command lists, and decides; the command evicts.

mod classify;
mod history;
mod inventory;
mod lacking_images;
mod next;
mod preemption;
mod report;
mod room;
mod state;

pub use self::classify::{Outage, OutageCause, PodClass, RefusedPods, classify, outages, refused};
pub use self::history::DrainHistory;
pub use self::inventory::{DrainInventory, InventoryNode};
pub use self::lacking_images::{ImageWait, LackingImage, lacking_images};
pub use self::next::{DrainAction, StopCause, WaitCause, next};
pub use self::preemption::foreseen_preemption;
pub use self::report::{
    DRAIN_SCHEMA, DrainEvent, DrainEventKind, DrainReport, DrainResult, DrainedNode, PodToMove,
};
pub use self::state::{
    DisruptionBudget, DrainNode, DrainPod, DrainProgress, DrainRules, DrainState, EvictionAnswer, PodName,
    ReadTime,
};

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
