//! Resolves YAML scalars exactly as go-yaml v2 (and so `kubectl`) does; does not handle positions or
//! structure.

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

use crate::model::syntax::json::write_string;

/// A resolved scalar.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar<'a> {
    Null,
    Bool(bool),
    /// An integer in decimal digits.
    Integer(Cow<'a, str>),
    /// Any other number; JSON cannot represent one that is not finite.
    Float(f64),
    Text(Cow<'a, str>),
}

impl Scalar<'_> {
    /// Its JSON text; `None` for a number that JSON cannot represent.
    pub(super) fn json(&self) -> Option<Box<str>> {
        Some(match self {
            Scalar::Null => "null".into(),
            Scalar::Bool(true) => "true".into(),
            Scalar::Bool(false) => "false".into(),
            Scalar::Integer(digits) => (**digits).into(),
            Scalar::Float(value) if value.is_finite() => json_float(*value).into(),
            Scalar::Float(_) => return None,
            Scalar::Text(text) => {
                let mut json = String::with_capacity(text.len() + 2);
                write_string(&mut json, text);
                json.into()
            }
        })
    }

    /// The text of a key that is written like this; `None` for null.
    pub(super) fn as_key(&self) -> Option<Box<str>> {
        Some(match self {
            Scalar::Null => return None,
            Scalar::Bool(true) => "true".into(),
            Scalar::Bool(false) => "false".into(),
            Scalar::Integer(text) | Scalar::Text(text) => (**text).into(),
            Scalar::Float(value) => key_float(*value).into(),
        })
    }
}

/// Resolves a plain scalar.
pub(super) fn plain(text: &str) -> Scalar<'_> {
    let Some(first) = text.bytes().next() else {
        return Scalar::Null;
    };
    match first {
        b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~' => match text {
            "~" | "null" | "Null" | "NULL" => return Scalar::Null,
            "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
                return Scalar::Bool(true);
            }
            "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
                return Scalar::Bool(false);
            }
            _ => {}
        },
        b'.' | b'+' | b'-' | b'0'..=b'9' => {
            // Dates such as 2024-01-02 are not numbers and remain text, as for kubectl.
            if let Some(number) = number(text, first == b'.') {
                return number;
            }
        }
        _ => {}
    }
    Scalar::Text(Cow::Borrowed(text))
}

/// Resolves a scalar with an explicit core tag (`!!str`: `str`); quotes make no difference then. A tag that is not for
/// scalars has no effect, as for `kubectl`.
///
/// # Errors
/// If the text does not match the tag; the message is for people.
pub(super) fn tagged<'a>(tag: &str, text: &'a str) -> Result<Scalar<'a>, String> {
    let resolved = match tag {
        "binary" => {
            return base64(text)
                .map(|bytes| Scalar::Text(String::from_utf8_lossy(&bytes).into_owned().into()))
                .ok_or_else(|| {
                    "this `!!binary` text is not base64: correct it, or remove the tag".to_owned()
                });
        }
        "int" | "float" | "bool" | "null" => plain(text),
        _ => return Ok(Scalar::Text(Cow::Borrowed(text))),
    };
    match (&resolved, tag) {
        (Scalar::Null, "null")
        | (Scalar::Bool(_), "bool")
        | (Scalar::Float(_), "float")
        | (Scalar::Integer(_), "int") => Ok(resolved),
        (Scalar::Integer(digits), "float") => Ok(digits.parse().map_or(resolved, Scalar::Float)),
        _ => Err(format!(
            "`{text}` is not what its tag `!!{tag}` says: remove the tag"
        )),
    }
}

