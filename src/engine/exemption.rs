//! Exemptions: which findings of one object the policy exempts. The caller has already resolved users and dates.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};

use crate::model::path::Segment;
use crate::model::pod::{ContainerList, PodSpec};
use crate::model::policy::{Exemption, Policy};
use crate::rules::Finding;

/// The maximum length of an image that an exemption by image matches, in bytes: a repository has at most 255 characters,
/// a tag 128, a digest 71.
const LONGEST_IMAGE: usize = 512;

/// The maximum number of steps for one object: an exemption that is examined for a finding, or a byte of a pattern or an image
/// that is compared. Further findings are not exempt. The largest policy has 16 KiB of patterns and 256 exemptions, and a
/// pod with 60 different images and 10 findings in each container still stays below the maximum.
const MOST_STEPS: usize = 4 << 20;

/// The exemptions of a policy, for the findings of one object.
///
/// A pod of 3 MiB can have 200,000 findings. So each distinct image is compared once, only with the patterns of exemptions
/// that exempt a rule with a finding, and the steps are bounded.
pub struct Exemptions<'p> {
    all: &'p [Exemption],
    pod: Option<&'p PodSpec<'p>>,
    /// The exemptions of a rule that has a finding, in their order.
    of_rule: RefCell<HashMap<&'static str, Vec<usize>>>,
    /// The exemptions that were compared with an image, and whether they match.
    matched: RefCell<HashMap<&'p str, HashMap<usize, bool>>>,
    steps: Cell<usize>,
}

impl<'p> Exemptions<'p> {
    /// The exemptions of `policy` for the findings of an object with this pod.
    pub fn new(policy: &'p Policy, pod: Option<&'p PodSpec<'p>>) -> Self {
        Exemptions {
            all: &policy.exemptions,
            pod,
            of_rule: RefCell::default(),
            matched: RefCell::default(),
            steps: Cell::new(0),
        }
    }

    /// Whether a finding is exempt.
    pub fn covers(&self, finding: &Finding) -> bool {
        self.covering(finding).is_some()
    }

    /// Removes the exempt findings; returns them by the note of their exemption.
    pub fn lift(&self, findings: &mut Vec<Finding>) -> Vec<(String, Vec<Finding>)> {
        let mut lifted: BTreeMap<usize, Vec<Finding>> = BTreeMap::new();
        if !self.all.is_empty() {
            for finding in std::mem::take(findings) {
                match self.covering(&finding) {
                    Some(index) => lifted.entry(index).or_default().push(finding),
                    None => findings.push(finding),
                }
            }
        }
        let noted = |(index, findings): (usize, Vec<Finding>)| {
            self.all.get(index).map(|it| (it.note.clone(), findings))
        };
        lifted.into_iter().filter_map(noted).collect()
    }

    /// The first exemption of a finding.
    fn covering(&self, finding: &Finding) -> Option<usize> {
        if self.all.is_empty() {
            return None;
        }
        let mut of_rule = self.of_rule.borrow_mut();
        let of_rule = of_rule.entry(finding.rule.id).or_insert_with(|| {
            let numbered = self.all.iter().enumerate();
            let of_rule = |it: &Exemption| it.rules.is_empty() || it.rules.contains(&finding.rule.id);
            numbered
                .filter_map(|(index, it)| of_rule(it).then_some(index))
                .collect()
        });
        let image = self.pod.and_then(|pod| image_at(pod, finding.path.segments()));
        let image = image.filter(|image| image.len() <= LONGEST_IMAGE);
        let mut matched = self.matched.borrow_mut();
        let mut matched = image.map(|image| (image, matched.entry(image).or_default()));
        let mut examined = of_rule.iter().copied().take_while(|_| self.spend(1));
        examined.find(|index| {
            let patterns = self.all.get(*index).map_or(&[][..], |it| &it.images);
            patterns.is_empty()
                || matched.as_mut().is_some_and(|(image, matched)| {
                    let is_matched = || patterns.iter().any(|pattern| self.compare(pattern, image));
                    *matched.entry(*index).or_insert_with(is_matched)
                })
        })
    }

    fn compare(&self, pattern: &str, image: &str) -> bool {
        self.spend(pattern.len() + image.len()) && matches(pattern, image)
    }

    /// Whether so many more steps are within the maximum.
    fn spend(&self, steps: usize) -> bool {
        let spent = self.steps.get().saturating_add(steps);
        self.steps.set(spent);
        spent <= MOST_STEPS
    }
}

/// The image of the container that contains a path.
fn image_at<'p>(pod: &'p PodSpec<'_>, path: &[Segment]) -> Option<&'p str> {
    path.windows(2).find_map(|pair| match pair {
        [Segment::Field(field), Segment::Item(index, _)] => {
            let list = ContainerList::ALL
                .into_iter()
                .find(|list| list.field() == *field)?;
            pod.list(list).get(*index)?.image.as_deref()
        }
        _ => None,
    })
}

