//! The API server's audit logs, read: who was denied or changed by Transom, or would be. Nothing is printed here.

mod aggregate;
mod counts;
mod dedup;
mod event;
mod framing;
pub mod inputs;
mod lines;
mod outcome;
mod remediation;

use std::io::{self, Read};

use jiff::Timestamp;
use memchr::memmem::Finder;

use self::aggregate::Aggregate;
pub use self::aggregate::{AuditReport, ClusterRecord, Filter, RuleCount, TimeSpan, WorkloadRow};
pub use self::counts::{OutcomeCounts, RequestOutcome};
use self::dedup::EventDedup;
use self::event::AuditEvent;
use self::framing::{FramedPiece, ObjectFramer};
use self::lines::{StreamLine, each_line};
use self::outcome::EventOutcome;
pub use self::outcome::WebhookNames;
pub use self::remediation::CurrentState;

/// The longest line, and the longest object over several lines, in bytes. The largest object of a request has 1.5 MiB (3 MiB
/// where etcd is told so); with the response and the escapes of a log store around it that is less than this.
const LONGEST: usize = 16 << 20;

/// What became of one input.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InputResult {
    /// Its name, as it was given.
    pub name: String,
    /// The cluster that it is of.
    pub cluster: String,
    /// Lines with something in them.
    pub lines: u64,
    /// Lines that are no audit event, or not whole.
    pub broken: u64,
    /// The first of these, counted from one.
    pub first_broken: u64,
    /// Lines that are too long to be read.
    pub too_long: u64,
    /// Whether the last line has no end and is not whole: the API server was writing it.
    pub unfinished: bool,
    /// Whether something in it looks like an audit event.
    pub has_events: bool,
    /// From when to when it tells.
    pub span: TimeSpan,
    /// What kept it from being read, or from being read to its end.
    pub error: Option<String>,
}

/// Reads logs, and gathers what they tell of Transom.
pub struct LogReader {
    names: WebhookNames,
    filter: Filter,
    time: Finder<'static>,
    gathered: Aggregate,
    seen: EventDedup,
    inputs: Vec<InputResult>,
}

impl LogReader {
    /// A reader that has read nothing.
    pub fn new(names: WebhookNames, filter: Filter) -> Self {
        LogReader {
            names,
            filter,
            time: Finder::new(b"equestReceivedTime"),
            gathered: Aggregate::default(),
            seen: EventDedup::default(),
            inputs: Vec::new(),
        }
    }

    /// Reads one input to its end; gzip is known by its first bytes. `cluster` is empty where the log itself may tell.
    pub fn read(&mut self, name: &str, cluster: &str, bytes: impl Read) {
        let mut input = InputResult {
            name: name.to_owned(),
            cluster: cluster.to_owned(),
            ..InputResult::default()
        };
        if let Err(error) = self.read_lines(&mut input, bytes) {
            input.error = Some(inputs::words(&error));
        }
        self.inputs.push(input);
    }

    /// Notes an input that could not be opened.
    pub fn failed(&mut self, name: &str, why: String) {
        self.inputs.push(InputResult {
            name: name.to_owned(),
            error: Some(why),
            ..InputResult::default()
        });
    }

    fn read_lines(&mut self, input: &mut InputResult, bytes: impl Read) -> io::Result<()> {
        let mut plain = inputs::plain(bytes)?;
        let mut pieces = ObjectFramer::default();
        each_line(&mut plain, LONGEST, |line| {
            let text = match line {
                StreamLine::TooLong => {
                    input.lines += 1;
                    input.too_long += 1;
                    return;
                }
                StreamLine::Ended(text) | StreamLine::Last(text) => text,
            };
            if text.trim_ascii().is_empty() {
                return;
            }
            input.lines += 1;
            let mut is_broken = false;
            pieces.take(text, LONGEST, |piece| match piece {
                FramedPiece::Whole(text) => is_broken |= !self.piece(input, text),
                FramedPiece::Broken => is_broken = true,
                FramedPiece::TooLong => input.too_long += 1,
            });
            if is_broken && matches!(line, StreamLine::Last(_)) {
                input.unfinished = true;
            } else if is_broken {
                input.broken += 1;
                if input.first_broken == 0 {
                    input.first_broken = input.lines;
                }
            }
        })?;
        input.unfinished |= pieces.is_open();
        Ok(())
    }

    /// Reads one object; whether it could be read. Most of a log has nothing to do with Transom, and is not read at all.
    fn piece(&mut self, input: &mut InputResult, text: &[u8]) -> bool {
        if let Some(time) = time_in(&self.time, text) {
            input.has_events = true;
            input.span.add(time);
        }
        if !self.names.may_be_in(text) {
            input.has_events = input.has_events || event::looks_like_one(text);
            return true;
        }
        let Ok(text) = str::from_utf8(text) else {
            return false;
        };
        let (names, filter, gathered, seen) = (&self.names, &self.filter, &mut self.gathered, &mut self.seen);
        let mut found = 0;
        let read = event::each(text, &mut |event: &AuditEvent<'_>| {
            found += 1;
            let Some(time) = event.time() else { return };
            input.span.add(time);
            if !event.is_final() {
                return;
            }
            let told = EventOutcome::of(event, names);
            if told.is_silent() || !filter.lets_pass(time, event.namespace()) {
                return;
            }
            let cluster = if input.cluster.is_empty() {
                event.cluster()
            } else {
                &input.cluster
            };
            if seen.is_new((cluster, event.id(), event.request_uri(), time, event.ended())) {
                gathered.add(cluster, time, event, &told);
            }
        });
        input.has_events |= found > 0;
        read.is_ok()
    }

    /// What was gathered.
    pub fn finish(self) -> AuditReport {
        let forgets = self.seen.is_full();
        self.gathered.finish(self.inputs, forgets)
    }
}

/// When an event was received, without reading it: a log has more events than are of interest.
fn time_in(finder: &Finder<'_>, text: &[u8]) -> Option<Timestamp> {
    /// What stands between the key and its value: the rest of the key, quotes, perhaps escaped.
    const BETWEEN: usize = 16;
    let after = text.get(finder.find(text)? + finder.needle().len()..)?;
    let start = after.iter().take(BETWEEN).position(u8::is_ascii_digit)?;
    let time = after.get(start..)?;
    let end = time.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    str::from_utf8(time.get(..end)?).ok()?.parse().ok()
}
