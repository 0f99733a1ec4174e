//! The parent of a span: the W3C trace context of a request.
//!
//! OpenTelemetry's own propagator accepts a duplicate `traceparent` and one with more or fewer digits than
//! the W3C allows, reads only the first `tracestate`, and drops the random flag of a trace id.

use hyper::header::HeaderMap;
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// The trace flag for a random trace id.
const RANDOM: TraceFlags = TraceFlags::new(0b10);

/// The longest `tracestate` that is propagated: the minimum that the W3C requires of every program.
const STATE: usize = 512;

/// The parent span. An invalid header means no parent, as the W3C requires.
pub(super) fn of(headers: &HeaderMap) -> Option<SpanContext> {
    let mut values = headers.get_all("traceparent").iter();
    let parent = values.next().filter(|_| values.next().is_none())?;
    // Version, trace, span and flags. A version later than 00 may append more.
    let (known, more) = parent.to_str().ok()?.split_at_checked(55)?;
    let has_digits_only = known
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'));
    let is_done = more.is_empty() || more.starts_with('-') && !known.starts_with("00");
    let mut parts = known.split('-');
    let parts = [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
    let has_lengths = parts.map(str::len) == [2, 32, 16, 2];
    let [version, trace, span, flags] = parts;
    if !has_digits_only || !has_lengths || !is_done || version == "ff" {
        return None;
    }
    let context = SpanContext::new(
        TraceId::from_hex(trace).ok()?,
        SpanId::from_hex(span).ok()?,
        TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & (TraceFlags::SAMPLED | RANDOM),
        true,
        state(headers),
    );
    context.is_valid().then_some(context)
}

/// `tracestate`, with several headers joined; empty if it is too long or invalid.
fn state(headers: &HeaderMap) -> TraceState {
    let values: Option<Vec<&str>> = (headers.get_all("tracestate").iter())
        .map(|value| value.to_str().ok())
        .collect();
    let state = values.unwrap_or_default().join(",");
    if state.len() > STATE {
        return TraceState::NONE;
    }
    state.parse().unwrap_or_default()
}

/// The context of a root span: its trace id is random, but the SDK does not set the flag.
pub(super) fn root(context: &SpanContext) -> SpanContext {
    SpanContext::new(
        context.trace_id(),
        context.span_id(),
        context.trace_flags() | RANDOM,
        context.is_remote(),
        context.trace_state().clone(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    fn parent(values: &[&str]) -> Option<SpanContext> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("traceparent", value.parse().unwrap());
        }
        of(&headers)
    }

    #[test]
    fn what_is_no_trace_context_is_no_parent() {
        let good = format!("00-{TRACE}-{SPAN}-01");
        for bad in [
            String::new(),
            good.to_uppercase(),
            good.replace("00-4b", "ff-4b"),
            format!("{good}-more"),
            format!("{good}-"),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}00-{SPAN}-01"),
            good.replace("4b", "4g"),
        ] {
            assert_eq!(parent(&[&bad]), None, "{bad:?}");
        }
        assert_eq!(parent(&[&good, &good]), None);
        // An unknown version may append more.
        let later = good.replace("00-4b", "01-4b") + "-more";
        assert!(parent(&[&later]).is_some());
    }

    #[test]
    fn of_the_flags_two_are_handed_on() {
        let context = parent(&[&format!("00-{TRACE}-{SPAN}-ff")]).unwrap();
        assert_eq!(context.trace_flags().to_u8(), 0b11);
    }

    #[test]
    fn a_state_that_is_too_long_is_not_handed_on() {
        let value = "x".repeat(250);
        for (last, expected) in [("c=1234", STATE), ("c=12345", 0)] {
            let mut headers = HeaderMap::new();
            for state in [format!("a={value}"), format!("b={value}"), last.to_owned()] {
                headers.append("tracestate", state.parse().unwrap());
            }
            assert_eq!(state(&headers).header().len(), expected, "{last}");
        }
    }
}
