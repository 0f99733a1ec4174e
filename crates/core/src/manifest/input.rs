//! Decodes the bytes of an input and splits the text into documents; does not parse them.

use std::ops::Range;

use super::ParseError;
use super::locate::lines;

/// The maximum size of an input, in bytes: offsets have 32 bits, and YAML may grow when converted to JSON.
const MAX_INPUT: usize = 1 << 30;
/// Decodes the bytes, or reports which encoding they seem to have.
pub(super) fn decode(mut bytes: Vec<u8>) -> Result<String, ParseError> {
    let fail = |line, message: String| {
        Err(ParseError {
            line,
            column: 1,
            message,
        })
    };
    if bytes.len() > MAX_INPUT {
        return fail(
            1,
            "the input is larger than 1 GiB: split it, for example by namespace".to_owned(),
        );
    }
    // Like kubectl, reads UTF-16 with a byte order mark, which is what `>` writes in Windows PowerShell.
    match bytes.as_slice() {
        [0xFF, 0xFE, rest @ ..] => return Ok(utf16(rest, u16::from_le_bytes)),
        [0xFE, 0xFF, rest @ ..] => return Ok(utf16(rest, u16::from_be_bytes)),
        [a, 0, b, 0, ..] | [0, a, 0, b, ..] if *a != 0 && *b != 0 => {
            return fail(
                1,
                "the file is UTF-16 without a byte order mark, which kubectl does not read: save it as UTF-8"
                    .to_owned(),
            );
        }
        _ => {}
    }
    if bytes.starts_with(b"\xEF\xBB\xBF") {
        bytes.drain(..3);
    }
    let line_at =
        |bytes: &[u8], offset: usize| 1 + bytes.iter().take(offset).filter(|b| **b == b'\n').count();
    if let Some(offset) = bytes.iter().position(|byte| *byte == 0) {
        return fail(
            line_at(&bytes, offset),
            format!("a NUL at byte {offset}: this is not a text file, give the manifest itself"),
        );
    }
    String::from_utf8(bytes).or_else(|error| {
        let offset = error.utf8_error().valid_up_to();
        fail(
            line_at(error.as_bytes(), offset),
            format!("the byte at offset {offset} is not UTF-8: save the file as UTF-8 (editors call other encodings ANSI or Windows-1252)"),
        )
    })
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    let (pairs, _) = bytes.as_chunks();
    char::decode_utf16(pairs.iter().map(|pair| unit(*pair)))
        .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect()
}

/// The text between two separators.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) range: Range<usize>,
    /// The line of its first byte, from 1.
    pub(super) line: usize,
    /// Whether it begins with the separator above it, because `kubectl` does not accept the text on that line.
    pub(super) is_refused: bool,
}

/// Splits as `kubectl` does: at lines that begin with `---`, wherever they are. It accepts only a comment after the dashes.
///
/// Source: kubernetes, `k8s.io/apimachinery/pkg/util/yaml/decoder.go`, `YAMLReader.Read`.
pub(super) fn split(text: &str) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    let mut current = Chunk {
        range: 0..0,
        line: 1,
        is_refused: false,
    };
    let mut offset = 0;
    let mut is_line = true;
    for (number, line) in lines(text).enumerate() {
        let end = offset + line.len();
        if let Some(rest) = line.strip_prefix("---").filter(|_| is_line) {
            // A carriage return alone ends no line of `kubectl`'s.
            let is_open = !line.ends_with('\n') && end < text.len();
            let is_refused = is_open || !(rest.trim().is_empty() || rest.trim_start().starts_with('#'));
            current.range.end = offset;
            chunks.push(current);
            current = Chunk {
                range: if is_refused { offset..0 } else { end..0 },
                line: if is_refused { number + 1 } else { number + 2 },
                is_refused,
            };
        }
        is_line = line.ends_with('\n');
        offset = end;
    }
    current.range.end = text.len();
    chunks.push(current);
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(bytes: &[u8]) -> (usize, String) {
        let error = decode(bytes.to_vec()).unwrap_err();
        (error.line, error.message)
    }

    #[test]
    fn a_file_from_powershell_is_read() {
        let text = "kind: Pod # \u{1F980}\n";
        let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for (mark, bytes) in [([0xFF, 0xFE], &little), ([0xFE, 0xFF], &big)] {
            let with_mark: Vec<u8> = mark.into_iter().chain(bytes.iter().copied()).collect();
            assert_eq!(decode(with_mark).unwrap(), text);
            assert_eq!(
                refused(bytes).1,
                "the file is UTF-16 without a byte order mark, which kubectl does not read: save it as UTF-8"
            );
        }
    }

    #[test]
    fn what_is_not_text_is_refused_with_its_place() {
        assert_eq!(
            refused(b"a: 1\nb: \x00\n"),
            (
                2,
                "a NUL at byte 8: this is not a text file, give the manifest itself".to_owned()
            )
        );
        assert_eq!(
            refused(b"a: 1\nb: 2\nc: gr\xFC\xDFe\n"),
            (
                3,
                "the byte at offset 15 is not UTF-8: save the file as UTF-8 (editors call other encodings ANSI or \
                 Windows-1252)"
                    .to_owned()
            )
        );
    }

    #[test]
    fn a_byte_order_mark_is_not_part_of_the_text() {
        assert_eq!(decode(b"\xEF\xBB\xBFa: 1".to_vec()).unwrap(), "a: 1");
    }

    #[test]
    fn documents_are_cut_where_kubectl_cuts_them() {
        type Case = (&'static str, &'static [(&'static str, usize, bool)]);
        let cases: &[Case] = &[
            ("a\n---\nb\n", &[("a\n", 1, false), ("b\n", 3, false)]),
            ("---", &[("", 1, false), ("", 2, false)]),
            (
                "# c\n---#x\n ---\n---\t # y\r\nb",
                &[("# c\n", 1, false), (" ---\n", 3, false), ("b", 5, false)],
            ),
            // Other text after the dashes is refused.
            ("a\n---- x\nb", &[("a\n", 1, false), ("---- x\nb", 2, true)]),
            ("a\n--- {b: 1}\n", &[("a\n", 1, false), ("--- {b: 1}\n", 2, true)]),
            ("---\r---\rx", &[("", 1, false), ("---\r---\rx", 1, true)]),
            ("a\r---\rb\n---\nc", &[("a\r---\rb\n", 1, false), ("c", 5, false)]),
            // The end of a document separates nothing, and neither does a separator after a byte order mark.
            ("a\n...\nb\n", &[("a\n...\nb\n", 1, false)]),
            ("a\n\u{FEFF}---\nb\n", &[("a\n\u{FEFF}---\nb\n", 1, false)]),
        ];
        for (text, expected) in cases {
            let chunks = split(text);
            let found: Vec<_> = (chunks.iter())
                .map(|chunk| (&text[chunk.range.clone()], chunk.line, chunk.is_refused))
                .collect();
            assert_eq!(found, *expected, "{text:?}");
        }
    }
}
