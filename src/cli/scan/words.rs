//! The words of `--as`: which fields of policies they name, and what these may say.

use anyhow::{anyhow, bail};

use crate::model::policy::{IgnoredFields, Mode};
use crate::scan::Overrides;

/// Reads `validation=Deny` and the like.
pub(super) fn overrides(words: &[String]) -> anyhow::Result<Overrides> {
    let mut overrides = Overrides::default();
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key.trim() {
            "mode" => overrides.mode = Some(one_of(Mode::ALL, Mode::as_str, key, value)?),
            "ignoredFields" => {
                overrides.ignored_fields =
                    Some(one_of(IgnoredFields::ALL, IgnoredFields::as_str, key, value)?);
            }
            _ => bail!(
                "there is no field \"{key}\" (--as): write mode=Enforce or ignoredFields=Warn, several with commas between them"
            ),
        }
    }
    Ok(overrides)
}

fn one_of<T: Copy, const N: usize>(
    all: [T; N],
    name: fn(T) -> &'static str,
    key: &str,
    value: &str,
) -> anyhow::Result<T> {
    let found = all
        .into_iter()
        .find(|one| name(*one).eq_ignore_ascii_case(value.trim()));
    found.ok_or_else(|| {
        let good = all.map(name).join(", ");
        anyhow!(
            "{key} cannot be \"{value}\" (--as): write one of {good}, as in {key}={}",
            name(all[0])
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> anyhow::Result<Overrides> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        overrides(&words)
    }

    #[test]
    fn words_are_read_and_bad_ones_are_answered_with_the_good_ones() {
        let read_all = read(&["mode=enforce", "ignoredFields=Warn"]).unwrap();
        assert_eq!(
            (read_all.mode, read_all.ignored_fields),
            (Some(Mode::Enforce), Some(IgnoredFields::Warn))
        );
        assert!(read(&[]).unwrap().is_empty());
        for (word, told) in [
            ("mode=Deny", "write one of Audit, Warn, Enforce"),
            ("ignoredFields=", "write one of Audit, Warn, Deny, Remove"),
            ("validation=Deny", "write mode=Enforce or ignoredFields=Warn"),
        ] {
            let error = read(&[word]).unwrap_err().to_string();
            assert!(error.contains(told) && error.contains("--as"), "{error}");
        }
    }
}
