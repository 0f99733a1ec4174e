//! Writes messages to standard error outside the log, when a process panics or ends: immediately, and without
//! waiting forever for a reader that does not read.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::Write as _;
use std::panic::{PanicHookInfo, set_hook};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

/// How long the reader may take.
const TIMEOUT: Duration = Duration::from_millis(500);
/// The maximum number of waiting messages.
const MAX_WAITING: usize = 16;

/// The writer thread, if started: a write cannot be cancelled, but the thread that does it can be abandoned.
static STDERR_WRITER: OnceLock<SyncSender<StderrMessage>> = OnceLock::new();
/// Whether the reader has exceeded its time.
static IS_STUCK: AtomicBool = AtomicBool::new(false);

struct StderrMessage {
    text: String,
    written: Sender<()>,
}

/// From now on, panics and [`write_line`] wait only briefly for the reader.
///
/// # Errors
/// If no thread can be started.
pub(super) fn start() -> std::io::Result<()> {
    let (sender, messages) = sync_channel(MAX_WAITING);
    thread::Builder::new()
        .name("stderr".to_owned())
        .spawn(move || write_messages(&messages))?;
    if STDERR_WRITER.set(sender).is_ok() {
        set_hook(Box::new(|panic| write_line(describe(panic))));
    }
    Ok(())
}

/// Writes a message, ahead of waiting log lines.
pub fn write_line(text: String) {
    let Some(sender) = STDERR_WRITER.get() else {
        // `eprint!` would panic again.
        return drop(write!(anstream::stderr(), "{text}"));
    };
    let (written, end) = channel();
    let waits = sender.try_send(StderrMessage { text, written }).is_ok();
    if waits && !IS_STUCK.load(Relaxed) && end.recv_timeout(TIMEOUT).is_err() {
        IS_STUCK.store(true, Relaxed);
    }
}

fn write_messages(messages: &Receiver<StderrMessage>) {
    while let Ok(StderrMessage { text, written }) = messages.recv() {
        // The sender and the reader may both be gone.
        let _ = std::io::stderr().write_all(text.as_bytes());
        IS_STUCK.store(false, Relaxed);
        let _ = written.send(());
    }
}

fn describe(panic: &PanicHookInfo<'_>) -> String {
    let thread = thread::current();
    let trace = Backtrace::capture();
    let trace = match trace.status() {
        BacktraceStatus::Captured => trace.to_string(),
        _ => String::new(),
    };
    format!(
        "thread '{}' {panic}\n{trace}",
        thread.name().unwrap_or("without a name")
    )
}
