//! Turning what a `WindowsPodPolicy` says into what the engine reads.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::civil::Date;

use super::field_error::{FieldError, FieldStep, place, spell};
use super::node_policy::{Isolation, class_name};
use super::pod_policy::{
    ExemptionSpec, PlacementRuntimeClasses, RuleSpec, RuntimeClassSpec, ValidationSpec, WindowsPodPolicySpec,
};
use super::schema::{
    BREAK_GLASS_DENIES, EMPTY_LIST, LONGEST_EXEMPTION_PATTERNS, MOST_EXEMPTION_PATTERNS,
    TOO_LONG_EXEMPTION_PATTERNS, TOO_MANY_EXEMPTION_PATTERNS, WHOM, WITHOUT_RELEASE,
};
use super::selector;
use crate::engine::policy_set::{BREAK_GLASS, DatedExemption, StoredPolicy};
use crate::model::cluster::policy::{
    Action, BASE_MAX_AGE_DAYS, Exemption, Explicit, LONGEST_IMAGE_WAIT, Mode, PlacementField, Policy,
    RulesVersion,
};
use crate::model::nodes::node::Taint;
use crate::model::windows::build::{RELEASES, Release};
use crate::rules;

/// Names that this version does not know.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UnknownNames {
    pub rules: BTreeSet<String>,
    /// Of releases of Windows.
    pub releases: BTreeSet<String>,
}

/// What is done about names that this version does not know.
pub enum UnknownNameHandling<'u> {
    /// They are a problem: the author has just written them.
    Refused,
    /// They are omitted and recorded here: the object is stored, perhaps by a newer version.
    LeftOut(&'u mut UnknownNames),
}

/// What the engine reads, from what is written.
///
/// # Errors
/// Everything that cannot be used.
pub fn compile(
    name: String,
    spec: WindowsPodPolicySpec,
    unknown: UnknownNameHandling<'_>,
) -> Result<StoredPolicy, Vec<FieldError>> {
    let mut compiler = Compiler {
        unknown,
        problems: Vec::new(),
    };
    let policy = compiler.policy(name, spec);
    if compiler.problems.is_empty() {
        Ok(policy)
    } else {
        Err(compiler.problems)
    }
}

/// How many days old the Windows base of an image may be.
fn base_max_age_days(rules: &[RuleSpec]) -> u16 {
    let mut valid = rules.iter().filter(|rule| rule.problem().is_none());
    valid
        .find_map(|rule| rule.parameters.max_age_days)
        .unwrap_or(BASE_MAX_AGE_DAYS)
}

/// Takes what can be used, and notes what cannot.
struct Compiler<'u> {
    unknown: UnknownNameHandling<'u>,
    problems: Vec<FieldError>,
}

