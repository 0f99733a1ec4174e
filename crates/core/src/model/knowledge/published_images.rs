//! The Windows images that Microsoft publishes: which tags exist, and for which builds.

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Knowledge, NOT_A_LINE, is_line, of_source};
use crate::model::windows::build::{Build, Compatibility, ContainerIsolation, Release, compatibility};
use crate::model::windows::image::ImageRef;

/// The place of the word for a base image in the pattern of a tag.
const BASE: &str = "{base}";
/// The place of a number.
const NUMBER: &str = "{number}";

/// Tags of Microsoft's repositories with Windows images.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PublishedImages {
    /// Its id, as in `dotnet-framework-4.8`.
    pub id: String,
    /// When the row was last compared with its source. A row with the same id and a newer date supersedes it.
    #[schemars(with = "String", extend("format" = "date"))]
    pub date: Date,
    /// The repositories of mcr.microsoft.com, as in `dotnet/framework/aspnet`.
    pub repositories: Vec<String>,
    /// The patterns of tags for one build: `{base}` stands for each of `bases`, `{number}` for digits.
    pub tags: Vec<String>,
    /// The words for the base images, as in `windowsservercore-ltsc2022`: the last part is that of a release.
    pub bases: Vec<String>,
    /// Tags with a variant for each of `bases`. Microsoft can change what they contain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<String>,
    /// The day by which Microsoft stopped building these tags, which can still be pulled; absent: they are built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date"))]
    pub last_build: Option<Date>,
    /// The id of the row whose images run the same applications.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successor: Option<String>,
    /// The page or file that documents it.
    pub source: String,
}

/// A tag that exists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublishedTag {
    pub image: String,
    pub build: Build,
    /// The day by which Microsoft stopped building it.
    pub last_build: Option<Date>,
}

impl PublishedImages {
    pub(super) fn form_problems(&self) -> Vec<String> {
        let mut problems = of_source(&self.source);
        let mut texts = self.repositories.iter().chain(&self.tags).chain(&self.shared);
        if !texts.all(|text| is_line(text)) {
            problems.push(NOT_A_LINE.to_owned());
        }
        if self.repositories.is_empty() || self.tags.iter().any(|tag| tag.matches(BASE).count() != 1) {
            problems.push("it needs repositories, and each tag one {base}".to_owned());
        }
        for base in self.bases.iter().filter(|base| build_of(base).is_none()) {
            problems.push(format!("{base} does not end with a release of Windows"));
        }
        problems
    }

    fn has(&self, repository: &str) -> bool {
        self.repositories.iter().any(|known| known == repository)
    }

    /// The builds of its tags, ascending.
    fn builds(&self) -> Vec<Build> {
        let mut builds: Vec<Build> = self.bases.iter().filter_map(|base| build_of(base)).collect();
        builds.sort_unstable();
        builds
    }

    /// The tags without a number, for a kind of base image: of `windowsservercore-ltsc2022`, `windowsservercore`.
    fn tags_of_kind(&self, repository: &str, kind: &str) -> Vec<PublishedTag> {
        let Some(pattern) = self.tags.iter().find(|tag| !tag.contains(NUMBER)) else {
            return Vec::new();
        };
        let repository = if self.has(repository) {
            repository
        } else {
            self.repositories.first().map_or("", String::as_str)
        };
        let of_kind = self.bases.iter().filter(|base| kind_of(base) == kind);
        let tag = |base: &String| {
            Some(PublishedTag {
                image: format!("mcr.microsoft.com/{repository}:{}", pattern.replace(BASE, base)),
                build: build_of(base)?,
                last_build: self.last_build,
            })
        };
        of_kind.filter_map(tag).collect()
    }
}

/// The build of the release at the end of a word for a base image.
fn build_of(base: &str) -> Option<Build> {
    let release = base.rsplit('-').next()?;
    Release::from_tag(release).map(|release| release.build)
}

