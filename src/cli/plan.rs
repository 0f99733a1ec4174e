//! `transom plan`: reads a cluster, or files, and says what an upgrade of its Windows nodes takes.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use jiff::Timestamp;

use super::block_on;
use super::cluster::ClusterArgs;
use crate::check::files::{policies, read_except};
use crate::check::{Manifests, Scope};
use crate::cluster::client::{KubeconfigArgs, NoCluster, own_namespace};
use crate::cluster::once;
use crate::cluster::snapshot::Snapshots;
use crate::cluster::survey::{AROUND, visit_list};
use crate::cluster::walk::{Met, walk};
use crate::engine::effective::PolicySet;
use crate::model::facts::Facts;
use crate::model::policy::Policy;
use crate::model::text::one_line;
use crate::model::workload::Kind;
use crate::plan::{Answer, Plan, Planner, Question, Target};
use crate::process::today;
use crate::registry::{Found, Registries};
use crate::render::{plan_text, write_json};

/// Plan an upgrade of Windows nodes: which workloads run on the new build, which do not, and why
///
/// Without a PATH it reads a cluster: nodes, RuntimeClasses, policies, workloads and pods, and it changes nothing. With one
/// it reads files as transom check does, such as a dump of kubectl get nodes,runtimeclasses,deployments,pods -A -o yaml. No
/// registry is asked without --ask-registries: images are known by their names, and tags for the new build are proposed, not
/// verified.
///
/// Exit status: 0 every workload on the pools that go can move as it is; 1 some cannot, or it is not known; 2 bad usage, or
/// input or lists that could not be read (the rest is still planned).
#[derive(Args, Debug)]
pub struct PlanArgs {
    /// Files and folders; - is standard input. Without any, the cluster is read
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The build to upgrade to: a release as in ltsc2025, or a build as in 10.0.26100
    #[arg(long, value_name = "RELEASE", value_parser = Target::parse)]
    to: Target,
    /// The pools that go, by name, release or build; may be repeated [default: every Windows pool of an older build]
    #[arg(long, value_name = "POOL", value_delimiter = ',')]
    from: Vec<String>,
    /// The new nodes may read the passwords of the group-managed service accounts: those block nothing
    #[arg(long)]
    gmsa_ready: bool,
    /// Ask the registries of the images, anonymously and over HTTPS, for the builds of images and for proposed tags. The
    /// registries see which images the cluster runs
    #[arg(long)]
    ask_registries: bool,
    /// How to print the plan
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// A file of WindowsPodPolicy objects; those of the cluster, or among the inputs, do not count then
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The name of the installation, as in transom generate webhooks --name
    #[arg(long, env = "TRANSOM_NAME", value_name = "NAME", default_value = "transom")]
    name: String,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    connect: KubeconfigArgs,
    /// Transom's own namespace, where it keeps what it remembers of pools. Without it: that of the pod, else
    /// transom-system
    #[arg(long, env = "TRANSOM_NAMESPACE", value_name = "NAME")]
    transom_namespace: Option<String>,
}

/// What is said to do where a right is missing.
const RIGHTS: &str = "docs/plan.md has the rights that it takes";

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
}

pub fn run(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    let (plan, errors) = if args.paths.is_empty() {
        block_on(of_cluster(args))?
    } else {
        of_files(args)?
    };
    for error in &errors {
        anstream::eprintln!("transom: {}", one_line(error));
    }
    let mut out = BufWriter::new(anstream::stdout().lock());
    match write(&plan, args.format, &mut out) {
        // The reader of our output has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written.context("cannot write the plan")?,
    }
    let all_move = plan.summary.can_move == plan.summary.affected;
    Ok(match (errors.is_empty(), all_move) {
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::from(1),
        (false, _) => ExitCode::from(2),
    })
}

fn write(plan: &Plan, format: Format, out: &mut dyn Write) -> io::Result<()> {
    match format {
        Format::Text => plan_text(plan, out)?,
        Format::Json => write_json(plan, out)?,
    }
    out.flush()
}

impl PlanArgs {
    fn question(&self) -> Question {
        Question {
            to: self.to.0,
            from: self.from.clone(),
            gmsa_ready: self.gmsa_ready,
        }
    }
}

/// The plan, and what could not be read.
type Planned = (Plan, Vec<String>);