impl Compiler<'_> {
    fn policy(&mut self, name: String, spec: WindowsPodPolicySpec) -> StoredPolicy {
        let ValidationSpec {
            action,
            ignored_fields,
            rules,
            rules_version,
        } = spec.validation;
        let placement = spec.placement;
        self.mode(&name, spec.mode);
        self.exemption_bounds(&spec.exemptions);
        let exemptions = spec.exemptions.into_iter().enumerate();
        let policy = Policy {
            name,
            explicit: Explicit {
                action,
                ignored_fields,
                placement: placement.mode,
                taints: placement.tolerated_taints.is_some(),
            },
            placed: placement.fields.unwrap_or_else(|| PlacementField::ALL.to_vec()),
            linux_pods: placement.linux_pods,
            base_max_age_days: base_max_age_days(&rules),
            actions: self.actions(rules),
            rules_version: rules_version.and_then(|version| self.rules_version(&version)),
            image_evidence: spec.evidence.image_evidence,
            image_wait: self.image_wait(spec.evidence.image_wait_milliseconds),
            default_os: spec.evidence.default_os,
            taints: match placement.tolerated_taints {
                Some(written) => written.iter().map(Taint::from).collect(),
                None => Policy::standalone().taints,
            },
            build_label: placement.build_label,
            runtime_classes: self.runtime_classes(placement.runtime_classes),
            ..Policy::standalone()
        };
        let policy = policy.in_mode(spec.mode);
        let exemptions = exemptions.filter_map(|(i, written)| self.exemption(i, written));
        let exemptions = exemptions.collect();
        self.problems.extend(selector::problems(
            place(&["spec", "namespaceSelector"]),
            &spec.namespace_selector,
        ));
        StoredPolicy {
            policy,
            priority: spec.priority,
            namespace_selector: spec.namespace_selector,
            overrides: spec.namespace_overrides,
            exemptions,
        }
    }

    /// The API server refuses the same; a file is read without it.
    fn mode(&mut self, name: &str, mode: Mode) {
        if name == BREAK_GLASS && mode == Mode::Enforce {
            let path = place(&["spec", "mode"]);
            self.problems.push(FieldError::at(path, BREAK_GLASS_DENIES));
        }
    }

    fn rules_version(&mut self, written: &str) -> Option<RulesVersion> {
        let version = RulesVersion::parse(written);
        if version.is_none() {
            let path = place(&["spec", "validation", "rulesVersion"]);
            let message = format!("\"{written}\" is not a version; write major and minor, as in 0.1");
            self.problems.push(FieldError::at(path, &message));
        }
        version
    }

    fn image_wait(&mut self, milliseconds: i32) -> Duration {
        let wait = u64::try_from(milliseconds).map(Duration::from_millis);
        let wait = wait.ok().filter(|wait| *wait <= LONGEST_IMAGE_WAIT);
        if wait.is_none() {
            let path = place(&["spec", "evidence", "imageWaitMilliseconds"]);
            let most = LONGEST_IMAGE_WAIT.as_millis();
            let message = format!("{milliseconds} is not valid; write a number from 0 to {most}");
            self.problems.push(FieldError::at(path, &message));
        }
        wait.unwrap_or_default()
    }

    fn actions(&mut self, written: Vec<RuleSpec>) -> BTreeMap<&'static str, Action> {
        let (mut actions, mut seen) = (BTreeMap::new(), BTreeSet::new());
        for (i, spec) in written.into_iter().enumerate() {
            let path = |field: &str| {
                let at = i.to_string();
                let steps = ["spec", "validation", "rules", &at]
                    .into_iter()
                    .chain(field.split('.'));
                place(&steps.collect::<Vec<_>>())
            };
            let Some(id) = self.rule(&spec.name, path("name")) else {
                continue;
            };
            // The API server refuses these; a file is read without it.
            if !seen.insert(id) {
                let message = format!("the rule {} is named twice", spec.name);
                self.problems.push(FieldError::at(path("name"), &message));
            }
            if let Some((field, message)) = spec.problem() {
                self.problems.push(FieldError::at(path(field), &message));
            }
            actions.extend(spec.action.map(|action| (id, action)));
        }
        actions
    }

    /// The id of the rule; `None` where it is unknown.
    fn rule(&mut self, name: &str, path: Vec<FieldStep>) -> Option<&'static str> {
        let found = rules::find(name);
        if let Some(rule) = found.filter(|rule| rule.name == name) {
            return Some(rule.id);
        }
        if let UnknownNameHandling::LeftOut(names) = &mut self.unknown {
            names.rules.insert(name.to_owned());
            return None;
        }
        let hint = match found.map(|rule| rule.name).or_else(|| rules::nearest(name)) {
            Some(nearest) => format!("did you mean {nearest}?"),
            None => "transom rules lists them".to_owned(),
        };
        let list = spell(path.split_last().map_or(&[][..], |(_, list)| list));
        let message = format!("{list}: unknown rule \"{name}\"; {hint}");
        self.problems.push(FieldError { path, message });
        None
    }

    /// The classes of releases that are known. After a rollback the others must not deactivate the policy: as with
    /// rules, their entries are omitted.
    fn runtime_classes(&mut self, written: PlacementRuntimeClasses) -> BTreeMap<String, String> {
        let mut classes = BTreeMap::new();
        if let Some(pattern) = written.name_pattern {
            if !pattern.contains("{release}") {
                let path = place(&["spec", "placement", "runtimeClasses", "namePattern"]);
                self.problems.push(FieldError::at(path, WITHOUT_RELEASE));
            }
            let name = |release: &Release| class_name(&pattern, release.name, Isolation::Process);
            classes.extend(
                RELEASES
                    .iter()
                    .map(|release| (release.name.to_owned(), name(release))),
            );
        }
        for (i, RuntimeClassSpec { release, name }) in written.names.into_iter().enumerate() {
            if RELEASES.iter().any(|known| known.name == release) {
                classes.insert(release, name);
            } else if let UnknownNameHandling::LeftOut(names) = &mut self.unknown {
                names.releases.insert(release);
            } else {
                let at = i.to_string();
                let path = place(&["spec", "placement", "runtimeClasses", "names", &at, "release"]);
                let message = format!("unknown release {}", known_releases(&release));
                self.problems.push(FieldError::at(path, &message));
            }
        }
        classes
    }

    /// The bounds of all exemptions together, which the API server checks too.
    fn exemption_bounds(&mut self, exemptions: &[ExemptionSpec]) {
        let patterns = || {
            let lists =
                (exemptions.iter()).flat_map(|it| [&it.namespaces, &it.images, &it.usernames, &it.groups]);
            lists.flatten().flatten()
        };
        let characters: usize = patterns().map(|pattern| pattern.chars().count()).sum();
        for (is_over, message) in [
            (
                patterns().count() > MOST_EXEMPTION_PATTERNS,
                TOO_MANY_EXEMPTION_PATTERNS,
            ),
            (
                characters > LONGEST_EXEMPTION_PATTERNS,
                TOO_LONG_EXEMPTION_PATTERNS,
            ),
        ] {
            if is_over {
                let path = place(&["spec", "exemptions"]);
                self.problems.push(FieldError::at(path, message));
            }
        }
    }

    /// The exemption; `None` where it is for unknown rules only: without them it would be for every rule.
    fn exemption(&mut self, index: usize, written: ExemptionSpec) -> Option<DatedExemption> {
        let at = index.to_string();
        let expires: Option<Date> = written.expires_on.parse().ok();
        if expires.is_none() {
            let text = &written.expires_on;
            self.problems.push(FieldError::at(
                place(&["spec", "exemptions", &at, "expiresOn"]),
                &format!("\"{text}\" is not a date; write it as in 2027-03-31"),
            ));
        }
        let is_for_all = written.rules.iter().any(|rule| rule == "*");
        let mut rules = Vec::new();
        for (i, name) in written.rules.iter().enumerate().filter(|(_, name)| *name != "*") {
            let path = place(&["spec", "exemptions", &at, "rules", &i.to_string()]);
            rules.extend(self.rule(name, path));
        }
        if written.rules.is_empty() {
            let path = place(&["spec", "exemptions", &at, "rules"]);
            self.problems
                .push(FieldError::at(path, "name the rules; [\"*\"] means all rules"));
        }
        let whom = [
            ("namespaces", &written.namespaces),
            ("images", &written.images),
            ("usernames", &written.usernames),
            ("groups", &written.groups),
        ];
        if whom.iter().all(|(_, list)| list.is_none()) {
            self.problems
                .push(FieldError::at(place(&["spec", "exemptions", &at]), WHOM));
        }
        // An empty list would restrict nothing, or everything.
        for (field, _) in whom
            .iter()
            .filter(|(_, list)| list.as_ref().is_some_and(Vec::is_empty))
        {
            let path = place(&["spec", "exemptions", &at, field]);
            self.problems.push(FieldError::at(path, EMPTY_LIST));
        }
        let expires = expires?;
        if is_for_all {
            rules.clear();
        } else if rules.is_empty() {
            return None;
        }
        let note = format!("{} until {expires}: {}", written.owner, written.reason);
        Some(DatedExemption {
            exemption: Exemption {
                rules,
                images: written.images.unwrap_or_default(),
                note,
            },
            usernames: written.usernames.unwrap_or_default(),
            groups: written.groups.unwrap_or_default(),
            namespaces: written.namespaces.unwrap_or_default(),
            expires,
        })
    }
}

