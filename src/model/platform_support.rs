//! The calendar of the platforms as data: which Windows Server each platform supports with which Kubernetes release, and
//! until when. What no source states is `None`, and is never guessed.

use std::fmt;

use jiff::civil::{Date, date};

use super::build::{Build, Release};

/// A platform that provides or manages Windows nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NodePlatform {
    /// OpenShift with the Windows Machine Config Operator.
    OpenShift,
    /// Azure Kubernetes Service.
    Aks,
    /// Amazon EKS.
    Eks,
    /// Google Kubernetes Engine.
    Gke,
    /// Rancher and RKE2.
    Rancher,
}

impl NodePlatform {
    /// All platforms, the most specific first.
    pub const ALL: [NodePlatform; 5] = [
        NodePlatform::OpenShift,
        NodePlatform::Aks,
        NodePlatform::Eks,
        NodePlatform::Gke,
        NodePlatform::Rancher,
    ];

    /// The beginnings of node labels that only this platform writes.
    pub const fn label_prefixes(self) -> &'static [&'static str] {
        match self {
            NodePlatform::OpenShift => &["node.openshift.io/"],
            NodePlatform::Aks => &["kubernetes.azure.com/cluster"],
            NodePlatform::Eks => &["eks.amazonaws.com/"],
            NodePlatform::Gke => &["cloud.google.com/gke-"],
            NodePlatform::Rancher => &["rke.cattle.io/", "cattle.io/"],
        }
    }

    /// The platform of a node with these label keys.
    pub fn of_labels<'l>(keys: impl Iterator<Item = &'l str>) -> Option<NodePlatform> {
        let keys: Vec<&str> = keys.collect();
        let has = |platform: &NodePlatform| {
            let mut prefixes = platform.label_prefixes().iter();
            prefixes.any(|prefix| keys.iter().any(|key| key.starts_with(prefix)))
        };
        NodePlatform::ALL.into_iter().find(has)
    }
}

impl fmt::Display for NodePlatform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NodePlatform::OpenShift => "OpenShift",
            NodePlatform::Aks => "AKS",
            NodePlatform::Eks => "EKS",
            NodePlatform::Gke => "GKE",
            NodePlatform::Rancher => "Rancher",
        })
    }
}

/// The support of a platform for one Windows build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlatformSupport {
    /// The platform.
    pub platform: NodePlatform,
    /// The build of the nodes.
    pub build: Build,
    /// The first minor release of Kubernetes with it, if a source states it.
    pub first_minor: Option<u32>,
    /// The last minor release of Kubernetes with it, if a source states it.
    pub last_minor: Option<u32>,
    /// The last day of support, if a source states it.
    pub ends: Option<Date>,
    /// The day on which the platform removes its node images, so that pools no longer scale.
    pub images_removed: Option<Date>,
    /// The page that documents it.
    pub source: &'static str,
}

/// A row without dates.
const fn supported(platform: NodePlatform, build: u32, source: &'static str) -> PlatformSupport {
    PlatformSupport {
        platform,
        build: Build::new(build),
        first_minor: None,
        last_minor: None,
        ends: None,
        images_removed: None,
        source,
    }
}

const EKS_AMIS: &str = "https://docs.aws.amazon.com/eks/latest/userguide/eks-optimized-windows-ami.html";
const GKE_VERSIONS: &str = "https://cloud.google.com/dotnet/docs/reference/Google.Cloud.Container.V1/latest/Google.Cloud.Container.V1.WindowsNodeConfig.Types.OSVersion";

const RKE2_REQUIREMENTS: &str =
    "https://documentation.suse.com/cloudnative/rke2/latest/en/install/requirements.html";

