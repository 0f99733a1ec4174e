//! The answer to a probe of the leader: `/mutate` marks it and `/validate` denies it, so that no probe is stored.

use std::collections::HashMap;

use serde::Deserialize;

use super::response::{Denial, ReviewDecision, encode};
use super::{Phase, Request};
use crate::model::objects::webhook_probe::{PROBE_ANNOTATION, PROBED_ANNOTATION, mark, rejection_message};
use crate::model::syntax::edit::Edit;
use crate::model::syntax::json_types::Str;
use crate::model::syntax::path::Path;

#[derive(Deserialize)]
struct ProbeObject<'a> {
    #[serde(borrow)]
    metadata: ProbeMetadata<'a>,
}

#[derive(Deserialize)]
struct ProbeMetadata<'a> {
    #[serde(borrow)]
    annotations: HashMap<Str<'a>, Str<'a>>,
}

/// The answer if the request is a probe: the dry-run creation of a pod with the probe annotation. `installation`: this one,
/// as `NAMESPACE/NAME`.
pub fn answer(phase: Phase, request: &Request<'_>, installation: &str) -> Option<Vec<u8>> {
    if !request.dry_run.0 || &*request.operation != "CREATE" {
        return None;
    }
    // Most dry runs are not probes. To find the object takes as long as to parse it.
    if !request.body.contains(PROBE_ANNOTATION) {
        return None;
    }
    let annotations = serde_json::from_str::<ProbeObject<'_>>(request.object_text())
        .ok()?
        .metadata
        .annotations;
    let annotation = |key: &str| {
        annotations
            .iter()
            .find_map(|(known, value)| (&**known == key).then_some(&**value))
    };
    let word = annotation(PROBE_ANNOTATION)?;
    let before = annotation(PROBED_ANNOTATION);
    let marked = [Edit::Set(
        Path::of(&["metadata", "annotations"]).key(PROBED_ANNOTATION),
        mark(word, before, installation).into(),
    )];
    let ruling = match phase {
        Phase::Mutate => ReviewDecision {
            patch: &marked,
            ..ReviewDecision::default()
        },
        Phase::Validate => ReviewDecision {
            denial: Some(Denial::Probe(rejection_message(word, before))),
            ..ReviewDecision::default()
        },
    };
    Some(encode(&request.uid, &ruling))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::{Value, json};

    use super::super::decode;
    use super::*;
    use crate::model::objects::webhook_probe::parse_rejection;

    #[test]
    fn a_probe_is_marked_then_refused_and_nothing_else_is_one() {
        let review = |dry_run: bool, annotations: &Value| {
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
                "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE", "dryRun": dry_run,
                "object": {"metadata": {"annotations": annotations}},
            }})
            .to_string()
        };
        let answered = |phase: Phase, review: &str| -> Option<Value> {
            let answer = answer(phase, &decode(review.as_bytes()).unwrap(), "s/a")?;
            Some(serde_json::from_slice::<Value>(&answer).unwrap()["response"].clone())
        };
        let probe = json!({PROBE_ANNOTATION: "w"});
        let marked = answered(Phase::Mutate, &review(true, &probe)).unwrap();
        assert_eq!((&marked["uid"], &marked["allowed"]), (&json!("u"), &json!(true)));
        let patch = STANDARD.decode(marked["patch"].as_str().unwrap()).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
        let mut object = json!({"metadata": {"annotations": probe}});
        json_patch::patch(&mut object, &patch).unwrap();
        for (annotations, mutated_by) in [
            (&object["metadata"]["annotations"], vec!["s/a"]),
            (&probe, vec![]),
        ] {
            let refused = answered(Phase::Validate, &review(true, annotations)).unwrap();
            assert_eq!(refused["allowed"], false);
            let message = refused["status"]["message"].as_str().unwrap();
            assert_eq!(parse_rejection(message, "w"), Some(mutated_by));
        }
        for (dry_run, annotations) in [
            (false, &probe),
            (true, &json!({"other": "transom.dev/probe"})),
            (true, &json!({})),
        ] {
            for phase in [Phase::Mutate, Phase::Validate] {
                assert_eq!(
                    answered(phase, &review(dry_run, annotations)),
                    None,
                    "{annotations}"
                );
            }
        }
    }
}
