//! Splits a stream into lines of bounded length: longer lines are skipped.

use std::io::{self, BufRead, ErrorKind};

use memchr::memchr;

/// One line, without its line end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamLine<'l> {
    Ended(&'l [u8]),
    /// The text after the last line end.
    Last(&'l [u8]),
    /// A line above the maximum length.
    TooLong,
}

/// Calls `give` with each line of a stream.
///
/// # Errors
/// The error of the stream, after the lines before it.
pub fn each_line(
    input: &mut impl BufRead,
    longest: usize,
    mut take: impl FnMut(StreamLine<'_>),
) -> io::Result<()> {
    let mut held: Vec<u8> = Vec::new();
    let mut is_too_long = false;
    loop {
        let buffer = match input.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if buffer.is_empty() {
            break;
        }
        let mut rest = buffer;
        while let Some(end) = memchr(b'\n', rest) {
            let (line, after) = rest.split_at(end);
            if is_too_long || held.len() + line.len() > longest {
                take(StreamLine::TooLong);
            } else if held.is_empty() {
                take(StreamLine::Ended(line));
            } else {
                held.extend_from_slice(line);
                take(StreamLine::Ended(&held));
            }
            is_too_long = false;
            held.clear();
            rest = after.get(1..).unwrap_or_default();
        }
        if is_too_long || held.len() + rest.len() > longest {
            is_too_long = true;
            held = Vec::new();
        } else {
            held.extend_from_slice(rest);
        }
        let read = buffer.len();
        input.consume(read);
    }
    if is_too_long {
        take(StreamLine::TooLong);
    } else if !held.is_empty() {
        take(StreamLine::Last(&held));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn lines_are_the_same_however_the_bytes_come_and_a_long_one_is_passed_over() {
        let text = "one\n\nlonger than eight\ntwo\r\n12345678\nlast";
        for capacity in [1, 2, 3, 7, 64] {
            let mut lines = Vec::new();
            let mut input = BufReader::with_capacity(capacity, text.as_bytes());
            each_line(&mut input, 8, |line| {
                lines.push(match line {
                    StreamLine::Ended(text) => String::from_utf8_lossy(text).into_owned(),
                    StreamLine::Last(text) => format!("last: {}", String::from_utf8_lossy(text)),
                    StreamLine::TooLong => "too long".to_owned(),
                });
            })
            .unwrap();
            let expected = ["one", "", "too long", "two\r", "12345678", "last: last"];
            assert_eq!(lines, expected, "{capacity}");
        }
    }
}