/// A YAML 1.1 number: Go's `ParseInt(text, 0, 64)` and `ParseUint`, and go-yaml's float pattern.
fn number(text: &str, only_float: bool) -> Option<Scalar<'_>> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") {
        let is_negative = text.starts_with('-');
        return Some(Scalar::Float(if is_negative {
            f64::NEG_INFINITY
        } else {
            f64::INFINITY
        }));
    }
    if matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Some(Scalar::Float(f64::NAN));
    }
    if only_float {
        return float(text).map(Scalar::Float);
    }
    // Fast path: plain decimal digits that fit into 64 bits.
    if text.len() < 19
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && (text == "0" || !text.starts_with('0'))
    {
        return Some(Scalar::Integer(Cow::Borrowed(text)));
    }
    let cleaned: Cow<'_, str> = if text.contains('_') {
        Cow::Owned(text.replace('_', ""))
    } else {
        Cow::Borrowed(text)
    };
    match integer(&cleaned) {
        Some(integer) => Some(Scalar::Integer(Cow::Owned(integer))),
        None => float(&cleaned).map(Scalar::Float),
    }
}

/// An integer of at most 64 bits.
fn integer(text: &str) -> Option<String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let lower = digits.get(..2).map(str::to_ascii_lowercase);
    let (radix, body) = match lower.as_deref() {
        Some("0x") => (16, digits.get(2..)?),
        Some("0o") => (8, digits.get(2..)?),
        Some("0b") => (2, digits.get(2..)?),
        Some(_) if digits.starts_with('0') => (8, digits.get(1..)?),
        _ => (10, digits),
    };
    if body.is_empty() || !body.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    let value = i128::from_str_radix(body, radix).ok()?;
    let (value, most) = match text.bytes().next() {
        Some(b'-') => (-value, i128::from(i64::MAX)),
        Some(b'+') => (value, i128::from(i64::MAX)),
        _ => (value, i128::from(u64::MAX)),
    };
    (i128::from(i64::MIN)..=most)
        .contains(&value)
        .then(|| value.to_string())
}

/// `^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`, if it is finite.
fn float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (
            mantissa,
            Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)),
        ),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let shaped = digits(whole)
        && digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent));
    let value = text.parse::<f64>().ok().filter(|_| shaped)?;
    value.is_finite().then_some(value)
}

/// As Go writes a float64 into JSON.
fn json_float(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        format!("{value:e}")
    } else {
        value.to_string()
    }
}

