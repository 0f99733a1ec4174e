//! Reads the API server's audit logs: which requests Transom denied or changed, or would have. No output.

mod aggregate;
mod counts;
mod dedup;
mod event;
mod framing;
pub(crate) mod inputs;
mod lines;
mod outcome;
mod remediation;

use std::io::{self, Read};

use jiff::Timestamp;
use memchr::memmem::Finder;
use schemars::JsonSchema;
use serde::Serialize;

use self::aggregate::{Aggregate, name_or_null};
pub use self::aggregate::{AuditReport, ClusterRecord, Filter, RuleCount, TimeSpan, WorkloadRow};
pub use self::counts::{OutcomeCounts, RequestOutcome};
use self::dedup::EventDedup;
use self::event::AuditEvent;
use self::framing::{FramedPiece, ObjectFramer};
use self::lines::{StreamLine, each_line};
use self::outcome::EventOutcome;
pub use self::outcome::WebhookNames;
pub use self::remediation::CurrentState;

/// The maximum length of a line, and of an object over several lines, in bytes. The largest object of a
/// request has 1.5 MiB (3 MiB if etcd is configured for that); with the response and the escapes of a log
/// store it is still smaller than this.
const LONGEST: usize = 16 << 20;

/// A log that was read.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Input")]
pub struct InputResult {
    /// Its name, as given; `-` for standard input.
    #[serde(rename = "source")]
    pub name: String,
    /// Its cluster; null if the argument does not name it.
    #[serde(serialize_with = "name_or_null")]
    #[schemars(with = "Option<String>")]
    pub cluster: String,
    /// Lines that are not empty.
    pub lines: u64,
    /// Lines that are not a complete audit event.
    pub invalid: u64,
    /// The number of the first of these, from 1. Empty lines count.
    #[serde(skip)]
    pub first_invalid: u64,
    /// Lines that are too long to be read.
    pub too_long: u64,
    /// Whether its end is cut off: the last line is incomplete, because the API server was writing it.
    #[serde(rename = "truncated")]
    pub is_truncated: bool,
    /// Whether any part of it looks like an audit event.
    #[serde(skip)]
    pub has_events: bool,
    /// The error that prevented reading it to its end; null if there was none.
    pub error: Option<String>,
    /// The time span of its events.
    #[serde(flatten)]
    pub span: TimeSpan,
}

/// Reads logs, and aggregates their events about Transom.
pub struct LogReader {
    names: WebhookNames,
    filter: Filter,
    time: Finder<'static>,
    gathered: Aggregate,
    seen: EventDedup,
    inputs: Vec<InputResult>,
}

impl LogReader {
    /// A reader without any input yet.
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

    /// Reads one input to its end; detects gzip by its first bytes. If `cluster` is empty, the log itself may
    /// name it.
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

    /// Records an input that could not be opened.
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
        let mut number = 0;
        each_line(&mut plain, LONGEST, |line| {
            number += 1;
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
            let mut is_invalid = false;
            pieces.take(text, LONGEST, |piece| match piece {
                FramedPiece::Whole(text) => is_invalid |= !self.piece(input, text),
                FramedPiece::Invalid => is_invalid = true,
                FramedPiece::TooLong => input.too_long += 1,
            });
            if is_invalid && matches!(line, StreamLine::Last(_)) {
                input.is_truncated = true;
            } else if is_invalid {
                input.invalid += 1;
                if input.first_invalid == 0 {
                    input.first_invalid = number;
                }
            }
        })?;
        input.is_truncated |= pieces.is_open();
        Ok(())
    }

    /// Reads one object; returns whether it could be read. Most events are not about Transom, and are skipped
    /// without parsing.
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
            let event_outcome = EventOutcome::of(event, names);
            if event_outcome.is_silent() || !filter.lets_pass(time, event.namespace()) {
                return;
            }
            let cluster = if input.cluster.is_empty() {
                event.cluster()
            } else {
                &input.cluster
            };
            if seen.is_new((cluster, event.id(), event.request_uri(), time, event.ended())) {
                gathered.add(cluster, time, event, &event_outcome);
            }
        });
        input.has_events |= found > 0;
        read.is_ok()
    }

    /// Everything that was counted, as the report prints it.
    pub fn finish(self) -> AuditReport {
        let deduplicated = !self.seen.is_full();
        self.gathered.finish(self.inputs, deduplicated)
    }
}

/// When an event was received, without parsing it: most events of a log are not relevant.
fn time_in(finder: &Finder<'_>, text: &[u8]) -> Option<Timestamp> {
    /// The maximum number of bytes between the key and its value: the rest of the key, and quotes that may be
    /// escaped.
    const BETWEEN: usize = 16;
    let after = text.get(finder.find(text)? + finder.needle().len()..)?;
    let start = after.iter().take(BETWEEN).position(u8::is_ascii_digit)?;
    let time = after.get(start..)?;
    let end = time.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    str::from_utf8(time.get(..end)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_cannot_be_read_is_counted_as_an_editor_does() {
        let mut reader = LogReader::new(WebhookNames::new(&[]), Filter::default());
        reader.read("a.log", "", "\n{}\n\r\nno event\n{}\nno event\n".as_bytes());
        let report = reader.finish();
        let input = &report.inputs[0];
        assert_eq!((input.lines, input.invalid, input.first_invalid), (4, 2, 4));
    }
}
