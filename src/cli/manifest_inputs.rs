//! The inputs of the commands for authors (`check`, `fix`): the arguments, which configuration applies to which paths, and
//! the manifests that they name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use jiff::civil::Date;

use super::cluster::{ClusterArgs, ClusterConfigArgs};
use super::knowledge::KnowledgeArgs;
use super::options::{NamespaceArgs, PathArgs, PolicyArgs, SelectorArgs, date, glob, nearest, os};
use crate::check::files::{Excludes, policies, read, read_except};
use crate::check::{
    Baseline, CheckConfig, CheckInput, CheckSettings, Checked, Manifests, Scope, SourceRole, StatedSystems,
    UnreadableInput, find_config, note_policies, settings,
};
use crate::engine::policy_set::PolicySet;
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::Policy;
use crate::model::objects::object::Object;
use crate::model::syntax::text::list;
use crate::model::windows::os::Os;
use crate::process::today;

/// Reads files, folders and standard input (`-`) that describe a cluster.
///
/// # Errors
/// If standard input is empty: the command before this one has probably failed.
pub(super) fn read_all<'p>(paths: impl IntoIterator<Item = &'p PathBuf>) -> anyhow::Result<Manifests> {
    let mut manifests = Manifests::new(settings());
    for path in paths {
        let before = (manifests.len(), manifests.errors().len());
        read(path, &mut manifests);
        if path.as_os_str() == "-" && before == (manifests.len(), manifests.errors().len()) {
            bail!("there is nothing on standard input; did the command before this one fail?");
        }
    }
    Ok(manifests)
}

/// Which manifests, and how they are evaluated.
#[derive(Args, Debug)]
pub(super) struct ManifestArgs {
    #[command(flatten)]
    pub paths: PathArgs,
    /// Exclude files and folders by path, by the part of it below the folder, or by name; * matches anything.
    /// Repeatable
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    exclude: Vec<String>,
    /// Use this configuration file for all paths
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Use no configuration file
    #[arg(long, conflicts_with = "config")]
    no_config: bool,
    /// The operating system of pods that do not say which one they are for; every pod that does not select it is reported
    #[arg(long, value_name = "OS", value_parser = os())]
    os: Option<Os>,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    namespaces: NamespaceArgs,
    #[command(flatten)]
    selector: SelectorArgs,
    /// The day to check for, as in 2026-12-31; unset: today in UTC
    #[arg(long, value_name = "DATE", value_parser = date)]
    today: Option<Date>,
    #[command(flatten)]
    cluster_config: ClusterConfigArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    knowledge: KnowledgeArgs,
}

/// How a command reads manifests.
pub(super) struct ReadOptions {
    /// The command, for notes that print one.
    pub command: &'static str,
    /// Whether the texts are kept.
    pub keep_text: bool,
    /// The role of what the user named.
    pub role: SourceRole,
    /// Whether a file is read once, also if several names lead to it.
    pub once: bool,
    /// Namespaces that the webhooks exclude.
    pub excluded: Vec<String>,
    pub baseline: Option<Arc<Baseline>>,
    /// Standard input, if it was read already.
    pub stdin: Option<Vec<u8>>,
}

/// The inputs with the same configuration: they are evaluated together, and apart from the others.
pub(super) struct ManifestGroup {
    pub file: Option<PathBuf>,
    pub config: CheckConfig,
    pub manifests: Manifests,
    /// The facts of the arguments, the configuration and the policy file; the manifests add theirs.
    pub facts: Facts,
    pub policies: PolicySet,
}

/// The paths of a group, and their configuration.
#[derive(Default)]
struct GroupPaths {
    file: Option<PathBuf>,
    config: CheckConfig,
    paths: Vec<PathBuf>,
}

impl ManifestArgs {
    /// Reads all inputs, in the order of the arguments.
    ///
    /// # Errors
    /// If a configuration or a policy cannot be used, or no path is named.
    pub fn read(&self, mut options: ReadOptions) -> anyhow::Result<Vec<ManifestGroup>> {
        let groups = self.group_paths(&options)?;
        (groups.into_iter())
            .map(|group| self.read_group(&mut options, group))
            .collect()
    }

    /// Whether standard input is named.
    pub fn has_stdin(&self) -> bool {
        self.paths.all().any(|path| is_stdin(path))
    }

    /// Whether the arguments select an object.
    pub fn selects(&self, checked: &Checked<'_>) -> bool {
        self.selects_by(&checked.namespace, || checked.labels())
    }

    /// Whether the arguments select an object that is not evaluated yet.
    pub fn selects_object(&self, object: &Object<'_>) -> bool {
        self.selects_by(&object.namespace, || object.meta.labels.to_owned_map())
    }

    /// Whether objects are in the namespaces that the arguments name. `known`: the namespaces of all objects.
    ///
    /// # Errors
    /// None is in one of them, and others exist: the name is probably mistyped.
    pub fn require_namespaces(&self, known: impl FnOnce() -> BTreeSet<String>) -> anyhow::Result<()> {
        let named = &self.namespaces.namespace;
        if named.is_empty() {
            return Ok(());
        }
        let known = known();
        let mut missing = named.iter().filter(|name| !known.contains(*name));
        match missing.next() {
            Some(missing) if !known.is_empty() => {
                let instead = match nearest(missing, known.iter().map(String::as_str)) {
                    Some(near) => format!("did you mean {near}?"),
                    None => format!("they are in {}", list(&known, 10)),
                };
                bail!("no object with pods is in the namespace {missing} (--namespace); {instead}")
            }
            _ => Ok(()),
        }
    }

    /// The labels are read only if the arguments select by them.
    fn selects_by(&self, namespace: &str, labels: impl FnOnce() -> BTreeMap<String, String>) -> bool {
        self.namespaces.selects(namespace) && self.selector.selects_by(labels)
    }

