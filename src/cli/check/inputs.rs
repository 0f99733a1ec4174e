//! The inputs of `transom check`: which configuration applies to which paths, and the manifests that they name.

use std::path::{Path, PathBuf};

use anyhow::bail;

use super::CheckArgs;
use crate::check::files::{Excludes, policies, read_except};
use crate::check::{
    Baseline, CheckConfig, CheckNote, ConfigFailOn, Manifests, Scope, SourceRole, UnreadableInput,
    find_config,
};
use crate::cli::options::FailOn;
use crate::engine::policy_set::PolicySet;
use crate::model::facts::Facts;
use crate::model::policy::{ImageEvidence, Policy};
use crate::process::today;
use crate::registration::names::non_empty_items;

/// The inputs with the same configuration file: they are checked together, and apart from the others.
pub(super) struct CheckGroup {
    /// The configuration file.
    pub config: Option<PathBuf>,
    pub manifests: Manifests,
    pub facts: Facts,
    pub policies: PolicySet,
    pub fail_on: FailOn,
    /// Whether its images are looked up.
    pub asks_registries: bool,
    /// Notes about images that are not known.
    pub image_notes: Vec<CheckNote>,
}

/// The paths of a group, and their configuration.
struct GroupPaths {
    file: Option<PathBuf>,
    config: CheckConfig,
    paths: Vec<PathBuf>,
}

impl CheckGroup {
    /// Reads all inputs, in the order of the arguments.
    ///
    /// # Errors
    /// If a configuration, a policy or the baseline cannot be used, or no path is named.
    pub fn load(args: &CheckArgs, keep_text: bool) -> anyhow::Result<Vec<CheckGroup>> {
        let groups = group_paths(args)?;
        groups
            .into_iter()
            .map(|group| CheckGroup::read(args, keep_text, group))
            .collect()
    }

    /// Collects the facts of the cluster from the objects; before, the images have been looked up.
    pub fn learn(&mut self) {
        self.manifests.learn(&mut self.facts, &self.policies);
    }

    fn read(args: &CheckArgs, keep_text: bool, group: GroupPaths) -> anyhow::Result<CheckGroup> {
        let GroupPaths { file, config, paths } = group;
        let policy = args.policy.policy.as_ref().or(config.policy.as_ref());
        let of_file = policies(policy.map(PathBuf::as_path), Policy::standalone())?;
        let kubernetes = config
            .kubernetes_version
            .map_or(Facts::KUBERNETES, |version| version.0);
        let today = args.today.unwrap_or_else(today);
        let mut facts = args.cluster.facts_or(kubernetes, today);
        of_file.declare(&mut facts);
        let baseline = args.baseline.as_deref().map(Baseline::read).transpose()?;
        let mut manifests = Manifests::new(keep_text).with_baseline(baseline).within(Scope {
            // As in kubectl apply -n: the namespace of objects that name none.
            namespace: args.namespaces.namespace.first().cloned(),
            excluded: non_empty_items(args.excluded.exclude_namespace.clone()).collect(),
        });
        let added = if args.pod_template.is_empty() {
            config.configured_kinds()
        } else {
            args.pod_template.clone()
        };
        manifests = manifests.with_pod_templates(added);
        for path in &config.facts {
            read_path(path, &Excludes::default(), SourceRole::Facts, &mut manifests);
        }
        let excludes = if args.exclude.is_empty() {
            Excludes {
                patterns: &config.exclude,
                base: file.as_deref().map(folder_of),
            }
        } else {
            Excludes {
                patterns: &args.exclude,
                base: None,
            }
        };
        let role = if args.skip_non_kubernetes {
            SourceRole::Found
        } else {
            SourceRole::Named
        };
        for path in &paths {
            read_path(path, &excludes, role, &mut manifests);
        }
        let among_the_inputs = manifests.policies(policy.is_none());
        let mut policies = of_file.set;
        if policy.is_none() {
            policies = PolicySet::new(among_the_inputs, Policy::standalone());
        }
        let asks_registries = args.registry || config.registry;
        let policies = policies.with(|policy| {
            config.change(policy);
            if asks_registries && policy.image_evidence == ImageEvidence::Names {
                policy.image_evidence = ImageEvidence::Registry;
            }
        });
        manifests.add_policies(&policies);
        let configured = config.fail_on.map(|fail_on| match fail_on {
            ConfigFailOn::Never => FailOn::Never,
            ConfigFailOn::Deny => FailOn::Deny,
            ConfigFailOn::Error => FailOn::Error,
            ConfigFailOn::Warning => FailOn::Warning,
            ConfigFailOn::Advice => FailOn::Advice,
        });
        Ok(CheckGroup {
            config: file,
            manifests,
            facts,
            policies,
            fail_on: args.fail_on.or(configured).unwrap_or(FailOn::Deny),
            asks_registries,
            image_notes: Vec::new(),
        })
    }
}

/// The paths of the arguments by their configuration file; without such paths, those of the configuration.
fn group_paths(args: &CheckArgs) -> anyhow::Result<Vec<GroupPaths>> {
    let file_of = |path: &Path| match &args.config {
        Some(file) => Some(file.clone()),
        None if args.no_config => None,
        None => find_config(path),
    };
    if args.paths.is_empty() {
        let file = file_of(Path::new("."));
        let config = file
            .as_deref()
            .map(CheckConfig::read)
            .transpose()?
            .unwrap_or_default();
        if let (Some(file), true) = (&file, config.paths.is_empty()) {
            bail!(
                "nothing to read: name files or folders, or - for standard input, or list paths in {}",
                file.display()
            );
        }
        if file.is_none() {
            args.paths.required()?;
        }
        let paths = config.paths.clone();
        return Ok(vec![GroupPaths { file, config, paths }]);
    }
    let mut groups: Vec<GroupPaths> = Vec::new();
    for path in args.paths.all() {
        let file = file_of(path);
        if let Some(group) = groups.iter_mut().find(|group| group.file == file) {
            group.paths.push(path.clone());
            continue;
        }
        let config = file
            .as_deref()
            .map(CheckConfig::read)
            .transpose()?
            .unwrap_or_default();
        groups.push(GroupPaths {
            file,
            config,
            paths: vec![path.clone()],
        });
    }
    Ok(groups)
}

/// The folder of a file; the current folder is `.`.
fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Reads a path; an empty folder and empty standard input are errors.
fn read_path(path: &Path, excludes: &Excludes<'_>, role: SourceRole, manifests: &mut Manifests) {
    let (objects, errors) = (manifests.len(), manifests.errors().len());
    let texts = read_except(path, excludes, role, manifests);
    let empty = if texts == 0 && path.is_dir() {
        "there is no .yaml, .yml or .json file in this folder"
    } else if path.as_os_str() == "-" && (objects, errors) == (manifests.len(), manifests.errors().len()) {
        "there is nothing in it; did the command before it fail?"
    } else {
        return;
    };
    manifests.add_error(UnreadableInput {
        source: path.display().to_string(),
        line: 0,
        message: empty.to_owned(),
    });
}
