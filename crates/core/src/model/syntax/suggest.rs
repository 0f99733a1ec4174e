//! Suggestions for input that is nearly right: the nearest known name, and the nearest date.

use jiff::civil::Date;

/// The known word that is most similar to this one.
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    nearest_within(word, known, word.chars().count().max(3) / 3)
}

/// The known word that is most similar to this one, if they differ by no more than `most` edits. Case does not matter.
pub fn nearest_within<'k>(
    word: &str,
    known: impl IntoIterator<Item = &'k str>,
    most: usize,
) -> Option<&'k str> {
    let word = word.to_lowercase();
    let length = word.chars().count();
    // The distance is at least the difference in length. Comparing costs the product of both lengths.
    let similar = known
        .into_iter()
        .filter(|known| known.chars().count().abs_diff(length) <= most);
    let distance = |known: &str| strsim::damerau_levenshtein(&word, &known.to_lowercase());
    let (distance, best) = similar
        .map(|known| (distance(known), known))
        .min_by_key(|(distance, _)| *distance)?;
    (distance <= most).then_some(best)
}

/// Parses a date as in `2026-12-31`.
///
/// # Errors
/// A message with the nearest valid date.
pub fn date(text: &str) -> Result<Date, String> {
    if let Ok(date) = text.parse() {
        return Ok(date);
    }
    let numbers: Option<Vec<u32>> = text
        .split(['-', '/', '.'])
        .map(|part| part.trim().parse().ok())
        .collect();
    let near = numbers.and_then(|numbers| match numbers[..] {
        [year, month, day] if year >= 1000 => nearest_date(year, month, day),
        [day, month, year] if year >= 1000 => nearest_date(year, month, day),
        _ => None,
    });
    Err(match near {
        Some(date) => format!("there is no such date; did you mean {date}?"),
        None => "write a date as in 2026-12-31".to_owned(),
    })
}

fn nearest_date(year: u32, month: u32, day: u32) -> Option<Date> {
    let year = i16::try_from(year).ok()?;
    let month = i8::try_from(month.clamp(1, 12)).ok()?;
    let last = Date::new(year, month, 1).ok()?.days_in_month();
    let day = i8::try_from(day.max(1)).unwrap_or(last).min(last);
    Date::new(year, month, day).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_input_is_answered_with_the_nearest_valid_one() {
        assert!(date("2026-12-31").is_ok());
        for (text, near) in [
            ("2026-02-30", "did you mean 2026-02-28?"),
            ("2026-13-01", "did you mean 2026-12-01?"),
            ("31.12.2026", "did you mean 2026-12-31?"),
            ("2026/1/5", "did you mean 2026-01-05?"),
            ("tomorrow", "as in 2026-12-31"),
        ] {
            assert!(
                date(text).unwrap_err().ends_with(near),
                "{text}: {:?}",
                date(text)
            );
        }
        assert_eq!(nearest("hsop", ["bank", "shop"]), Some("shop"));
        assert_eq!(nearest("other", ["bank", "shop"]), None);
    }
}