/// Whether a pattern, in which `*` matches anything, matches the whole text. Linear in the text for each `*`.
pub fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let mut rest = rest;
    let mut last = None;
    for part in parts {
        if let Some(part) = last.replace(part) {
            match rest.find(part) {
                Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
                None => return false,
            }
        }
    }
    last.map_or(rest.is_empty(), |suffix| rest.ends_with(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::path::Path;
    use crate::rules::{self, Rule};

    /// The largest policy that the API server stores: 16 KiB of patterns that are almost matched.
    fn largest_policy(exempt: &[&'static str]) -> Policy {
        let exemptions = (0..256).map(|n| Exemption {
            rules: exempt.to_vec(),
            images: vec![format!(
                "*r*e*g*i*s*t*r*y*.*e*x*a*m*p*l*e*.*c*o*m*/*t*e*a*m*/*a*p*p*:{n:04}*"
            )],
            note: n.to_string(),
        });
        Policy {
            exemptions: exemptions.collect(),
            ..Policy::standalone()
        }
    }

    /// The findings of some rules in each container of a pod with these images; how many are exempt, and the steps.
    fn steps(
        policy: &Policy,
        images: impl Iterator<Item = String>,
        rules: &[&'static Rule],
    ) -> (usize, usize) {
        let containers: Vec<_> = images
            .map(|image| serde_json::json!({ "image": image }))
            .collect();
        let pod = serde_json::json!({ "containers": containers }).to_string();
        let pod: PodSpec<'_> = serde_json::from_str(&pod).unwrap();
        let exemptions = Exemptions::new(policy, Some(&pod));
        let container = |index| {
            Path::of(&["spec", "containers"])
                .item(index)
                .field("securityContext")
        };
        let in_container = |index| rules.iter().map(move |rule| Finding::new(rule, container(index)));
        let mut findings: Vec<Finding> = (0..containers.len()).flat_map(in_container).collect();
        let exempt = exemptions.lift(&mut findings);
        (
            exempt.iter().map(|(_, lifted)| lifted.len()).sum(),
            exemptions.steps.get(),
        )
    }

    #[test]
    fn each_distinct_image_is_compared_once_and_only_for_rules_with_findings() {
        let rule = |id| rules::find(id).unwrap();
        let fired: Vec<&'static Rule> = ["TSM204", "TSM214"].map(rule).to_vec();
        let policy = largest_policy(&["TSM204"]);
        let text: usize = (policy.exemptions.iter()).map(|it| it.images[0].len()).sum();
        let same = |count: usize| (0..count).map(|_| "registry.example.com/team/app:1".to_owned());
        let examined = policy.exemptions.len();
        let compared = text + examined * "registry.example.com/team/app:1".len();
        assert_eq!(steps(&policy, same(1), &fired), (0, compared + examined));
        assert_eq!(
            steps(&policy, same(1_000), &fired),
            (0, compared + 1_000 * examined)
        );
        assert_eq!(steps(&policy, same(1_000), &fired[1..]), (0, 0));
        let matching = (0..1_000).map(|_| "registry.example.com/team/app:0255".to_owned());
        assert_eq!(steps(&policy, matching, &fired).0, 1_000);
    }

    #[test]
    fn the_largest_policy_and_the_largest_pod_take_a_bounded_number_of_steps() {
        let fired: Vec<&'static Rule> = rules::catalogue().take(10).collect();
        let policy = largest_policy(&[]);
        let image = |n: usize| format!("registry.example.com/team/app-{n}{}", "a".repeat(200));
        for containers in [10_000, 20_000] {
            let (exempt, steps) = steps(&policy, (0..containers).map(image), &fired);
            assert_eq!(exempt, 0);
            assert!(
                steps <= MOST_STEPS + containers * (fired.len() + 1) * 600,
                "{steps}"
            );
        }
        // An ordinary pod and the largest policy stay below the maximum.
        let (exempt, steps) = steps(
            &policy,
            (0..30).map(|n| format!("registry.example.com/team/app:{n:04}")),
            &fired,
        );
        assert!(exempt == 300 && steps < MOST_STEPS, "{exempt} {steps}");
    }

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text) in [
            ("*", ""),
            ("*", "x"),
            ("registry.example.com/*", "registry.example.com/a/b:1"),
            ("*:dev", "app:dev"),
            ("a*b*c", "a-b-b-c"),
            ("exact", "exact"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("a*", "b"),
            ("*:dev", "app:prod"),
            ("exact", "exactly"),
            ("a*a", "a"),
            ("", "x"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
