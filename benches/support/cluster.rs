//! The facts of the benchmarks: `facts.yaml`, read as `check` and `serve --facts` do.

use jiff::civil::date;
use transom::check::{CheckInput, Manifests};
use transom::engine::policy_set::PolicySet;
use transom::model::cluster::facts::Facts;
use transom::model::cluster::policy::Policy;
use transom::model::objects::object::ReviewStage;

/// Facts of a mixed cluster, on a fixed date.
pub fn facts() -> Facts {
    let bytes = include_bytes!("facts.yaml").to_vec();
    let manifests = Manifests::parse(vec![CheckInput {
        source: "facts.yaml".to_owned(),
        bytes,
    }]);
    let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 11, 20));
    let objects = manifests.objects(ReviewStage::Written);
    objects.learn(&mut facts, &PolicySet::new(Vec::new(), Policy::standalone()));
    assert_eq!(
        (
            facts.hosts().len(),
            facts.builds().len(),
            facts.runtime_classes.len()
        ),
        (3, 3, 2),
        "facts.yaml"
    );
    facts
}
