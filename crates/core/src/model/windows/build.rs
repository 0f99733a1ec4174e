//! Windows builds as data: releases, which container runs on which host, and which builds a Kubernetes minor release
//! supports. The module `image` reads builds from image names.

use std::fmt;
use std::ops::RangeInclusive;

use jiff::civil::{Date, date};

/// A Windows build, `major.minor.build` as in `10.0.20348`. The fourth number (the update revision, UBR) is not part of
/// it: only the compatibility table of Server 2016 compares it, although some revisions are known to fail
/// (`docs/reference/coverage.md`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Build {
    major: u32,
    minor: u32,
    number: u32,
}

impl Build {
    /// The build `10.0.<build>`; every Windows that runs containers is 10.0.
    pub const fn new(build: u32) -> Build {
        Build {
            major: 10,
            minor: 0,
            number: build,
        }
    }

    /// Only the third number: 20348 of `10.0.20348`.
    pub const fn number(self) -> u32 {
        self.number
    }

    /// Parses a value of the label `node.kubernetes.io/windows-build` as the kubelet writes it: `10.0.` and a number of
    /// exactly five digits. Anything else selects no node and is `None`.
    pub fn parse_label(label: &str) -> Option<Build> {
        let build = number(label.strip_prefix("10.0.")?)?;
        FIVE_DIGITS.contains(&build).then(|| Build::new(build))
    }

    /// Parses a node's `status.nodeInfo.kernelVersion` or an image's `os.version`, `10.0.20348.2700`, into its build
    /// and its revision (UBR), which may be missing. A Linux kernel version is `None`.
    pub fn parse_kernel_version(version: &str) -> Option<(Build, Option<u32>)> {
        let mut parts = version.split('.');
        let major = number(parts.next()?)?;
        let minor = number(parts.next()?)?;
        let build = number(parts.next()?)?;
        let revision = match parts.next() {
            Some(revision) => Some(number(revision)?),
            None => None,
        };
        // Containers exist since 10.0, and Linux patch numbers have fewer digits.
        let windows = major >= 10 && FIVE_DIGITS.contains(&build) && parts.next().is_none();
        let build = Build {
            major,
            minor,
            number: build,
        };
        windows.then_some((build, revision))
    }

    /// The server release of exactly this build; `None` for clients, previews and builds newer than the table.
    pub fn release(self) -> Option<&'static Release> {
        RELEASES.iter().find(|release| release.build == self)
    }

    /// The build for messages, with its product if it has a release: `Windows Server 2022 (10.0.20348)`.
    pub fn with_product(self) -> String {
        self.release().map_or_else(
            || self.to_string(),
            |release| format!("{} ({self})", release.product),
        )
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.number)
    }
}

const FIVE_DIGITS: RangeInclusive<u32> = 10_000..=99_999;

/// A decimal number in canonical form: digits only, no sign, no leading zero, no overflow.
fn number(text: &str) -> Option<u32> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

/// A release of Windows Server that can be a node, a container base image, or both.
///
/// Source: Microsoft's "Base image servicing lifecycles" and hcsshim's `osversion/windowsbuilds.go`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Release {
    pub build: Build,
    /// Its product name: `Windows Server 2022`.
    pub product: &'static str,
    /// Its short name, for people and for object names: `ltsc2022`, `20H2`.
    pub name: &'static str,
    /// The tokens of an image tag that mean it; empty for a release without a base image.
    pub tags: &'static [&'static str],
    /// The first day of availability, if documented.
    pub available: Option<Date>,
    /// The last day of mainstream support, if documented.
    pub mainstream_end: Option<Date>,
    /// The last day of extended support; only long-term releases have one.
    pub extended_end: Option<Date>,
    /// The last day of its Nano Server image, if that ended before the release.
    pub nano_server_end: Option<Date>,
    /// Whether it belongs to the long-term servicing channel.
    pub ltsc: bool,
}

impl Release {
    /// The last day of support for images of this release: the end of extended support for long-term releases, else of
    /// mainstream support; `None` if undocumented.
    pub fn end_of_support(&self) -> Option<Date> {
        if self.ltsc {
            self.extended_end
        } else {
            self.mainstream_end
        }
    }

