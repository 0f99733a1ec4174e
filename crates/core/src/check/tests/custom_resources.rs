//! Custom resources that describe pods: findings are at the author's field and line.

use super::*;
use crate::model::objects::workload::Kind;
use crate::model::windows::os::Verdict;

/// What `check` says: rule, path as people write it, and line of each denied finding, and the input errors.
fn denied(yaml: &str, configured: &[&str]) -> (Vec<(&'static str, String, usize)>, Vec<String>) {
    let (facts, policies) = (
        Facts::new(Facts::KUBERNETES, date(2026, 1, 1)),
        PolicySet::new(Vec::new(), Policy::standalone()),
    );
    let configured = configured.iter().map(|text| {
        let entry = crate::model::objects::workload::configured::PodTemplateKind::parse(text).unwrap();
        entry.configured().unwrap()
    });
    let mut manifests = Manifests::new(CheckSettings {
        pod_templates: configured.collect(),
        ..CheckSettings::default()
    });
    manifests.add(input(yaml));
    let mut found = Vec::new();
    let objects = manifests.objects(ReviewStage::Written);
    let errors = objects.check(&facts, &policies, |checked| {
        let mut places = checked.places();
        for finding in checked.evaluation.denials() {
            let line = places.of(&finding.path).line;
            found.push((finding.rule.name, finding.path.named(), line));
        }
    });
    (found, errors.into_iter().map(|error| error.message).collect())
}

/// A manifest in which the line with `# here` has the only field that is denied, at this path.
fn is_denied_here(yaml: &str, path: &str, configured: &[&str]) {
    let line = 1 + yaml.lines().position(|line| line.ends_with("# here")).unwrap();
    let expected = vec![("run-as-user", path.to_owned(), line)];
    assert_eq!(denied(yaml, configured), (expected, Vec::new()), "{yaml}");
}

const TEMPLATE: &str = "    spec:
      nodeSelector: {kubernetes.io/os: windows}
      containers:
      - name: web
        image: registry.example.com/web:1
        securityContext:
          runAsUser: 1000 # here
";

fn with_template(api_version: &str, kind: &str, before: &str) -> String {
    format!(
        "apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: web}}\nspec:\n{before}  template:\n{TEMPLATE}"
    )
}

#[test]
fn a_pod_template_is_found_where_each_kind_has_it() {
    const PATH: &str = "spec.template.spec.containers[web].securityContext.runAsUser";
    for (api_version, kind) in [
        ("argoproj.io/v1alpha1", "Rollout"),
        ("serving.knative.dev/v1", "Service"),
        ("apps.kruise.io/v1alpha1", "CloneSet"),
        ("actions.github.com/v1alpha1", "AutoscalingRunnerSet"),
        ("agones.dev/v1", "GameServer"),
    ] {
        is_denied_here(&with_template(api_version, kind, ""), PATH, &[]);
    }
    let scaled_job = with_template("keda.sh/v1alpha1", "ScaledJob", "  jobTargetRef:\n")
        .replace("  template:", "    template:")
        .replace("\n      ", "\n        ")
        .replace("\n    spec", "\n      spec");
    is_denied_here(
        &scaled_job,
        "spec.jobTargetRef.template.spec.containers[web].securityContext.runAsUser",
        &[],
    );
    let template = format!("  template:\n{TEMPLATE}");
    let template: Vec<String> = template.lines().map(|line| format!("    {line}")).collect();
    let template = template.join("\n") + "\n";
    for kind in ["GameServerSet", "Fleet"] {
        let header = format!("apiVersion: agones.dev/v1\nkind: {kind}\nmetadata: {{name: web}}\n");
        let set = format!("{header}spec:\n  template:\n    spec:\n{template}");
        is_denied_here(&set, &format!("spec.template.{PATH}"), &[]);
    }
    // Placement is too late for a DaemonSet's template, as for that of Kubernetes.
    let daemon_set = with_template("apps.kruise.io/v1beta1", "DaemonSet", "");
    let (found, errors) = denied(&daemon_set, &[]);
    assert_eq!(errors, [""; 0]);
    assert!(
        found
            .iter()
            .any(|(rule, path, _)| *rule == "run-as-user" && path == PATH),
        "{found:?}"
    );
    let linux = daemon_set.replace("windows", "linux");
    assert_eq!(denied(&linux, &[]), (Vec::new(), Vec::new()));
}

#[test]
fn a_rollout_that_refers_to_a_deployment_has_no_pod_of_its_own() {
    let rollout = "{apiVersion: argoproj.io/v1alpha1, kind: Rollout, metadata: {name: web}, spec: {workloadRef: \
                   {apiVersion: apps/v1, kind: Deployment, name: web}}}";
    assert_eq!(denied(rollout, &[]), (Vec::new(), Vec::new()));
}

const WORKFLOW: &str = "\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: build-}
spec:
  entrypoint: all
  nodeSelector: {kubernetes.io/os: windows}
  templates:
  - name: all
    steps:
    - - {name: a, template: compile}
  - name: compile
    container:
      image: registry.example.com/build:1
      command: [build.exe]
      securityContext:
        runAsUser: 1000 # here
  - name: pack
    nodeSelector: {kubernetes.io/os: linux}
    script:
      image: registry.example.com/pack:1
      command: [sh]
      source: echo
      securityContext: {runAsUser: 1000}
";

#[test]
fn each_template_of_a_workflow_is_a_pod_of_its_own() {
    let path = "templates[compile].container.securityContext.runAsUser";
    is_denied_here(WORKFLOW, &format!("spec.{path}"), &[]);
    let template = WORKFLOW.replace("kind: Workflow", "kind: WorkflowTemplate");
    is_denied_here(&template, &format!("spec.{path}"), &[]);
    let cron = WORKFLOW
        .replace("kind: Workflow", "kind: CronWorkflow")
        .replace("\n  ", "\n    ")
        .replace("spec:\n", "spec:\n  schedule: '* * * * *'\n  workflowSpec:\n");
    is_denied_here(&cron, &format!("spec.workflowSpec.{path}"), &[]);
}

#[test]
fn what_a_workflow_sets_for_all_its_pods_is_reported_once_and_where_it_is() {
    let yaml = "\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: build}
spec:
  securityContext:
    runAsUser: 1000 # here
  nodeSelector: {kubernetes.io/os: windows}
  volumeClaimTemplates:
  - metadata: {name: work}
  templates:
  - name: a
    container: {image: 'registry.example.com/a:1', volumeMounts: [{name: work, mountPath: 'C:\\work'}]}
  - name: b
    containerSet:
      containers: [{name: main, image: 'registry.example.com/b:1'}, {name: other, image: 'registry.example.com/c:1'}]
";
    is_denied_here(yaml, "spec.securityContext.runAsUser", &[]);
}

#[test]
fn what_a_patch_or_a_parameter_decides_is_not_evaluated() {
    let parameter = WORKFLOW.replace(
        "{kubernetes.io/os: windows}",
        "{kubernetes.io/os: '{{workflow.parameters.os}}'}",
    );
    assert_eq!(denied(&parameter, &[]), (Vec::new(), Vec::new()));
    let patched = WORKFLOW.replace(
        "  entrypoint: all\n",
        "  podSpecPatch: '{\"os\": {\"name\": \"linux\"}}'\n",
    );
    assert_eq!(denied(&patched, &[]), (Vec::new(), Vec::new()));
}

#[test]
fn a_task_of_tekton_is_a_pod_and_its_run_says_where() {
    // A Task has no nodeSelector: only its images and options can say Windows.
    let task = "\
apiVersion: tekton.dev/v1
kind: Task
metadata: {name: build}
spec:
  stepTemplate:
    securityContext:
      runAsUser: 1000 # here
  steps:
  - name: compile
    image: mcr.microsoft.com/windows/servercore:ltsc2022
    script: |
      #!win powershell.exe -File
      echo built
";
    is_denied_here(task, "spec.stepTemplate.securityContext.runAsUser", &[]);
    let run = "\
apiVersion: tekton.dev/v1
kind: TaskRun
metadata: {generateName: build-}
spec:
  podTemplate:
    nodeSelector: {kubernetes.io/os: windows}
  taskSpec:
    steps:
    - name: compile
      image: registry.example.com/build:$(params.tag)
      securityContext:
        runAsUser: 1000 # here
";
    is_denied_here(run, "spec.taskSpec.steps[compile].securityContext.runAsUser", &[]);
    let of_task = "\
apiVersion: tekton.dev/v1
kind: TaskRun
metadata: {generateName: build-}
spec:
  taskRef: {name: build}
  podTemplate:
    nodeSelector: {kubernetes.io/os: windows}
    securityContext:
      runAsUser: 1000 # here
";
    is_denied_here(of_task, "spec.podTemplate.securityContext.runAsUser", &[]);
}

#[test]
fn the_tasks_of_a_pipeline_run_have_the_pod_template_of_the_run_or_their_own() {
    let run = "\
apiVersion: tekton.dev/v1
kind: PipelineRun
metadata: {generateName: build-}
spec:
  taskRunTemplate:
    podTemplate:
      nodeSelector: {kubernetes.io/os: linux}
  taskRunSpecs:
  - pipelineTaskName: windows
    podTemplate:
      nodeSelector: {kubernetes.io/os: windows}
  pipelineSpec:
    tasks:
    - name: windows
      taskSpec:
        steps:
        - name: compile
          image: registry.example.com/build:1
          securityContext:
            runAsUser: 1000 # here
    - name: linux
      taskSpec:
        steps:
        - {name: compile, image: 'registry.example.com/build:1', securityContext: {runAsUser: 1000}}
";
    is_denied_here(
        run,
        "spec.pipelineSpec.tasks[windows].taskSpec.steps[compile].securityContext.runAsUser",
        &[],
    );
    let pipeline = "\
apiVersion: tekton.dev/v1
kind: Pipeline
metadata: {name: build}
spec:
  finally:
  - name: report
    taskSpec:
      steps:
      - name: report
        image: mcr.microsoft.com/windows/nanoserver:ltsc2022
        securityContext:
          runAsUser: 1000 # here
";
    is_denied_here(
        pipeline,
        "spec.finally[report].taskSpec.steps[report].securityContext.runAsUser",
        &[],
    );
}

#[test]
fn a_configured_kind_has_a_pod_template_or_a_pod_spec_at_its_path() {
    let game = with_template("example.com/v1", "GameServerSet", "");
    let path = "spec.template.spec.containers[web].securityContext.runAsUser";
    is_denied_here(&game, path, &["example.com/GameServerSet=spec.template"]);
    // The same object by its pod spec.
    is_denied_here(&game, path, &["example.com/GameServerSet=spec.template.spec"]);
    assert_eq!(denied(&game, &["example.org/GameServerSet=spec.template"]).0, []);
    for (path, why) in [
        (
            "spec.pod",
            "this GameServerSet cannot be read: spec.pod: this field does not exist; correct the path of \
             GameServerSet.example.com in podTemplates",
        ),
        (
            "spec",
            "this GameServerSet cannot be read: spec: this is neither a pod template nor a pod spec: it has no \
             containers and no spec.containers; correct the path of GameServerSet.example.com in podTemplates",
        ),
    ] {
        let (found, errors) = denied(&game, &[&format!("example.com/GameServerSet={path}")]);
        assert_eq!((found, errors), (Vec::new(), vec![why.to_owned()]));
    }
}

#[test]
fn a_field_of_the_wrong_type_is_named_where_the_author_wrote_it() {
    let wrong = WORKFLOW.replace("image: registry.example.com/build:1", "image: 7");
    let (_, errors) = denied(&wrong, &[]);
    assert_eq!(
        errors,
        [
            "this Workflow cannot be read: spec.templates[1].container.image: invalid type: integer `7`, expected a string; \
          write it in quotes"
        ]
    );
}

/// What no field of the kind could fix is not reported: neither `spec.os`, nor the nodes of a Task.
#[test]
fn findings_have_a_cure_in_the_object() {
    let rules = |yaml: &str| {
        let (mut facts, policies) = (
            Facts::new(Facts::KUBERNETES, date(2026, 1, 1)),
            PolicySet::new(Vec::new(), Policy::cluster_default()),
        );
        let manifests = parsed(
            &(yaml.to_owned()
                + "\n---\n{apiVersion: v1, kind: Node, metadata: {name: w}, spec: {taints: [{key: os, value: windows, effect: \
                   NoSchedule}]}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.1}}}"),
        );
        let objects = manifests.objects(ReviewStage::Written);
        objects.learn(&mut facts, &policies);
        let mut found = Vec::new();
        let errors = objects.check(&facts, &policies, |checked| {
            assert!(checked.kind == Kind::Node || checked.evaluation.inference.verdict == Verdict::Windows);
            if checked.kind != Kind::Node {
                found.extend(checked.evaluation.open().map(|finding| finding.rule.name));
            }
        });
        assert_eq!(errors, []);
        found.sort_unstable();
        found
    };
    let task = "{apiVersion: tekton.dev/v1, kind: Task, metadata: {name: a}, spec: {steps: [{name: a, image: \
                'mcr.microsoft.com/windows/nanoserver:ltsc2022', computeResources: {limits: {cpu: 1, memory: 1Gi}}}]}}";
    assert_eq!(rules(task), [""; 0]);
    let run = task
        .replace("kind: Task", "kind: TaskRun")
        .replace("spec: {steps", "spec: {taskSpec: {steps")
        .replace("]}}", "]}}}");
    assert_eq!(
        rules(&run),
        [
            "missing-build-selector",
            "missing-os-selector",
            "missing-windows-toleration"
        ]
    );
    let workflow = "{apiVersion: argoproj.io/v1alpha1, kind: Workflow, metadata: {name: a}, spec: {nodeSelector: \
                    {kubernetes.io/os: windows}, templates: [{name: a, container: {image: 'registry.example.com/a:1'}}]}}";
    assert_eq!(
        rules(workflow),
        ["missing-windows-toleration", "resource-limits-missing"]
    );
}