fn of_files(args: &PlanArgs) -> anyhow::Result<Planned> {
    let of_file = policies(args.policy.as_deref(), Policy::standalone())?;
    let mut facts = args.cluster.facts(today());
    of_file.declare(&mut facts);
    let mut counting = of_file.set;
    let mut manifests = Manifests::new(false).within(Scope::default());
    for path in &args.paths {
        let before = (manifests.len(), manifests.errors().len());
        read_except(path, &[], &mut manifests);
        if path.as_os_str() == "-" && before == (manifests.len(), manifests.errors().len()) {
            bail!("there is nothing on standard input; did the command before this one fail?");
        }
    }
    let among_the_inputs = manifests.policies(args.policy.is_none());
    if args.policy.is_none() {
        counting = PolicySet::new(among_the_inputs, Policy::standalone());
    }
    manifests.learn(&mut facts, &counting);
    let mut planner = Planner::new(&facts, &counting, args.question());
    let mut unreadable = manifests.errors().to_vec();
    for pass in 0..Planner::PASSES {
        let errors = manifests.visit(|kind, json| {
            if Planner::pass(kind) == Some(pass) {
                planner.look(kind, json).map_err(|error| error.to_string())
            } else {
                Ok(())
            }
        });
        // What is no object at all is so in every pass.
        unreadable.extend(
            errors
                .into_iter()
                .filter(|error| pass == 0 || !error.message.contains("not a Kubernetes object")),
        );
    }
    let errors = unreadable.into_iter().map(|error| match error.line {
        0 => format!("{}: {}", error.source, error.message),
        line => format!("{}:{line}: {}", error.source, error.message),
    });
    Ok((block_on(planned(planner, args))?, errors.collect()))
}

async fn of_cluster(args: &PlanArgs) -> anyhow::Result<Planned> {
    let connected = args.connect.connect().await;
    let connected = connected.map_err(|error| match error.downcast_ref::<NoCluster>() {
        Some(none) => anyhow::anyhow!("{none}, or give files"),
        None => error,
    })?;
    let (client, namespace) = (
        &connected.client,
        own_namespace(args.transom_namespace.clone(), &connected),
    );
    let once = once::read(client, &namespace, &args.name)
        .await
        .map_err(anyhow::Error::msg)?;
    // Without Transom's own resources there are no policies of its, and that is all.
    let unread = once.unread.iter().filter(|part| !part.is_unknown);
    let mut errors: Vec<String> = unread
        // The planner reads these for itself.
        .filter(|part| !matches!(part.resource.as_str(), "nodes" | "runtimeclasses"))
        .map(|part| format!("cannot read {}: {}; {RIGHTS}", part.resource, part.why))
        .collect();
    let day = today();
    let mut snapshots = Snapshots::new(Facts::new(Facts::KUBERNETES, day), []);
    let mut snapshot = snapshots.take(
        &Arc::new(once.view),
        once.registered.map(Arc::new),
        Timestamp::now(),
    );
    let counting = match &args.policy {
        Some(path) => {
            let of_file = policies(Some(path), Policy::standalone())?;
            of_file.declare(&mut snapshot.facts);
            of_file.set
        }
        None => (*snapshot.policies).clone(),
    };
    let mut planner = Planner::new(&snapshot.facts, &counting, args.question());
    let mut look = |kind: Kind, json: &str| {
        if let Err(error) = planner.look(kind, json) {
            errors.push(format!("cannot read a {kind}: {error}"));
        }
    };
    let mut lost = Vec::new();
    for (kind, path) in AROUND {
        let seen = visit_list(client, kind, path, &mut look).await;
        lost.extend(seen.err().map(|error| format!("{error}; {RIGHTS}")));
    }
    let unlisted = walk(client, &[], |met| {
        if let Met::Object(kind, json) = met {
            look(kind, json);
        }
    });
    lost.extend(unlisted.await.into_iter().map(|list| {
        let cure = if list.is_forbidden {
            format!("; {RIGHTS}")
        } else {
            String::new()
        };
        format!("cannot list {}: {}{cure}", list.resource, list.why)
    }));
    errors.append(&mut lost);
    Ok((planned(planner, args).await?, errors))
}

/// The plan, by what registries say of images where they may be asked.
async fn planned(mut planner: Planner<'_>, args: &PlanArgs) -> anyhow::Result<Plan> {
    if !args.ask_registries {
        return Ok(planner.plan()?);
    }
    let mut registries = Registries::new()?;
    // Images of which the builds become known may have others proposed for them.
    for _ in 0..2 {
        for (image, found) in registries.ask(planner.open_images()).await {
            match found {
                Found::Builds(builds) => planner.learn(image, Answer::Builds(builds)),
                Found::Missing => planner.learn(image, Answer::Missing),
                Found::Unknown(_) => {}
            }
        }
    }
    let mut plan = planner.plan()?;
    plan.notes.extend(registries.notes());
    Ok(plan)
}