/// The name in quotes, what might be meant by it, and the releases that there are.
fn known_releases(name: &str) -> String {
    let all: Vec<&str> = RELEASES.iter().map(|release| release.name).collect();
    // At most one typing error: the digits of a release carry its meaning, and ltsc2040 is not a misspelled ltsc2022.
    let distance = |known: &&str| strsim::damerau_levenshtein(known, name);
    let nearest = (all.iter().copied().min_by_key(distance)).filter(|known| distance(known) <= 1);
    // 2022 and windows-2022 are ltsc2022, and 1809 is ltsc2019.
    let year = name.trim_start_matches(|c: char| !c.is_ascii_digit());
    let of_year = || (all.iter().copied()).find(|known| year.len() == 4 && known.ends_with(year));
    let meant = Release::from_tag(name).map(|release| release.name);
    let meant = meant.or_else(of_year).or(nearest);
    let hint = meant.map_or_else(String::new, |meant| format!("did you mean {meant}? "));
    format!("\"{name}\"; {hint}use one of {}", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::EvidenceSpec;
    use crate::model::cluster::policy::{ImageEvidence, Mode};

    /// A spec that says nothing but its mode.
    fn in_mode(mode: Mode) -> WindowsPodPolicySpec {
        serde_json::from_value(serde_json::json!({"mode": mode})).unwrap()
    }

    #[test]
    fn only_one_rule_has_an_age_and_an_entry_has_an_action_or_an_age() {
        let compiled = |rules: serde_json::Value| {
            let spec = WindowsPodPolicySpec {
                validation: serde_json::from_value(serde_json::json!({"rules": rules})).unwrap(),
                ..in_mode(Mode::Enforce)
            };
            let compiled = compile("p".to_owned(), spec, UnknownNameHandling::Refused);
            compiled
                .map(|stored| (stored.policy.base_max_age_days, stored.policy.actions.len()))
                .map_err(|problems| {
                    let messages = problems.into_iter().map(|problem| problem.message);
                    messages.collect::<Vec<_>>()
                })
        };
        let of = |fields: serde_json::Value| compiled(serde_json::json!([fields]));
        let json = |text: &str| serde_json::from_str(text).unwrap();
        assert_eq!(compiled(json("[]")), Ok((180, 0)));
        assert_eq!(
            of(json(
                r#"{"name": "image-base-old", "parameters": {"maxAgeDays": 90}}"#
            )),
            Ok((90, 0))
        );
        let both = r#"{"name": "image-base-old", "parameters": {"maxAgeDays": 3650}, "action": "Warn"}"#;
        assert_eq!(of(json(both)), Ok((3650, 1)));
        for (entry, problem) in [
            (
                r#"{"name": "run-as-user"}"#,
                "action: set action, or parameters.maxAgeDays for image-base-old",
            ),
            (
                r#"{"name": "run-as-user", "parameters": {"maxAgeDays": 90}, "action": "Warn"}"#,
                "parameters: only the rule image-base-old has the parameter maxAgeDays",
            ),
            (
                r#"{"name": "image-base-old", "parameters": {"maxAgeDays": 0}}"#,
                "parameters.maxAgeDays: write a number from 1 to 3650",
            ),
            (
                r#"{"name": "image-base-old", "parameters": {"maxAgeDays": 3651}}"#,
                "parameters.maxAgeDays: write a number from 1 to 3650",
            ),
        ] {
            let problem = format!("spec.validation.rules[0].{problem}");
            assert_eq!(of(json(entry)), Err(vec![problem]), "{entry}");
        }
    }

    #[test]
    fn all_exemptions_together_name_a_bounded_number_of_patterns() {
        let problems = |lists: &[(usize, usize, usize)]| {
            let written = lists
                .iter()
                .enumerate()
                .map(|(n, (count, length, groups))| ExemptionSpec {
                    name: n.to_string(),
                    owner: "a".to_owned(),
                    reason: "b".to_owned(),
                    expires_on: "2027-03-31".to_owned(),
                    rules: vec!["*".to_owned()],
                    namespaces: None,
                    images: Some((0..*count).map(|_| "i".repeat(*length)).collect()),
                    usernames: None,
                    groups: (*groups > 0).then(|| (0..*groups).map(|_| "g".to_owned()).collect()),
                });
            let spec = WindowsPodPolicySpec {
                exemptions: written.collect(),
                ..in_mode(Mode::Enforce)
            };
            let compiled = compile("p".to_owned(), spec, UnknownNameHandling::Refused);
            let problems = compiled.err().unwrap_or_default().into_iter();
            problems.map(|problem| problem.message).collect::<Vec<_>>()
        };
        assert_eq!(problems(&[(256, 32, 0), (128, 64, 0)]), [""; 0]);
        assert_eq!(problems(&[(200, 1, 56), (200, 1, 56)]), [""; 0]);
        let many = problems(&[(200, 1, 56), (200, 1, 57)]);
        assert!(
            many[0].starts_with("spec.exemptions: the exemptions name more than 512 "),
            "{many:?}"
        );
        let long = problems(&[(32, 512, 0), (1, 1, 0)]);
        assert!(long[0].contains("more than 16384 characters"), "{long:?}");
    }

    #[test]
    fn a_review_waits_for_a_registry_only_as_long_as_the_policy_allows() {
        let compiled = |image_wait_milliseconds: i32| {
            let evidence = EvidenceSpec {
                image_evidence: ImageEvidence::Registry,
                image_wait_milliseconds,
                ..EvidenceSpec::default()
            };
            let spec = WindowsPodPolicySpec {
                evidence,
                ..in_mode(Mode::Enforce)
            };
            compile("p".to_owned(), spec, UnknownNameHandling::Refused)
        };
        for wait in [0, 250, 500] {
            let policy = compiled(wait).unwrap().policy;
            assert_eq!(
                policy.image_wait.as_millis(),
                u128::try_from(wait).unwrap(),
                "{wait}"
            );
            assert_eq!(policy.image_evidence, ImageEvidence::Registry);
        }
        for wrong in [-1, 501, i32::MAX] {
            let problems = compiled(wrong).unwrap_err();
            let expected = format!(
                "spec.evidence.imageWaitMilliseconds: {wrong} is not valid; write a number from 0 to 500"
            );
            assert_eq!(problems[0].message, expected);
        }
    }

    #[test]
    fn a_class_is_named_by_its_entry_and_otherwise_by_the_pattern() {
        let compiled = |classes: serde_json::Value| {
            let spec = serde_json::json!({"mode": "Audit", "placement": {"runtimeClasses": classes}});
            compile(
                "p".to_owned(),
                serde_json::from_value(spec).unwrap(),
                UnknownNameHandling::Refused,
            )
        };
        let names = serde_json::json!([{"release": "ltsc2019", "name": "old"}]);
        let classes = compiled(serde_json::json!({"names": names})).unwrap();
        assert_eq!(
            classes.policy.runtime_classes,
            [("ltsc2019".to_owned(), "old".to_owned())].into()
        );
        let both = serde_json::json!({"namePattern": "win-{release}-{isolation}", "names": names});
        let classes = compiled(both).unwrap().policy.runtime_classes;
        assert_eq!(
            (&*classes["ltsc2019"], &*classes["20H2"]),
            ("old", "win-20h2-process")
        );
        let problems = compiled(serde_json::json!({"namePattern": "win"})).unwrap_err();
        assert_eq!(
            problems[0].message,
            "spec.placement.runtimeClasses.namePattern: it must contain {release}, otherwise all releases would share one \
             RuntimeClass"
        );
    }

    #[test]
    fn the_policy_of_emergencies_denies_nothing() {
        let compiled =
            |name: &str, mode| compile(name.to_owned(), in_mode(mode), UnknownNameHandling::Refused);
        assert!(compiled(BREAK_GLASS, Mode::Warn).is_ok() && compiled("mine", Mode::Enforce).is_ok());
        assert_eq!(
            compiled(BREAK_GLASS, Mode::Enforce).unwrap_err()[0].message,
            "spec.mode: break-glass limits what the other policies do; write Warn or Audit"
        );
    }

    #[test]
    fn a_rule_has_one_action() {
        let rules = serde_json::json!([{"name": "host-pid", "action": "Warn"}, {"name": "host-pid", "action": "Deny"}]);
        let spec = serde_json::json!({"mode": "Audit", "validation": {"rules": rules}});
        let spec = serde_json::from_value(spec).unwrap();
        let problems = compile("p".to_owned(), spec, UnknownNameHandling::Refused).unwrap_err();
        assert_eq!(
            problems[0].message,
            "spec.validation.rules[1].name: the rule host-pid is named twice"
        );
    }

    #[test]
    fn a_release_by_another_name_is_recognised() {
        for (written, meant) in [
            ("2022", Some("ltsc2022")),
            ("windows-2019", Some("ltsc2019")),
            ("1809", Some("ltsc2019")),
            ("LTSC2022", Some("ltsc2022")),
            ("ltcs2025", Some("ltsc2025")),
            ("20h2", Some("20H2")),
            // It may be the next release, and no slip.
            ("ltsc2040", None),
            ("default", None),
        ] {
            let reported = known_releases(written);
            let hint = meant.map_or_else(String::new, |meant| format!("did you mean {meant}? "));
            let start = format!("\"{written}\"; {hint}use one of ltsc2016, 1709,");
            assert!(reported.starts_with(&start), "{reported}");
        }
    }
}
