use super::*;
use crate::model::nodes::node::Host;
use crate::model::windows::build::Build;
use crate::plan::{PullTotal, TargetBuild};

const BUILD: Build = Build::new(26100);

fn node(name: &str, images: &[&str], has_more_images: bool) -> InventoryNode {
    let labels = std::sync::Arc::new([("agentpool".to_owned(), "new".to_owned())].into());
    InventoryNode {
        uid: String::new(),
        host: Host {
            name: name.to_owned(),
            build: Some(BUILD),
            labels: crate::model::nodes::node::Labels::of_node(labels),
            ..Host::default()
        },
        is_cordoned: false,
        is_ready: true,
        images: images.iter().filter_map(|image| image_key(image)).collect(),
        has_more_images,
        allocatable: None,
    }
}

#[test]
fn an_image_has_one_notation() {
    let key = |text| image_key(text).unwrap();
    assert_eq!(key("nginx"), key("docker.io/library/nginx:latest"));
    assert_ne!(key("a.example/b:1"), key("a.example/b:2"));
    assert_eq!(image_key("no image!"), None);
}

#[test]
fn nodes_lack_what_they_do_not_report_of_the_workloads_that_land_on_them() {
    let pull = |image: &str, workload: &str, size| ImagePull {
        image: image.to_owned(),
        workloads: vec![workload.to_owned()],
        daemon_set: false,
        replicas: 1,
        process_isolation: true,
        digest: None,
        size,
        shared: None,
        unknown: None,
        namespace: String::new(),
    };
    let pool = |name: &str, build| PoolPulls {
        pool: name.to_owned(),
        build: Some(TargetBuild(build)),
        nodes: 2,
        selector: [("agentpool".to_owned(), name.to_owned())].into(),
        images: vec![
            pull("web:1", "Deployment shop/web", Some(7)),
            pull("mail:1", "Deployment shop/mail", None),
        ],
        total: PullTotal::default(),
    };
    let pools = [
        pool("new", BUILD),
        pool("other", BUILD),
        pool("new", Build::new(20348)),
    ];
    let images = BTreeMap::from([
        (
            "Deployment shop/web".to_owned(),
            BTreeSet::from(["web:1".to_owned(), "sidecar:2".to_owned()]),
        ),
        (
            "Deployment shop/elsewhere".to_owned(),
            BTreeSet::from(["elsewhere:1".to_owned()]),
        ),
    ]);
    let nodes = [
        node("a", &["docker.io/library/web:1"], false),
        node("b", &[], false),
        node("full", &[], true),
    ];
    let found = lacking_images(&pools, &images, &nodes.iter().collect::<Vec<_>>());
    let found: Vec<_> = found
        .iter()
        .map(|it| (it.image.as_str(), it.nodes.join(" "), it.size))
        .collect();
    assert_eq!(
        found,
        [
            ("sidecar:2", "a b".to_owned(), None),
            ("web:1", "b".to_owned(), Some(7))
        ]
    );
}

#[test]
fn a_wait_for_images_ends_if_no_node_gets_one() {
    let lacking = |nodes: &[&str]| {
        let image = LackingImage {
            image: "web:1".to_owned(),
            pool: "new".to_owned(),
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            workloads: Vec::new(),
            size: None,
        };
        [image]
    };
    let rules = super::super::tests::rules();
    let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
    let mut wait = ImageWait::default();
    assert_eq!(
        wait.next(&lacking(&["a"]), None, minutes(0)).unwrap(),
        "web:1 on a"
    );
    // New nodes, of which one pulls.
    wait.next(&lacking(&["a", "b", "c"]), None, minutes(20));
    wait.next(&lacking(&["a", "b"]), None, minutes(25));
    assert_eq!(wait.end(&rules, minutes(54)), None);
    let stuck = wait.end(&rules, minutes(55)).unwrap();
    assert!(stuck.contains("1 image still missing, and nothing"), "{stuck}");
    let timed = DrainRules {
        timeout: Some(minutes(26)),
        ..rules
    };
    assert_eq!(
        wait.end(&timed, minutes(26)).unwrap(),
        "1 image still missing after 1560 s"
    );
    let closed = || Some("no node".to_owned());
    assert_eq!(wait.next(&[], closed(), minutes(26)), closed());
    assert_eq!(wait.next(&[], None, minutes(27)), None);
}
