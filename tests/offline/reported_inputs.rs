//! Small inputs from public reports about Windows pods, and what `check` says about each.

use std::path::Path;

use serde_json::Value;

use crate::support::command::{CommandRun, transom_with};

fn run(command: &[&str], input: &str) -> CommandRun {
    transom_with(Path::new("."), &[command, &["-"]].concat(), input)
}

/// The findings of these rules: severity, rule, path, line, remedy.
fn found(input: &str, rules: &[&str]) -> Vec<String> {
    let report: Value = run(&["check", "-o", "json"], input).json();
    assert_eq!(report["errors"], serde_json::json!([]), "{report:#}");
    let objects = report["objects"].as_array().unwrap().iter();
    let findings = objects.flat_map(|object| object["findings"].as_array().unwrap());
    let findings = findings.filter(|finding| rules.contains(&finding["rule"].as_str().unwrap()));
    let line = |finding: &Value| {
        let text = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
        format!(
            "{} {} {} {}: {}; {}",
            text("severity"),
            text("rule"),
            text("path"),
            finding["line"],
            text("message"),
            text("remedy")
        )
    };
    findings.map(line).collect()
}

#[test]
fn a_misspelled_field_is_reported_where_it_is_with_the_field_that_was_meant() {
    let pod = "\
apiVersion: v1
kind: Pod
metadata: {name: typos}
spec:
  os: {name: windows}
  nodeSelectors: {kubernetes.io/os: windows}
  nodeSelector: {kubernetes.io/os: windows}
  securityContext:
    windowsOptions:
      runAsUsername: ContainerUser
      hostprocess: true
  tolerations:
  - {key: os, value: windows, Effect: NoSchedule}
  containers:
  - name: a
    image: corp/a:1-ltsc2022
    resources: {limits: {memory: 1Gi}}
    runAsUserName: ContainerUser
    fieldOfTheFuture: {}
";
    assert_eq!(
        found(pod, &["unknown-field"]),
        [
            "error unknown-field spec.nodeSelectors 6: the type PodSpec has no field nodeSelectors; write nodeSelector",
            "error unknown-field spec.securityContext.windowsOptions.hostprocess 11: the type WindowsSecurityContextOptions has no \
             field hostprocess; write hostProcess",
            "error unknown-field spec.tolerations[0].Effect 13: the type Toleration has no field Effect; write effect",
            "warning unknown-field spec.securityContext.windowsOptions.runAsUsername 10: the type WindowsSecurityContextOptions has \
             no field runAsUsername; write runAsUserName",
            "warning unknown-field spec.containers[0].runAsUserName 18: the type Container has no field runAsUserName; move it to \
             spec.containers[a].securityContext.windowsOptions.runAsUserName",
            "advice unknown-field spec.containers[0].fieldOfTheFuture 19: the type Container has no field fieldOfTheFuture; remove \
             it, unless the cluster is newer than Kubernetes 1.37 and has it",
        ]
    );
    // Admission never sees the fields, so that it denies nothing.
    let checked = run(&["check"], pod);
    assert!(
        checked.status == 0 && checked.out.contains("; 0 would be denied"),
        "{}",
        checked.out
    );
    assert!(
        checked
            .out
            .contains("Warn instead of Deny: the API server drops the field before admission"),
        "{}",
        checked.out
    );
    assert_eq!(run(&["check", "--fail-on", "error"], pod).status, 1);
}

/// Its nodes are those of Azure Container Instances: no kubelet of the cluster runs there.
#[test]
fn a_virtual_node_has_no_findings_of_nodes() {
    let node = "\
apiVersion: v1
kind: Node
metadata: {name: virtual-kubelet, labels: {kubernetes.io/os: windows, type: virtual-kubelet}}
spec: {taints: [{key: virtual-kubelet.io/provider, value: azure, effect: NoSchedule}]}
status: {nodeInfo: {architecture: '', bootID: '', containerRuntimeVersion: '', kernelVersion: '', kubeProxyVersion: '', \
                kubeletVersion: v1.25.0-vk-azure-aci-1.6.2, machineID: '', operatingSystem: windows, osImage: '', systemUUID: ''}}
";
    let run = |node: &str| run(&["check"], node).out;
    let of_virtual = run(node);
    assert!(
        of_virtual.contains("1 object checked, 0 for Windows: nothing found"),
        "{of_virtual}"
    );
    // A kubelet can claim to be one.
    for (from, to) in [("value: azure", "value: mine"), ("-vk-azure-aci-1.6.2", "")] {
        let of_other = run(&node.replace(from, to));
        assert!(of_other.contains("TSM"), "{of_other}");
    }
}