    /// The newest release whose base images run on a host.
    pub fn newest_for(host: Build, isolation: ContainerIsolation) -> Option<&'static Release> {
        let runs = |build| compatibility(build, host, isolation) == Compatibility::Runs;
        let mut releases = RELEASES.iter().rev();
        releases.find(|release| !release.tags.is_empty() && runs(release.build))
    }

    /// Microsoft's tag of its base images. Nano Server of 2016 and 2019 has other tags than Server Core. `None` without
    /// base images.
    pub fn base_tag(&self, nano_server: bool) -> Option<&'static str> {
        match self.name {
            "ltsc2016" if nano_server => Some("sac2016"),
            "ltsc2019" if nano_server => Some("1809"),
            name if self.tags.iter().any(|tag| tag.eq_ignore_ascii_case(name)) => Some(name),
            _ => None,
        }
    }

    /// The release that a tag token such as `ltsc2022`, `1809` or `20H2` means, in any letter case. The module `image`
    /// decides whether a token in that position means a build at all.
    pub fn from_tag(token: &str) -> Option<&'static Release> {
        RELEASES
            .iter()
            .find(|release| release.tags.iter().any(|tag| tag.eq_ignore_ascii_case(token)))
    }
}

/// A release with the most common values; the table overrides what differs.
const fn semi_annual(build: u32, product: &'static str, tags: &'static [&'static str; 1]) -> Release {
    Release {
        build: Build::new(build),
        product,
        name: tags[0], // an array of one: checked at compile time
        tags,
        available: None,
        mainstream_end: None,
        extended_end: None,
        nano_server_end: None,
        ltsc: false,
    }
}

/// Every server release with containers, by ascending build. Client builds (15063, 19043 to 19045, 22000, 22621) are
/// not listed: they are not Kubernetes nodes and have no base images.
pub static RELEASES: &[Release] = &[
    Release {
        build: Build::new(14393),
        product: "Windows Server 2016",
        name: "ltsc2016",
        tags: &["ltsc2016", "1607", "sac2016"],
        available: Some(date(2016, 10, 15)),
        mainstream_end: Some(date(2022, 1, 11)),
        extended_end: Some(date(2027, 1, 11)),
        nano_server_end: Some(date(2018, 10, 9)),
        ltsc: true,
    },
    Release {
        available: Some(date(2017, 10, 17)),
        mainstream_end: Some(date(2019, 4, 9)),
        ..semi_annual(16299, "Windows Server 1709", &["1709"])
    },
    Release {
        available: Some(date(2018, 4, 30)),
        mainstream_end: Some(date(2019, 11, 12)),
        ..semi_annual(17134, "Windows Server 1803", &["1803"])
    },
    // SAC 1809 has the same build and ended on 2020-11-10; its tags are those of the long-term release.
    Release {
        build: Build::new(17763),
        product: "Windows Server 2019",
        name: "ltsc2019",
        tags: &["ltsc2019", "1809"],
        available: Some(date(2018, 11, 13)),
        mainstream_end: Some(date(2024, 1, 9)),
        extended_end: Some(date(2029, 1, 9)),
        nano_server_end: None,
        ltsc: true,
    },
    Release {
        available: Some(date(2019, 5, 21)),
        mainstream_end: Some(date(2020, 12, 8)),
        ..semi_annual(18362, "Windows Server 1903", &["1903"])
    },
    Release {
        available: Some(date(2019, 11, 12)),
        mainstream_end: Some(date(2021, 5, 11)),
        ..semi_annual(18363, "Windows Server 1909", &["1909"])
    },
    Release {
        available: Some(date(2020, 5, 27)),
        mainstream_end: Some(date(2021, 12, 14)),
        ..semi_annual(19041, "Windows Server 2004", &["2004"])
    },
    Release {
        available: Some(date(2020, 10, 20)),
        mainstream_end: Some(date(2022, 8, 9)),
        ..semi_annual(19042, "Windows Server 20H2", &["20H2"])
    },
    Release {
        build: Build::new(20348),
        product: "Windows Server 2022",
        name: "ltsc2022",
        tags: &["ltsc2022"],
        available: Some(date(2021, 8, 18)),
        mainstream_end: Some(date(2026, 10, 13)),
        extended_end: Some(date(2031, 10, 14)),
        nano_server_end: None,
        ltsc: true,
    },
    // The annual channel for containers is host-only (it runs ltsc2022). The end date is that of AKS, the last to
    // provide images and patches for it (Azure/AKS#5608); Microsoft's own page was not available.
    Release {
        tags: &[],
        mainstream_end: Some(date(2026, 5, 15)),
        ..semi_annual(25398, "Windows Server 23H2", &["23H2"])
    },
    // Versions of Microsoft's page differ by a month on the two end dates; the table uses the later days.
    Release {
        build: Build::new(26100),
        product: "Windows Server 2025",
        name: "ltsc2025",
        tags: &["ltsc2025"],
        available: Some(date(2024, 11, 1)),
        mainstream_end: Some(date(2029, 11, 13)),
        extended_end: Some(date(2034, 11, 14)),
        nano_server_end: None,
        ltsc: true,
    },
];

/// How a Windows container is isolated from its host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ContainerIsolation {
    /// Process isolation, the default: container and host share a kernel.
    #[default]
    Process,
    /// Hyper-V isolation: the container has the kernel of its own build.
    HyperV,
    /// A HostProcess container: it runs on the host itself, regardless of its image's build.
    HostProcess,
}

