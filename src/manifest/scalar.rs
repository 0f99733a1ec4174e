//! Resolves YAML scalars exactly as go-yaml v2 (and so `kubectl`) does; does not handle positions or
//! structure.

use std::borrow::Cow;

/// The JSON type of a scalar.
#[derive(Debug, PartialEq)]
pub(super) enum Scalar<'a> {
    Null,
    Bool(bool),
    /// A JSON number, written out.
    Number(Cow<'a, str>),
    Text(Cow<'a, str>),
}

/// Resolves a plain scalar.
///
/// # Errors
/// For `.inf` and `.nan`, which JSON cannot represent; the message is for people.
pub(super) fn plain(text: &str) -> Result<Scalar<'_>, String> {
    let Some(first) = text.bytes().next() else {
        return Ok(Scalar::Null);
    };
    match first {
        b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~' => match text {
            "~" | "null" | "Null" | "NULL" => return Ok(Scalar::Null),
            "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
                return Ok(Scalar::Bool(true));
            }
            "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
                return Ok(Scalar::Bool(false));
            }
            _ => {}
        },
        b'.' | b'+' | b'-' | b'0'..=b'9' => {
            let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
            if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
                return Err(format!(
                    "`{text}` is a number that JSON cannot represent: quote it if it is text"
                ));
            }
            // Dates such as 2024-01-02 are not numbers and remain text, as for kubectl.
            if let Some(number) = number(text, first == b'.') {
                return Ok(Scalar::Number(number));
            }
        }
        _ => {}
    }
    Ok(Scalar::Text(Cow::Borrowed(text)))
}

/// Resolves a scalar with an explicit core tag (`!!str`: `str`); quotes make no difference then.
///
/// # Errors
/// If the text does not match the tag, or if the tag does not apply to scalars; the message is for people.
pub(super) fn tagged<'a>(tag: &str, text: &'a str) -> Result<Scalar<'a>, String> {
    let resolved = match tag {
        "str" | "timestamp" => return Ok(Scalar::Text(Cow::Borrowed(text))),
        "binary" => {
            return base64(text)
                .map(|bytes| Scalar::Text(String::from_utf8_lossy(&bytes).into_owned().into()))
                .ok_or_else(|| {
                    "this `!!binary` text is not base64: correct it, or remove the tag".to_owned()
                });
        }
        "int" | "float" | "bool" | "null" => plain(text)?,
        other => return Err(unknown_tag(&format!("!!{other}"))),
    };
    let fits = match (&resolved, tag) {
        (Scalar::Null, "null") | (Scalar::Bool(_), "bool") | (Scalar::Number(_), "float") => true,
        (Scalar::Number(number), "int") => number.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit()),
        _ => false,
    };
    if fits {
        Ok(resolved)
    } else {
        Err(format!(
            "`{text}` is not what its tag `!!{tag}` says: remove the tag"
        ))
    }
}

/// The message for a tag that Kubernetes does not support.
pub(super) fn unknown_tag(tag: &str) -> String {
    format!(
        "the tag `{tag}` means nothing to Kubernetes: remove it, or render the file with the tool it is for"
    )
}

/// The JSON form of a YAML 1.1 number: Go's `ParseInt(text, 0, 64)` and go-yaml's float pattern.
fn number(text: &str, only_float: bool) -> Option<Cow<'_, str>> {
    if !only_float {
        // Fast path: plain decimal digits.
        if text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0')) {
            return Some(Cow::Borrowed(text));
        }
        let cleaned: Cow<'_, str> = if text.contains('_') {
            Cow::Owned(text.replace('_', ""))
        } else {
            Cow::Borrowed(text)
        };
        if let Some(integer) = integer(&cleaned) {
            return Some(Cow::Owned(integer));
        }
        return float(&cleaned).map(Cow::Owned);
    }
    float(text).map(Cow::Owned)
}

