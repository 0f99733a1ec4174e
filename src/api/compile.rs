//! Turning what a `WindowsPodPolicy` says into what the engine reads.

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::Date;

use super::pod_policy::{ExemptionSpec, Pool, PoolTaint, WindowsPodPolicySpec};
use super::problem::{Place, Problem, place, spell};
use super::schema::{OrOff, Repair, USERS_IN_FULL};
use super::selector;
use crate::engine::effective::{DatedExemption, StoredPolicy};
use crate::model::build::{Build, RELEASES, Release};
use crate::model::node::{Host, PRIVATE_IPV4_RESOURCE, Taint};
use crate::model::policy::{Action, Exemption, Inert, PlacementParts, Policy, PoolLabel};
use crate::rules;

/// Names that this version does not know.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LeftOut {
    /// Of rules.
    pub rules: BTreeSet<String>,
    /// Of releases of Windows.
    pub releases: BTreeSet<String>,
}

/// What is done about names that this version does not know.
pub enum Unknown<'u> {
    /// They are a problem: the author has just written them.
    Refused,
    /// They are left out and noted here: the object is stored, perhaps by a newer version.
    LeftOut(&'u mut LeftOut),
}

/// What the engine reads, from what is written.
///
/// # Errors
/// Everything that cannot be used.
pub fn compile(
    name: String,
    spec: WindowsPodPolicySpec,
    unknown: Unknown<'_>,
) -> Result<StoredPolicy, Vec<Problem>> {
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
    unknown: Unknown<'u>,
    problems: Vec<Problem>,
}

impl Compiler<'_> {
    fn policy(&mut self, name: String, spec: WindowsPodPolicySpec) -> StoredPolicy {
        let mut pool_labels = Policy::well_known_pool_labels();
        pool_labels.extend(spec.evidence.pool_labels.into_iter().map(|l| PoolLabel {
            key: l.key,
            value: l.value,
        }));
        let pools = spec.pools.into_iter().enumerate();
        let exemptions = spec.exemptions.into_iter().enumerate();
        let policy = Policy {
            name,
            validation: spec.validation.0,
            placement: spec.placement.0,
            parts: PlacementParts {
                os: spec.placement_parts.os,
                os_field: spec.placement_parts.os_field,
                tolerations: spec.placement_parts.tolerations,
                build: spec.placement_parts.build,
                runtime_class: spec.placement_parts.runtime_class,
            },
            inert: inert(spec.inert, spec.repair),
            reverse_guard: spec.reverse_guard.0,
            actions: self.actions(spec.rules),
            pool_labels,
            image_evidence: spec.evidence.images,
            namespace_default_os: spec.evidence.namespace_default_os,
            taints: spec.tolerations.into_iter().map(taint).collect(),
            pools: pools.map(|(i, pool)| self.host(i, pool)).collect(),
            trusted_build_label: spec.build.trusted,
            runtime_classes: self.runtime_classes(spec.runtime_classes),
            controllers: self.controllers(spec.controllers),
            exemptions: Vec::new(),
        };
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

    fn actions(&mut self, written: BTreeMap<String, OrOff<Action>>) -> BTreeMap<&'static str, Action> {
        let mut actions = BTreeMap::new();
        for (name, action) in written {
            let mut path = place(&["spec", "rules"]);
            path.push(Place::Key(name.clone()));
            if let Some(id) = self.rule(&name, path) {
                actions.insert(id, action.0);
            }
        }
        actions
    }

    /// The id of the rule; `None` where it is unknown.
    fn rule(&mut self, name: &str, path: Vec<Place>) -> Option<&'static str> {
        if let Some(rule) = rules::find(name) {
            return Some(rule.id);
        }
        if let Unknown::LeftOut(names) = &mut self.unknown {
            names.rules.insert(name.to_owned());
            return None;
        }
        let hint = match rules::nearest(name) {
            Some(nearest) => format!("did you mean {nearest}?"),
            None => "see transom rules".to_owned(),
        };
        let list = spell(path.split_last().map_or(&[][..], |(_, list)| list));
        let message = format!("{list}: there is no rule \"{name}\"; {hint}");
        self.problems.push(Problem { path, message });
        None
    }

    /// The classes of releases that are known. After a rollback the others must not take the policy out of force: as
    /// with rules, what is said of them is left out.
    fn runtime_classes(&mut self, written: BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut classes = BTreeMap::new();
        for (release, class) in written {
            if RELEASES.iter().any(|known| known.name == release) {
                classes.insert(release, class);
            } else if let Unknown::LeftOut(names) = &mut self.unknown {
                names.releases.insert(release);
            } else {
                let mut path = place(&["spec", "runtimeClasses"]);
                let message = format!(
                    "{}: there is no release {}",
                    spell(&path),
                    known_releases(&release)
                );
                path.push(Place::Key(release));
                self.problems.push(Problem { path, message });
            }
        }
        classes
    }

    /// Users who are believed to be controllers. A pattern would trust too many, and no name at all is every unknown user.
    fn controllers(&mut self, users: Vec<String>) -> Vec<String> {
        for (i, user) in users.iter().enumerate() {
            let problem = match user.trim() {
                "" => "no user is named",
                name if name.contains('*') => USERS_IN_FULL,
                _ => continue,
            };
            let path = place(&["spec", "controllers", &i.to_string()]);
            self.problems.push(Problem::at(path, problem));
        }
        users
    }

    fn host(&mut self, index: usize, pool: Pool) -> Host {
        let build = pool.build.as_deref().and_then(|text| {
            let build = Build::parse_label(text);
            if build.is_none() {
                self.problems.push(Problem::at(
                    place(&["spec", "pools", &index.to_string(), "build"]),
                    &format!("\"{text}\" is no build; write it as in 10.0.20348"),
                ));
            }
            build
        });
        Host {
            name: pool.name,
            build,
            taints: pool.taints.into_iter().map(taint).collect(),
            labels: pool.labels.into(),
            offers_private_ipv4: pool.resources.iter().any(|name| name == PRIVATE_IPV4_RESOURCE),
            may_be_at_zero: true,
            ..Host::default()
        }
    }

    /// The exemption; `None` where it is for unknown rules only: without them it would be for every rule.
    fn exemption(&mut self, index: usize, written: ExemptionSpec) -> Option<DatedExemption> {
        let at = index.to_string();
        let expires: Option<Date> = written.expires.parse().ok();
        if expires.is_none() {
            let text = &written.expires;
            self.problems.push(Problem::at(
                place(&["spec", "exemptions", &at, "expires"]),
                &format!("\"{text}\" is no date; write it as in 2027-03-31"),
            ));
        }
        let mut rules = Vec::new();
        for (i, name) in written.rules.iter().enumerate() {
            let path = place(&["spec", "exemptions", &at, "rules", &i.to_string()]);
            rules.extend(self.rule(name, path));
        }
        let expires = expires?;
        if rules.is_empty() && !written.rules.is_empty() {
            return None;
        }
        let note = format!("{} until {expires}: {}", written.owner, written.reason);
        Some(DatedExemption {
            exemption: Exemption {
                rules,
                images: written.images,
                note,
            },
            users: written.users,
            groups: written.groups,
            namespaces: written.namespaces,
            expires,
        })
    }
}

