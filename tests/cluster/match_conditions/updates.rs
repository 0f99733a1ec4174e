//! Updates, subresources and deletions: which of them are asked about.

use serde_json::{Value, json};
use transom::model::objects::workload::Kind;
use transom::registration::names;

use super::world::{
    Answer, KINDS, OS, PLAIN, RUNTIME, World, answer, entries, plural, spec, url_of, world, wrap,
};
use crate::support::recorder::Call;

impl World {
    /// Writes something at a path (`GET /…` with a body of another method), and says which entries were called for a name.
    async fn write(&self, url: &str, verb: Verb, object: &Value, name: &str) -> Vec<String> {
        let before = self.recorder.calls().len();
        let answer: Answer = match verb {
            Verb::Create => self.post(url, object, false).await,
            Verb::Patch(content_type) => {
                let (collection, name) = url.rsplit_once('/').unwrap();
                let params = kube::api::PatchParams::default();
                let patch = match content_type {
                    Merge::Plain => kube::api::Patch::Merge(object),
                    Merge::Strategic => kube::api::Patch::Strategic(object),
                };
                let request = kube::core::Request::new(collection)
                    .patch(name, &params, &patch)
                    .unwrap();
                answer(self.client.request_text(request).await.map(drop))
            }
            Verb::Delete => {
                let (collection, name) = url.rsplit_once('/').unwrap();
                let params = kube::api::DeleteParams::default();
                let request = kube::core::Request::new(collection)
                    .delete(name, &params)
                    .unwrap();
                answer(self.client.request_text(request).await.map(drop))
            }
        };
        assert_eq!(answer, Ok(()), "{url} {object}");
        let calls = self.recorder.calls();
        let mine: Vec<Call> = calls[before..]
            .iter()
            .filter(|call| call.name == name)
            .cloned()
            .collect();
        let mut entries: Vec<String> = entries(&mine).into_iter().map(str::to_owned).collect();
        // An API server that began with an object from its cache begins again where that was stale, and asks again.
        let mut requested = std::collections::BTreeSet::new();
        entries.retain(|entry| requested.insert(entry.clone()));
        entries
    }
}

enum Verb {
    Create,
    Patch(Merge),
    Delete,
}

enum Merge {
    Plain,
    Strategic,
}

/// Makes an object for Windows that stays when it is deleted; returns its URL.
async fn make(world: &World, kind: Kind, name: &str) -> String {
    let windows = spec(&json!({
        "nodeSelector": {OS: "windows"},
        "containers": [{"name": "app", "image": "a:1", "resources": {"requests": {"cpu": "1"}}}],
    }));
    let mut sent = wrap(kind, PLAIN, name, &windows);
    sent.object["metadata"]["finalizers"] = json!(["example.com/stay"]);
    let called = world
        .write(&url_of(kind, PLAIN), Verb::Create, &sent.object, name)
        .await;
    assert_eq!(called, SIGN, "{kind}");
    format!("{}/{name}", url_of(kind, PLAIN))
}

const SIGN: [&str; 2] = [names::MUTATE, names::VALIDATE];
const NOTHING: [&str; 0] = [];

/// Another image of the container, where the kind lets its template be changed at all.
fn another_image(kind: Kind) -> Option<Value> {
    let spec = json!({"containers": [{"name": "app", "image": "a:2"}]});
    match kind {
        Kind::Job => None,
        Kind::Pod => Some(json!({"spec": spec})),
        Kind::PodTemplate => Some(json!({"template": {"spec": spec}})),
        Kind::CronJob => Some(json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}})),
        _ => Some(json!({"spec": {"template": {"spec": spec}}})),
    }
}

/// A change beside the template, where the kind has anything there.
fn beside_the_template(kind: Kind) -> Option<Value> {
    match kind {
        Kind::Pod | Kind::PodTemplate => None,
        Kind::DaemonSet => Some(json!({"spec": {"minReadySeconds": 5}})),
        Kind::Job => Some(json!({"spec": {"parallelism": 2}})),
        Kind::CronJob => Some(json!({"spec": {"suspend": true}})),
        _ => Some(json!({"spec": {"replicas": 3}})),
    }
}

async fn update(world: &World, kind: Kind) {
    use Merge::{Plain, Strategic};
    use Verb::{Delete, Patch};
    let name = format!("updated-{}", plural(kind));
    let url = make(world, kind, &name).await;
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(
        world.write(&url, Patch(Plain), &label, &name).await,
        NOTHING,
        "{kind}: a label"
    );
    if let Some(changed) = another_image(kind) {
        // Nobody places a pod that is there already.
        let expected = if kind == Kind::Pod { &SIGN[1..] } else { &SIGN[..] };
        let called = world.write(&url, Patch(Strategic), &changed, &name).await;
        assert_eq!(called, expected, "{kind}: another image");
    }
    if let Some(beside) = beside_the_template(kind) {
        let called = world.write(&url, Patch(Plain), &beside, &name).await;
        assert_eq!(called, NOTHING, "{kind}: beside the template");
    }
    if matches!(
        kind,
        Kind::Deployment | Kind::ReplicaSet | Kind::StatefulSet | Kind::ReplicationController
    ) {
        let (sub, scale) = (format!("{url}/scale"), json!({"spec": {"replicas": 4}}));
        assert_eq!(
            world.write(&sub, Patch(Plain), &scale, &name).await,
            NOTHING,
            "{kind}: scale"
        );
    }
    let without = json!({"metadata": {"finalizers": null}});
    assert_eq!(
        world.write(&url, Delete, &Value::Null, &name).await,
        NOTHING,
        "{kind}: deletion"
    );
    assert_eq!(
        world.write(&url, Patch(Plain), &without, &name).await,
        NOTHING,
        "{kind}: the finalizer"
    );
}

#[test]
fn only_updates_that_change_a_pod_cause_a_call() {
    let Some(world) = world() else { return };
    RUNTIME.block_on(async {
        for kind in KINDS {
            update(world, kind).await;
        }
    });
}

#[test]
fn two_subresources_cause_a_call_and_no_others() {
    use Merge::{Plain, Strategic};
    use Verb::{Create, Patch};
    const NAME: &str = "subresources";
    let Some(world) = world() else { return };
    let debug = json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "a"}]}});
    let resize = json!({"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "2"}}}]}});
    let status = json!({"status": {"phase": "Running"}});
    let binding = json!({"metadata": {"name": NAME}, "target": {"kind": "Node", "name": "w1"}});
    RUNTIME.block_on(async {
        let url = make(world, Kind::Pod, NAME).await;
        for (sub, verb, object, expected) in [
            ("ephemeralcontainers", Patch(Strategic), debug, &SIGN[..]),
            ("resize", Patch(Strategic), resize, &SIGN[1..]),
            ("status", Patch(Plain), status, &[]),
            ("binding", Create, binding, &[]),
        ] {
            let called = world.write(&format!("{url}/{sub}"), verb, &object, NAME).await;
            assert_eq!(called, expected, "{sub}");
        }
    });
}

#[test]
fn nodes_and_leases_never_cause_a_call() {
    let Some(world) = world() else { return };
    let node = json!({"metadata": {"name": "w1", "labels": {OS: "windows"}}});
    let lease = json!({"metadata": {"name": "lease"}, "spec": {"holderIdentity": "a"}});
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{PLAIN}/leases");
    RUNTIME.block_on(async {
        let called = world.write("/api/v1/nodes", Verb::Create, &node, "w1").await;
        assert_eq!(called, NOTHING, "a node");
        let called = world.write(&leases, Verb::Create, &lease, "lease").await;
        assert_eq!(called, NOTHING, "a lease");
    });
}
