//! Lists as OpenTelemetry's environment variables have them: `key=value,key=value`, values percent-encoded.

use percent_encoding::percent_decode_str;

/// The pairs of a list; the number of the first entry that is none, from 1, where there is one.
///
/// The entry itself is not told: these lists hold secrets.
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

/// A text without its percent-encoding; none where that is broken, which the decoder alone would let pass.
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