/// Whether a container build runs on a host build, the least likely first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Compatibility {
    /// All known tables agree that it does not run.
    Fails,
    /// No table contains these builds: never a denial.
    Unknown,
    /// The known tables disagree: a warning, never a denial.
    Disputed,
    /// All known tables agree that it runs.
    Runs,
}

/// The first build with containers.
const FIRST: u32 = 14393;

/// Whether a container of one build runs on a host of another.
///
/// Hosts before Server 2022 need the same build; Server 2022 images also run on newer hosts; Hyper-V isolation runs
/// every older build; HostProcess containers run everywhere. Major and minor version must be equal. Revisions are
/// ignored, although the documentation requires equal ones for 14393 (Server 2016).
pub fn compatibility(container: Build, host: Build, isolation: ContainerIsolation) -> Compatibility {
    if isolation == ContainerIsolation::HostProcess {
        return Compatibility::Runs;
    }
    if container.number.min(host.number) < FIRST {
        return Compatibility::Unknown;
    }
    if (container.major, container.minor) != (host.major, host.minor) {
        // Only the tables of process isolation define this; it is undocumented for Hyper-V isolation.
        return if isolation == ContainerIsolation::Process {
            Compatibility::Fails
        } else {
            Compatibility::Unknown
        };
    }
    // The oldest container of each table. Hyper-V isolation: Microsoft's "Windows container version compatibility".
    // Process isolation: containerd's `platforms/platform_windows_compat.go`, then hcsshim's
    // `osversion/platform_compat_windows.go`; the documentation also requires the same *revision* on 14393, but labels
    // and tags contain none, and neither code checks it. Hosts are in ranges, so that a build
    // between two releases has an answer.
    let tables = match (isolation, host.number) {
        (ContainerIsolation::HyperV, _) => [FIRST, FIRST],
        (_, ..20348) => [host.number, host.number],
        (_, 20348..=26100) => [20348, 20348],
        (_, 26101..) => [20348, 26100],
    };
    match tables.map(|oldest| (oldest..=host.number).contains(&container.number)) {
        [true, true] => Compatibility::Runs,
        [false, false] => Compatibility::Fails,
        _ => Compatibility::Disputed,
    }
}

/// The builds of every release that runs a container of this build, ascending, including host-only releases. Empty if
/// no release of the table runs it.
pub fn compatible_hosts(container: Build, isolation: ContainerIsolation) -> impl Iterator<Item = Build> {
    RELEASES
        .iter()
        .map(|release| release.build)
        .filter(move |host| compatibility(container, *host, isolation) == Compatibility::Runs)
}

const V1607: Build = Build::new(14393);
const V1709: Build = Build::new(16299);
const V1803: Build = Build::new(17134);
const LTSC2019: Build = Build::new(17763);
const V1903: Build = Build::new(18362);
const V1909: Build = Build::new(18363);
const V2004: Build = Build::new(19041);
const V20H2: Build = Build::new(19042);
const LTSC2022: Build = Build::new(20348);
const LTSC2025: Build = Build::new(26100);

