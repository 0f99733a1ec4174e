//! The calendar of the platforms: the form of its rows, and the days on which support changes.

use std::fmt;

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Knowledge, NOT_A_LINE, is_line, of_source};
use crate::model::syntax::string_enum::string_enum;
use crate::model::windows::build::{Build, Release};

string_enum! {
    /// A platform that provides or manages Windows nodes.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
    pub enum NodePlatform {
        /// OpenShift with the Windows Machine Config Operator.
        #[serde(rename = "OpenShift")]
        OpenShift = "OpenShift",
        /// Azure Kubernetes Service.
        #[serde(rename = "AKS")]
        Aks = "AKS",
        /// Amazon EKS.
        #[serde(rename = "EKS")]
        Eks = "EKS",
        /// Google Kubernetes Engine.
        #[serde(rename = "GKE")]
        Gke = "GKE",
        /// Rancher and RKE2.
        #[serde(rename = "Rancher")]
        Rancher = "Rancher",
    }
}

impl NodePlatform {
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

/// The support of a platform for one Windows build. What no source states is absent, and is never guessed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlatformSupport {
    /// Its id, as in `aks-20348`.
    pub id: String,
    /// When the row was last compared with its source. A row with the same id and a newer date supersedes it.
    #[schemars(with = "String", extend("format" = "date"))]
    pub date: Date,
    /// The platform.
    pub platform: NodePlatform,
    /// The third number of the build of the nodes, as in 20348.
    pub build: u32,
    /// The first minor release of Kubernetes with it, as in 35.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_minor: Option<u32>,
    /// The last minor release of Kubernetes with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_minor: Option<u32>,
    /// The last day of support.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date"))]
    pub ends: Option<Date>,
    /// The day on which the platform removes its node images, so that pools no longer scale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date"))]
    pub images_removed: Option<Date>,
    /// What differs on its nodes from those of earlier builds, and what to do: lower case, no full stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differs: Option<String>,
    /// The page that documents it.
    pub source: String,
}

impl PlatformSupport {
    pub(super) fn form_problems(&self) -> Vec<String> {
        let mut problems = of_source(&self.source);
        if !self.differs.as_deref().is_none_or(is_line) {
            problems.push(NOT_A_LINE.to_owned());
        }
        problems
    }
}

/// The last day of maintenance of a release of containerd before 2.0.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContainerdEnd {
    /// Its id, as in `containerd-1.7`.
    pub id: String,
    /// When the row was last compared with its source. A row with the same id and a newer date supersedes it.
    #[schemars(with = "String", extend("format" = "date"))]
    pub date: Date,
    /// The minor release, as in 7 for 1.7.
    pub minor: u32,
    /// The last day of maintenance.
    #[schemars(with = "String", extend("format" = "date"))]
    pub ends: Date,
    /// The page that documents it.
    pub source: String,
}

impl ContainerdEnd {
    pub(super) fn form_problems(&self) -> Vec<String> {
        of_source(&self.source)
    }
}

/// Where Microsoft publishes the ends of its support.
const MICROSOFT: &str = "https://learn.microsoft.com/windows-server/get-started/windows-server-release-info";

/// The annual channel: the end in the table of releases is that of AKS, and Microsoft's own is not known.
const ANNUAL_CHANNEL: Build = Build::new(25398);

/// A day on which support for the nodes of a build changes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SupportDate {
    /// The day: the last day of support, or the day of the removal of images.
    pub on: Date,
    pub event: SupportEvent,
    /// The platform; `None` for Microsoft's own support.
    pub platform: Option<NodePlatform>,
    pub build: Build,
    /// The page that documents it.
    pub source: String,
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

impl Knowledge {
    /// The support of a platform for a build, by the newest row; `None` if no source states anything about it.
    pub fn support_of(&self, platform: NodePlatform, build: Build) -> Option<&PlatformSupport> {
        let is_it = |row: &&PlatformSupport| row.platform == platform && Build::new(row.build) == build;
        // Of the same day, the first row, as between rows of the same id.
        self.support.iter().rev().filter(is_it).max_by_key(|row| row.date)
    }