/// What becomes of inert fields: what `inert` says, and in a policy of before it what `repair` says.
fn inert(written: Option<Inert>, before: Option<OrOff<Repair>>) -> Inert {
    written.unwrap_or(match before.map(|repair| repair.0) {
        Some(Repair::Inert) => Inert::Repair,
        Some(Repair::DryRun) => Inert::DryRun,
        Some(Repair::Off) | None => Inert::Deny,
    })
}

fn taint(written: PoolTaint) -> Taint {
    Taint {
        key: written.key,
        value: written.value,
        effect: written.effect,
    }
}

/// The name in quotes, what might be meant by it, and the releases that there are.
fn known_releases(name: &str) -> String {
    let all: Vec<&str> = RELEASES.iter().map(|release| release.name).collect();
    let distance = |known: &&str| strsim::damerau_levenshtein(known, name);
    let nearest = (all.iter().copied().min_by_key(distance)).filter(|known| distance(known) <= 1);
    // 2022 and windows-2022 are ltsc2022, and 1809 is ltsc2019.
    let year = name.trim_start_matches(|c: char| !c.is_ascii_digit());
    let of_year = || (all.iter().copied()).find(|known| year.len() == 4 && known.ends_with(year));
    let meant = Release::from_tag(name).map(|release| release.name);
    let meant = meant.or_else(of_year).or(nearest);
    let hint = meant.map_or_else(String::new, |meant| format!("did you mean {meant}? "));
    format!("\"{name}\"; {hint}there are {}", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_is_a_user_who_is_named_in_full() {
        let compiled = |controllers: &[&str]| {
            let spec = WindowsPodPolicySpec {
                controllers: controllers.iter().map(ToString::to_string).collect(),
                ..WindowsPodPolicySpec::default()
            };
            let compiled = compile("p".to_owned(), spec, Unknown::Refused);
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
                "spec.controllers[1]: no user is named".to_owned(),
                "spec.controllers[2]: a user is named in full here, without *".to_owned(),
            ])
        );
    }

    #[test]
    fn repair_says_what_becomes_of_inert_fields_as_long_as_inert_does_not() {
        for (spec, expected) in [
            ("{}", Inert::Deny),
            (r#"{"repair": "Off"}"#, Inert::Deny),
            (r#"{"repair": "DryRun"}"#, Inert::DryRun),
            (r#"{"repair": "Inert"}"#, Inert::Repair),
            (r#"{"inert": "Warn"}"#, Inert::Warn),
            // The API server has written the default of `repair` into policies of before.
            (r#"{"inert": "Warn", "repair": "Off"}"#, Inert::Warn),
            (r#"{"inert": "Deny", "repair": "Inert"}"#, Inert::Deny),
        ] {
            let spec: WindowsPodPolicySpec = serde_json::from_str(spec).unwrap();
            let compiled = compile("p".to_owned(), spec.clone(), Unknown::Refused).unwrap();
            assert_eq!(compiled.policy.inert, expected, "{spec:?}");
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
            let said = known_releases(written);
            let hint = meant.map_or_else(String::new, |meant| format!("did you mean {meant}? "));
            let start = format!("\"{written}\"; {hint}there are ltsc2016, 1709,");
            assert!(said.starts_with(&start), "{said}");
        }
    }
}
