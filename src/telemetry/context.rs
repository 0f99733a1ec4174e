//! Where a span stands in its trace: the W3C trace context of a request, the decision to sample, and new ids.

use hyper::header::{HeaderMap, HeaderValue};
use ring::rand::{SecureRandom, SystemRandom};

/// The bit of the trace flags that says that the trace is recorded.
const SAMPLED: u8 = 0b01;
/// The bit that says that the trace id is random.
const RANDOM: u8 = 0b10;

/// The longest `tracestate` that is handed on, as the W3C asks of everybody.
const STATE: usize = 512;

/// The share of traces that begin here; what begins elsewhere is decided there.
#[derive(Clone, Copy, PartialEq, PartialOrd, Default, Debug)]
pub struct Ratio(f64);

impl Ratio {
    /// A share from 0, none, to 1, all.
    pub fn new(share: f64) -> Option<Self> {
        (0.0..=1.0).contains(&share).then_some(Self(share))
    }

    /// Decides by the bits of the trace id by which OpenTelemetry's `TraceIdRatioBased` does, so that several programs
    /// agree on a trace.
    fn takes(self, trace: [u8; 16]) -> bool {
        let [.., a, b, c, d, _, _, _, _] = trace;
        let draw = f64::from(u32::from_be_bytes([a, b, c, d]));
        draw < self.0 * (f64::from(u32::MAX) + 1.0)
    }
}

/// The ids of a span, and what its trace carries along.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Origin {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    /// The span that asked; none where the trace begins here.
    pub parent: Option<[u8; 8]>,
    pub flags: u8,
    /// `tracestate`, as it came.
    pub state: String,
}

impl Origin {
    /// The place of a new span for a request with these headers; none where it is not sampled.
    pub fn of(headers: &HeaderMap, ratio: Ratio, random: &SystemRandom) -> Option<Self> {
        // Off the usual path before anything is drawn: most requests have no trace, and most traces no place here.
        let mut origin = match only(headers, "traceparent").and_then(parent) {
            Some((_, _, flags)) if flags & SAMPLED == 0 => return None,
            Some((trace, parent, flags)) => Self {
                trace,
                parent: Some(parent),
                flags: flags & (SAMPLED | RANDOM),
                state: state(headers),
                ..Self::default()
            },
            None if ratio == Ratio::default() => return None,
            None => {
                let origin = Self {
                    trace: draw(random)?,
                    flags: SAMPLED | RANDOM,
                    ..Self::default()
                };
                if !ratio.takes(origin.trace) {
                    return None;
                }
                origin
            }
        };
        origin.span = draw(random)?;
        Some(origin)
    }
}

/// The only value of a header; several are none.
fn only<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

/// Reads `traceparent`: trace, parent and flags. What is not understood is no trace, as the W3C asks.
fn parent(value: &HeaderValue) -> Option<([u8; 16], [u8; 8], u8)> {
    let mut parts = value.as_bytes().split(|byte| *byte == b'-');
    let [version] = hex(parts.next()?)?;
    let (trace, span, [flags]) = (hex(parts.next()?)?, hex(parts.next()?)?, hex(parts.next()?)?);
    // A later version may say more after that.
    let is_known = version < 0xff && (version > 0 || parts.next().is_none());
    (is_known && trace != [0; 16] && span != [0; 8]).then_some((trace, span, flags))
}

/// Exactly `N` bytes in lower-case hexadecimal digits.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = digits.as_chunks::<2>() else {
        return None;
    };
    if pairs.len() != N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

/// `tracestate`, several headers as one; none of it where it is too long or no text.
fn state(headers: &HeaderMap) -> String {
    let values: Option<Vec<&str>> = (headers.get_all("tracestate").iter())
        .map(|value| value.to_str().ok())
        .collect();
    let mut state = values.unwrap_or_default().join(",");
    if state.len() > STATE {
        state.clear();
    }
    state
}

/// Random bytes that are not all zero; none where the system has none.
fn draw<const N: usize>(random: &SystemRandom) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    random.fill(&mut bytes).ok()?;
    (bytes != [0; N]).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn origin(pairs: &[(&'static str, &str)], share: f64) -> Option<Origin> {
        Origin::of(&headers(pairs), Ratio::new(share).unwrap(), &SystemRandom::new())
    }

    #[test]
    fn a_sampled_parent_is_sampled_whatever_the_ratio() {
        let parent = format!("00-{TRACE}-{SPAN}-01");
        let states = [("tracestate", "a=1"), ("tracestate", "b=2")];
        let origin = origin(&[("traceparent", &parent), states[0], states[1]], 0.0).unwrap();
        assert_eq!(
            origin.trace,
            0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes()
        );
        assert_eq!(origin.parent, Some(0x00f0_67aa_0ba9_02b7_u64.to_be_bytes()));
        assert_eq!((origin.flags, origin.state.as_str()), (SAMPLED, "a=1,b=2"));
        assert_ne!(Some(origin.span), origin.parent);
    }

    #[test]
    fn a_parent_that_is_not_sampled_is_never_sampled() {
        for flags in ["00", "02", "fe"] {
            let parent = format!("00-{TRACE}-{SPAN}-{flags}");
            assert_eq!(origin(&[("traceparent", &parent)], 1.0), None, "{flags}");
        }
    }

    #[test]
    fn without_a_parent_the_ratio_decides() {
        assert_eq!(origin(&[], 0.0), None);
        let root = origin(&[], 1.0).unwrap();
        assert_eq!((root.parent, root.flags), (None, SAMPLED | RANDOM));
        assert_ne!(root.trace, [0; 16]);
        let half = (0..2_000).filter(|_| origin(&[], 0.5).is_some()).count();
        assert!((800..1_200).contains(&half), "{half} of 2000");
    }

    #[test]
    fn the_ratio_looks_at_the_bits_that_opentelemetry_looks_at() {
        let half = Ratio::new(0.5).unwrap();
        let with = |byte: u8| {
            let mut trace = [0xff; 16];
            trace[8] = byte;
            half.takes(trace)
        };
        assert!(with(0x00) && with(0x7f));
        assert!(!with(0x80) && !with(0xff));
        assert!(Ratio::new(1.0).unwrap().takes([0xff; 16]));
        for bad in [-0.1, 1.1, f64::NAN] {
            assert_eq!(Ratio::new(bad), None, "{bad}");
        }
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
            assert_eq!(origin(&[("traceparent", &bad)], 0.0), None, "{bad:?}");
        }
        let twice = [("traceparent", good.as_str()), ("traceparent", good.as_str())];
        assert_eq!(origin(&twice, 0.0), None);
        // A version that is not known yet may say more.
        let later = good.replace("00-4b", "01-4b") + "-more";
        assert!(origin(&[("traceparent", &later)], 0.0).is_some());
    }
}