    /// The days on which support for nodes of a build changes, ascending: by Microsoft, and by the platform if known.
    pub fn support_dates(&self, platform: Option<NodePlatform>, build: Build) -> Vec<SupportDate> {
        let release = build.release().filter(|release| release.build != ANNUAL_CHANNEL);
        let by_microsoft = release.and_then(Release::end_of_support);
        let mut dates: Vec<SupportDate> = by_microsoft
            .map(|on| SupportDate {
                on,
                event: SupportEvent::Ends,
                platform: None,
                build,
                source: MICROSOFT.to_owned(),
            })
            .into_iter()
            .collect();
        if let Some(row) = platform.and_then(|platform| self.support_of(platform, build)) {
            let of = |on: Option<Date>, event| {
                on.map(|on| SupportDate {
                    on,
                    event,
                    platform: Some(row.platform),
                    build,
                    source: row.source.clone(),
                })
            };
            dates.extend(of(row.ends, SupportEvent::Ends));
            dates.extend(of(row.images_removed, SupportEvent::ImagesRemoved));
        }
        dates.sort();
        dates
    }

    /// The last day of maintenance of a release of containerd, if a source states it.
    pub fn containerd_end(&self, (major, minor): (u32, u32)) -> Option<Date> {
        let is_it = |row: &&ContainerdEnd| major == 1 && row.minor == minor;
        let row = self
            .containerd
            .iter()
            .rev()
            .filter(is_it)
            .max_by_key(|row| row.date);
        row.map(|row| row.ends)
    }
}

/// What a minor release of Kubernetes changes for Windows nodes, other than the end of support for a build.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MinorChange {
    /// Its id, as in `gke-1.35-containerd-2`.
    pub id: String,
    /// When the row was last compared with its source. A row with the same id and a newer date supersedes it.
    #[schemars(with = "String", extend("format" = "date"))]
    pub date: Date,
    /// The minor release, as in 35 for 1.35.
    pub minor: u32,
    /// The platform on which it changes; absent: every one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<NodePlatform>,
    /// The nodes that are affected.
    pub affects: AffectedNodes,
    /// What changes: lower case, no full stop.
    pub change: String,
    /// What to do: lower case, no full stop.
    pub remedy: String,
    /// The page that documents it.
    pub source: String,
}

impl MinorChange {
    pub(super) fn form_problems(&self) -> Vec<String> {
        let mut problems = of_source(&self.source);
        if !is_line(&self.change) || !is_line(&self.remedy) {
            problems.push(NOT_A_LINE.to_owned());
        }
        problems
    }
}

string_enum! {
    /// The Windows nodes that a change affects.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
    pub enum AffectedNodes {
        /// Every one.
        #[serde(rename = "all")]
        All = "all",
        /// Those with containerd 1.x.
        #[serde(rename = "containerd-1")]
        Containerd1 = "containerd-1",
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    fn messages(platform: Option<NodePlatform>, build: u32) -> Vec<String> {
        let dates = Knowledge::built_in().support_dates(platform, Build::new(build));
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
        let knowledge = Knowledge::built_in();
        let of_aks = knowledge
            .support_of(NodePlatform::Aks, Build::new(20348))
            .unwrap();
        assert_eq!((of_aks.first_minor, of_aks.last_minor), (None, Some(36)));
        let of_rancher = knowledge
            .support_of(NodePlatform::Rancher, Build::new(20348))
            .unwrap();
        assert_eq!((of_rancher.last_minor, of_rancher.ends), (None, None));
        assert_eq!(
            knowledge.support_of(NodePlatform::Rancher, Build::new(26100)),
            None
        );
        let of_gke = knowledge
            .support_of(NodePlatform::Gke, Build::new(19042))
            .unwrap();
        assert_eq!(of_gke.ends, Some(date(2022, 8, 9)));
    }

    #[test]
    fn an_end_is_near_from_180_days_before() {
        let dates = Knowledge::built_in().support_dates(Some(NodePlatform::Aks), Build::new(25398));
        let end = &dates[0];
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