/// Kubernetes minor releases, and the node builds that their Windows pages support. For 1.32 to 1.34 the pages list
/// Server 2019 and 2022, and providers also support 2025: the table has the union. The tables of 1.21 and 1.23 are not
/// verified and not included.
static SUPPORTED: &[(RangeInclusive<u32>, &[Build])] = &[
    (5..=13, &[V1607, V1709, V1803]),
    (14..=17, &[LTSC2019]),
    (18..=18, &[LTSC2019, V1903, V1909]),
    (19..=20, &[LTSC2019, V1909, V2004]),
    (22..=22, &[LTSC2019, V2004, V20H2]),
    (24..=24, &[LTSC2019, V20H2, LTSC2022]),
    (25..=31, &[LTSC2019, LTSC2022]),
    (32..=34, &[LTSC2019, LTSC2022, LTSC2025]),
    (35..=37, &[LTSC2022, LTSC2025]),
];

/// The node builds that a release of Kubernetes supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Support {
    /// The release of the list: the requested one, or the newest known one if that is older.
    pub known: u32,
    /// Whether the requested release is newer than the table.
    pub is_guessed: bool,
    /// The builds, ascending.
    pub builds: &'static [Build],
}

impl Support {
    /// Whether the release does not support a build. If both the release and the build are newer than the table, it may
    /// support the build.
    pub fn lacks(&self, build: Build) -> bool {
        let newer = self.builds.last().is_some_and(|last| build > *last);
        !(self.builds.contains(&build) || self.is_guessed && newer)
    }
}

/// The documented node builds for Kubernetes `1.<minor>`. Releases newer than the table use those of its last release;
/// `None` if unknown. No Kubernetes code enforces the list.
pub fn supported_on(kubernetes_minor: u32) -> Option<Support> {
    let newest = SUPPORTED.last().map_or(0, |(minors, _)| *minors.end());
    let known = kubernetes_minor.min(newest);
    let (_, builds) = SUPPORTED.iter().find(|(minors, _)| minors.contains(&known))?;
    Some(Support {
        known,
        is_guessed: known < kubernetes_minor,
        builds,
    })
}

#[cfg(test)]
mod tests {
    use super::Compatibility::{Disputed, Fails, Runs, Unknown};
    use super::*;
    use crate::model::cluster::facts::Facts;

    fn numbers(builds: impl IntoIterator<Item = Build>) -> Vec<u32> {
        builds.into_iter().map(Build::number).collect()
    }

    #[test]
    fn only_what_the_kubelet_writes_is_a_build_label() {
        assert_eq!(Build::parse_label("10.0.20348"), Some(Build::new(20348)));
        assert_eq!(Build::new(17763).to_string(), "10.0.17763");
        let wrong = "|10.0|10.0.|20348|10.0.2034|10.0.203481|10.0.20348.1| 10.0.20348|10.0.20348 |10.0.+2034\
                     |10.0.02034|10.0.2034x|6.3.96000|10.1.20348|v10.0.20348|10.0.٢٠٣٤٨";
        for label in wrong.split('|') {
            assert_eq!(Build::parse_label(label), None, "{label:?}");
        }
    }

    #[test]
    fn a_kernel_version_is_a_build_and_perhaps_a_revision() {
        let (server, next) = (
            Build::new(20348),
            Build {
                major: 11,
                minor: 2,
                number: 30000,
            },
        );
        for (version, expected) in [
            ("10.0.20348.2700", (server, Some(2700))),
            ("10.0.20348.0", (server, Some(0))),
            ("10.0.20348", (server, None)),
            ("11.2.30000.1", (next, Some(1))),
        ] {
            assert_eq!(Build::parse_kernel_version(version), Some(expected), "{version}");
        }
        let wrong = "|.|...|10.0|10.0.20348.|10.0.20348.1.2|10.0.20348.x|10.0.20348.99999999999|5.15.0\
                     |6.8.0-1041-azure|6.1.20348|10.0.1|10.0.-20348|10.0 17763 (17763.1.amd64fre)";
        for version in wrong.split('|') {
            assert_eq!(Build::parse_kernel_version(version), None, "{version:?}");
        }
    }