/// What comes before the release: `nanoserver`, `windowsservercore`, or nothing.
fn kind_of(base: &str) -> &str {
    base.rsplit_once('-').map_or("", |(kind, _)| kind)
}

/// Whether a tag has a pattern with this base image.
fn matches(pattern: &str, base: &str, tag: &str) -> bool {
    let pattern = pattern.replace(BASE, base);
    let mut parts = pattern.split(NUMBER);
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = tag.strip_prefix(first) else {
        return false;
    };
    for part in parts {
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let Some(after) = digits.strip_prefix(part).filter(|_| digits.len() < rest.len()) else {
            return false;
        };
        rest = after;
    }
    rest.is_empty()
}

/// The tag of an image of Microsoft's registry. A digest next to it determines what is pulled.
fn tag_of<'t>(image: &ImageRef<'t>) -> Option<&'t str> {
    let is_tag = image.is_on_mcr() && image.digest.is_none();
    is_tag.then(|| image.tag.unwrap_or("latest"))
}

impl Knowledge {
    /// The rows for a repository of Microsoft's registry.
    fn rows_of<'k>(&'k self, repository: &'k str) -> impl Iterator<Item = &'k PublishedImages> {
        self.images.iter().filter(move |row| row.has(repository))
    }

    /// Whether the rows list the tags of the repository of an image.
    pub fn lists(&self, image: &ImageRef<'_>) -> bool {
        image.is_on_mcr() && self.rows_of(image.repository).next().is_some()
    }

    /// The builds of an image whose tag names none, ascending: Microsoft publishes it for each of them.
    pub fn shared_builds(&self, image: &ImageRef<'_>) -> Option<Vec<Build>> {
        let tag = tag_of(image)?;
        let mut rows = self.rows_of(image.repository);
        let row = rows.find(|row| row.shared.iter().any(|shared| shared == tag))?;
        Some(row.builds())
    }

    /// The published tag that is this image, if Microsoft publishes it for one build.
    pub fn published(&self, image: &ImageRef<'_>) -> Option<PublishedTag> {
        let tag = tag_of(image)?;
        let of_row = |row: &PublishedImages| {
            let is = |base: &&String| row.tags.iter().any(|pattern| matches(pattern, base, tag));
            let base = row.bases.iter().find(is)?;
            Some(PublishedTag {
                image: format!("mcr.microsoft.com/{}:{tag}", image.repository),
                build: build_of(base)?,
                last_build: row.last_build,
            })
        };
        self.rows_of(image.repository).find_map(of_row)
    }

    /// The published image of the same application for a host: one that Microsoft builds before others, then the newest.
    pub fn published_for(
        &self,
        image: &ImageRef<'_>,
        host: Build,
        isolation: ContainerIsolation,
    ) -> Option<PublishedTag> {
        let runs = |tag: &PublishedTag| compatibility(tag.build, host, isolation) == Compatibility::Runs;
        // Of several, the first: those of the same pattern come before those that succeed them.
        let tags = self.published_like(image).into_iter().rev().filter(runs);
        tags.max_by_key(|tag| (tag.last_build.is_none(), tag.build))
    }

    /// The published tags of the same application as an image, on the same kind of base image: those of its pattern, and
    /// those of the rows that succeed it. Empty if the image is in no row.
    fn published_like(&self, image: &ImageRef<'_>) -> Vec<PublishedTag> {
        let Some(tag) = tag_of(image) else {
            return Vec::new();
        };
        let mut found: Vec<PublishedTag> = Vec::new();
        for row in self.rows_of(image.repository) {
            let Some((pattern, kind)) = row.place_of(tag) else {
                continue;
            };
            // The row that builds a pattern no longer differs from the one that does.
            let of_pattern = self
                .rows_of(image.repository)
                .filter(|row| row.tags.contains(pattern));
            let mut rows: Vec<&PublishedImages> = of_pattern.collect();
            let successors = row
                .successor
                .iter()
                .flat_map(|id| self.images.iter().filter(move |row| row.id == *id));
            rows.extend(successors);
            found.extend(
                rows.iter()
                    .flat_map(|row| row.tags_of_kind(image.repository, kind)),
            );
        }
        found
    }
}

