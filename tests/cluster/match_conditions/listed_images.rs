//! The entries for images of listed registries: which objects they take from the others, and which images they miss.

use serde_json::{Value, json};
use transom::model::objects::workload::Kind;
use transom::model::windows::image::ImageRef;
use transom::registration::names;

use super::world::{
    BETA, HUB, KINDS, OPTED, OS, PLAIN, RUNTIME, Sent, affinity, closed, entries, hub_entries,
    hub_registries, image, spec, term, world, wrap,
};

const LISTED: &str = "listed.example.com/shop/web:1";
const BOTH: [&str; 2] = [names::IMAGES_MUTATE, names::IMAGES_VALIDATE];

#[test]
fn a_pod_without_a_system_causes_a_call_for_an_image_of_a_listed_registry() {
    let Some(world) = world() else { return };
    let with = |over: Value| {
        let mut spec = image(LISTED);
        json_patch::merge(&mut spec, &over);
        spec
    };
    let sign = [names::MUTATE, names::VALIDATE];
    let container = |name: &str, image: &str| json!({"name": name, "image": image});
    let cases: Vec<(Value, &[&str])> = vec![
        (image(LISTED), &BOTH),
        (image("Listed.Example.com:443/shop/web"), &BOTH),
        (image("tenant.listed.example/shop/web@sha256:0"), &BOTH),
        (image("listed.example.com:5000/shop/web"), &[]),
        (image("example.com/listed.example.com/web"), &[]),
        (image("listed.example.org/shop/web"), &[]),
        (image("nginx"), &[]),
        // One container is enough, in any list.
        (
            json!({"containers": [container("a", "nginx"), container("b", LISTED)]}),
            &BOTH,
        ),
        (
            json!({"initContainers": [container("a", LISTED)], "containers": [container("b", "nginx")]}),
            &BOTH,
        ),
        (with(json!({"tolerations": [{"operator": "Exists"}]})), &BOTH),
        // It may run on either, and says so.
        (with(affinity(&[term(OS, "In", &["linux", "windows"])])), &BOTH),
        // A system that is known needs no registry.
        (with(json!({"os": {"name": "linux"}})), &[]),
        (with(json!({"nodeSelector": {OS: "linux"}})), &[]),
        (with(json!({"nodeSelector": {BETA: "linux"}})), &[]),
        (with(affinity(&[term(OS, "In", &["linux"])])), &[]),
        (with(json!({"os": {"name": "windows"}})), &sign),
        (
            json!({"containers": [container("a", LISTED), container("b", "x:ltsc2022")]}),
            &sign,
        ),
    ];
    let sent: Vec<(Sent, &[&str])> = (cases.iter().enumerate())
        .flat_map(|(n, (spec, expected))| {
            KINDS.map(|kind| (wrap(kind, PLAIN, &format!("listed-{n}"), spec), *expected))
        })
        .collect();
    let objects: Vec<Sent> = sent.iter().map(|(sent, _)| sent.clone()).collect();
    let answers = RUNTIME.block_on(world.create_all(&objects));
    for ((sent, expected), (answer, calls)) in sent.iter().zip(answers) {
        assert_eq!(answer, Ok(()), "{}", sent.object);
        assert_eq!(entries(&calls), *expected, "{}", sent.object);
        if *expected == BOTH {
            assert_eq!(closed(&calls), [""; 0], "{}", sent.object);
        }
    }
}

