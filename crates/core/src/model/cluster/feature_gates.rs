//! The feature gates of Kubernetes that rules read, and the setting of each in a cluster.

use std::collections::BTreeMap;

use crate::model::syntax::suggest::nearest;

/// The gates that rules read: the name, and the first minor release in which the gate is on by default, if there is one.
///
/// Source: kubernetes/kubernetes, `pkg/features/kube_features.go`.
static GATES: &[(&str, Option<u32>)] = &[
    ("ContainerStopSignals", None),
    ("RelaxedEnvironmentVariableValidation", Some(32)),
    ("TaintTolerationComparisonOperators", None),
    ("WinDSR", Some(33)),
];

/// The gates that the cluster sets; all others have the default of its release.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FeatureGates(BTreeMap<&'static str, bool>);

impl FeatureGates {
    /// Sets a gate by `Name=true` or `Name=false`.
    ///
    /// # Errors
    /// The text has another form, or names a gate that no rule reads; with the nearest name.
    pub fn set(&mut self, text: &str) -> Result<(), String> {
        let (name, on) = parse(text)?;
        self.0.insert(name, on);
        Ok(())
    }

    /// Whether a gate is on in this minor release. A gate that is not in the table is off.
    pub fn is_on(&self, name: &str, minor: u32) -> bool {
        let by_default = || {
            let known = GATES.iter().find(|(known, _)| *known == name);
            known.is_some_and(|(_, since)| since.is_some_and(|since| minor >= since))
        };
        self.0.get(name).copied().unwrap_or_else(by_default)
    }
}

/// The names of the gates that rules read, sorted.
pub fn names() -> impl Iterator<Item = &'static str> {
    GATES.iter().map(|(name, _)| *name)
}

/// Parses `Name=true` or `Name=false`.
///
/// # Errors
/// As [`FeatureGates::set`].
pub fn parse(text: &str) -> Result<(&'static str, bool), String> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    let Some((known, _)) = GATES.iter().find(|(known, _)| *known == name) else {
        return Err(match nearest(name, names()) {
            Some(near) => format!("no rule reads this feature gate; did you mean {near}?"),
            None => format!(
                "no rule reads this feature gate; known are {}",
                names().collect::<Vec<_>>().join(", ")
            ),
        });
    };
    match value {
        "true" => Ok((known, true)),
        "false" => Ok((known, false)),
        _ => Err(format!("write {known}=true or {known}=false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_has_its_own_setting_or_the_default_of_the_release() {
        let mut gates = FeatureGates::default();
        assert!(gates.is_on("WinDSR", 33) && !gates.is_on("WinDSR", 32));
        gates.set("WinDSR=false").unwrap();
        assert!(!gates.is_on("WinDSR", 36));
        gates.set("WinDSR=true").unwrap();
        assert!(gates.is_on("WinDSR", 20));
        for (text, problem) in [
            ("WinDRS=true", "did you mean WinDSR?"),
            ("Foo=true", "known are ContainerStopSignals, "),
            ("WinDSR", "write WinDSR=true or WinDSR=false"),
            ("WinDSR=yes", "write WinDSR=true or WinDSR=false"),
        ] {
            let error = gates.set(text).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
