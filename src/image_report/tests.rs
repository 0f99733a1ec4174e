//! What runs where, with plain facts.

use super::*;
use crate::model::windows::image_facts::ImageConfig;

fn facts(variants: Vec<ImageVariant>) -> ImageFacts {
    ImageFacts::of(variants, Timestamp::UNIX_EPOCH)
}

fn windows(version: &str) -> ImageVariant {
    ImageVariant::new("windows", "amd64", version)
}

fn report(variants: Vec<ImageVariant>) -> ImageReport {
    ImageReport::new("app:1", Ok(&facts(variants)), false, None, None)
}

/// The releases that run an image, with process isolation and with Hyper-V isolation.
fn runs(report: &ImageReport) -> (Vec<&'static str>, Vec<&'static str>) {
    let of = |isolation: fn(&ReleaseReport) -> &IsolationReport| {
        let runs = report
            .releases
            .iter()
            .filter(|it| isolation(it).runs == Runs::Yes);
        runs.map(|it| it.release).collect()
    };
    (of(|it| &it.process), of(|it| &it.hyper_v))
}

fn host(name: &str, build: u32, revision: u32) -> Host {
    Host {
        name: name.to_owned(),
        build: Some(Build::new(build)),
        revision: Some(revision),
        ..Host::default()
    }
}

fn node(version: &str, host: &Host) -> NodeReport {
    let report = ImageReport::new(
        "app:1",
        Ok(&facts(vec![windows(version)])),
        false,
        None,
        Some(std::slice::from_ref(host)),
    );
    report.nodes.unwrap().remove(0)
}

#[test]
fn the_releases_are_those_of_the_tables() {
    let (process, hyper_v) = runs(&report(vec![windows("10.0.17763.6293")]).clone());
    assert_eq!(process, ["ltsc2019"]);
    assert_eq!(
        hyper_v,
        [
            "ltsc2019", "1903", "1909", "2004", "20H2", "ltsc2022", "23H2", "ltsc2025"
        ]
    );
    let (process, hyper_v) = runs(&report(vec![windows("10.0.20348.2700")]).clone());
    assert_eq!(process, ["ltsc2022", "23H2", "ltsc2025"]);
    assert_eq!(hyper_v, process);
    let (process, _) = runs(&report(vec![windows("10.0.26100.1742")]).clone());
    assert_eq!(process, ["ltsc2025"]);
    // A Linux image has no releases.
    let linux = report(vec![ImageVariant::new("linux", "amd64", "")]);
    assert_eq!((linux.status, linux.releases.len()), (ImageStatus::Found, 0));
}

#[test]
fn of_several_variants_the_best_one_is_named() {
    let both = report(vec![
        windows("10.0.17763.6293"),
        windows("10.0.20348.2700"),
        windows("10.0.26100.1742"),
        ImageVariant::new("linux", "amd64", ""),
    ]);
    let version = |release: &str| {
        let found = both.releases.iter().find(|it| it.release == release).unwrap();
        (found.process.os_version.clone(), found.hyper_v.os_version.clone())
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        version("ltsc2019"),
        (some("10.0.17763.6293"), some("10.0.17763.6293"))
    );
    assert_eq!(version("1909"), (None, some("10.0.17763.6293")));
    assert_eq!(
        version("ltsc2022"),
        (some("10.0.20348.2700"), some("10.0.20348.2700"))
    );
    assert_eq!(
        version("ltsc2025"),
        (some("10.0.26100.1742"), some("10.0.26100.1742"))
    );
    assert_eq!(version("ltsc2016"), (None, None));
}

#[test]
fn a_variant_without_a_version_is_not_known_to_run() {
    let report = report(vec![windows("")]);
    assert!(report.releases.iter().all(|it| it.process.runs == Runs::Unknown));
    // One with a version is better.
    let both = self::report(vec![windows(""), windows("10.0.20348.2700")]);
    assert_eq!(runs(&both).0, ["ltsc2022", "23H2", "ltsc2025"]);
}