/// Both namespaces that opt in leave these objects to the entry for images, so that nothing is asked twice.
#[test]
fn the_other_entries_to_opt_into_leave_images_of_listed_registries_alone() {
    let Some(world) = world() else { return };
    let of = |prefix: &str, kind: Kind, places: bool| -> Vec<String> {
        let phases: &[&str] = match kind {
            Kind::Pod => &["mutate", "validate"],
            // What holds pods off Windows nodes is told to the author of a DaemonSet.
            Kind::DaemonSet if places => &["validate"],
            _ if places => &[],
            _ => &["mutate", "validate"],
        };
        let names = phases.iter().map(|phase| format!("{prefix}.{phase}.transom.dev"));
        names.collect()
    };
    let linux_name = json!({"os": {"name": "linux"}, "containers": [{"name": "a", "image": LISTED}]});
    for kind in KINDS {
        let mut unlisted = [of("default-os", kind, false), of("linux-pods", kind, true)].concat();
        unlisted.sort();
        for (n, (spec, expected)) in [
            (image(LISTED), BOTH.map(str::to_owned).to_vec()),
            (spec(&json!({})), unlisted),
            // spec.os keeps no pod off a node by itself, and the entry for images does not take it.
            (linux_name.clone(), of("linux-pods", kind, true)),
        ]
        .into_iter()
        .enumerate()
        {
            let sent = wrap(kind, OPTED, &format!("leave-{n}"), &spec);
            let (answer, calls) = RUNTIME.block_on(world.create_all(&[sent])).remove(0);
            assert_eq!(answer, Ok(()), "{kind}: {spec}");
            assert_eq!(entries(&calls), expected, "{kind}: {spec}");
        }
    }
}

/// The conditions compare texts, and Transom parses references: no image whose registry is listed may be missed.
#[test]
fn no_image_of_a_listed_registry_is_missed() {
    let Some(world) = world() else { return };
    let digest = format!("sha256:{}", "a".repeat(64));
    let of_digest = format!("shop/web@{digest}");
    let images = [
        "nginx",
        "nginx:1.27",
        "shop/web",
        "library/nginx@sha256:0",
        of_digest.as_str(),
        "docker.io/library/nginx",
        "docker.io:443/library/nginx",
        "index.docker.io/library/nginx",
        "registry-1.docker.io/library/nginx",
        "INDEX.docker.io/library/nginx",
        "localhost:5000/web",
        "localhost/web",
        "127.0.0.1:5000/web",
        "[fd00::5]:5000/web",
        "[FD00::5]:5000/web",
        "mcr.microsoft.com/oss/pause",
        "MCR.microsoft.com:443/oss/pause",
        "mcr.microsoft.com:8443/oss/pause",
        "shop.azurecr.io/web:1",
        "shop.azurecr.io:443/web:1",
        "a.b.azurecr.io/web:1",
        "azurecr.io/web:1",
        "shop.azurecr.io.evil.example/web:1",
        "evil.example/shop.azurecr.io/web:1",
        "123456789012.dkr.ecr.eu-west-1.amazonaws.com/web:1",
        "123456789012.dkr.ecr.amazonaws.com/web:1",
        "a.corp:5000/web",
        "a.corp/web",
        "quay.io/shop/web",
        "registry:5000/web",
    ];
    let registries = hub_registries();
    let (mut listed, mut in_vain) = (0, Vec::new());
    for (n, written) in images.iter().enumerate() {
        let is_listed = ImageRef::parse(written).is_ok_and(|image| registries.matches(image.registry));
        let sent = wrap(Kind::Pod, HUB, &format!("hub-{n}"), &image(written));
        let (answer, calls) = RUNTIME.block_on(world.create_all(&[sent])).remove(0);
        assert_eq!(answer, Ok(()), "{written}");
        let called = hub_entries(&calls);
        if is_listed {
            listed += 1;
            assert_eq!(called, BOTH, "{written}");
        } else if !called.is_empty() {
            in_vain.push(*written);
        }
    }
    println!("{listed} of {} images are on listed registries", images.len());
    assert!(listed >= 14, "{listed}");
    // A name that is no image, and what the middle of a pattern excludes.
    assert_eq!(
        in_vain,
        [
            "library/nginx@sha256:0",
            "a.b.azurecr.io/web:1",
            "123456789012.dkr.ecr.amazonaws.com/web:1",
        ]
    );
}
