//! What is known of faults of Windows nodes, of the ends of their support, and of what vendors publish for them: rows of data. The rows of this program are
//! compiled in; a file adds rows or supersedes some.

mod injectors;
mod known_faults;
mod platform_support;
mod published_images;
mod storage_drivers;

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::injectors::{
    Injector, InjectorOnWindows, InjectorSign, SignPlace, SignValues, is_namespace_sign,
};
pub use self::known_faults::{
    Affected, AffectedBuild, FaultExamples, FaultField, FaultOfNodes, FaultsById, FaultyComponent,
    KnownFault, MachineTypes, NodeFault, NodeVersions, Version,
};
pub use self::platform_support::{
    AffectedNodes, ContainerdEnd, MinorChange, NodePlatform, PlatformSupport, SupportDate, SupportEvent,
    product,
};
pub use self::published_images::{PublishedImages, PublishedTag};
pub use self::storage_drivers::{DriverOnWindows, DriverVolumes, StorageDriver, VolumeOfDriver};

/// The name and the version of the form of a file.
pub const SCHEMA: &str = "transom.dev/knowledge/v1";

/// The rows of this program.
const BUILT_IN: &str = include_str!("knowledge/built_in.json");

/// From how many days on the newest rows are old.
const OLD: i32 = 183;

/// The problem of a row with a text that no output can show.
const NOT_A_LINE: &str = "a text is empty, has a control character, or ends with a full stop";

/// Whether it is one line of text without a full stop at its end.
fn is_line(text: &str) -> bool {
    !text.is_empty() && !text.ends_with('.') && !text.contains(char::is_control)
}

/// The problem of the source of a row.
fn of_source(source: &str) -> Vec<String> {
    if source.starts_with("https://") {
        return Vec::new();
    }
    vec!["its source does not begin with https://".to_owned()]
}

/// A row of knowledge.
trait Row {
    fn id(&self) -> &str;

    /// When it was last compared with its sources.
    fn date(&self) -> Date;

    /// What is wrong with its form: lower case, no full stop.
    fn problems(&self) -> Vec<String>;
}

/// Types with `id`, `date` and a function for their problems are rows.
macro_rules! rows {
    ($($row:ty),*) => {$(
        impl Row for $row {
            fn id(&self) -> &str {
                &self.id
            }

            fn date(&self) -> Date {
                self.date
            }

            fn problems(&self) -> Vec<String> {
                self.form_problems()
            }
        }
    )*};
}

rows!(
    KnownFault,
    PlatformSupport,
    MinorChange,
    ContainerdEnd,
    StorageDriver,
    Injector,
    PublishedImages
);

/// Rows as a file contains them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(title = "Known faults and dates of support (--knowledge)")]
pub struct KnowledgeFile {
    /// The name and the version of this form.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// Who maintains the rows, as in `Transom 0.1.0`.
    pub source: String,
    /// The day of the newest change.
    #[schemars(with = "String", extend("format" = "date"))]
    pub date: Date,
    /// Known faults of Windows nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<KnownFault>,
    /// Which Windows build each platform supports, and until when.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub support: Vec<PlatformSupport>,
    /// What minor releases of Kubernetes change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<MinorChange>,
    /// The ends of maintenance of containerd 1.x.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub containerd: Vec<ContainerdEnd>,
    /// What storage drivers support on Windows nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drivers: Vec<StorageDriver>,
    /// What adds containers to pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub injectors: Vec<Injector>,
    /// The Windows images that Microsoft publishes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<PublishedImages>,
}

/// Why a file cannot be used.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum KnowledgeError {
    /// It has another schema: that of a newer Transom, or none of Transom.
    #[error(
        "its schema is {0:?}, and this Transom reads {SCHEMA:?}; write that, or upgrade Transom if the file is for a newer one"
    )]
    Schema(String),
    /// It does not have the form of the schema.
    #[error("{0}")]
    Form(String),
    /// Rows that are wrong.
    #[error("{}", .0.join("; "))]
    Rows(Vec<String>),
}

