//! Pods that say Linux or nothing, and pods that say Windows; and pods thrown together of what means something somewhere.

use serde_json::{Value, json};

use super::world::{BETA, BUILD, OS, affinity, image, term};
pub use crate::support::dice::Dice;

/// Linux pods, and pods that say nothing.
pub fn linux_pods() -> Vec<Value> {
    let node = term("topology.kubernetes.io/zone", "In", &["a", "b"]);
    let mut pods = vec![
        json!({}),
        json!({"os": {"name": "linux"}}),
        json!({"nodeSelector": {OS: "linux"}}),
        json!({"nodeSelector": {BETA: "linux", "disk": "windows"}}),
        json!({"nodeSelector": {"kubernetes.azure.com/os-sku": "AzureLinux"}}),
        json!({"nodeSelector": {"cloud.google.com/gke-os-distribution": "cos"}}),
        json!({"nodeSelector": {"windows": "true"}, "tolerations": [{"key": "os", "value": "windows"}]}),
        json!({"tolerations": [{"operator": "Exists"}]}),
        json!({"nodeSelector": {"pool": "linux"}}),
        affinity(&[term(OS, "In", &["linux"])]),
        affinity(&[term(OS, "In", &["linux", "windows"])]),
        affinity(&[term(OS, "NotIn", &["windows"])]),
        affinity(&[term(OS, "Exists", &[])]),
        affinity(&[term(BUILD, "DoesNotExist", &[])]),
        affinity(&[term(BUILD, "NotIn", &["10.0.20348"])]),
        // What a node is not says nothing of what it is.
        affinity(&[term(
            "kubernetes.azure.com/os-sku",
            "NotIn",
            &["Ubuntu", "AzureLinux"],
        )]),
        json!({"nodeSelector": {"node.openshift.io/os_id": "rhcos"}}),
        affinity(&[term(
            "kubernetes.azure.com/os-sku",
            "In",
            &["Ubuntu", "Windows2022"],
        )]),
        affinity(&[
            node,
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["w1"]}]}),
        ]),
        json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": term(OS, "In", &["windows"])},
        ]}}}),
        json!({"priorityClassName": "system-node-critical", "hostNetwork": true}),
        json!({"priorityClassName": "system-cluster-critical"}),
        json!({"hostPID": true, "hostNetwork": true, "securityContext": {"runAsUser": 0, "fsGroup": 1}}),
        json!({"volumes": [{"name": "a", "emptyDir": {}}], "initContainers": [{"name": "i", "image": "busybox"}]}),
    ];
    for name in [
        "nginx",
        "docker.io/library/nginx:1.27-alpine",
        "mcr.microsoft.com/dotnet/aspnet:8.0",
        "mcr.microsoft.com/dotnet/sdk:8.0-jammy",
        "mcr.microsoft.com/mssql/server:2022-latest",
        "mcr.microsoft.com/oss/kubernetes/pause:3.9",
        "mcr.microsoft.com/powershell:lts-ubuntu-22.04",
        "mcr.microsoft.com/azure-cli:2.60.0",
        "prom/windows-exporter-proxy:1",
        "corp.example/windows/agent:1.0-windows",
        "corp.example/sql-server:2019",
        "corp.example/framework/api:4.8",
        "microsoft/azure-cli",
        "sigwindowstools/k8s-gmsa-webhook:v0.10.0",
        "fyneio/fyne-cross-images:1.1.3-windows",
        "corp.example/mirror/dotnet/framework/runtime:4.8",
        "registry.example.com/team/very/deep/path/with/a/long/name-of-an-image:v1.2.3-20240101-abcdef",
        "x@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ] {
        pods.push(image(name));
    }
    pods
}