/// As sigs.k8s.io/yaml writes a number that is a key: Go's format `g` for 32 bits.
fn key_float(value: f64) -> String {
    if value.is_nan() {
        return ".nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    #[expect(clippy::cast_possible_truncation, reason = "Go rounds to 32 bits here")]
    let value = value as f32;
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if value == 0.0 || (-4..21).contains(&exponent) {
        return value.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// Standard base64 with whitespace and padding. As in Go, the bits after the last byte need not be zero.
fn base64(text: &str) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
    let text: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    GeneralPurpose::new(&STANDARD, LENIENT).decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::syntax::text::is_plain_yaml;

    #[test]
    fn plain_scalars_are_what_kubectl_makes_of_them() {
        let bools = [
            ("y Y yes Yes YES on On ON true True TRUE", true),
            ("n N no No NO off Off OFF false False FALSE", false),
        ];
        for (texts, value) in bools {
            for text in texts.split(' ') {
                assert_eq!(plain(text), Scalar::Bool(value), "{text}");
                assert!(!is_plain_yaml(text), "{text}");
            }
        }
        for text in ["", "~", "null", "Null", "NULL"] {
            assert_eq!(plain(text), Scalar::Null, "{text}");
            assert!(!is_plain_yaml(text), "{text}");
        }
        let numbers = [
            ("0", "0"),
            ("80", "80"),
            ("-5", "-5"),
            ("+5", "5"),
            ("-0", "0"),
            ("1_000", "1000"),
            ("0644", "420"),
            ("0o644", "420"),
            ("0x1F", "31"),
            ("-0x1f", "-31"),
            ("0b101", "5"),
            ("-0b11", "-3"),
            ("00", "0"),
            ("08", "8"),
            ("0.5", "0.5"),
            (".5", "0.5"),
            ("-.5", "-0.5"),
            ("5.", "5"),
            ("1e3", "1000"),
            ("1E+3", "1000"),
            ("1.0", "1"),
            ("1e-7", "1e-7"),
            ("1e21", "1e21"),
            ("9223372036854775808", "9223372036854775808"),
            ("18446744073709551615", "18446744073709551615"),
            ("18446744073709551616", "18446744073709552000"),
            ("123456789012345678901234567890", "1.2345678901234568e29"),
        ];
        for (text, value) in numbers {
            assert_eq!(plain(text).json().as_deref(), Some(value), "{text}");
            assert!(!matches!(plain(text), Scalar::Text(_)), "{text}");
            assert!(!is_plain_yaml(text), "{text}");
            assert!(serde_json::from_str::<f64>(value).is_ok(), "{value}");
        }
        let texts = "yEs truE nULL 1.2.3 10.0.0.1 2024-01-02 2024-01-02T03:04:05Z 1:30 0x 0xZZ 0b2 1e 1e999 . - + -- .e1 \
                     100m 1Gi _1 é0 0é 1é << 0xffffffffffffffffff";
        for text in texts.split_whitespace() {
            assert_eq!(plain(text), Scalar::Text(text.into()), "{text}");
        }
    }

    #[test]
    fn numbers_that_json_has_not_are_keys_only() {
        for (text, key) in [
            (".inf", ".inf"),
            ("-.Inf", "-.inf"),
            ("+.INF", ".inf"),
            (".nan", ".nan"),
        ] {
            assert_eq!(plain(text).json(), None, "{text}");
            assert_eq!(plain(text).as_key().as_deref(), Some(key), "{text}");
        }
    }

    #[test]
    fn keys_are_what_kubectl_makes_of_them() {
        for (text, key) in [
            ("80", "80"),
            ("0x10", "16"),
            ("on", "true"),
            ("1.50", "1.5"),
            ("0.1", "0.1"),
            ("1e21", "1e+21"),
            ("1e-5", "1e-05"),
            ("0.0001", "0.0001"),
            ("1.23456789", "1.2345679"),
            ("2024-01-02", "2024-01-02"),
        ] {
            assert_eq!(plain(text).as_key().as_deref(), Some(key), "{text}");
        }
        assert_eq!(plain("~").as_key(), None);
    }

    #[test]
    fn tags_are_honoured() {
        assert_eq!(tagged("str", "80"), Ok(Scalar::Text("80".into())));
        assert_eq!(tagged("int", "0644"), Ok(Scalar::Integer("420".into())));
        assert_eq!(tagged("float", "1"), Ok(Scalar::Float(1.0)));
        assert_eq!(tagged("bool", "yes"), Ok(Scalar::Bool(true)));
        assert_eq!(tagged("null", "~"), Ok(Scalar::Null));
        assert_eq!(
            tagged("timestamp", "2024-01-02"),
            Ok(Scalar::Text("2024-01-02".into()))
        );
        for (text, decoded) in [
            ("aGVsbG8=", "hello"),
            ("aGVs\n bG8h", "hello!"),
            ("", ""),
            ("4pyT", "✓"),
            ("aGk=", "hi"),
            ("aGl=", "hi"),
            ("eA==", "x"),
        ] {
            assert_eq!(tagged("binary", text), Ok(Scalar::Text(decoded.into())), "{text}");
        }
        for text in ["a", "aGVsbG8", "a=GV", "ä", "====", "aGVsbG8=="] {
            assert_eq!(
                tagged("binary", text).unwrap_err(),
                "this `!!binary` text is not base64: correct it, or remove the tag"
            );
        }
        for (tag, text) in [
            ("int", "1.5"),
            ("int", "x"),
            ("bool", "1"),
            ("null", "x"),
            ("float", "x"),
        ] {
            assert_eq!(
                tagged(tag, text).unwrap_err(),
                format!("`{text}` is not what its tag `!!{tag}` says: remove the tag")
            );
        }
        assert_eq!(tagged("set", "x"), Ok(Scalar::Text("x".into())));
    }
}
