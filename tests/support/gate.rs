//! Compares the findings of all rules with those of a run that skips rules none of whose fields the object
//! has.

use transom::engine::infer_os;
use transom::model::cluster::facts::Facts;
use transom::model::cluster::policy::Policy;
use transom::model::objects::object::Object;
use transom::rules::{Cx, Image, Rule, applicable, catalogue};

/// Every finding as text, with and without the gate.
pub fn with_and_without(subject: &Object<'_>, facts: &Facts, policy: &Policy) -> [Vec<String>; 2] {
    let inference = infer_os(subject, facts, policy);
    let images = subject.pod().map_or(Vec::new(), |pod| Image::of_pod(pod, facts));
    let cx = Cx::new(subject, &inference, facts, policy, &images);
    let found = |rules: &mut dyn Iterator<Item = &'static Rule>, cx: &Cx<'_>| {
        let mut findings = Vec::new();
        let pod = cx.pod();
        rules.for_each(|rule| rule.run(cx, pod.as_ref(), &mut findings));
        findings.iter().map(|finding| format!("{finding:?}")).collect()
    };
    [
        found(&mut applicable(&cx), &cx),
        found(&mut catalogue(), &cx.with_every_field()),
    ]
}