/// Linux pods, and pods that say nothing, with something that only a look at all of it tells from a Windows pod.
pub fn linux_pods_with_a_sign() -> Vec<Value> {
    let zone = term("topology.kubernetes.io/zone", "In", &["a", "b"]);
    let mut linux_by_affinity = image("mcr.microsoft.com/windows/servercore:ltsc2022");
    json_patch::merge(&mut linux_by_affinity, &affinity(&[term(OS, "In", &["linux"])]));
    vec![
        affinity(&[term("pool", "In", &["win1", "linux"])]),
        affinity(&[term(OS, "In", &["windows"]), term(OS, "In", &["linux"])]),
        affinity(&[term(OS, "In", &["windows"]), zone.clone()]),
        affinity(&[zone, term(OS, "In", &["windows"])]),
        // Whether a node will ever match the first term, nobody knows.
        affinity(&[term("nope", "In", &["x"]), term(OS, "In", &["windows"])]),
        affinity(&[
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gone"]}]}),
            term(BUILD, "Exists", &[]),
        ]),
        affinity(&[
            term("a", "DoesNotExist", &[]),
            term("nope", "Exists", &[]),
            term("pool", "In", &["win1"]),
        ]),
        json!({"securityContext": {"windowsOptions": {"runAsUserName": "ContainerUser"}}}),
        json!({"securityContext": {"windowsOptions": {"hostProcess": false}}}),
        // What an image says does not count beside a selector.
        json!({"nodeSelector": {OS: "linux"}, "containers": image("x:ltsc2022")["containers"]}),
        json!({"os": {"name": "linux"}, "containers": image("x:1-nanoserver")["containers"]}),
        linux_by_affinity,
        // Expressions of one term are ANDed: only Linux nodes meet these.
        affinity(&[json!({"matchExpressions": [
            {"key": BUILD, "operator": "Exists"}, {"key": OS, "operator": "In", "values": ["linux"]},
        ]})]),
        // What silences the tag of an image is not in the condition.
        json!({"hostPID": true, "containers": image("x:ltsc2022")["containers"]}),
        json!({"initContainers": [{"name": "i", "image": "busybox"}], "containers": image("x:ltsc2022")["containers"]}),
        image("corp.example/x:1.0-alpine-ltsc2022"),
        image("rustembedded/cross:x86_64-pc-windows-gnu"),
    ]
}

/// Images that say Windows by their names.
const WINDOWS_IMAGES: &[&str] = &[
    "mcr.microsoft.com/windows/servercore:ltsc2022",
    "mcr.microsoft.com:443/windows/nanoserver:1809",
    "MCR.microsoft.com/windows",
    "mcr.microsoft.com/dotnet/framework/aspnet:4.8",
    "mcr.microsoft.com/oss/kubernetes/pause:3.6-windows-1809-amd64",
    "mcr.microsoft.com:443/dotnet/framework",
    "golang:1.22-windowsservercore",
    "golang:1.22-WindowsServerCore-1809",
    "corp.example/x:servercore-1809",
    "corp.example/x:1.0-LTSC2028",
    "microsoft/iis",
    "docker.io/microsoft/aspnet:4.7",
    "index.docker.io/microsoft/dotnet-framework:4.7",
    "microsoft/wcf:4.7.2",
    "microsoft/mssql-server-windows-express",
    "mcr.microsoft.com/businesscentral:10.0.20348.2582",
    "mcr.microsoft.com:443/dynamicsnav:1",
    "corp.example/x:1-winltsc2022",
    "corp.example/helper:x86_64-servercore21H2",
    "corp.example/helper:nanoserver1809",
    "calico/windows:v3.24.5",
    "quay.io/calico/node-windows:v3.28.1",
    "docker.io/calico/cni-windows@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "antrea/antrea-windows:latest",
    "ghcr.io/prometheus-community/windows-exporter:v0.31.3",
    "ghcr.io/kubernetes-sigs/sig-windows/csi-proxy:v1.1.2",
    "mcr.microsoft.com/oss/kubernetes/windows-host-process-containers-base-image:v1.0.0",
    "mcr.microsoft.com/aks/aks-windows-gpu-device-plugin:0.0.17",
    "sigwindowstools/kube-proxy:v1.32.13-calico-hostprocess",
    "registry.k8s.io/sig-storage/smbplugin:v1.20.3-windows-hp",
    "fluent/fluent-bit:windows-2022-3.0.4",
    "otel/opentelemetry-collector-contrib:0.110.0-windows-2022-amd64",
    "mcr.microsoft.com/azuremonitor/containerinsights/ciprod:win-3.1.25",
    "newrelic/newrelic-fluentbit-output:3.8.0-windows-ltsc-2022",
    "portainer/agent:windows1809-amd64",
    "acs/terway:v0.0.0-windows-amd64-1809",
    "corp.example/x:win-2019",
    "corp.example/x:1-win20H2",
    "corp.example/x:1-WinSac2016",
    "gcr.io/datadoghq/agent:7-servercore",
    "datadog/agent:latest-servercore-jmx",
    "grafana/agent:latest-windows",
    "quay.io/signalfx/splunk-otel-collector-windows:0.138.0",
    "rancher/windows_exporter-package:v0.0.3",
];

