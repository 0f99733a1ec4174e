//! `scan --assume`: what is assumed of every policy. The one place that knows what a mode means for the model.

use anyhow::{anyhow, bail};

use crate::cli::options::nearest;
use crate::model::policy::{Action, Inert, Switch};
use crate::scan::Overrides;

/// The modes of a policy, with the settings that follow from each.
const MODES: [(&str, Action, Switch); 3] = [
    ("Audit", Action::Audit, Switch::DryRun),
    ("Warn", Action::Warn, Switch::Apply),
    ("Enforce", Action::Deny, Switch::Apply),
];

/// What happens to fields that Windows ignores.
const IGNORED_FIELDS: [(&str, Inert); 4] = [
    ("Deny", Inert::Deny),
    ("Warn", Inert::Warn),
    ("Audit", Inert::DryRun),
    ("Remove", Inert::Repair),
];

/// Reads `mode=Enforce` and `ignoredFields=Warn`.
///
/// # Errors
/// A key or value that there is not, with the nearest that there is.
pub(super) fn overrides(assumed: &[String]) -> anyhow::Result<Overrides> {
    let mut overrides = Overrides::default();
    for word in assumed {
        let (key, value) = parts(word);
        match key {
            "mode" => {
                let (_, validation, placement) = one_of(&MODES, |mode| mode.0, key, value)?;
                overrides.validation = Some(validation);
                overrides.placement = Some(placement);
            }
            "ignoredFields" => {
                let (_, ignored) = one_of(&IGNORED_FIELDS, |one| one.0, key, value)?;
                overrides.inert = Some(ignored);
            }
            _ => bail!(
                "\"{key}\" cannot be assumed (--assume): write mode=Enforce or ignoredFields=Warn, or both with a comma \
                 between them"
            ),
        }
    }
    Ok(overrides)
}

/// What is assumed, as the report shows it.
pub(super) fn words(assumed: &[String]) -> Vec<String> {
    let spelled = assumed.iter().map(|word| {
        let (key, value) = parts(word);
        let modes = MODES.map(|mode| mode.0).into_iter();
        let mut known = modes.chain(IGNORED_FIELDS.map(|one| one.0));
        let value = known
            .find(|known| known.eq_ignore_ascii_case(value))
            .unwrap_or(value);
        format!("{key}={value}")
    });
    spelled.collect()
}

fn parts(word: &str) -> (&str, &str) {
    let (key, value) = word.split_once('=').unwrap_or((word, ""));
    (key.trim(), value.trim())
}

fn one_of<T: Copy>(all: &[T], name: fn(&T) -> &'static str, key: &str, value: &str) -> anyhow::Result<T> {
    let found = all.iter().find(|one| name(one).eq_ignore_ascii_case(value));
    found.copied().ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(name).collect();
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

    fn read(words: &[&str]) -> anyhow::Result<Overrides> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        overrides(&words)
    }

    #[test]
    fn a_mode_is_its_settings_and_what_is_unknown_is_answered_with_what_is_known() {
        for (mode, validation, placement) in [
            ("mode=Enforce", Action::Deny, Switch::Apply),
            ("mode=warn", Action::Warn, Switch::Apply),
            ("mode=Audit", Action::Audit, Switch::DryRun),
        ] {
            let read = read(&[mode, "ignoredFields=Remove"]).unwrap();
            assert_eq!(
                (read.validation, read.placement, read.inert),
                (Some(validation), Some(placement), Some(Inert::Repair)),
                "{mode}"
            );
        }
        assert!(read(&[]).unwrap().is_empty());
        assert_eq!(words(&["mode=enforce".to_owned()]), ["mode=Enforce"]);
        for (word, said) in [
            (
                "mode=Enforced",
                "write one of Audit, Warn, Enforce; did you mean Enforce?",
            ),
            ("mode", "write one of Audit, Warn, Enforce"),
            ("ignoredFields=Denny", "did you mean Deny?"),
            ("validation=Deny", "write mode=Enforce or ignoredFields=Warn"),
        ] {
            let error = read(&[word]).unwrap_err().to_string();
            assert!(error.contains(said) && error.contains("--assume"), "{error}");
        }
    }
}