impl KnowledgeFile {
    /// Reads the JSON of a file.
    ///
    /// # Errors
    /// If it has another schema or another form, or if a row is wrong.
    pub fn parse(json: &str) -> Result<Self, KnowledgeError> {
        #[derive(Deserialize)]
        struct Head {
            #[serde(default)]
            schema: String,
        }
        let form = |error: serde_json::Error| KnowledgeError::Form(error.to_string());
        // First, because a file of another schema may have any fields.
        let Head { schema } = serde_json::from_str(json).map_err(form)?;
        if schema != SCHEMA {
            return Err(KnowledgeError::Schema(schema));
        }
        let mut reader = serde_json::Deserializer::from_str(json);
        let file: KnowledgeFile = serde_path_to_error::deserialize(&mut reader)
            .map_err(|error| KnowledgeError::Form(error.to_string()))?;
        let problems = file.problems();
        if problems.is_empty() {
            Ok(file)
        } else {
            Err(KnowledgeError::Rows(problems))
        }
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !is_line(&self.source) {
            problems.push(format!("source: {NOT_A_LINE}"));
        }
        let mut ids = BTreeSet::new();
        problems.extend(problems_of(&self.faults, &mut ids));
        problems.extend(problems_of(&self.support, &mut ids));
        problems.extend(problems_of(&self.changes, &mut ids));
        problems.extend(problems_of(&self.containerd, &mut ids));
        problems.extend(problems_of(&self.drivers, &mut ids));
        problems.extend(problems_of(&self.injectors, &mut ids));
        problems.extend(problems_of(&self.images, &mut ids));
        problems
    }

    /// How many rows it has.
    pub fn rows(&self) -> usize {
        let of_nodes = self.faults.len() + self.support.len() + self.changes.len() + self.containerd.len();
        of_nodes + self.drivers.len() + self.injectors.len() + self.images.len()
    }
}

/// The problems of rows, each with the id of its row.
fn problems_of<'r, R: Row>(rows: &'r [R], ids: &mut BTreeSet<&'r str>) -> Vec<String> {
    let mut problems = Vec::new();
    for row in rows {
        let id = row.id();
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
        if id.is_empty() || !id.chars().all(is_plain) {
            problems.push(format!(
                "{id:?} is not an id: use lower-case letters, digits, - and ."
            ));
        }
        if !ids.insert(id) {
            problems.push(format!("two rows have the id {id}"));
        }
        problems.extend(
            row.problems()
                .into_iter()
                .map(|problem| format!("{id}: {problem}")),
        );
    }
    problems
}

/// Where rows come from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KnowledgeSource {
    /// Who maintains the rows.
    pub source: String,
    /// The day of their newest change.
    #[schemars(with = "String", extend("format" = "date"))]
    pub date: Date,
    /// How many of the used rows are from there.
    pub rows: usize,
}

/// Which rows a report uses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KnowledgeReport {
    /// The rows of this program, then those of a file.
    pub sources: Vec<KnowledgeSource>,
    /// What to do if the rows are older than six months; otherwise absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl KnowledgeReport {
    /// The sources, as in `known faults: Transom of 2026-11-28 (61 rows)`, and the advice.
    pub fn lines(&self) -> Vec<String> {
        let of = |from: &KnowledgeSource| format!("{} of {} ({} rows)", from.source, from.date, from.rows);
        let sources: Vec<String> = self.sources.iter().map(of).collect();
        let advice = self.advice.iter().map(|advice| format!("advice: {advice}"));
        let first = format!("known faults and dates of support: {}", sources.join(", "));
        [first].into_iter().chain(advice).collect()
    }
}