/// What the sources state. EKS publishes no end for 2019, 2022 and 2025, GKE and Rancher none for 2019 and 2022. Rancher
/// did not support 2025 in July 2026 (rancher/rancher#50915).
static SUPPORT: &[PlatformSupport] = &[
    PlatformSupport {
        last_minor: Some(32),
        ends: Some(date(2026, 3, 1)),
        images_removed: Some(date(2027, 4, 1)),
        ..supported(
            NodePlatform::Aks,
            17763,
            "https://github.com/Azure/AKS/issues/4091",
        )
    },
    PlatformSupport {
        last_minor: Some(36),
        ends: Some(date(2028, 6, 30)),
        images_removed: Some(date(2029, 6, 30)),
        ..supported(
            NodePlatform::Aks,
            20348,
            "https://github.com/Azure/AKS/releases/tag/2026-06-19",
        )
    },
    PlatformSupport {
        ends: Some(date(2026, 5, 15)),
        images_removed: Some(date(2027, 5, 15)),
        ..supported(
            NodePlatform::Aks,
            25398,
            "https://github.com/Azure/AKS/issues/5608",
        )
    },
    PlatformSupport {
        first_minor: Some(32),
        ..supported(
            NodePlatform::Aks,
            26100,
            "https://learn.microsoft.com/azure/aks/upgrade-windows-os",
        )
    },
    PlatformSupport {
        ends: Some(date(2020, 12, 8)),
        ..supported(NodePlatform::Eks, 18363, EKS_AMIS)
    },
    PlatformSupport {
        ends: Some(date(2021, 12, 14)),
        ..supported(NodePlatform::Eks, 19041, EKS_AMIS)
    },
    PlatformSupport {
        ends: Some(date(2022, 8, 9)),
        ..supported(NodePlatform::Eks, 19042, EKS_AMIS)
    },
    supported(NodePlatform::Eks, 17763, EKS_AMIS),
    supported(NodePlatform::Eks, 20348, EKS_AMIS),
    PlatformSupport {
        first_minor: Some(35),
        ..supported(
            NodePlatform::Eks,
            26100,
            "https://docs.aws.amazon.com/eks/latest/userguide/eks-ami-versions-windows.html",
        )
    },
    supported(NodePlatform::Gke, 17763, GKE_VERSIONS),
    supported(NodePlatform::Gke, 20348, GKE_VERSIONS),
    PlatformSupport {
        ends: Some(date(2022, 8, 9)),
        ..supported(
            NodePlatform::Gke,
            19042,
            "https://cloud.google.com/kubernetes-engine/docs/deprecations/windows-server-sac",
        )
    },
    supported(NodePlatform::Rancher, 17763, RKE2_REQUIREMENTS),
    supported(NodePlatform::Rancher, 20348, RKE2_REQUIREMENTS),
    // The Windows Machine Config Operator 10.21 (Kubernetes 1.34) is the last with 2019; 10.22 adds 2025.
    PlatformSupport {
        last_minor: Some(34),
        ..supported(
            NodePlatform::OpenShift,
            17763,
            "https://github.com/openshift/openshift-docs/pull/105866",
        )
    },
    PlatformSupport {
        first_minor: Some(35),
        ..supported(
            NodePlatform::OpenShift,
            26100,
            "https://github.com/openshift/openshift-docs/pull/111470",
        )
    },
];

/// The support of a platform for a build; `None` if no source states anything about it.
pub fn support_of(platform: NodePlatform, build: Build) -> Option<&'static PlatformSupport> {
    SUPPORT
        .iter()
        .find(|row| row.platform == platform && row.build == build)
}

/// The annual channel: the end in the table of releases is that of AKS, and Microsoft's own is not known.
const ANNUAL_CHANNEL: Build = Build::new(25398);

/// A day on which support for the nodes of a build changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SupportDate {
    /// The day: the last day of support, or the day of the removal of images.
    pub on: Date,
    /// What happens.
    pub event: SupportEvent,
    /// The platform; `None` for Microsoft's own support.
    pub platform: Option<NodePlatform>,
    /// The build.
    pub build: Build,
    /// The page that documents it.
    pub source: &'static str,
}