impl PublishedImages {
    /// The pattern and the kind of base image of a tag; of a shared one, those of its first.
    fn place_of(&self, tag: &str) -> Option<(&String, &str)> {
        let of_base = |base: &'_ String| self.tags.iter().find(|pattern| matches(pattern, base, tag));
        let own = self
            .bases
            .iter()
            .find_map(|base| Some((of_base(base)?, kind_of(base))));
        let shared = || {
            self.shared.iter().find(|shared| *shared == tag)?;
            Some((self.tags.first()?, kind_of(self.bases.first()?)))
        };
        own.or_else(shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on<T>(text: &str, visit: impl FnOnce(&Knowledge, &ImageRef<'_>) -> T) -> T {
        visit(&Knowledge::built_in(), &ImageRef::parse(text).unwrap())
    }

    fn builds(text: &str) -> Option<Vec<u32>> {
        let known = on(text, super::super::Knowledge::shared_builds)?;
        Some(known.into_iter().map(Build::number).collect())
    }

    #[test]
    fn a_floating_tag_has_the_builds_that_microsoft_publishes_it_for() {
        for (image, expected) in [
            (
                "mcr.microsoft.com/dotnet/framework/aspnet:4.8",
                Some(vec![14393, 17763]),
            ),
            ("mcr.microsoft.com/dotnet/framework/sdk", Some(vec![14393, 17763])),
            (
                "MCR.microsoft.com/dotnet/framework/wcf:latest",
                Some(vec![14393, 17763]),
            ),
            (
                "mcr.microsoft.com/dotnet/framework/runtime:4.8.1",
                Some(vec![20348, 26100]),
            ),
            (
                "mcr.microsoft.com/dotnet/framework/runtime:3.5",
                Some(vec![14393, 17763, 20348]),
            ),
            ("mcr.microsoft.com/dotnet/aspnet:6.0", Some(vec![17763, 20348])),
            ("mcr.microsoft.com/dotnet/aspnet:8.0", None),
            (
                "mcr.microsoft.com/dotnet/framework/aspnet:4.8-windowsservercore-ltsc2019",
                None,
            ),
            ("corp.example/dotnet/framework/aspnet:4.8", None),
        ] {
            assert_eq!(builds(image), expected, "{image}");
        }
    }

    #[test]
    fn only_tags_that_exist_are_published() {
        for (image, is_published) in [
            (
                "mcr.microsoft.com/dotnet/framework/aspnet:4.8.1-windowsservercore-ltsc2025",
                true,
            ),
            (
                "mcr.microsoft.com/dotnet/framework/aspnet:4.8.1-20260714-windowsservercore-ltsc2025",
                true,
            ),
            (
                "mcr.microsoft.com/dotnet/framework/aspnet:4.8-windowsservercore-ltsc2022",
                true,
            ),
            (
                "mcr.microsoft.com/dotnet/framework/aspnet:4.8-windowsservercore-ltsc2025",
                false,
            ),
            (
                "mcr.microsoft.com/dotnet/framework/aspnet:4.8--windowsservercore-ltsc2019",
                false,
            ),
            ("mcr.microsoft.com/dotnet/aspnet:10.0-nanoserver-ltsc2025", true),
            ("mcr.microsoft.com/dotnet/aspnet:10.0.1-nanoserver-ltsc2022", true),
            ("mcr.microsoft.com/dotnet/aspnet:10.0-nanoserver-1809", false),
            ("mcr.microsoft.com/dotnet/aspnet:8.0-nanoserver-1809", true),
            ("mcr.microsoft.com/dotnet/aspnet:6.0-nanoserver-ltsc2025", false),
            ("mcr.microsoft.com/windows/servercore:ltsc2025", true),
            ("mcr.microsoft.com/windows/nanoserver:ltsc2025", true),
            ("mcr.microsoft.com/windows/server:ltsc2025", true),
            ("mcr.microsoft.com/windows:ltsc2025", false),
            ("mcr.microsoft.com/windows:ltsc2022", false),
            ("mcr.microsoft.com/windows:ltsc2019", true),
        ] {
            assert_eq!(
                on(image, super::super::Knowledge::published).is_some(),
                is_published,
                "{image}"
            );
        }
    }

    #[test]
    fn images_of_the_same_application_are_found_by_pattern_and_by_successor() {
        for (image, expected) in [
            (
                "mcr.microsoft.com/windows:1809",
                &[
                    "mcr.microsoft.com/windows/server:ltsc2022",
                    "mcr.microsoft.com/windows/server:ltsc2025",
                ][..],
            ),
            (
                "mcr.microsoft.com/dotnet/framework/wcf:4.8-20240109-windowsservercore-ltsc2019",
                &["mcr.microsoft.com/dotnet/framework/wcf:4.8.1-windowsservercore-ltsc2025"],
            ),
            (
                "mcr.microsoft.com/dotnet/aspnet:6.0-nanoserver-1809",
                &["mcr.microsoft.com/dotnet/aspnet:6.0-nanoserver-ltsc2022"],
            ),
            (
                "mcr.microsoft.com/dotnet/framework/sdk:4.8",
                &["mcr.microsoft.com/dotnet/framework/sdk:4.8.1-windowsservercore-ltsc2022"],
            ),
        ] {
            let tags = on(image, super::super::Knowledge::published_like);
            let names: Vec<&str> = tags.iter().map(|tag| &*tag.image).collect();
            for wanted in expected {
                assert!(names.contains(wanted), "{image}: {names:?}");
            }
        }
        let unknown = on("mcr.microsoft.com/businesscentral:1", |known, image| {
            known.published_like(image)
        });
        assert_eq!(unknown, []);
    }

    #[test]
    fn the_image_for_a_host_is_one_that_microsoft_builds_if_there_is_one() {
        let process = ContainerIsolation::Process;
        for (image, host, expected) in [
            (
                "dotnet/framework/aspnet:4.8-windowsservercore-ltsc2019",
                26100,
                "dotnet/framework/aspnet:4.8.1-windowsservercore-ltsc2025",
            ),
            (
                "dotnet/framework/aspnet:4.8",
                20348,
                "dotnet/framework/aspnet:4.8.1-windowsservercore-ltsc2022",
            ),
            (
                "dotnet/framework/runtime:4.7.2-windowsservercore-ltsc2019",
                20348,
                "dotnet/framework/runtime:4.8.1-windowsservercore-ltsc2022",
            ),
            (
                "dotnet/framework/runtime:3.5-windowsservercore-ltsc2019",
                20348,
                "dotnet/framework/runtime:3.5-windowsservercore-ltsc2022",
            ),
            (
                "dotnet/sdk:8.0-nanoserver-1809",
                26100,
                "dotnet/sdk:8.0-nanoserver-ltsc2025",
            ),
            (
                "dotnet/sdk:6.0-nanoserver-1809",
                26100,
                "dotnet/sdk:6.0-nanoserver-ltsc2022",
            ),
            ("dotnet/sdk:10.0-nanoserver-ltsc2022", 17763, ""),
            ("windows:ltsc2019", 26100, "windows/server:ltsc2025"),
            ("windows/nanoserver:1809", 20348, "windows/nanoserver:ltsc2022"),
            (
                "powershell:lts-7.2-nanoserver-1809",
                26100,
                "powershell:lts-7.2-nanoserver-ltsc2022",
            ),
        ] {
            let found = on(&format!("mcr.microsoft.com/{image}"), |known, image| {
                known.published_for(image, Build::new(host), process)
            });
            let found = found.map(|tag| tag.image).unwrap_or_default();
            assert_eq!(
                found.trim_start_matches("mcr.microsoft.com/"),
                expected,
                "{image}"
            );
        }
    }
}
