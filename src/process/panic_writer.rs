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
const PATIENCE: Duration = Duration::from_millis(500);
/// The maximum number of waiting messages.
const MOST: usize = 16;

/// The writer thread, if started: a write cannot be cancelled, but the thread that does it can be abandoned.
static SPEAKER: OnceLock<SyncSender<PanicWriter>> = OnceLock::new();
/// Whether the reader has exceeded its time.
static IS_STUCK: AtomicBool = AtomicBool::new(false);

struct PanicWriter {
    text: String,
    written: Sender<()>,
}

/// From now on, panics and [`write_line`] wait only briefly for the reader.
///
/// # Errors
/// If no thread can be started.
pub(super) fn start() -> std::io::Result<()> {
    let (speaker, words) = sync_channel(MOST);
    thread::Builder::new()
        .name("last words".to_owned())
        .spawn(move || speak(&words))?;
    if SPEAKER.set(speaker).is_ok() {
        set_hook(Box::new(|panic| write_line(of_panic(panic))));
    }
    Ok(())
}

/// Writes a message, ahead of waiting log lines.
pub fn write_line(text: String) {
    let Some(speaker) = SPEAKER.get() else {
        return anstream::eprint!("{text}");
    };
    let (written, end) = channel();
    let waits = speaker.try_send(PanicWriter { text, written }).is_ok();
    if waits && !IS_STUCK.load(Relaxed) && end.recv_timeout(PATIENCE).is_err() {
        IS_STUCK.store(true, Relaxed);
    }
}

fn speak(words: &Receiver<PanicWriter>) {
    while let Ok(PanicWriter { text, written }) = words.recv() {
        // The sender and the reader may both be gone.
        let _ = std::io::stderr().write_all(text.as_bytes());
        IS_STUCK.store(false, Relaxed);
        let _ = written.send(());
    }
}

fn of_panic(panic: &PanicHookInfo<'_>) -> String {
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
