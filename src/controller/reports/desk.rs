//! Writes that wait for their turn: a few, because each holds what it writes.

use serde_json::Value;
use tokio::sync::mpsc;

use super::dialect::ReportApi;
use super::tell::OwnerEvent;

/// Reports that wait to be written after a change: what is more is read anew later.
const NEWS: usize = 64;
/// Reports of a pass that wait to be written: the pass waits for them.
const REST: usize = 8;

/// One report to write.
#[derive(Debug)]
pub struct ReportWrite {
    /// The uid of its owner.
    pub uid: Box<str>,
    /// Its namespace.
    pub namespace: Box<str>,
    /// What it says.
    pub content: u64,
    /// The kind of report that it is.
    pub dialect: Option<ReportApi>,
    /// The report.
    pub body: Value,
    /// What is told of the owner with it.
    pub note: Option<OwnerEvent>,
}

/// Where writes are handed in.
#[derive(Debug)]
pub struct WriteQueue {
    news: mpsc::Sender<ReportWrite>,
    rest: mpsc::Sender<ReportWrite>,
}

/// Where writes are taken from.
#[derive(Debug)]
pub struct WriteReceiver {
    /// After a change.
    pub news: mpsc::Receiver<ReportWrite>,
    /// Of a pass.
    pub rest: mpsc::Receiver<ReportWrite>,
}

/// A desk and its tray.
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
    /// Hands in what is due after a change; says whether there was room.
    pub fn news(&self, write: ReportWrite) -> bool {
        self.news.try_send(write).is_ok()
    }

    /// Hands in what a pass has found, once there is room.
    pub async fn rest(&self, write: ReportWrite) {
        // The tray is emptied for as long as passes are made.
        let _ = self.rest.send(write).await;
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.news.capacity() == NEWS && self.rest.capacity() == REST
    }
}
