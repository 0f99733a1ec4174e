//! Parses the target build of an upgrade from the forms that people write.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use crate::model::windows::build::{Build, RELEASES, Release};

/// A text that does not name a Windows build with container support.
#[derive(thiserror::Error, Debug, PartialEq, Eq)]
#[error("{text:?} is not a Windows release; write one of {known}, or a build as in 10.0.26100", known = known())]
pub struct NoRelease {
    text: String,
}

fn known() -> String {
    let names: Vec<&str> = RELEASES.iter().map(|release| release.name).collect();
    names.join(", ")
}

/// A Windows build, with its release.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, JsonSchema)]
#[serde(into = "WrittenBuild")]
pub struct TargetBuild(#[schemars(with = "WrittenBuild")] pub Build);

impl TargetBuild {
    /// Parses `ltsc2025`, `20H2`, `10.0.26100`, `26100`.
    ///
    /// # Errors
    /// If the text names neither a release nor a build since the first with container support.
    pub fn parse(text: &str) -> Result<Self, NoRelease> {
        let named = |release: &&Release| {
            release.name.eq_ignore_ascii_case(text)
                || release.tags.iter().any(|tag| tag.eq_ignore_ascii_case(text))
        };
        if let Some(release) = RELEASES.iter().find(named) {
            return Ok(TargetBuild(release.build));
        }
        let spelled = if text.starts_with("10.0.") {
            Build::parse_label(text)
        } else {
            Build::parse_label(&format!("10.0.{text}"))
        };
        let first = RELEASES
            .first()
            .map_or(u32::MAX, |release| release.build.number());
        spelled
            .filter(|build| build.number() >= first)
            .map(TargetBuild)
            .ok_or_else(|| NoRelease {
                text: text.to_owned(),
            })
    }
}

impl fmt::Display for TargetBuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.with_product())
    }
}

/// A Windows build.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Build")]
struct WrittenBuild {
    /// The build, as in `10.0.20348`.
    build: String,
    /// Its short name, as in `ltsc2022`; null if Transom does not know the build.
    release: Option<&'static str>,
    /// The product, as in `Windows Server 2022`; null if Transom does not know the build.
    product: Option<&'static str>,
}

impl From<TargetBuild> for WrittenBuild {
    fn from(TargetBuild(build): TargetBuild) -> Self {
        let release = build.release();
        WrittenBuild {
            build: build.to_string(),
            release: release.map(|release| release.name),
            product: release.map(|release| release.product),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_and_builds_are_read_as_people_write_them() {
        for (text, build) in [
            ("ltsc2025", 26100),
            ("LTSC2022", 20348),
            ("1809", 17763),
            ("20h2", 19042),
            ("23H2", 25398),
            ("26100", 26100),
            ("10.0.26100", 26100),
            ("10.0.26200", 26200),
        ] {
            assert_eq!(
                TargetBuild::parse(text),
                Ok(TargetBuild(Build::new(build))),
                "{text}"
            );
        }
        for text in [
            "",
            "2025",
            "10240",
            "10.0.26100.1",
            "windows",
            "10.0.10240",
            "026100",
        ] {
            let error = TargetBuild::parse(text).unwrap_err().to_string();
            assert!(
                error.contains("ltsc2016, 1709") && error.contains("ltsc2025"),
                "{error}"
            );
        }
    }
}
