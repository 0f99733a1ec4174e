//! Queues of pending writes. They are short because each entry holds a whole report.

use serde_json::Value;
use tokio::sync::mpsc;

use super::dialect::ReportApi;
use super::tell::OwnerEvent;

/// Capacity for reports after a change; if it is full, the object is read again later.
const NEWS: usize = 64;
/// Capacity for reports of a pass; the pass waits if it is full.
const REST: usize = 8;

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
    pub dialect: Option<ReportApi>,
    /// The report.
    pub body: Value,
    /// The Event on the owner to publish with it.
    pub note: Option<OwnerEvent>,
}

/// The sending end of both queues.
#[derive(Debug)]
pub struct WriteQueue {
    news: mpsc::Sender<ReportWrite>,
    rest: mpsc::Sender<ReportWrite>,
}

/// The receiving end of both queues.
#[derive(Debug)]
pub struct WriteReceiver {
    /// Writes after a change.
    pub news: mpsc::Receiver<ReportWrite>,
    /// Writes of a pass.
    pub rest: mpsc::Receiver<ReportWrite>,
}

/// Creates both queues.
pub fn desk() -> (WriteQueue, WriteReceiver) {
    let (news, take_news) = mpsc::channel(NEWS);
    let (rest, take_rest) = mpsc::channel(REST);
    let tray = WriteReceiver {
        news: take_news,
        rest: take_rest,
    };
    (WriteQueue { news, rest }, tray)
}

impl WriteQueue {
    /// Queues a write after a change; returns whether there was room.
    pub fn news(&self, write: ReportWrite) -> bool {
        self.news.try_send(write).is_ok()
    }

    /// Queues a write of a pass; waits for room.
    pub async fn rest(&self, write: ReportWrite) {
        // The queue is drained as long as passes run.
        let _ = self.rest.send(write).await;
    }

    /// Whether both queues are empty.
    pub fn is_empty(&self) -> bool {
        self.news.capacity() == NEWS && self.rest.capacity() == REST
    }
}
