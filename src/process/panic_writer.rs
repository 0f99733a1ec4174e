//! What a process says to standard error beside its log, when it panics or ends: at once, and without waiting for ever for
//! a reader that does not read.

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
/// How many words wait at most.
const MOST: usize = 16;

/// The thread that writes, where there is one: a write cannot be called off, but a thread that does it can be left behind.
static SPEAKER: OnceLock<SyncSender<PanicWriter>> = OnceLock::new();
/// Whether the reader took longer than it may.
static IS_STUCK: AtomicBool = AtomicBool::new(false);

struct PanicWriter {
    text: String,
    said: Sender<()>,
}

/// From now on panics and [`write_line`] wait for nothing.
///
/// # Errors
/// There is no thread to be had.
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

/// Says something: a log that waits to be written does not stand before it.
pub fn write_line(text: String) {
    let Some(speaker) = SPEAKER.get() else {
        return anstream::eprint!("{text}");
    };
    let (said, end) = channel();
    let waits = speaker.try_send(PanicWriter { text, said }).is_ok();
    if waits && !IS_STUCK.load(Relaxed) && end.recv_timeout(PATIENCE).is_err() {
        IS_STUCK.store(true, Relaxed);
    }
}

fn speak(words: &Receiver<PanicWriter>) {
    while let Ok(PanicWriter { text, said }) = words.recv() {
        // Neither the thread that asked nor the reader has to be there still.
        let _ = std::io::stderr().write_all(text.as_bytes());
        IS_STUCK.store(false, Relaxed);
        let _ = said.send(());
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
