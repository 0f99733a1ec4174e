//! Whoever applies the chart after Helm, as Argo CD does, has no conflict and changes nothing: the chart renders what the API
//! server would add to fields that have one owner as a whole.

use serde_json::Value;

use super::cluster::{define, matrix};
use super::engine::engine;
use crate::support::control_plane::ControlPlane;

/// Sets of values that together make every object of the chart, by their place in the matrix.
const SETS: [usize; 9] = [0, 4, 8, 10, 11, 14, 17, 24, 25];

/// The objects without what every write changes.
fn stored(cluster: &ControlPlane, objects: &str) -> Vec<Value> {
    let mut stored = cluster
        .kubectl_with(&["get", "-f", "-", "-o", "json"], objects)
        .succeeded()
        .objects();
    for object in &mut stored {
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
    }
    stored
}

#[test]
fn a_second_applier_has_no_conflict_and_changes_nothing() {
    let Some(engine) = engine() else { return };
    let Some(cluster) = ControlPlane::start_or_skip("the chart with a second applier") else {
        return;
    };
    define(&cluster);
    let matrix = matrix();
    for values in SETS.map(|at| &matrix[at]) {
        let mut rendered = engine.render(values).unwrap();
        // Helm alone creates the objects of its hooks.
        rendered
            .objects
            .retain(|object| object["metadata"]["annotations"]["helm.sh/hook"].is_null());
        let objects = rendered.list();
        let apply = |manager: &str| {
            let manager = format!("--field-manager={manager}");
            cluster.kubectl_with(&["apply", "--server-side", &manager, "-f", "-"], &objects)
        };
        apply("helm").succeeded();
        let before = stored(&cluster, &objects);
        let second = apply("argocd-controller");
        assert!(second.ok, "{values}\n{}", second.err);
        assert_eq!(stored(&cluster, &objects), before, "{values}");
        cluster
            .kubectl_with(&["delete", "--wait=false", "-f", "-"], &objects)
            .succeeded();
    }
}
