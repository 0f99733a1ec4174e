//! What the rules find in an object where every one is called, and where those are left out none of whose fields is there.

use transom::engine::infer;
use transom::model::facts::Facts;
use transom::model::policy::Policy;
use transom::model::subject::Subject;
use transom::rules::{Cx, Image, catalogue};

/// Every finding, in words, with the gate and without it.
pub fn with_and_without(subject: &Subject<'_>, facts: &Facts, policy: &Policy) -> [Vec<String>; 2] {
    let inference = infer(subject, facts, policy);
    let images = subject.pod().map_or(Vec::new(), |pod| Image::of_pod(pod, facts));
    let gated = Cx::new(subject, &inference, facts, policy, &images);
    [gated, gated.with_every_field()].map(|cx| {
        let mut findings = Vec::new();
        for rule in catalogue() {
            rule.run(&cx, &mut findings);
        }
        findings.iter().map(|finding| format!("{finding:?}")).collect()
    })
}
