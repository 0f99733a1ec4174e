//! The queue of log lines for standard error: bounded in bytes, and written by a separate thread, so that no
//! part of Transom waits for the reader of its log.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread::sleep;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt::MakeWriter;

/// The capacity, in bytes.
const ROOM: usize = 4 << 20;
/// The minimum cost of a line, in bytes: it bounds the number of lines, which is the queue's own limit.
const LEAST: usize = 512;

/// The size of one write, in bytes.
const PIECE: usize = 64 << 10;
/// How long lines are collected after everything was written: waking the thread for each line costs more than
/// creating it.
const GATHER: Duration = Duration::from_millis(2);
/// The longest line, in bytes. External texts are truncated before they are logged, so only a bug creates a
/// longer line.
const LONGEST: usize = 64 << 10;

/// Accepts lines without ever waiting: a line that does not fit, or that cannot be written, is counted and
/// dropped.
#[derive(Clone, Debug)]
pub(super) struct LogQueue {
    queue: NonBlocking,
    room: Arc<QueueCapacity>,
}

#[derive(Default, Debug)]
struct QueueCapacity {
    taken: AtomicUsize,
    /// Lines dropped since the log last reported drops.
    unsaid: AtomicU64,
    dropped: Counter,
}

impl LogQueue {
    /// A queue in front of `to`, which counts dropped lines in `dropped`. Dropping the guard writes the
    /// waiting lines, for at most a second.
    pub(super) fn start(to: impl Write + Send + 'static, dropped: Counter) -> (Self, WorkerGuard) {
        let room = Arc::new(QueueCapacity {
            dropped,
            ..QueueCapacity::default()
        });
        let sink = Sink {
            to: BufWriter::with_capacity(PIECE, to),
            room: Arc::clone(&room),
            fails: false,
        };
        // With room for the message that ends the queue.
        let (queue, guard) = NonBlockingBuilder::default()
            .lossy(true)
            .buffered_lines_limit(ROOM / LEAST + 1)
            .thread_name("log")
            .finish(sink);
        (LogQueue { queue, room }, guard)
    }
}

impl<'a> MakeWriter<'a> for LogQueue {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Each line arrives in one write.
impl Write for LogQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let whole = line.len();
        let shortened = shortened(line);
        let line = shortened.as_deref().unwrap_or(line);
        let size = size(line);
        if self.room.taken.fetch_add(size, Relaxed) + size <= ROOM {
            return self.queue.write(line).map(|_| whole);
        }
        self.room.taken.fetch_sub(size, Relaxed);
        self.room.unsaid.fetch_add(1, Relaxed);
        self.room.dropped.inc();
        Ok(whole)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn size(line: &[u8]) -> usize {
    line.len().max(LEAST)
}

/// The truncated form of a line that is too long.
fn shortened(line: &[u8]) -> Option<Vec<u8>> {
    const END: &str = "…\n";
    if line.len() <= LONGEST {
        return None;
    }
    let start = line.get(..LONGEST - END.len())?;
    let start = start.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    Some([start, END].concat().into_bytes())
}

/// Writes lines, and releases their capacity.
struct Sink<W: Write> {
    to: BufWriter<W>,
    room: Arc<QueueCapacity>,
    /// Whether the last flush failed.
    fails: bool,
}

impl<W: Write> Write for Sink<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.to.write(line)
    }

    fn write_all(&mut self, line: &[u8]) -> io::Result<()> {
        // Whether the write succeeded or not, the line no longer waits.
        let written = self.to.write_all(line);
        self.room.taken.fetch_sub(size(line), Relaxed);
        if written.is_err() {
            // The disk is full, or the reader is gone. The buffer keeps what it accepted before.
            self.room.unsaid.fetch_add(1, Relaxed);
            self.room.dropped.inc();
        }
        written
    }

    /// Called when no line waits.
    fn flush(&mut self) -> io::Result<()> {
        // Before the flush, which may block on the reader until the queue is full. Not while writes fail:
        // this line would be dropped and reported in turn.
        if !self.fails {
            let lines = self.room.unsaid.swap(0, Relaxed);
            if lines > 0 {
                tracing::warn!("{lines} log lines were dropped: standard error was too slow");
            }
        }
        let written = self.to.flush();
        self.fails = written.is_err();
        sleep(GATHER);
        written
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    use super::*;

    /// A file on a disk that can become full.
    #[derive(Clone, Default)]
    struct Disk {
        is_full: Arc<AtomicBool>,
        content: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.is_full.load(Relaxed) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.content.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_line_that_a_full_disk_does_not_take_is_counted() {
        let (disk, dropped) = (Disk::default(), Counter::default());
        let (mut queue, guard) = LogQueue::start(disk.clone(), dropped.clone());
        let room = Arc::clone(&queue.room);
        let line = format!("{}\n", "x".repeat(1_023));
        let mut send = |lines: usize| {
            for _ in 0..lines {
                queue.write_all(line.as_bytes()).unwrap();
            }
            let start = Instant::now();
            while room.taken.load(Relaxed) > 0 && start.elapsed() < Duration::from_secs(10) {
                sleep(Duration::from_millis(1));
            }
        };
        send(100);
        disk.is_full.store(true, Relaxed);
        send(1_000);
        // Buffered lines are still to be written; the rest were counted.
        let counted = dropped.get();
        assert!((1_000 - 65..1_000).contains(&counted), "{counted}");
        disk.is_full.store(false, Relaxed);
        send(100);
        drop(guard);
        let content = disk.content.lock().unwrap();
        let lines = content
            .split(|byte| *byte == b'\n')
            .filter(|it| it.len() == 1_023);
        assert_eq!(lines.count() as u64 + dropped.get(), 1_200);
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_between_characters() {
        assert_eq!(shortened(&vec![b'x'; LONGEST]), None);
        let long = format!("{}\n", "ä".repeat(LONGEST));
        let cut = String::from_utf8(shortened(long.as_bytes()).unwrap()).unwrap();
        assert!(cut.len() <= LONGEST && cut.len() > LONGEST - 4 && cut.ends_with("ä…\n"));
    }
}
