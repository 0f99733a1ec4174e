//! `scan --assume`: settings that replace those of every policy.

use anyhow::{anyhow, bail};

use crate::cli::options::nearest;
use crate::model::cluster::policy::{IgnoredFields, Mode};
use crate::scan::PolicyOverrides;

/// Parses `mode=Enforce` and `ignoredFields=Warn`.
///
/// # Errors
/// For an unknown key or value; the message contains the nearest known one.
pub(super) fn overrides(assumed: &[String]) -> anyhow::Result<PolicyOverrides> {
    let mut overrides = PolicyOverrides::default();
    for word in assumed {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let (key, value) = (key.trim(), value.trim());
        match key {
            "mode" => overrides.mode = Some(one_of(&Mode::ALL, Mode::as_str, key, value)?),
            "ignoredFields" => {
                let ignored = one_of(&IgnoredFields::ALL, IgnoredFields::as_str, key, value)?;
                overrides.ignored_fields = Some(ignored);
            }
            _ => bail!(
                "\"{key}\" cannot be assumed (--assume): write mode=Enforce or ignoredFields=Warn, or both with a comma \
                 between them"
            ),
        }
    }
    Ok(overrides)
}

/// The settings, as the report shows them.
pub(super) fn words(overrides: PolicyOverrides) -> Vec<String> {
    let PolicyOverrides { mode, ignored_fields } = overrides;
    let mode = mode.map(|mode| format!("mode={mode}"));
    let ignored = ignored_fields.map(|ignored| format!("ignoredFields={ignored}"));
    mode.into_iter().chain(ignored).collect()
}

fn one_of<T: Copy>(all: &[T], name: fn(T) -> &'static str, key: &str, value: &str) -> anyhow::Result<T> {
    let found = all.iter().find(|one| name(**one).eq_ignore_ascii_case(value));
    found.copied().ok_or_else(|| {
        let known: Vec<&str> = all.iter().copied().map(name).collect();
        let near = nearest(value, known.iter().copied()).map(|near| format!("; did you mean {near}?"));
        anyhow!(
            "{key} cannot be \"{value}\" (--assume): write one of {}{}",
            known.join(", "),
            near.unwrap_or_default()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> anyhow::Result<PolicyOverrides> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        overrides(&words)
    }

    #[test]
    fn settings_are_read_and_what_is_unknown_is_answered_with_what_is_known() {
        for (word, mode) in [("mode=Enforce", Mode::Enforce), ("mode=warn", Mode::Warn)] {
            let read = read(&[word, "ignoredFields=Remove"]).unwrap();
            assert_eq!(
                (read.mode, read.ignored_fields),
                (Some(mode), Some(IgnoredFields::Remove)),
                "{word}"
            );
        }
        assert!(read(&[]).unwrap().is_empty());
        let both = words(read(&["ignoredFields=warn", "mode=enforce"]).unwrap());
        assert_eq!(both, ["mode=Enforce", "ignoredFields=Warn"]);
        for (word, message) in [
            (
                "mode=Enforced",
                "write one of Audit, Warn, Enforce; did you mean Enforce?",
            ),
            ("mode", "write one of Audit, Warn, Enforce"),
            ("ignoredFields=Denny", "did you mean Deny?"),
            ("validation=Deny", "write mode=Enforce or ignoredFields=Warn"),
        ] {
            let error = read(&[word]).unwrap_err().to_string();
            assert!(error.contains(message) && error.contains("--assume"), "{error}");
        }
    }
}