    #[test]
    fn every_release_is_as_microsoft_publishes_it() {
        // Build, product, name, tags, available, end of mainstream and of extended support.
        let table = "\
            14393|Windows Server 2016|ltsc2016|ltsc2016 1607 sac2016|2016-10-15|2022-01-11|2027-01-11
            16299|Windows Server 1709|1709|1709|2017-10-17|2019-04-09|
            17134|Windows Server 1803|1803|1803|2018-04-30|2019-11-12|
            17763|Windows Server 2019|ltsc2019|ltsc2019 1809|2018-11-13|2024-01-09|2029-01-09
            18362|Windows Server 1903|1903|1903|2019-05-21|2020-12-08|
            18363|Windows Server 1909|1909|1909|2019-11-12|2021-05-11|
            19041|Windows Server 2004|2004|2004|2020-05-27|2021-12-14|
            19042|Windows Server 20H2|20H2|20H2|2020-10-20|2022-08-09|
            20348|Windows Server 2022|ltsc2022|ltsc2022|2021-08-18|2026-10-13|2031-10-14
            25398|Windows Server 23H2|23H2|||2026-05-15|
            26100|Windows Server 2025|ltsc2025|ltsc2025|2024-11-01|2029-11-13|2034-11-14";
        let date = |date: Option<Date>| date.map_or(String::new(), |date| date.to_string());
        let row = |r: &Release| {
            let (build, tags) = (r.build.number(), r.tags.join(" "));
            let dates = [r.available, r.mainstream_end, r.extended_end]
                .map(date)
                .join("|");
            format!("{build}|{}|{}|{tags}|{dates}", r.product, r.name)
        };
        let expected: Vec<_> = table.lines().map(str::trim).collect();
        assert_eq!(RELEASES.iter().map(row).collect::<Vec<_>>(), expected);
        assert!(RELEASES.is_sorted_by(|a, b| a.build < b.build));
    }

    #[test]
    fn a_release_is_found_by_its_build_and_its_tags() {
        for release in RELEASES {
            assert_eq!(release.build.release(), Some(release));
            for tag in release.tags {
                assert_eq!(Release::from_tag(&tag.to_lowercase()), Some(release));
                assert_eq!(Release::from_tag(&tag.to_uppercase()), Some(release));
            }
        }
        assert_eq!(Build::new(22621).release(), None);
        assert_eq!(
            Build::new(20348).with_product(),
            "Windows Server 2022 (10.0.20348)"
        );
        assert_eq!(Build::new(22621).with_product(), "10.0.22621");
        assert_eq!(Release::from_tag("23H2"), None);
        assert_eq!(Release::from_tag(""), None);
    }

    #[test]
    fn long_term_releases_end_with_their_extended_support() {
        for release in RELEASES {
            assert_eq!(release.ltsc, release.name.starts_with("ltsc"), "{}", release.name);
            let end = if release.ltsc {
                release.extended_end
            } else {
                release.mainstream_end
            };
            assert_eq!(release.end_of_support(), end, "{}", release.name);
        }
        let nano_2016 = Release::from_tag("sac2016").and_then(|release| release.nano_server_end);
        assert_eq!(nano_2016, Some(date(2018, 10, 9)));
    }

    #[test]
    fn process_isolation_follows_both_tables() {
        // Host: what runs; what fails; what is disputed; what is unknown.
        let table = "\
            10240: ; ; ; 10240 14393
            14393: 14393; 16299 17763 20348; ; 10240
            16299: 16299; 14393 17134; ;
            17134: 17134; 16299 17763; ;
            17763: 17763; 14393 17134 18362 20348; ;
            18362: 18362; 17763 18363; ;
            18363: 18363; 18362; ;
            19041: 19041; 19042; ;
            19042: 19042; 19041; ;
            19045: 19045; 19042; ;
            20347: 20347; 20346 20348; ;
            20348: 20348; 17763 19042 20347 20349 26100; ;
            20349: 20348 20349; 20347 20350; ;
            22621: 20348 22000 22621; 17763 25398; ;
            25398: 20348 25398; 17763 26100; ;
            26099: 20348 26099; 20347 26100; ;
            26100: 20348 25398 26100; 14393 17763 20347 26101; ;
            26101: 26100 26101; 17763 20347 26102; 20348 26099;
            26200: 26100 26200; 17763 20347 26201; 20348 25398 26099;
            30000: 26100 30000; 19042 30001; 20348;";
        for line in table.lines() {
            let (host, columns) = line.trim().split_once(':').expect("a host");
            let host = Build::new(host.parse().expect("a build"));
            for (column, expected) in columns.split(';').zip([Runs, Fails, Disputed, Unknown]) {
                for container in column.split_whitespace() {
                    let container = Build::new(container.parse().expect("a build"));
                    let got = compatibility(container, host, ContainerIsolation::Process);
                    assert_eq!(got, expected, "{container} on {host}");
                    assert_eq!(
                        compatibility(container, host, ContainerIsolation::HostProcess),
                        Runs
                    );
                }
            }
        }
    }