const NODE: &str = "\
apiVersion: v1
kind: Node
metadata: {name: w22, labels: {kubernetes.io/os: windows, kubernetes.io/arch: amd64, node.kubernetes.io/windows-build: 10.0.20348}}
status: {allocatable: {cpu: 5500m, memory: 108Gi, microsoft.com/directx: '1', pods: '30'}, nodeInfo: {kernelVersion: 10.0.20348.4171, \
osImage: Windows Server 2022 Datacenter, containerRuntimeVersion: 'containerd://2.1.4', kubeletVersion: v1.34.2, operatingSystem: windows, \
architecture: amd64, kubeProxyVersion: v1.34.2, machineID: a, systemUUID: a, bootID: a}}
---
";

#[test]
fn a_gpu_that_no_windows_node_has_is_a_warning_unless_no_node_is_known() {
    let pod = "\
apiVersion: v1
kind: Pod
metadata: {name: gpu}
spec:
  os: {name: windows}
  nodeSelector: {kubernetes.io/os: windows}
  containers: [{name: a, image: 'corp/a:1-ltsc2022', resources: {limits: {memory: 1Gi, nvidia.com/gpu: 1}}}]
";
    let rule = &["resource-not-offered"][..];
    let remedy = "request a resource that Windows nodes offer, or declare it in extendedResources of a WindowsNodePool";
    let start = "warning resource-not-offered spec.containers[0].resources.limits[nvidia.com/gpu]";
    let what = "no known Windows node offers nvidia.com/gpu";
    let on_aks = format!("{start} 12: {what}; they offer microsoft.com/directx; {remedy}");
    assert_eq!(found(&format!("{NODE}{pod}"), rule), [on_aks]);
    // Its kubelet has reported nothing of its resources.
    let silent = NODE.replace(
        "allocatable: {cpu: 5500m, memory: 108Gi, microsoft.com/directx: '1', pods: '30'}, ",
        "",
    );
    assert_eq!(
        found(&format!("{silent}{pod}"), rule),
        [format!("{start} 12: {what}; {remedy}")]
    );
    assert_eq!(found(pod, rule), [""; 0]);
    let pool = "{apiVersion: transom.dev/v1alpha1, kind: WindowsNodePool, metadata: {name: gpu}, spec: {nodeSelector: {matchLabels: {pool: gpu}}, \
                template: {build: 10.0.20348, extendedResources: [nvidia.com/gpu]}}}\n---\n";
    assert_eq!(found(&format!("{NODE}{pool}{pod}"), rule), [""; 0]);
    let directx = pod.replace("nvidia.com/gpu", "microsoft.com/directx");
    assert_eq!(found(&format!("{NODE}{directx}"), rule), [""; 0]);
    let plan = run(&["plan", "--to", "ltsc2025"], &format!("{NODE}{pod}"));
    assert!(!plan.out.contains("runs unchanged"), "{}", plan.out);
}

/// A NodePool of Karpenter, and an EC2NodeClass with these images.
fn node_pool(name: &str, images: &str) -> String {
    format!(
        "\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {{name: {name}}}
spec:
  template:
    metadata: {{labels: {{team: shop}}}}
    spec:
      nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: {name}}}
      requirements: [{{key: kubernetes.io/os, operator: In, values: [windows]}}]
      taints: [{{key: sku, value: windows, effect: NoSchedule}}]
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {{name: {name}}}
spec: {images}
---
"
    )
}