/// The label that OpenShift gives its Windows nodes.
fn of_openshift() -> [(bool, Value); 2] {
    const LABEL: &str = "node.openshift.io/os_id";
    [
        (true, json!({"nodeSelector": {LABEL: "Windows"}})),
        (true, affinity(&[term(LABEL, "In", &["Windows"])])),
    ]
}

/// The first term contradicts itself, so that no node matches it.
fn behind_a_contradiction() -> Value {
    let exists = json!({"key": "a", "operator": "Exists"});
    let does_not = json!({"key": "a", "operator": "DoesNotExist"});
    affinity(&[
        json!({"matchExpressions": [exists, does_not]}),
        term(OS, "In", &["windows"]),
    ])
}

/// Evidence for Windows, and whether it goes to `certain`.
pub fn windows_pods() -> Vec<(bool, Value)> {
    let host_process =
        json!({"windowsOptions": {"hostProcess": true, "runAsUserName": "NT AUTHORITY\\SYSTEM"}});
    let windows = json!({OS: "windows"});
    let mut pods = vec![
        (true, json!({"os": {"name": "windows"}})),
        (true, json!({"nodeSelector": windows})),
        (true, json!({"nodeSelector": {OS: "Windows"}})),
        (true, json!({"nodeSelector": {BETA: "WINDOWS"}})),
        (true, json!({"nodeSelector": {BUILD: "10.0.20348"}})),
        (
            true,
            json!({"nodeSelector": {"transom.dev.node-restriction.kubernetes.io/windows-build": "10.0.20348"}}),
        ),
        (
            true,
            json!({"nodeSelector": {"kubernetes.azure.com/os-sku": "Windows2022"}}),
        ),
        (
            true,
            json!({"nodeSelector": {"kubernetes.azure.com/os-sku-effective": "Windows2022"}}),
        ),
        (
            true,
            json!({"nodeSelector": {"kubernetes.azure.com/os-sku-requested": "Windows2025"}}),
        ),
        (
            true,
            json!({"nodeSelector": {"cloud.google.com/gke-os-distribution": "windows_ltsc"}}),
        ),
        (true, json!({"nodeSelector": {"pool": "win-1"}})),
        (true, affinity(&[term("pool", "In", &["win1", "w2", "w3-a"])])),
        (true, affinity(&[term(OS, "In", &["windows"])])),
        (true, affinity(&[term(OS, "In", &["windows", "Windows"])])),
        (true, affinity(&[term(BETA, "NotIn", &["linux"])])),
        (true, affinity(&[term(BUILD, "Exists", &[])])),
        (
            true,
            affinity(&[term(BUILD, "In", &["10.0.20348", "10.0.26100"])]),
        ),
        (true, affinity(&[term(BUILD, "Gt", &["10"])])),
        (
            true,
            affinity(&[term(
                "kubernetes.azure.com/os-sku",
                "In",
                &["Windows2019", "Windows2022"],
            )]),
        ),
        (
            true,
            affinity(&[
                term(OS, "In", &["windows"]),
                term(OS, "NotIn", &["linux"]),
                term(BUILD, "Exists", &[]),
            ]),
        ),
        (true, affinity(&[term(OS, "In", &["windows"]), json!({})])),
        // A term with nothing in it matches no node.
        (true, affinity(&[json!({}), term(OS, "In", &["windows"])])),
        // Both at once is a finding.
        (true, json!({"os": {"name": "linux"}, "nodeSelector": windows})),
        (
            true,
            json!({"os": {"name": "windows"}, "nodeSelector": {OS: "linux"}}),
        ),
        (
            true,
            json!({"os": {"name": "windows"}, "containers": image("x:ltsc2022")["containers"]}),
        ),
        (
            false,
            json!({"os": {"name": "windows"}, "priorityClassName": "system-node-critical"}),
        ),
        (
            false,
            json!({"nodeSelector": windows, "priorityClassName": "system-cluster-critical"}),
        ),
        (
            false,
            json!({"nodeSelector": windows, "hostNetwork": true, "securityContext": host_process}),
        ),
        (
            false,
            json!({"hostNetwork": true, "securityContext": host_process}),
        ),
        (
            false,
            json!({"hostNetwork": true, "containers": [
                {"name": "app", "image": "app", "securityContext": host_process},
            ]}),
        ),
        (
            false,
            json!({"initContainers": [{"name": "i", "image": "golang:1.22-NanoServer-1809"}]}),
        ),
    ];
    pods.extend(of_openshift());
    pods.push((false, behind_a_contradiction()));
    pods.extend(WINDOWS_IMAGES.iter().map(|name| (false, image(name))));
    pods
}