#[test]
fn a_node_runs_what_its_build_its_revision_and_its_architecture_allow() {
    let runs = |version: &str, host: &Host| {
        let node = node(version, host);
        (node.process.runs, node.hyper_v.runs, node.reason)
    };
    let reason = |text: &str| Some(text.to_owned());
    assert_eq!(
        runs("10.0.20348.2700", &host("a", 20348, 1)),
        (Runs::Yes, Runs::Yes, None)
    );
    assert_eq!(
        runs("10.0.17763.1", &host("a", 20348, 1)),
        (
            Runs::No,
            Runs::Yes,
            reason("no variant of the image runs on 10.0.20348 with process isolation")
        )
    );
    assert_eq!(
        runs("10.0.26100.4061", &host("a", 26100, 2894)),
        (
            Runs::No,
            Runs::Yes,
            reason("an image of revision 4061 needs nodes of 10.0.26100.4061 or later")
        )
    );
    assert_eq!(runs("10.0.17763.7314", &host("a", 17763, 6893)).0, Runs::Unknown);
    assert_eq!(
        runs("", &host("a", 20348, 1)),
        (
            Runs::Unknown,
            Runs::Unknown,
            reason("containerd pulls a variant without a readable os.version, whose build is not known")
        )
    );
    let unknown = Host {
        name: "a".to_owned(),
        ..Host::default()
    };
    assert_eq!(
        runs("10.0.20348.1", &unknown).2,
        reason("the build of the node is not known")
    );
    let mut arm = host("a", 26100, 1);
    arm.labels.expect(ARCH_LABEL, "arm64".to_owned());
    assert_eq!(
        runs("10.0.26100.1", &arm),
        (
            Runs::No,
            Runs::No,
            reason("the image has no Windows variant for arm64")
        )
    );
    let linux = facts(vec![ImageVariant::new("linux", "amd64", "")]);
    let hosts = [host("b", 20348, 1), host("a", 20348, 1)];
    let report = ImageReport::new("app:1", Ok(&linux), false, None, Some(&hosts));
    let nodes = report.nodes.unwrap();
    assert_eq!((nodes[0].name.as_str(), nodes[1].name.as_str()), ("a", "b"));
    assert_eq!(nodes[0].reason, reason("the image has no variant for Windows"));
}

#[test]
fn what_is_missing_or_not_known_says_why() {
    let unknown = ImageReport::new("app:1", Err("connection refused"), false, None, None);
    assert_eq!(unknown.status, ImageStatus::Unknown);
    assert_eq!(unknown.message.as_deref(), Some("connection refused"));
    let missing = ImageFacts {
        looked_up: Timestamp::UNIX_EPOCH,
        found: None,
    };
    let missing = ImageReport::new("app:1", Ok(&missing), true, None, None);
    assert_eq!((missing.status, missing.cached), (ImageStatus::Missing, true));
    let facts = facts(vec![
        windows("10.0.20348.1"),
        ImageVariant::new("linux", "arm64", ""),
    ]);
    let of =
        |platform: &str| ImageReport::new("app:1", Ok(&facts), false, Some(&platform.parse().unwrap()), None);
    let other = of("windows/amd64:10.0.17763");
    assert_eq!(other.status, ImageStatus::Missing);
    assert_eq!(
        other.message.as_deref(),
        Some(
            "it has no variant for windows(10.0.17763)/amd64; it has windows(10.0.20348.1)/amd64, linux/arm64"
        )
    );
    let linux = of("linux");
    assert_eq!((linux.variants.len(), linux.releases.len()), (1, 0));
}

#[test]
fn a_configuration_that_was_not_read_differs_from_an_empty_one() {
    let read = ImageVariant {
        config: Some(ImageConfig::default()),
        ..windows("10.0.20348.1")
    };
    let report = report(vec![read, windows("10.0.17763.1")]);
    assert_eq!(report.variants[0].user.as_deref(), Some(""));
    assert_eq!(report.variants[1].user, None);
}

#[test]
fn the_windows_base_is_shown_with_its_day_and_the_tag_that_has_the_newest_update() {
    let of = |created_by: &str| {
        let base = WindowsBase::of_history(created_by, "2026-03-07T20:11:41Z").unwrap();
        let report = BaseReport::of(&base);
        format!("{} {} {:?}", report.os_version, report.date, report.current_tag)
    };
    assert_eq!(
        of("Install update 10.0.20348.5622"),
        "10.0.20348.5622 2026-03-07 Some(\"ltsc2022\")"
    );
    assert_eq!(of("Apply image 10.0.29500.1"), "10.0.29500.1 2026-03-07 None");
}
