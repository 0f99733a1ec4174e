//! Exemptions: removes the findings that the policy exempts. The caller has already resolved users and dates.

use crate::model::path::Segment;
use crate::model::pod::{ContainerList, PodSpec};
use crate::model::policy::{Exemption, Policy};
use crate::rules::Finding;

/// Removes the exempt findings; returns them by the note of their exemption.
pub fn lift(
    findings: &mut Vec<Finding>,
    pod: Option<&PodSpec<'_>>,
    policy: &Policy,
) -> Vec<(String, Vec<Finding>)> {
    let mut lifted = Vec::new();
    for exemption in &policy.exemptions {
        let covered: Vec<Finding> = findings
            .extract_if(.., |finding| covers(exemption, finding, pod))
            .collect();
        if !covered.is_empty() {
            lifted.push((exemption.note.clone(), covered));
        }
    }
    lifted
}

/// Whether a finding is exempt.
pub fn is_lifted(finding: &Finding, pod: Option<&PodSpec<'_>>, policy: &Policy) -> bool {
    let mut exemptions = policy.exemptions.iter();
    exemptions.any(|exemption| covers(exemption, finding, pod))
}

fn covers(exemption: &Exemption, finding: &Finding, pod: Option<&PodSpec<'_>>) -> bool {
    let rule = exemption.rules.is_empty() || exemption.rules.contains(&finding.rule.id);
    let image = || {
        let image = pod.and_then(|pod| image_at(pod, finding.path.segments()));
        image.is_some_and(|image| exemption.images.iter().any(|pattern| matches(pattern, image)))
    };
    rule && (exemption.images.is_empty() || image())
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
    use super::matches;

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