/// The nodes of a NodePool of Karpenter have the build of the images of its node class.
#[test]
fn a_node_pool_of_karpenter_is_a_pool_at_zero_with_the_build_of_its_node_class() {
    let pod = "\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  nodeSelector: {kubernetes.io/os: windows}
  containers: [{name: a, image: 'mcr.microsoft.com/windows/nanoserver:ltsc2022', resources: {limits: {memory: 1Gi}}}]
";
    let patch = |input: &str| {
        let report = run(&["check", "-o", "json"], input).json();
        report["objects"][0]["patch"].to_string()
    };
    let [old, new] = [
        node_pool("win19", "{amiSelectorTerms: [{alias: windows2019@latest}]}"),
        node_pool("win22", "{amiFamily: Windows2022}"),
    ];
    let (build, toleration) = ("node.kubernetes.io/windows-build", "\"key\":\"sku\"");
    let none = patch(pod);
    assert!(!none.contains(build) && !none.contains(toleration), "{none}");
    let both = patch(&format!("{old}{new}{pod}"));
    assert!(both.contains(build) && both.contains(toleration), "{both}");
    assert!(
        both.contains("10.0.20348") && !both.contains("10.0.17763"),
        "{both}"
    );
    let one = patch(&format!("{new}{pod}"));
    assert!(!one.contains(build) && one.contains(toleration), "{one}");
    let linux = node_pool("linux", "{amiFamily: AL2023}").replace("values: [windows]", "values: [linux]");
    let linux = linux.replace("key: sku", "key: team");
    assert_eq!(patch(&format!("{linux}{pod}")), none);
}

#[test]
fn runner_scale_sets_are_evaluated() {
    let input = "\
apiVersion: actions.github.com/v1alpha1
kind: AutoscalingRunnerSet
metadata: {name: win-runners, namespace: arc}
spec:
  githubConfigUrl: https://github.com/corp/app
  githubConfigSecret: s
  template:
    spec:
      securityContext: {fsGroup: 1001}
      nodeSelector: {eks.amazonaws.com/nodegroup: win}
      containers:
      - {name: runner, image: 'corp/actions-runner:v1-ltsc2022', command: [pwsh, /home/runner/run.ps1]}
";
    let report = run(&["check", "-o", "json"], input).json();
    assert_eq!(report["skipped"], serde_json::json!({}), "{report:#}");
    assert_eq!(report["summary"]["windows"], 1, "{report:#}");
    let denied = found(input, &["fs-group"]);
    assert_eq!(denied.len(), 1, "{report:#}");
}

/// Their operators make the pods, from fields of their own.
#[test]
fn nothing_is_said_of_the_pods_of_operators_except_that_they_were_not_read() {
    let input = "\
apiVersion: datadoghq.com/v2alpha1
kind: DatadogAgent
metadata: {name: agent-win}
spec: {override: {nodeAgent: {nodeSelector: {kubernetes.io/os: windows}}}}
---
apiVersion: opentelemetry.io/v1beta1
kind: OpenTelemetryCollector
metadata: {name: c}
spec: {mode: daemonset, nodeSelector: {kubernetes.io/os: windows}, image: 'otel/opentelemetry-collector-contrib:0.139.0'}
";
    let run = run(&["check"], input);
    assert_eq!(run.status, 0, "{}", run.err);
    assert_eq!(
        run.out,
        "0 objects checked, 0 for Windows: no findings, 2 more skipped; 0 would be denied\n\
         skipped: 2 (DatadogAgent 1, OpenTelemetryCollector 1): admission evaluates the objects that their controllers create. \
         These select Windows nodes: DatadogAgent agent-win (-:1), OpenTelemetryCollector c (-:6). To evaluate their pods, add \
         to cluster.podTemplates in .transom.yaml: {group: datadoghq.com, kind: DatadogAgent, path: PATH}, \
         {group: opentelemetry.io, kind: OpenTelemetryCollector, path: PATH}, where PATH is the field with a pod template or a pod spec; if there is none, check the objects that their controllers create\n"
    );
}

#[test]
fn a_credential_spec_that_the_input_does_not_have_is_a_warning() {
    let input = "\
apiVersion: windows.k8s.io/v1
kind: GMSACredentialSpec
metadata: {name: gmsa-webapp1}
credspec: {CmsPlugins: [ActiveDirectory]}
---
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: shop}
spec:
  os: {name: windows}
  nodeSelector: {kubernetes.io/os: windows}
  securityContext: {windowsOptions: {gmsaCredentialSpecName: gmsa-web}}
  containers: [{name: a, image: 'corp/a:1-ltsc2022', resources: {limits: {memory: 1Gi}}}]
";
    assert_eq!(
        found(input, &["gmsa-name-unknown"]),
        [
            "warning gmsa-name-unknown spec.securityContext.windowsOptions.gmsaCredentialSpecName 12: no GMSACredentialSpec of the \
             input is called \"gmsa-web\": the input has gmsa-webapp1; write the name of a GMSACredentialSpec, or create one of this name"
        ]
    );
}
