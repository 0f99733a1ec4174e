//! Exemptions: which findings of one object the policy exempts. The caller has already resolved users and dates.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};

use crate::model::cluster::policy::{Exemption, Policy};
use crate::model::objects::pod::{ContainerList, PodSpec};
use crate::model::syntax::path::Segment;
use crate::rules::Finding;

/// The maximum length of an image that an exemption by image matches, in bytes: a repository has at most 255 characters,
/// a tag 128, a digest 71.
const LONGEST_IMAGE: usize = 512;

/// The maximum number of steps for one object: an exemption that is examined for a finding, or a byte of a pattern or an image
/// that is compared. Further findings are not exempt. The largest policy has 16 KiB of patterns and 256 exemptions, and a
/// pod with 60 different images and 10 findings in each container still stays below the maximum.
const MOST_STEPS: usize = 4 << 20;

/// The ID of a rule, and the image of a container; `None` outside containers.
type RuleAndImage<'p> = (&'static str, Option<&'p str>);

/// The exemptions of a policy, for the findings of one object.
///
/// A pod of 3 MiB can have 200,000 findings. So each rule is decided once for each distinct image, an image is compared once
/// with the patterns of an exemption, and the steps are bounded.
pub struct Exemptions<'p> {
    all: &'p [Exemption],
    pod: Option<&'p PodSpec<'p>>,
    /// The first exemption of a rule's findings in a container with this image, or outside containers.
    decided: RefCell<HashMap<RuleAndImage<'p>, Option<usize>>>,
    /// The last decision: most findings of a rule follow each other.
    last: Cell<Option<(RuleAndImage<'p>, Option<usize>)>>,
    /// Whether an exemption's patterns match an image.
    matched: RefCell<HashMap<(&'p str, usize), bool>>,
    steps: Cell<usize>,
}

impl<'p> Exemptions<'p> {
    /// The exemptions of `policy` for the findings of an object with this pod.
    pub fn new(policy: &'p Policy, pod: Option<&'p PodSpec<'p>>) -> Self {
        Exemptions {
            all: &policy.exemptions,
            pod,
            decided: RefCell::default(),
            last: Cell::default(),
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
            for finding in findings.extract_if(.., |finding| self.covers(finding)) {
                if let Some(index) = self.covering(&finding) {
                    lifted.entry(index).or_default().push(finding);
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
        let image = self.pod.and_then(|pod| image_at(pod, finding.path.segments()));
        let image = image.filter(|image| image.len() <= LONGEST_IMAGE);
        let asked = (finding.rule.id, image);
        if let Some((_, decision)) = self.last.get().filter(|(last, _)| *last == asked) {
            return decision;
        }
        let known = self.decided.borrow().get(&asked).copied();
        let decision = known.unwrap_or_else(|| self.decide(asked));
        self.last.set(Some((asked, decision)));
        decision
    }

    /// Decides a rule for an image, and remembers it unless the steps are used up.
    fn decide(&self, (rule, image): RuleAndImage<'p>) -> Option<usize> {
        if self.steps.get() > MOST_STEPS {
            return None;
        }
        let found = self.first_of(rule, image);
        self.decided.borrow_mut().insert((rule, image), found);
        found
    }

    /// The first exemption of a rule for an image.
    fn first_of(&self, rule: &'static str, image: Option<&'p str>) -> Option<usize> {
        let mut examined = self.all.iter().enumerate().take_while(|_| self.spend(1));
        let found = examined.find(|(index, exemption)| {
            (exemption.rules.is_empty() || exemption.rules.contains(&rule))
                && (exemption.images.is_empty()
                    || image.is_some_and(|image| self.is_of_image(*index, exemption, image)))
        });
        found.map(|(index, _)| index)
    }

    /// Whether a pattern of an exemption matches an image.
    fn is_of_image(&self, index: usize, exemption: &Exemption, image: &'p str) -> bool {
        let mut matched = self.matched.borrow_mut();
        let is_matched = || (exemption.images.iter()).any(|pattern| self.compare(pattern, image));
        *matched.entry((image, index)).or_insert_with(is_matched)
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
    use crate::model::syntax::path::Path;
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
    fn each_rule_is_decided_once_for_each_distinct_image() {
        let rule = |id| rules::find(id).unwrap();
        let fired: Vec<&'static Rule> = ["TSM204", "TSM214"].map(rule).to_vec();
        let policy = largest_policy(&["TSM204"]);
        let text: usize = (policy.exemptions.iter()).map(|it| it.images[0].len()).sum();
        let same = |count: usize| (0..count).map(|_| "registry.example.com/team/app:1".to_owned());
        let examined = policy.exemptions.len();
        let compared = text + examined * "registry.example.com/team/app:1".len();
        assert_eq!(steps(&policy, same(1), &fired), (0, compared + 2 * examined));
        assert_eq!(steps(&policy, same(1_000), &fired), (0, compared + 2 * examined));
        assert_eq!(steps(&policy, same(1_000), &fired[1..]), (0, examined));
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
