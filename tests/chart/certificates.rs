//! Releases whose certificate somebody else makes: each becomes ready and is called, with exactly the names that the
//! chart asks for, and keeps its hands off what is not the leader's.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};

use super::cluster::define_foreign;
use super::engine::{Engine, engine};
use super::release::{NAMESPACE, World, node};

/// One replica, which nobody waits for when it goes: no create is counted here.
fn values(more: &Value) -> Value {
    let mut values = json!({"replicaCount": 1, "shutdown": {"drainDelay": "0s"}});
    let more = more.as_object().unwrap().clone();
    values.as_object_mut().unwrap().extend(more);
    values
}

/// The Secret that the leader makes, and that cert-manager writes where the mode is its.
const OURS: &str = "transom-certificates";

/// A Secret with a certificate for these names, as cert-manager writes it, and the CA as a `caBundle`.
fn issue(secret: &str, names: Vec<String>) -> (Value, String) {
    use base64::Engine as _;
    let base64 = |text: String| base64::prelude::BASE64_STANDARD.encode(text);
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(names).unwrap();
    let leaf = leaf.signed_by(&key, &ca).unwrap();
    let bundle = base64(ca.pem());
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": secret, "namespace": NAMESPACE},
        "data": {"tls.crt": base64(leaf.pem()), "tls.key": base64(key.serialize_pem()), "ca.crt": bundle},
    });
    (secret, bundle)
}

fn uninstall(world: &World, engine: &Engine) {
    world
        .request(engine, "uninstall", &json!({}))
        .unwrap_or_else(|error| panic!("{error}\n{}", world.kubelet.jobs()));
}

fn has_secret(world: &World, name: &str) -> bool {
    world.has(&["secret", name, "-n", NAMESPACE])
}

#[test]
fn a_certificate_of_somebody_else_is_served_with_the_names_that_the_chart_asks_for() {
    let Some(engine) = engine() else { return };
    let Some(world) = World::start("certificates of somebody else", &node()) else {
        return;
    };
    define_foreign(&world.cluster);
    cert_manager(&world, engine);
    provided_after_self_managed(&world, engine);
}

fn cert_manager(world: &World, engine: &Engine) {
    let values = values(&json!({"certificates": {"mode": "cert-manager"}}));
    let rendered = engine.render(&values).unwrap();
    let certificate = &rendered.object("Certificate", OURS)["spec"];
    assert_eq!(certificate["secretName"], OURS);
    let names: Vec<String> = serde_json::from_value(certificate["dnsNames"].clone()).unwrap();
    let (secret, bundle) = issue(OURS, names);
    world.create(&secret);
    world
        .request(engine, "install", &json!({ "values": values }))
        .unwrap();
    // What the CA injector does where the annotation asks it to.
    for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
        let seen = world.get(kind, "zz-transom");
        let asks = &seen["metadata"]["annotations"]["cert-manager.io/inject-ca-from"];
        assert_eq!(asks, &format!("{NAMESPACE}/{OURS}"), "{kind}");
        let entries = 0..seen["webhooks"].as_array().unwrap().len();
        let patch: Vec<Value> = entries
            .map(|at| json!({"op": "add", "path": format!("/webhooks/{at}/clientConfig/caBundle"), "value": bundle}))
            .collect();
        let patch = Value::from(patch).to_string();
        let injects = ["patch", kind, "zz-transom", "--type=json", "-p", &patch];
        world.cluster.kubectl(&injects).succeeded();
    }
    world.kubelet.settled();
    world.is_called();
    uninstall(world, engine);
    assert!(has_secret(world, OURS), "that is cert-manager's");
    let delete = ["delete", "secret", OURS, "-n", NAMESPACE];
    world.cluster.kubectl(&delete).succeeded();
}

fn provided_after_self_managed(world: &World, engine: &Engine) {
    world.deploy(engine, "install", &values(&json!({})));
    assert!(has_secret(world, OURS), "the leader made none");
    // In a rolling update the leader of before would publish its own CA for as long as the new replica is not ready.
    let delete = ["delete", "deployment", "transom", "-n", NAMESPACE];
    world.cluster.kubectl(&delete).succeeded();
    world.kubelet.settled();

    // The only name that the documentation asks of it.
    let (secret, bundle) = issue("mine", vec![format!("transom.{NAMESPACE}.svc")]);
    world.create(&secret);
    let values = values(&json!({"certificates": {"mode": "provided", "secretName": "mine"}}));
    world.deploy(engine, "upgrade", &values);
    for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
        for entry in world.get(kind, "zz-transom")["webhooks"].as_array().unwrap() {
            assert_eq!(
                entry["clientConfig"]["caBundle"], bundle,
                "{kind}: the leader publishes it"
            );
        }
    }
    world.is_called();
    // The leader's own Secret, with the key of its CA, goes although the release does not name it any more.
    uninstall(world, engine);
    let jobs = world.kubelet.jobs();
    assert!(jobs.contains(&format!("Secret {OURS} deleted")), "{jobs}");
    assert!(!has_secret(world, OURS));
    assert!(has_secret(world, "mine"), "that is the user's");
}
