//! Parses the list format of OpenTelemetry's environment variables: `key=value,key=value`, values
//! percent-encoded.

use percent_encoding::percent_decode_str;

/// The pairs of a list, or the number (from 1) of the first invalid entry.
///
/// The error does not contain the entry: these lists hold secrets.
pub(super) fn pairs(list: &str) -> Result<Vec<(String, String)>, usize> {
    let entries = list.split(',').map(str::trim).enumerate();
    entries
        .filter(|(_, entry)| !entry.is_empty())
        .map(|(index, entry)| {
            let (key, value) = entry.split_once('=').ok_or(index + 1)?;
            let (key, value) = (key.trim(), decoded(value.trim()).ok_or(index + 1)?);
            if key.is_empty() {
                return Err(index + 1);
            }
            Ok((key.to_owned(), value))
        })
        .collect()
}

/// Percent-decodes a text; `None` if the encoding is invalid, which the decoder alone would accept.
fn decoded(text: &str) -> Option<String> {
    let is_code =
        |after: &[u8]| matches!(after, [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit());
    let mut codes = text.as_bytes().split(|byte| *byte == b'%').skip(1);
    let decoded = percent_decode_str(text).decode_utf8().ok()?;
    codes.all(is_code).then(|| decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_opentelemetry_writes_them() {
        let read = |list| {
            let pairs = pairs(list)?;
            Ok(pairs
                .into_iter()
                .map(|(key, value)| key + ">" + &value)
                .collect::<Vec<_>>()
                .join(" "))
        };
        for (list, expected) in [
            ("", Ok("")),
            ("a=1", Ok("a>1")),
            (" a = 1 , b=x%20y%2Cz= ,, c=", Ok("a>1 b>x y,z= c>")),
            (
                "authorization=Basic%20dXNlcjpwYXNz==",
                Ok("authorization>Basic dXNlcjpwYXNz=="),
            ),
            ("a=1,b", Err(2)),
            ("=1", Err(1)),
            ("a=%2", Err(1)),
            ("a=%zz", Err(1)),
            ("a=%ff", Err(1)),
        ] {
            assert_eq!(read(list), expected.map(str::to_owned), "{list}");
        }
    }
}