/// A reference made of parts that mean something somewhere.
pub fn thrown_image(dice: &mut Dice) -> String {
    let registry = dice.word(
        "_ _ _ docker.io/ index.docker.io/ mcr.microsoft.com/ mcr.microsoft.com/ MCR.Microsoft.com/ \
         mcr.microsoft.com:443/ mcr.microsoft.com:8443/ quay.io/ localhost:5000/",
    );
    let repository = dice.word(
        "nginx windows windows/servercore windows/nanoserver/insider windowsadmin/x team/windows \
         dotnet/framework/aspnet a/dotnet/framework/x dotnet/framework dotnet/aspnet microsoft/iis microsoft/aspnet \
         microsoft/dotnet microsoft/dotnet-framework microsoft/dotnet-framework-build microsoft/wcf \
         microsoft/nanoserver-insider microsoft/mssql-server-windows-developer microsoft/x oss/kubernetes/pause \
         library/golang calico/windows calico/node-windows antrea/antrea-windows prometheus-community/windows-exporter \
         datadog/agent grafana/agent",
    );
    let tag = dice.word(
        "_ _ :latest :1.27-alpine :ltsc-2022 :1-ltsc-2019 :1809 :20H2 :ltsc2022 :1.0-LTSC2019 :1-ltsc2022-amd64 :nanoserver \
         :1-NanoServer-1809 :windowsservercore :1-windowsservercore-20H2 :servercore-1809 \
         :1-ServerCore-10.0.17763.1 :servercore :windows :1-windows-1809 :win-1809 :3.6-WIN-20h2-amd64 \
         :windows-10.0.20348.2700 :v1.0-linux-windows :10.0.17763.2366-amd64 :v1-calico-hostprocess :v1-windows-hp \
         :windows-2022-3.0.4 :win-3.1.25 :1-windows-amd64-1809 :windows2019 :1-win2022 :1-alpine-ltsc2022 \
         :1.0-linux-amd64-ltsc2022",
    );
    let digest = if dice.one_in(6) {
        format!("@sha256:{}", "a".repeat(64))
    } else {
        String::new()
    };
    format!("{registry}{repository}{tag}{digest}")
}

