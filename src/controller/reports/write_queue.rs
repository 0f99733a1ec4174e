//! Queues of pending writes. They are short because each entry holds a whole report.

use serde_json::Value;
use tokio::sync::mpsc;

use super::events::OwnerEvent;
use super::report_api::ReportApi;

/// Capacity for reports after a change; if it is full, the object is read again later.
const CHANGES: usize = 64;
/// Capacity for reports of a rescan, which waits if it is full.
const RESCANS: usize = 8;

/// One report to write.
#[derive(Debug)]
pub struct ReportWrite {
    /// The uid of its owner.
    pub uid: Box<str>,
    /// Its namespace.
    pub namespace: Box<str>,
    /// The hash of its content.
    pub content: u64,
    /// The report API to write to.
    pub api: Option<ReportApi>,
    /// The report.
    pub body: Value,
    /// The Event on the owner to publish with it.
    pub event: Option<OwnerEvent>,
}

/// The sending end of both queues.
#[derive(Debug)]
pub struct WriteQueue {
    changes: mpsc::Sender<ReportWrite>,
    rescans: mpsc::Sender<ReportWrite>,
}

/// The receiving end of both queues.
#[derive(Debug)]
pub struct WriteReceiver {
    /// Writes after a change.
    pub changes: mpsc::Receiver<ReportWrite>,
    /// Writes of a rescan.
    pub rescans: mpsc::Receiver<ReportWrite>,
}

/// Creates both queues.
pub fn write_queue() -> (WriteQueue, WriteReceiver) {
    let (changes, take_changes) = mpsc::channel(CHANGES);
    let (rescans, take_rescans) = mpsc::channel(RESCANS);
    let receiver = WriteReceiver {
        changes: take_changes,
        rescans: take_rescans,
    };
    (WriteQueue { changes, rescans }, receiver)
}

impl WriteQueue {
    /// Queues a write after a change; returns whether there was room.
    pub fn push_change(&self, write: ReportWrite) -> bool {
        self.changes.try_send(write).is_ok()
    }

    /// Queues a write of a rescan; waits for room.
    pub async fn push_rescan(&self, write: ReportWrite) {
        // The queue is drained as long as rescans run.
        let _ = self.rescans.send(write).await;
    }

    /// Whether both queues are empty.
    pub fn is_empty(&self) -> bool {
        self.changes.capacity() == CHANGES && self.rescans.capacity() == RESCANS
    }
}
