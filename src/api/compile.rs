//! Turning what a `WindowsPodPolicy` says into what the engine reads.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::civil::Date;

use super::field_error::{FieldError, FieldStep, place, spell};
use super::pod_policy::{ExemptionSpec, RuntimeClassSpec, ValidationSpec, WindowsPodPolicySpec};
use super::schema::{
    IMAGE_WAIT, LONGEST_EXEMPTION_PATTERNS, MOST_EXEMPTION_PATTERNS, TOO_LONG_EXEMPTION_PATTERNS,
    TOO_MANY_EXEMPTION_PATTERNS, USERS_IN_FULL, WHOM,
};
use super::selector;
use crate::engine::policy_set::{DatedExemption, StoredPolicy};
use crate::model::build::{RELEASES, Release};
use crate::model::node::Taint;
use crate::model::policy::{
    Action, Exemption, Explicit, LONGEST_IMAGE_WAIT, PlacementParts, Policy, RulesVersion,
};
use crate::model::workload::configured::{ConfiguredKind, PodTemplateKind, PodTemplateKindError};
use crate::rules;

/// Names that this version does not know.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UnknownNames {
    /// Of rules.
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
        self.exemption_bounds(&spec.exemptions);
        let exemptions = spec.exemptions.into_iter().enumerate();
        let policy = Policy {
            name,
            explicit: Explicit {
                action,
                ignored_fields,
                placement: placement.mode,
                // The reader of files knows it.
                taints: false,
            },
            parts: PlacementParts::of(&placement.fields),
            linux_pods: placement.linux_pods,
            actions: self.actions(rules),
            rules_version: rules_version.and_then(|version| self.rules_version(&version)),
            image_evidence: spec.evidence.images,
            image_wait: self.image_wait(spec.evidence.image_wait.as_deref()),
            namespace_default_os: spec.evidence.namespace_default_os,
            pod_node_selector: spec.evidence.pod_node_selector,
            default_node_selector: spec.evidence.default_node_selector,
            allowed_tolerations: placement
                .allowed_tolerations
                .into_iter()
                .map(Into::into)
                .collect(),
            taints: placement.tolerated_taints.iter().map(Taint::from).collect(),
            build_label: placement.build_label,
            runtime_classes: self.runtime_classes(placement.runtime_classes),
            controllers: self.controllers(spec.controller_usernames),
            pod_templates: self.pod_templates(&spec.pod_templates),
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

    fn rules_version(&mut self, written: &str) -> Option<RulesVersion> {
        let version = RulesVersion::parse(written);
        if version.is_none() {
            let path = place(&["spec", "validation", "rulesVersion"]);
            let message = format!("\"{written}\" is not a version; write major and minor, as in 0.1");
            self.problems.push(FieldError::at(path, &message));
        }
        version
    }

    /// Zero where it is not set.
    fn image_wait(&mut self, written: Option<&str>) -> Duration {
        let wait = written.map_or(Some(Duration::ZERO), image_wait);
        wait.unwrap_or_else(|| {
            let path = place(&["spec", "evidence", "imageWait"]);
            let text = written.unwrap_or_default();
            let message = format!("\"{text}\" is not valid; {IMAGE_WAIT}");
            self.problems.push(FieldError::at(path, &message));
            Duration::ZERO
        })
    }

    fn actions(&mut self, written: BTreeMap<String, Action>) -> BTreeMap<&'static str, Action> {
        let mut actions = BTreeMap::new();
        for (name, action) in written {
            let mut path = place(&["spec", "validation", "rules"]);
            path.push(FieldStep::Key(name.clone()));
            if let Some(id) = self.rule(&name, path) {
                actions.insert(id, action);
            }
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
    fn runtime_classes(&mut self, written: Vec<RuntimeClassSpec>) -> BTreeMap<String, String> {
        let mut classes = BTreeMap::new();
        for (i, RuntimeClassSpec { release, name }) in written.into_iter().enumerate() {
            if RELEASES.iter().any(|known| known.name == release) {
                classes.insert(release, name);
            } else if let UnknownNameHandling::LeftOut(names) = &mut self.unknown {
                names.releases.insert(release);
            } else {
                let path = place(&["spec", "placement", "runtimeClasses", &i.to_string(), "release"]);
                let message = format!("unknown release {}", known_releases(&release));
                self.problems.push(FieldError::at(path, &message));
            }
        }
        classes
    }

    /// Users who are believed to be controllers. A pattern would trust too many, and no name at all is every unknown
    /// user.
    fn controllers(&mut self, users: Vec<String>) -> Vec<String> {
        for (i, user) in users.iter().enumerate() {
            let problem = match user.trim() {
                "" => "the user name is empty",
                name if name.contains('*') => USERS_IN_FULL,
                _ => continue,
            };
            let path = place(&["spec", "controllerUsernames", &i.to_string()]);
            self.problems.push(FieldError::at(path, problem));
        }
        users
    }

    /// Custom resources. A stored policy may name one that this version knows: its own path then applies.
    fn pod_templates(&mut self, written: &[PodTemplateKind]) -> Vec<ConfiguredKind> {
        let mut kinds: Vec<ConfiguredKind> = Vec::new();
        for (i, entry) in written.iter().enumerate() {
            let problem = match entry.configured() {
                Ok(kind) if kinds.iter().any(|known| known.is(kind.group(), kind.kind())) => {
                    "the kind is named twice".to_owned()
                }
                Ok(kind) => {
                    kinds.push(kind);
                    continue;
                }
                Err(PodTemplateKindError::BuiltIn(_))
                    if matches!(self.unknown, UnknownNameHandling::LeftOut(_)) =>
                {
                    continue;
                }
                Err(error) => error.to_string(),
            };
            let path = place(&["spec", "podTemplates", &i.to_string()]);
            self.problems.push(FieldError::at(path, &problem));
        }
        kinds
    }

    /// The bounds of all exemptions together, which the API server checks too.
    fn exemption_bounds(&mut self, exemptions: &[ExemptionSpec]) {
        let patterns = || {
            let lists =
                (exemptions.iter()).flat_map(|it| [&it.namespaces, &it.images, &it.usernames, &it.groups]);
            lists.flatten()
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
        let expires: Option<Date> = written.expires.parse().ok();
        if expires.is_none() {
            let text = &written.expires;
            self.problems.push(FieldError::at(
                place(&["spec", "exemptions", &at, "expires"]),
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
            &written.namespaces,
            &written.images,
            &written.usernames,
            &written.groups,
        ];
        if whom.iter().all(|list| list.is_empty()) {
            self.problems
                .push(FieldError::at(place(&["spec", "exemptions", &at]), WHOM));
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
                images: written.images,
                note,
            },
            usernames: written.usernames,
            groups: written.groups,
            namespaces: written.namespaces,
            expires,
        })
    }
}

/// The wait in the form of [`IMAGE_WAIT`], which the API server checks too.
fn image_wait(text: &str) -> Option<Duration> {
    if text == "0s" {
        return Some(Duration::ZERO);
    }
    let digits = text.strip_suffix("ms")?;
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_number || digits.len() > 3 || (digits.len() == 3 && digits.starts_with('0')) {
        return None;
    }
    let wait = Duration::from_millis(digits.parse().ok()?);
    (wait <= LONGEST_IMAGE_WAIT).then_some(wait)
}

/// The name in quotes, what might be meant by it, and the releases that there are.
fn known_releases(name: &str) -> String {
    let all: Vec<&str> = RELEASES.iter().map(|release| release.name).collect();
    // At most one typing error: the digits of a release carry its meaning, and ltsc2040 is no misspelled ltsc2022.
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
    use crate::model::policy::{ImageEvidence, Mode};

    #[test]
    fn a_controller_is_a_user_who_is_named_in_full() {
        let compiled = |controllers: &[&str]| {
            let spec = WindowsPodPolicySpec {
                controller_usernames: controllers.iter().map(ToString::to_string).collect(),
                ..WindowsPodPolicySpec::of_mode(Mode::Enforce)
            };
            let compiled = compile("p".to_owned(), spec, UnknownNameHandling::Refused);
            compiled
                .map(|stored| stored.policy.controllers)
                .map_err(|problems| {
                    let messages = problems.into_iter().map(|problem| problem.message);
                    messages.collect::<Vec<_>>()
                })
        };
        assert_eq!(
            compiled(&["platform:workloads"]),
            Ok(vec!["platform:workloads".to_owned()])
        );
        assert_eq!(
            compiled(&["a", " ", "system:*"]),
            Err(vec![
                "spec.controllerUsernames[1]: the user name is empty".to_owned(),
                "spec.controllerUsernames[2]: write the complete user name, without *".to_owned(),
            ])
        );
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
                    expires: "2027-03-31".to_owned(),
                    rules: vec!["*".to_owned()],
                    namespaces: Vec::new(),
                    images: (0..*count).map(|_| "i".repeat(*length)).collect(),
                    usernames: Vec::new(),
                    groups: (0..*groups).map(|_| "g".to_owned()).collect(),
                });
            let spec = WindowsPodPolicySpec {
                exemptions: written.collect(),
                ..WindowsPodPolicySpec::of_mode(Mode::Enforce)
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
    fn a_pod_template_that_cannot_be_used_is_a_problem_of_its_entry() {
        let spec = |texts: &[&str]| WindowsPodPolicySpec {
            pod_templates: texts
                .iter()
                .map(|text| PodTemplateKind::parse(text).unwrap())
                .collect(),
            ..WindowsPodPolicySpec::of_mode(Mode::Enforce)
        };
        let good = "example.com/GameServerSet=spec.template";
        let compiled = compile("p".to_owned(), spec(&[good]), UnknownNameHandling::Refused).unwrap();
        assert_eq!(compiled.policy.pod_templates[0].kind(), "GameServerSet");
        let rollout = "argoproj.io/Rollout=spec.template";
        let problems = compile(
            "p".to_owned(),
            spec(&[good, good, rollout, "kubevirt.io/VirtualMachine=spec.template"]),
            UnknownNameHandling::Refused,
        )
        .unwrap_err();
        let messages: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(
            messages,
            [
                "spec.podTemplates[1]: the kind is named twice",
                "spec.podTemplates[2]: kind: Transom evaluates Rollout.argoproj.io already; remove the entry",
                "spec.podTemplates[3]: kind: VirtualMachine.kubevirt.io is not evaluated: its pods are Linux pods, \
                 whatever system the virtual machine runs; remove the entry",
            ]
        );
        // A newer version may know a kind that a stored policy adds.
        let mut names = UnknownNames::default();
        let stored = compile(
            "p".to_owned(),
            spec(&[rollout]),
            UnknownNameHandling::LeftOut(&mut names),
        );
        assert_eq!(stored.unwrap().policy.pod_templates, []);
    }

    #[test]
    fn a_review_waits_for_a_registry_only_as_long_as_the_policy_allows() {
        let compiled = |wait: Option<&str>| {
            let evidence = EvidenceSpec {
                images: ImageEvidence::Registry,
                image_wait: wait.map(str::to_owned),
                ..EvidenceSpec::default()
            };
            let spec = WindowsPodPolicySpec {
                evidence,
                ..WindowsPodPolicySpec::of_mode(Mode::Enforce)
            };
            compile("p".to_owned(), spec, UnknownNameHandling::Refused)
        };
        for (written, wait) in [
            (None, 0),
            (Some("0s"), 0),
            (Some("0ms"), 0),
            (Some("250ms"), 250),
            (Some("500ms"), 500),
        ] {
            let policy = compiled(written).unwrap().policy;
            assert_eq!(policy.image_wait, Duration::from_millis(wait), "{written:?}");
            assert_eq!(policy.image_evidence, ImageEvidence::Registry);
        }
        for wrong in [
            "",
            "250",
            "1s",
            "501ms",
            "099ms",
            "-1ms",
            "0.25s",
            "+1ms",
            "ms",
            "99999999999999999999ms",
        ] {
            let problems = compiled(Some(wrong)).unwrap_err();
            let expected = format!(
                "spec.evidence.imageWait: \"{wrong}\" is not valid; write 0s, or milliseconds up to 500ms, as in 250ms"
            );
            assert_eq!(problems[0].message, expected);
        }
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