pub fn thrown_term(dice: &mut Dice) -> Value {
    let one = |dice: &mut Dice| {
        let key = dice.word(
            "kubernetes.io/os kubernetes.io/os kubernetes.io/os beta.kubernetes.io/os \
             node.kubernetes.io/windows-build transom.dev.node-restriction.kubernetes.io/windows-build \
             kubernetes.azure.com/os-sku kubernetes.azure.com/os-sku-effective cloud.google.com/gke-os-distribution pool \
             zone",
        );
        let operator = dice.word("In In In NotIn NotIn Exists DoesNotExist Gt Lt");
        let values = match operator {
            "In" | "NotIn" => dice.word(
                "windows windows linux linux linux,windows Windows LINUX Windows2022,windows2019 \
                 Windows2022,Ubuntu windows_ltsc 10.0.20348 win1 w2,win-1 W2,Win-1 win1,linux linux,win1",
            ),
            "Gt" | "Lt" => "5",
            _ => "",
        };
        let values: Vec<&str> = values.split(',').filter(|value| !value.is_empty()).collect();
        term(key, operator, &values)["matchExpressions"][0].clone()
    };
    let mut term = json!({});
    let expressions: Vec<Value> = (0..dice.below(3)).map(|_| one(dice)).collect();
    if !expressions.is_empty() {
        term["matchExpressions"] = expressions.into();
    }
    if dice.one_in(8) {
        term["matchFields"] = json!([{"key": "metadata.name", "operator": "In", "values": ["w1"]}]);
    }
    term
}

pub fn thrown_spec(dice: &mut Dice) -> Value {
    let mut spec = json!({});
    if dice.one_in(8) {
        spec["os"] = json!({"name": dice.word("windows windows windows linux linux linux Windows freebsd")});
    }
    if dice.one_in(4) {
        let entry = dice.word(
            "kubernetes.io/os=windows kubernetes.io/os=Windows kubernetes.io/os=linux kubernetes.io/os=LINUX \
             kubernetes.io/os=other beta.kubernetes.io/os=windows beta.kubernetes.io/os=linux \
             node.kubernetes.io/windows-build=10.0.20348 kubernetes.azure.com/os-sku=Windows2022 \
             kubernetes.azure.com/os-sku=Ubuntu cloud.google.com/gke-os-distribution=windows_sac zone=windows \
             kubernetes.azure.com/os-sku-effective=Windows2025 kubernetes.azure.com/os-sku-requested=Windows2022 \
             transom.dev.node-restriction.kubernetes.io/windows-build=10.0.20348 pool=win-1 pool=Win-1 pool=linux",
        );
        let (key, value) = entry.split_once('=').unwrap();
        spec["nodeSelector"] = json!({key: value});
    }
    if dice.one_in(3) {
        let terms: Vec<Value> = (0..=dice.below(3)).map(|_| thrown_term(dice)).collect();
        json_patch::merge(&mut spec, &affinity(&terms));
    }
    if dice.one_in(10) {
        spec["priorityClassName"] = "system-node-critical".into();
    }
    if dice.one_in(12) {
        spec["runtimeClassName"] = dice
            .word("thrown-windows thrown-linux thrown-anything thrown-wcow kata")
            .into();
    }
    if dice.one_in(20) {
        spec["securityContext"] = json!({"windowsOptions": {"runAsUserName": "ContainerUser"}});
    }
    // Not every sign beside an image that is one: a missing one would not be seen.
    let plain_images = !dice.one_in(4);
    let containers = |dice: &mut Dice, list: &str, count: usize, host: bool| -> Vec<Value> {
        let each = (0..count).map(|n| {
            let image = if plain_images {
                "nginx:1.27".to_owned()
            } else {
                thrown_image(dice)
            };
            let mut container = json!({"name": format!("{list}{n}"), "image": image});
            if host {
                container["securityContext"] = json!({"windowsOptions": {"hostProcess": true}});
            }
            container
        });
        each.collect()
    };
    let (host, of_pod) = (dice.one_in(8), dice.one_in(2));
    if host {
        spec["hostNetwork"] = true.into();
        if of_pod {
            spec["securityContext"] = json!({"windowsOptions": {"hostProcess": true}});
        }
    }
    let count = dice.below(2);
    spec["initContainers"] = containers(dice, "i", count, host && !of_pod).into();
    let count = 1 + dice.below(2);
    spec["containers"] = containers(dice, "c", count, host && !of_pod).into();
    spec
}