/// The rows that are used.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Knowledge {
    /// The rows of this program, then those of a file.
    pub sources: Vec<KnowledgeSource>,
    /// Known faults of Windows nodes.
    pub faults: Vec<KnownFault>,
    /// Which Windows build each platform supports, and until when.
    pub support: Vec<PlatformSupport>,
    /// What minor releases of Kubernetes change.
    pub changes: Vec<MinorChange>,
    /// The ends of maintenance of containerd 1.x.
    pub containerd: Vec<ContainerdEnd>,
    /// What storage drivers support on Windows nodes.
    pub drivers: Vec<StorageDriver>,
    /// What adds containers to pods.
    pub injectors: Vec<Injector>,
    /// The Windows images that Microsoft publishes.
    pub images: Vec<PublishedImages>,
}

impl Knowledge {
    /// The rows of this program.
    pub fn built_in() -> Arc<Knowledge> {
        static ROWS: LazyLock<Arc<Knowledge>> = LazyLock::new(|| {
            // A test reads them, and checks their rows.
            let file = serde_json::from_str(BUILT_IN).map(|file| Knowledge::default().with(file));
            Arc::new(file.unwrap_or_default())
        });
        Arc::clone(&ROWS)
    }

    /// These rows with those of a file: a row with a new id is added, and one with a newer date supersedes that of the same id.
    #[must_use]
    pub fn with(&self, file: KnowledgeFile) -> Knowledge {
        let mut all = self.clone();
        let used = merge(&mut all.faults, file.faults)
            + merge(&mut all.support, file.support)
            + merge(&mut all.changes, file.changes)
            + merge(&mut all.containerd, file.containerd)
            + merge(&mut all.drivers, file.drivers)
            + merge(&mut all.injectors, file.injectors)
            + merge(&mut all.images, file.images);
        let rows = all.rows() - used;
        if let Some(own) = all.sources.first_mut() {
            own.rows = rows;
        }
        let (source, date) = (file.source, file.date);
        all.sources.push(KnowledgeSource {
            source,
            date,
            rows: used,
        });
        all
    }

    fn rows(&self) -> usize {
        let of_nodes = self.faults.len() + self.support.len() + self.changes.len() + self.containerd.len();
        of_nodes + self.drivers.len() + self.injectors.len() + self.images.len()
    }

    /// The day of the newest change.
    pub fn date(&self) -> Option<Date> {
        self.sources.iter().map(|source| source.date).max()
    }

    /// Advice if the rows are older than six months: lower case, no full stop.
    pub fn advice(&self, today: Date) -> Option<String> {
        let date = self.date()?;
        ((today - date).get_days() > OLD).then(|| {
            format!(
                "the known faults and dates of support are of {date}, so newer ones are missing: upgrade Transom, or name a \
                 newer file with --knowledge"
            )
        })
    }

    /// The rows as a file contains them.
    pub fn to_file(&self) -> KnowledgeFile {
        let sources: Vec<&str> = self.sources.iter().map(|source| source.source.as_str()).collect();
        KnowledgeFile {
            schema: SCHEMA.to_owned(),
            source: sources.join(", "),
            date: self.date().unwrap_or(Date::ZERO),
            faults: self.faults.clone(),
            support: self.support.clone(),
            changes: self.changes.clone(),
            containerd: self.containerd.clone(),
            drivers: self.drivers.clone(),
            injectors: self.injectors.clone(),
            images: self.images.clone(),
        }
    }

    /// What a report of a day says of the rows.
    pub fn report(&self, today: Date) -> KnowledgeReport {
        KnowledgeReport {
            sources: self.sources.clone(),
            advice: self.advice(today),
        }
    }
}

/// Adds rows, and replaces those of the same id if theirs are newer; returns how many are used.
fn merge<R: Row>(rows: &mut Vec<R>, added: Vec<R>) -> usize {
    let mut used = 0;
    for row in added {
        match rows.iter_mut().find(|known| known.id() == row.id()) {
            Some(known) if row.date() > known.date() => *known = row,
            Some(_) => continue,
            None => rows.push(row),
        }
        used += 1;
    }
    used
}

#[cfg(test)]
mod tests;
