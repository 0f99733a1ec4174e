//! Excerpts of source lines.

use crate::check::SourceLines;
use crate::manifest::Position;
use crate::model::syntax::text::one_line;

/// How much of a source line is shown if lines are not wrapped, in characters.
const WIDTH: usize = 120;

/// How much of a source line is shown, in characters.
pub(super) fn excerpt_width(width: Option<usize>, gutter: usize) -> usize {
    /// The gutter's ` | `, and an ellipsis at both ends.
    const CONTEXT: usize = 5;
    width.map_or(WIDTH, |width| {
        width.saturating_sub(gutter + CONTEXT).clamp(20, WIDTH)
    })
}

/// The excerpt of a line around a position, without control characters, and the offset of the position in it.
pub(super) fn window(text: &SourceLines, position: Position, most: usize) -> Option<(String, usize)> {
    let at = position.column.saturating_sub(1);
    let line = text.excerpt(position.line, 0, most + 1)?;
    if line.chars().nth(most).is_none() {
        return Some((one_line(&line).into_owned(), at));
    }
    let start = at.saturating_sub(most / 3);
    let shown = text.excerpt(position.line, start, most)?;
    let shown = one_line(&shown);
    Some(if start == 0 {
        (format!("{shown}…"), at)
    } else {
        (format!("…{shown}…"), at - start + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_on_one_long_line_cost_no_count_of_the_line_each() {
        let text = SourceLines::new("{\"key\": 1}".repeat(2_000_000).into());
        // Without marks, this takes minutes, because each finding counts through the whole line.
        for finding in 0..2_000 {
            let position = Position {
                line: 1,
                column: finding * 10_000 + 2,
            };
            let (shown, caret) = window(&text, position, WIDTH).unwrap();
            let field: String = shown.chars().skip(caret).take(5).collect();
            assert_eq!(field, "\"key\"");
        }
    }

    #[test]
    fn a_long_line_is_shown_around_the_field() {
        let at = |text: &str, line, column| {
            window(&SourceLines::new(text.into()), Position { line, column }, WIDTH).unwrap()
        };
        // Marks inside a line are 4,096 bytes apart, and multi-byte characters can overlap them.
        for before in ["a".repeat(1000), "aé\u{10000}".repeat(5000), "é".repeat(2048)] {
            let column = before.chars().count() + 1;
            let text = format!("first\n{before}field{}\r\nlast", "b".repeat(10_000));
            let (shown, caret) = at(&text, 2, column);
            assert_eq!(shown.chars().skip(caret).take(5).collect::<String>(), "field");
            assert_eq!(shown.chars().count(), 122);
            assert_eq!(at(&text, 1, 1), ("first".to_owned(), 0));
            assert_eq!(at(&text, 3, 2), ("last".to_owned(), 1));
            let whole = SourceLines::new(text.clone().into());
            let line = text.lines().nth(1).unwrap();
            for skip in [0, 1, 4095, 4096, 4097, 8191, 12_000, 1_000_000] {
                let expected: String = line.chars().skip(skip).take(7).collect();
                assert_eq!(whole.excerpt(2, skip, 7).unwrap(), expected, "{skip}");
            }
        }
        assert_eq!(at("\tshort", 1, 2), (" short".to_owned(), 1));
    }
}