/// What happens to the support for a build.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SupportEvent {
    /// Support ends: no security updates.
    Ends,
    /// The platform removes its node images.
    ImagesRemoved,
}

impl SupportDate {
    /// How many days before an end the end is reported.
    pub const NOTICE: i32 = 180;

    /// The days from today until this day; negative if it has passed.
    pub fn days_from(&self, today: Date) -> i32 {
        (self.on - today).get_days()
    }

    /// Whether it has passed, or is at most [`SupportDate::NOTICE`] days ahead.
    pub fn is_near(&self, today: Date) -> bool {
        self.days_from(today) <= SupportDate::NOTICE
    }
}

/// As in `2026-03-01: end of support for Windows Server 2019 on AKS`.
impl fmt::Display for SupportDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let product = product(self.build);
        let on = self.on;
        match (self.event, self.platform) {
            (SupportEvent::Ends, Some(platform)) => {
                write!(f, "{on}: end of support for {product} on {platform}")
            }
            (SupportEvent::Ends, None) => write!(f, "{on}: end of Microsoft's support for {product}"),
            (SupportEvent::ImagesRemoved, platform) => {
                let platform = platform.map_or_else(String::new, |platform| format!(" from {platform}"));
                write!(
                    f,
                    "{on}: removal of the node images of {product}{platform}; pools can no longer scale"
                )
            }
        }
    }
}

/// The product name of a build, or its number.
pub fn product(build: Build) -> String {
    build
        .release()
        .map_or_else(|| build.to_string(), |release| release.product.to_owned())
}

/// The days on which support for nodes of a build changes, ascending: by Microsoft, and by the platform if known.
pub fn support_dates(platform: Option<NodePlatform>, build: Build) -> Vec<SupportDate> {
    let release = build.release().filter(|release| release.build != ANNUAL_CHANNEL);
    let by_microsoft = release.and_then(Release::end_of_support);
    let mut dates: Vec<SupportDate> = by_microsoft
        .map(|on| SupportDate {
            on,
            event: SupportEvent::Ends,
            platform: None,
            build,
            source: "https://learn.microsoft.com/windows-server/get-started/windows-server-release-info",
        })
        .into_iter()
        .collect();
    if let Some(row) = platform.and_then(|platform| support_of(platform, build)) {
        let of = |on: Option<Date>, event| {
            on.map(|on| SupportDate {
                on,
                event,
                platform: Some(row.platform),
                build,
                source: row.source,
            })
        };
        dates.extend(of(row.ends, SupportEvent::Ends));
        dates.extend(of(row.images_removed, SupportEvent::ImagesRemoved));
    }
    dates.sort();
    dates
}

/// What a minor release of Kubernetes changes for Windows nodes.
#[derive(Clone, Copy, Debug)]
pub struct MinorChange {
    /// The minor release.
    pub minor: u32,
    /// The platform on which it changes; `None` for every one.
    pub platform: Option<NodePlatform>,
    /// The nodes that are affected.
    pub affects: AffectedNodes,
    /// What changes: lower case, no full stop.
    pub change: &'static str,
    /// What to do: lower case, no full stop.
    pub remedy: &'static str,
    /// The page that documents it.
    pub source: &'static str,
}

/// The Windows nodes that a change affects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AffectedNodes {
    /// Every one.
    All,
    /// Those with containerd 1.x.
    Containerd1,
}