    #[test]
    fn hyper_v_isolation_takes_every_older_build() {
        let rows = [
            (26100, [Runs, Runs, Runs, Runs]),
            (20348, [Runs, Runs, Runs, Fails]),
            (17763, [Runs, Runs, Fails, Fails]),
            (14393, [Runs, Fails, Fails, Fails]),
        ];
        let check = |container, host| {
            compatibility(
                Build::new(container),
                Build::new(host),
                ContainerIsolation::HyperV,
            )
        };
        for (host, expected) in rows {
            assert_eq!(
                [14393, 17763, 20348, 26100].map(|container| check(container, host)),
                expected,
                "{host}"
            );
        }
        assert_eq!(check(18363, 19042), Runs);
        assert_eq!(check(20348, 26200), Runs);
        assert_eq!(check(20348, 10240), Unknown);
    }

    #[test]
    fn another_major_or_minor_version_is_no_match() {
        let (this, next) = (
            Build::new(26100),
            Build {
                major: 11,
                minor: 0,
                number: 26100,
            },
        );
        assert_eq!(compatibility(this, next, ContainerIsolation::Process), Fails);
        assert_eq!(compatibility(next, this, ContainerIsolation::Process), Fails);
        assert_eq!(compatibility(next, this, ContainerIsolation::HyperV), Unknown);
        assert_eq!(compatibility(next, this, ContainerIsolation::HostProcess), Runs);
    }

    #[test]
    fn compatible_hosts_come_in_order_and_include_the_host_only_release() {
        let hosts = |container, isolation| numbers(compatible_hosts(Build::new(container), isolation));
        let all = numbers(RELEASES.iter().map(|release| release.build));
        for old in &all[..8] {
            assert_eq!(hosts(*old, ContainerIsolation::Process), [*old]);
        }
        assert_eq!(hosts(20348, ContainerIsolation::Process), [20348, 25398, 26100]);
        assert_eq!(hosts(26100, ContainerIsolation::Process), [26100]);
        assert_eq!(hosts(15063, ContainerIsolation::Process), [0; 0]);
        assert_eq!(hosts(26200, ContainerIsolation::Process), [0; 0]);
        assert_eq!(
            hosts(19042, ContainerIsolation::HyperV),
            [19042, 20348, 25398, 26100]
        );
        assert_eq!(hosts(14393, ContainerIsolation::HyperV), all);
        assert_eq!(hosts(26200, ContainerIsolation::HostProcess), all);
    }

    #[test]
    fn a_release_newer_than_the_table_supports_what_the_last_one_does_and_newer_windows_perhaps() {
        let lacks = |minor, build| supported_on(minor).is_some_and(|s| s.lacks(Build::new(build)));
        let newest = Facts::KUBERNETES;
        for (minor, build, expected) in [
            (newest, 17763, true),
            (newest, 26100, false),
            (newest, 29500, true),
            (newest + 1, 17763, true),
            (newest + 1, 26100, false),
            (newest + 1, 29500, false),
        ] {
            assert_eq!(lacks(minor, build), expected, "1.{minor} and {build}");
        }
    }

    #[test]
    fn each_kubernetes_minor_supports_what_its_page_says() {
        let rows: [(RangeInclusive<u32>, Option<&[u32]>); 12] = [
            (0..=4, None),
            (5..=13, Some(&[14393, 16299, 17134])),
            (14..=17, Some(&[17763])),
            (18..=18, Some(&[17763, 18362, 18363])),
            (19..=20, Some(&[17763, 18363, 19041])),
            (21..=21, None),
            (22..=22, Some(&[17763, 19041, 19042])),
            (23..=23, None),
            (24..=24, Some(&[17763, 19042, 20348])),
            (25..=31, Some(&[17763, 20348])),
            (32..=34, Some(&[17763, 20348, 26100])),
            // The table has no entry for 38 and later yet.
            (35..=60, Some(&[20348, 26100])),
        ];
        for (minors, expected) in rows {
            for minor in minors {
                let support = supported_on(minor);
                let got = support.map(|support| numbers(support.builds.iter().copied()));
                assert_eq!(got.as_deref(), expected, "1.{minor}");
                let known = support.map_or(minor, |support| support.known);
                assert_eq!(known, minor.min(Facts::KUBERNETES), "1.{minor}");
            }
        }
    }
}