fn integer(text: &str) -> Option<String> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
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
    let trimmed = body.trim_start_matches('0');
    let value = match radix {
        _ if trimmed.is_empty() => return Some("0".to_owned()),
        10 => trimmed.to_owned(),
        // Larger numbers than 128 bits remain text: no field of Kubernetes holds such a number.
        _ => u128::from_str_radix(trimmed, radix).ok()?.to_string(),
    };
    Some(if negative { format!("-{value}") } else { value })
}

/// `^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`, written as Go writes a float64 into JSON.
fn float(text: &str) -> Option<String> {
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
    let value = if shaped {
        text.parse::<f64>().ok()?
    } else {
        return None;
    };
    if !value.is_finite() {
        return None;
    }
    let size = value.abs();
    Some(if size != 0.0 && !(1e-6..1e21).contains(&size) {
        format!("{value:e}")
    } else {
        value.to_string()
    })
}

/// Standard base64 with whitespace and padding.
fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0_u32);
    let mut symbols = 0_usize;
    let mut padding = 0_usize;
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => {
                padding += 1;
                continue;
            }
            _ => return None,
        };
        if padding > 0 {
            return None;
        }
        symbols += 1;
        bits = (bits << 6 | u32::from(value)) & 0xFFFF;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xFF).ok()?);
        }
    }
    (padding <= 2 && (symbols + padding).is_multiple_of(4)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::text::is_plain_yaml;

    #[test]
    fn plain_scalars_are_what_kubectl_makes_of_them() {
        let bools = [
            ("y Y yes Yes YES on On ON true True TRUE", true),
            ("n N no No NO off Off OFF false False FALSE", false),
        ];
        for (texts, value) in bools {
            for text in texts.split(' ') {
                assert_eq!(plain(text), Ok(Scalar::Bool(value)), "{text}");
                assert!(!is_plain_yaml(text), "{text}");
            }
        }
        for text in ["", "~", "null", "Null", "NULL"] {
            assert_eq!(plain(text), Ok(Scalar::Null), "{text}");
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
            ("123456789012345678901234567890", "123456789012345678901234567890"),
            ("0xffffffffffffffffff", "4722366482869645213695"),
        ];
        for (text, value) in numbers {
            assert_eq!(plain(text), Ok(Scalar::Number(value.into())), "{text}");
            assert!(!is_plain_yaml(text), "{text}");
            assert!(serde_json::from_str::<f64>(value).is_ok(), "{value}");
        }
        let texts = "yEs truE nULL 1.2.3 10.0.0.1 2024-01-02 2024-01-02T03:04:05Z 1:30 0x 0xZZ 0b2 1e 1e999 . - + -- .e1 \
                     100m 1Gi _1 é0 0é 1é <<";
        for text in texts.split_whitespace() {
            assert_eq!(plain(text), Ok(Scalar::Text(text.into())), "{text}");
        }
    }

    #[test]
    fn what_json_cannot_say_is_an_error() {
        for text in [".inf", "-.Inf", "+.INF", ".nan", ".NaN"] {
            assert_eq!(
                plain(text).unwrap_err(),
                format!("`{text}` is a number that JSON cannot represent: quote it if it is text")
            );
        }
    }

    #[test]
    fn tags_are_honoured() {
        assert_eq!(tagged("str", "80"), Ok(Scalar::Text("80".into())));
        assert_eq!(tagged("int", "0644"), Ok(Scalar::Number("420".into())));
        assert_eq!(tagged("float", "1"), Ok(Scalar::Number("1".into())));
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
        ] {
            assert_eq!(tagged("binary", text), Ok(Scalar::Text(decoded.into())), "{text}");
        }
        for text in ["a", "aGVsbG8", "a=GV", "ä", "===="] {
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
        assert_eq!(
            tagged("set", "x").unwrap_err(),
            "the tag `!!set` means nothing to Kubernetes: remove it, or render the file with the tool it is for"
        );
    }
}