/// Changes of minor releases other than the end of support for a build.
pub static MINOR_CHANGES: &[MinorChange] = &[
    MinorChange {
        minor: 35,
        platform: Some(NodePlatform::Gke),
        affects: AffectedNodes::All,
        change: "Windows nodes get containerd 2.0, which cannot pull images with a schema 1 manifest",
        remedy: "push such images again with a current build tool",
        source: "https://cloud.google.com/kubernetes-engine/docs/deprecations/migrate-containerd-2",
    },
    MinorChange {
        minor: 36,
        platform: Some(NodePlatform::Aks),
        affects: AffectedNodes::All,
        change: "new Windows pools get Windows Server 2025 (10.0.26100) unless --os-sku names another release",
        remedy: "set --os-sku Windows2022 for pools of images that have no build for 2025",
        source: "https://learn.microsoft.com/azure/aks/learn/quick-windows-container-deploy-cli",
    },
    MinorChange {
        minor: 38,
        platform: None,
        affects: AffectedNodes::Containerd1,
        change: "the kubelet drops the flags and fallbacks for runtimes without RuntimeConfig, and with them containerd 1.x",
        remedy: "upgrade the Windows nodes to containerd 2 first",
        source: "https://github.com/kubernetes/kubernetes/pull/139121",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(platform: Option<NodePlatform>, build: u32) -> Vec<String> {
        let dates = support_dates(platform, Build::new(build));
        dates.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_dates_are_those_of_the_sources_and_an_unknown_end_stays_unknown() {
        assert_eq!(
            messages(Some(NodePlatform::Aks), 17763),
            [
                "2026-03-01: end of support for Windows Server 2019 on AKS",
                "2027-04-01: removal of the node images of Windows Server 2019 from AKS; pools can no longer scale",
                "2029-01-09: end of Microsoft's support for Windows Server 2019",
            ]
        );
        assert_eq!(
            messages(Some(NodePlatform::Aks), 20348),
            [
                "2028-06-30: end of support for Windows Server 2022 on AKS",
                "2029-06-30: removal of the node images of Windows Server 2022 from AKS; pools can no longer scale",
                "2031-10-14: end of Microsoft's support for Windows Server 2022",
            ]
        );
        let by_microsoft = ["2031-10-14: end of Microsoft's support for Windows Server 2022"];
        assert_eq!(messages(Some(NodePlatform::Eks), 20348), by_microsoft);
        assert_eq!(messages(Some(NodePlatform::Rancher), 20348), by_microsoft);
        assert_eq!(messages(None, 20348), by_microsoft);
        assert_eq!(messages(Some(NodePlatform::Aks), 29500), Vec::<String>::new());
        let of_aks = support_of(NodePlatform::Aks, Build::new(20348)).unwrap();
        assert_eq!((of_aks.first_minor, of_aks.last_minor), (None, Some(36)));
        let of_rancher = support_of(NodePlatform::Rancher, Build::new(20348)).unwrap();
        assert_eq!((of_rancher.last_minor, of_rancher.ends), (None, None));
        assert_eq!(support_of(NodePlatform::Rancher, Build::new(26100)), None);
        let of_gke = support_of(NodePlatform::Gke, Build::new(19042)).unwrap();
        assert_eq!(of_gke.ends, Some(date(2022, 8, 9)));
    }

    #[test]
    fn an_end_is_near_from_180_days_before() {
        let end = support_dates(Some(NodePlatform::Aks), Build::new(25398))[0];
        assert_eq!(end.on, date(2026, 5, 15));
        for (today, near, days) in [
            (date(2025, 11, 15), false, 181),
            (date(2025, 11, 16), true, 180),
            (date(2026, 5, 15), true, 0),
            (date(2026, 5, 16), true, -1),
        ] {
            assert_eq!(
                (end.is_near(today), end.days_from(today)),
                (near, days),
                "{today}"
            );
        }
    }

    #[test]
    fn a_platform_is_known_from_the_labels_of_its_nodes() {
        for (label, platform) in [
            ("kubernetes.azure.com/cluster", Some(NodePlatform::Aks)),
            ("eks.amazonaws.com/nodegroup", Some(NodePlatform::Eks)),
            ("cloud.google.com/gke-nodepool", Some(NodePlatform::Gke)),
            ("node.openshift.io/os_id", Some(NodePlatform::OpenShift)),
            ("rke.cattle.io/machine", Some(NodePlatform::Rancher)),
            ("kubernetes.io/os", None),
        ] {
            assert_eq!(NodePlatform::of_labels([label].into_iter()), platform, "{label}");
        }
    }
}