    fn read_group(&self, options: &mut ReadOptions, group: GroupPaths) -> anyhow::Result<ManifestGroup> {
        let GroupPaths { file, config, paths } = group;
        let policy = self.policy.policy.as_ref().or(config.policy.as_ref());
        let of_file = policies(policy.map(PathBuf::as_path), Policy::standalone())?;
        let kubernetes = config
            .kubernetes_version
            .map_or(Facts::KUBERNETES, |version| version.0);
        let mut facts = self
            .cluster
            .facts_or(kubernetes, self.today.unwrap_or_else(today));
        self.knowledge.apply(&mut facts);
        of_file.declare(&mut facts);
        let stated = match self.cluster_config.load()? {
            Some(stated) => stated.config,
            None => Arc::new(config.cluster_config()),
        };
        facts.set_config(Arc::clone(&stated));
        let named = file.as_ref().map(|file| file.display().to_string());
        let mut manifests = Manifests::new(CheckSettings {
            keep_text: options.keep_text,
            read_once: options.once,
            command: Some(options.command),
            scope: self.scope(options, &config, file.as_deref()),
            pod_templates: stated.pod_templates.clone(),
            baseline: options.baseline.clone(),
            for_admission: false,
            rule_actions: named.map(|name| (name, config.rule_ids())),
            ..settings()
        });
        for path in &config.facts {
            read_path(
                path,
                &Excludes::default(),
                SourceRole::Facts,
                None,
                &mut manifests,
            );
        }
        let excludes = self.excludes(&config, file.as_deref());
        for path in &paths {
            let stdin = is_stdin(path).then(|| options.stdin.take()).flatten();
            read_path(path, &excludes, options.role, stdin, &mut manifests);
        }
        note_policies(&mut manifests, options.command, policy.map(PathBuf::as_path));
        let policies = of_file.set.with(|policy| config.change(policy));
        Ok(ManifestGroup {
            file,
            config,
            manifests,
            facts,
            policies,
        })
    }

    /// What the arguments and a configuration file state about objects.
    fn scope(&self, options: &ReadOptions, config: &CheckConfig, file: Option<&Path>) -> Scope {
        Scope {
            // As in kubectl apply -n: the namespace of objects that name none.
            namespace: self.namespaces.namespace.first().cloned(),
            excluded: options.excluded.clone(),
            systems: StatedSystems {
                all: self.os,
                by_path: (config.os.iter())
                    .map(|(pattern, os)| (pattern.clone(), os.os()))
                    .collect(),
                base: file.map(|file| folder_of(file).to_owned()),
            },
        }
    }

    /// The files that are not read: those of the arguments, otherwise those of a configuration file.
    fn excludes<'e>(&'e self, config: &'e CheckConfig, file: Option<&'e Path>) -> Excludes<'e> {
        if self.exclude.is_empty() {
            Excludes {
                patterns: &config.exclude,
                base: file.map(folder_of),
            }
        } else {
            Excludes {
                patterns: &self.exclude,
                base: None,
            }
        }
    }

    /// The paths of the arguments by their configuration file; without such paths, those of the configuration.
    fn group_paths(&self, options: &ReadOptions) -> anyhow::Result<Vec<GroupPaths>> {
        // Other paths next to a standard input that was read already only describe the cluster for it.
        let is_about_stdin = options.stdin.is_some();
        let file_of = |path: &Path| match &self.config {
            Some(file) => Some(file.clone()),
            None if self.no_config => None,
            None if is_about_stdin => find_config(Path::new("-")),
            None => find_config(path),
        };
        let read = |file: Option<&PathBuf>| file.map(|file| CheckConfig::read(file)).transpose();
        if self.paths.is_empty() {
            let file = file_of(Path::new("."));
            let config = read(file.as_ref())?.unwrap_or_default();
            if let (Some(file), true) = (&file, config.paths.is_empty()) {
                bail!(
                    "nothing to read: name files or folders, or - for standard input, or list paths in {}",
                    file.display()
                );
            }
            if file.is_none() {
                self.paths.required()?;
            }
            let paths = config.paths.clone();
            return Ok(vec![GroupPaths { file, config, paths }]);
        }
        let mut groups: Vec<GroupPaths> = Vec::new();
        for path in self.paths.all() {
            let file = file_of(path);
            if let Some(group) = groups.iter_mut().find(|group| group.file == file) {
                group.paths.push(path.clone());
                continue;
            }
            let config = read(file.as_ref())?.unwrap_or_default();
            groups.push(GroupPaths {
                file,
                config,
                paths: vec![path.clone()],
            });
        }
        Ok(groups)
    }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The folder of a file; the current folder is `.`.
fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Reads a path; an empty folder and empty standard input are errors. `stdin`: standard input, if it was read already; it
/// may be empty.
fn read_path(
    path: &Path,
    excludes: &Excludes<'_>,
    role: SourceRole,
    stdin: Option<Vec<u8>>,
    manifests: &mut Manifests,
) {
    if let Some(bytes) = stdin {
        let source = path.display().to_string();
        manifests.add_as(role, CheckInput { source, bytes });
        return;
    }
    let (objects, errors) = (manifests.len(), manifests.errors().len());
    let texts = read_except(path, excludes, role, manifests);
    let empty = if texts == 0 && path.is_dir() {
        "there is no .yaml, .yml or .json file in this folder"
    } else if is_stdin(path) && (objects, errors) == (manifests.len(), manifests.errors().len()) {
        "there is nothing in it; did the command before it fail?"
    } else {
        return;
    };
    manifests.add_error(UnreadableInput::of_file(path, empty));
}
