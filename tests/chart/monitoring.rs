//! Alerts, dashboard and documentation ask for metrics and labels that are really there: those of a replica that has answered
//! reviews, and those of an API server that could not reach one. Prometheus evaluates every query.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::engine::engine;
use super::prometheus::{Prometheus, Target, metrics_of, queries_of};
use super::refusal;
use crate::support::command::{markdown_in, program, transom};
use crate::support::control_plane::{ControlPlane, free_ports, wait};
use crate::support::install::{self, Replica};

/// What kube-state-metrics reports about a new node.
const OF_KUBE_STATE_METRICS: &str = "kube_node_spec_taint{node=\"win-1\",\
    key=\"startup-taint.cluster-autoscaler.kubernetes.io/transom\",value=\"\",effect=\"NoSchedule\"} 1\n";

/// What Prometheus adds to every sample of a target.
const OF_THE_TARGET: [&str; 4] = ["job", "namespace", "pod", "instance"];

/// The labels of every metric of a scrape, by its name.
fn scraped(text: &str, into: &mut BTreeMap<String, BTreeSet<String>>) {
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let labels = into.entry(name.to_owned()).or_default();
        let Some((_, within)) = line.split_once('{') else {
            continue;
        };
        for part in within.split("=\"").take(within.matches("=\"").count()) {
            labels.insert(part.rsplit([',', '{', '"']).next().unwrap().to_owned());
        }
    }
}

/// The metrics of an expression, each with the labels that it is selected by.
fn selected(expression: &str) -> Vec<(String, Vec<String>)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in expression.match_indices('{') {
        let before = &expression[..at];
        let start = before.rfind(|c| !is_name(c)).map_or(0, |at| at + 1);
        let within = expression[at + 1..].split('}').next().unwrap();
        let mut labels = Vec::new();
        for (at, _) in within.match_indices("=\"").chain(within.match_indices("=~\"")) {
            let name = within[..at].trim_end_matches('!');
            let start = name.rfind(|c| !is_name(c)).map_or(0, |at| at + 1);
            labels.push(name[start..].to_owned());
        }
        found.push((before[start..].to_owned(), labels));
    }
    found
}

/// The names in every `by (…)` of an expression.
fn grouped(expression: &str) -> Vec<&str> {
    let lists = expression
        .split("by (")
        .skip(1)
        .filter_map(|it| it.split(')').next());
    lists.flat_map(|list| list.split(',').map(str::trim)).collect()
}

#[test]
fn what_is_requested_is_read() {
    let expression = "sum by (a, le) (rate(m_total{x=\"1\",y=~\".+\",z!=\"3\"}[5m])) or by_b{}";
    let m = ("m_total".to_owned(), ["x", "z", "y"].map(str::to_owned).to_vec());
    assert_eq!(selected(expression), [m, ("by_b".to_owned(), vec![])]);
    assert_eq!(grouped(expression), ["a", "le"]);
    let mut live = BTreeMap::new();
    scraped("# TYPE m\nm_total{x=\"a,b=c\",y=\"\"} 1\nplain 2\n", &mut live);
    assert_eq!(live["m_total"], ["x", "y"].map(str::to_owned).into());
    assert!(live["plain"].is_empty());
}

/// The metrics of a replica, and of the API server before and after.
fn live(cluster: &ControlPlane) -> [String; 2] {
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "win-1", "labels": {"kubernetes.io/os": "windows"}},
        "status": {"nodeInfo": {
            "operatingSystem": "windows", "architecture": "amd64", "kernelVersion": "10.0.20348.2402",
            "osImage": "Windows Server 2022 Datacenter", "containerRuntimeVersion": "containerd://1.7.20",
            "kubeletVersion": "v1.36.0", "kubeProxyVersion": "v1.36.0",
            "machineID": "", "systemUUID": "", "bootID": "",
        }},
    });
    cluster
        .kubectl_with(&["create", "-f", "-"], &node.to_string())
        .succeeded();
    install::prepare(cluster, install::POLICIES);
    let spec = json!({
        "nodeSelector": {"kubernetes.io/os": "windows"}, "hostPID": true,
        "containers": [{"name": "web", "image": "mcr.microsoft.com/windows/nanoserver:ltsc2022"}],
    });
    let stored = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "stored", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "a"}},
                 "template": {"metadata": {"labels": {"app": "a"}}, "spec": spec.clone()}},
    });
    cluster
        .kubectl_with(&["create", "-f", "-"], &stored.to_string())
        .succeeded();
    let [port, health] = free_ports();
    install::register(cluster, port, &["--failure-policy", "Fail"]);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad", "namespace": "default"},
        "spec": spec,
    });
    let create = || cluster.kubectl_with(&["create", "--dry-run=server", "-f", "-"], &pod.to_string());
    // Nobody listens yet: /mutate is passed by, and /validate refused. The API server takes a moment to know the webhooks.
    let unreached = || {
        create()
            .err
            .contains("failed calling webhook \"certain.validate.transom.dev\"")
    };
    assert!(wait(Duration::from_secs(20), unreached), "{}", create().err);
    let replica = Replica::start_at(
        cluster,
        "replica",
        port,
        health,
        &[
            "--probe-namespace",
            "default",
            "--reports",
            "--image-registry",
            "registry.example.com",
        ],
    );
    replica.is_ready(cluster);
    let denied = || create().err.contains("denied the request");
    assert!(wait(Duration::from_secs(20), denied), "{}", create().err);

    let arrives = |webhook_type: &str, arrives: u8| {
        let line = format!("transom_webhook_probe_success{{type=\"{webhook_type}\"}} {arrives}");
        let metrics = replica.get("/metrics");
        metrics.is_some_and(|(_, text)| text.lines().any(|shown| shown == line))
    };
    let minutes = Duration::from_secs(120);
    let both = || arrives("mutating", 1) && arrives("validating", 1);
    assert!(wait(minutes, both), "{}", cluster.end_of_log("replica"));
    let found = || {
        let metrics = replica.get("/metrics");
        metrics
            .is_some_and(|(_, text)| text.contains("transom_stored_findings{resource_namespace=\"default\""))
    };
    assert!(wait(minutes, found), "{}", cluster.end_of_log("replica"));
    let (_, of_the_replica) = replica.get("/metrics").unwrap();
    // As behind a firewall: nobody answers there, and both webhooks fail open.
    let [nobody] = free_ports();
    install::register(cluster, nobody, &[]);
    let neither = || arrives("mutating", 0) && arrives("validating", 0);
    assert!(wait(minutes, neither), "{}", cluster.end_of_log("replica"));
    let reported = || registered(cluster) == "False WebhookProbeFailed";
    assert!(wait(minutes, reported), "{}", registered(cluster));
    install::register(cluster, port, &[]);
    assert!(wait(minutes, both), "{}", cluster.end_of_log("replica"));
    assert!(
        wait(minutes, || registered(cluster) == "True Programmed"),
        "{}",
        registered(cluster)
    );

    notices_a_second_installation(cluster);
    let of_the_server = cluster.kubectl(&["get", "--raw", "/metrics"]).succeeded().out;
    for (metric, more) in [
        ("fail_open_count", "name=\"mutate.transom.dev\""),
        ("rejection_count", "name=\"certain.validate.transom.dev\""),
        ("rejection_count", "error_type=\"calling_webhook_error\""),
    ] {
        let is_it = |line: &str| {
            line.starts_with(&format!("apiserver_admission_webhook_{metric}{{")) && line.contains(more)
        };
        assert!(of_the_server.lines().any(is_it), "{metric} {more}");
    }
    [of_the_replica, of_the_server]
}

/// The status and the reason of the condition that the policy is in effect.
fn registered(cluster: &ControlPlane) -> String {
    let path = "-o=jsonpath={.status.conditions[?(@.type=='Programmed')]['status','reason']}";
    cluster.kubectl(&["get", "wpp", "default", path]).out
}

/// The condition and `transom probe` report it.
fn notices_a_second_installation(cluster: &ControlPlane) {
    install_again(cluster);
    let noticed = wait(Duration::from_secs(120), || {
        registered(cluster) == "False InstalledTwice"
    });
    assert!(noticed, "{}", registered(cluster));
    let kubeconfig = cluster.path("admin.kubeconfig");
    let probe = ["probe", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let probed = transom(Path::new("."), &probe);
    assert!(
        probed.out.contains("another installation of Transom"),
        "{}{}",
        probed.out,
        probed.err
    );
}

/// A second installation next to the first, without Helm.
fn install_again(cluster: &ControlPlane) {
    cluster.create_namespace("second", &[]);
    let [port, health] = free_ports();
    let (kubeconfig, url) = (
        cluster.path("admin.kubeconfig"),
        format!("https://127.0.0.1:{port}"),
    );
    let (listen, health) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{health}"));
    let args = [
        ["--kubeconfig", kubeconfig.to_str().unwrap()],
        ["--transom-namespace", "second"],
        ["--name", "second"],
        ["--webhook-url", &url],
        ["--listen", &listen],
        ["--health-listen", &health],
    ];
    let args: Vec<String> = ["serve"]
        .into_iter()
        .chain(args.into_iter().flatten())
        .map(str::to_owned)
        .collect();
    cluster.run_program("second", &program(), &args);
    install::register(cluster, port, &["--name", "second"]);
}

#[test]
fn alerts_dashboard_and_documentation_ask_for_metrics_and_labels_that_are_there() {
    let Some(engine) = engine() else { return };
    let Some(cluster) = ControlPlane::start_or_skip("alerts and dashboard") else {
        return;
    };
    let [of_the_replica, of_the_server] = live(&cluster);
    let mut live = BTreeMap::new();
    scraped(&of_the_replica, &mut live);
    scraped(&of_the_server, &mut live);
    scraped(OF_KUBE_STATE_METRICS, &mut live);
    let values = json!({"reports": {"enabled": true}, "imageLookups": {"registries": ["registry.example.com"]},
                        "nodeStartup": {"imagePuller": {"enabled": true}},
                        "metrics": {"serviceMonitor": {"enabled": true}, "prometheusRule": {"enabled": true},
                                    "dashboard": {"enabled": true}}});
    let rendered = engine.render(&values).unwrap();
    let monitor = rendered.object("ServiceMonitor", "transom");
    assert!(!monitor.to_string().contains("honorLabels"), "{monitor}");
    let groups = rendered.object("PrometheusRule", "transom")["spec"]["groups"].clone();
    let rules = groups[0]["rules"].clone();
    let mut requested: Vec<(String, String)> = Vec::new();
    for rule in rules.as_array().unwrap() {
        requested.push((
            rule["expr"].as_str().unwrap().to_owned(),
            rule["annotations"].to_string(),
        ));
    }
    let dashboard = rendered.object("ConfigMap", "transom-dashboard")["data"]["transom.json"].clone();
    let dashboard: Value = serde_json::from_str(dashboard.as_str().unwrap()).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            requested.push((target["expr"].as_str().unwrap().to_owned(), String::new()));
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if let Some(query) = variable["query"]["query"].as_str() {
            let within = query
                .strip_prefix("label_values(")
                .and_then(|it| it.strip_suffix(')'));
            let (metric, label) = within.and_then(|it| it.split_once(", ")).unwrap();
            requested.push((format!("sum by ({label}) ({metric}{{}})"), String::new()));
        }
    }
    assert!(requested.len() > 15, "{requested:?}");
    for (expression, annotations) in &requested {
        let mut has: BTreeSet<&str> = OF_THE_TARGET.into();
        let metrics = selected(expression);
        assert!(!metrics.is_empty(), "{expression}");
        for (metric, labels) in metrics.iter().filter(|(metric, _)| metric != "up") {
            let there = live
                .get(metric)
                .unwrap_or_else(|| panic!("there is no {metric}: {expression}"));
            for label in labels {
                let known = there.contains(label) || OF_THE_TARGET.contains(&label.as_str());
                assert!(known, "{metric} has no {label}: {expression}");
            }
            has.extend(there.iter().map(String::as_str));
        }
        for label in grouped(expression) {
            assert!(has.contains(label), "nothing has {label}: {expression}");
        }
        for label in annotations.split("$labels.").skip(1) {
            let label = label.split(' ').next().unwrap();
            assert!(has.contains(label), "nothing has {label}: {annotations}");
        }
    }
    let targets = vec![
        Target {
            job: "transom-metrics",
            content_type: "application/openmetrics-text; version=1.0.0; charset=utf-8",
            text: of_the_replica,
        },
        Target {
            job: "apiserver",
            content_type: "text/plain; version=0.0.4; charset=utf-8",
            text: of_the_server,
        },
        Target {
            job: "kube-state-metrics",
            content_type: "text/plain; version=0.0.4; charset=utf-8",
            text: OF_KUBE_STATE_METRICS.to_owned(),
        },
    ];
    let Some(prometheus) = Prometheus::start_or_skip(targets, &groups) else {
        return;
    };
    for rule in prometheus.rules() {
        assert_eq!(rule["health"], "ok", "{rule:#}");
    }
    for (expression, annotations) in &requested {
        let found = evaluated(&prometheus, expression);
        // An alert, which has annotations, finds nothing while all is well; so does what compares.
        let compares = [" > ", " < ", " == "].iter().any(|it| expression.contains(it));
        assert!(
            !annotations.is_empty() || compares || found > 0,
            "finds nothing: {expression}"
        );
    }
    documentation(&prometheus);
}

/// A metric that only a replica has that was sent a review over 20 MiB.
const NOT_HERE: [&str; 1] = ["transom_reviews_too_large_total"];

/// How many series a query finds. Each metric of it is there.
fn evaluated(prometheus: &Prometheus, expression: &str) -> usize {
    let there = prometheus.metrics();
    for metric in metrics_of(expression) {
        let histogram = format!("{metric}_bucket");
        let is_there = there.contains(&metric) || there.contains(&histogram);
        assert!(
            is_there || NOT_HERE.contains(&metric.as_str()),
            "there is no {metric}: {expression}"
        );
    }
    let everything = expression.replace("$job", ".*").replace("$namespace", ".*");
    let found = prometheus.query(&everything);
    found
        .unwrap_or_else(|error| panic!("{expression}: {error}"))
        .len()
}

/// Every query of the pages is evaluated, and every metric of a replica is on the page of metrics.
fn documentation(prometheus: &Prometheus) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = markdown_in("docs");
    let mut queries = 0;
    for page in pages.into_iter().chain(["README.md".to_owned()]) {
        for query in queries_of(&fs::read_to_string(root.join(page)).unwrap()) {
            evaluated(prometheus, &query);
            queries += 1;
        }
    }
    assert!(queries > 60, "{queries}");
    let documented = fs::read_to_string(root.join("docs/reference/metrics.md")).unwrap();
    for metric in prometheus.metrics() {
        let ours = ["transom_", "process_"];
        let of_the_replica = format!("count({metric}{{job=\"transom-metrics\"}})");
        if !ours.iter().any(|prefix| metric.starts_with(prefix))
            || prometheus.query(&of_the_replica).unwrap().is_empty()
        {
            continue;
        }
        let name = ["_bucket", "_sum", "_count", "_created"]
            .iter()
            .find_map(|suffix| metric.strip_suffix(suffix))
            .unwrap_or(&metric);
        assert!(
            documented.contains(&format!("`{name}`")),
            "docs/reference/metrics.md has no {name}"
        );
    }
    println!("{queries} queries of the documentation were evaluated");
}

#[test]
fn every_alert_has_a_page_and_every_page_an_alert() {
    let Some(engine) = engine() else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/runbooks");
    let files = fs::read_dir(&folder).unwrap();
    let mut pages: BTreeSet<String> = files
        .map(|file| file.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert!(pages.remove("README.md"), "{pages:?}");
    let listed = fs::read_to_string(folder.join("README.md")).unwrap();
    let alerts = |values: Value| {
        let rendered = engine.render(&values).unwrap();
        let rules = rendered.object("PrometheusRule", "transom")["spec"]["groups"][0]["rules"].clone();
        rules.as_array().unwrap().clone()
    };
    let rule = |more: Value| {
        let mut rule = json!({"enabled": true, "job": "transom"});
        rule.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"reports": {"enabled": true}, "imageLookups": {"registries": ["registry.example.com"]},
               "nodeStartup": {"imagePuller": {"enabled": true}}, "metrics": {"prometheusRule": rule}})
    };
    let mut named = BTreeSet::new();
    for alert in alerts(rule(json!({}))) {
        let name = alert["alert"].as_str().unwrap();
        // A path of the repository would lead nowhere.
        let annotations = alert["annotations"].as_object().unwrap();
        assert!(!annotations.contains_key("runbook_url"), "{name}");
        let texts = || annotations.values().filter_map(Value::as_str);
        assert!(
            !texts().any(|text| text.contains("docs/")),
            "{name}: {annotations:?}"
        );
        let severity = alert["labels"]["severity"].as_str().unwrap();
        let row = format!("| [{name}]({name}.md) | {severity} | ");
        assert!(
            listed.contains(&row),
            "docs/runbooks/README.md has no row {row:?}"
        );
        named.insert(format!("{name}.md"));
    }
    assert_eq!(named, pages);
    for page in &pages {
        let text = fs::read_to_string(folder.join(page)).unwrap();
        let title = format!("# {}\n", page.trim_end_matches(".md"));
        assert!(text.starts_with(&title), "{page}");
        for part in [
            "**What it means.**",
            "## See it",
            "## What to do",
            "## Safe to ignore",
        ] {
            assert!(text.contains(part), "{page} has no {part}");
        }
    }
    let mut published = rule(json!({}));
    published["documentation"] = json!({"baseURL": "https://git.example.com/docs/"});
    for alert in alerts(published) {
        let name = alert["alert"].as_str().unwrap();
        let url = &alert["annotations"]["runbook_url"];
        assert_eq!(url, &format!("https://git.example.com/docs/runbooks/{name}.md"));
    }
}

#[test]
fn an_alert_that_would_never_end_is_refused() {
    let Some(engine) = engine() else { return };
    let rule = json!({"enabled": true});
    let error = refusal(engine, &json!({"metrics": {"prometheusRule": rule}}));
    assert!(
        error.contains("metrics.prometheusRule.job: without metrics.serviceMonitor.enabled"),
        "{error}"
    );
    let short = |days: f64| {
        json!({
            "certificates": {"mode": "cert-manager", "certManager": {"duration": "72h", "renewBefore": "24h"}},
            "metrics": {"prometheusRule": {"enabled": true, "job": "transom", "certificateDays": days}},
        })
    };
    let error = refusal(engine, &short(7.0));
    assert!(
        error.contains("metrics.prometheusRule.certificateDays: 7 days begin before"),
        "{error}"
    );
    let rules = engine
        .render(&short(0.5))
        .unwrap()
        .object("PrometheusRule", "transom")
        .to_string();
    assert!(
        rules.contains("< 0.5 * 86400") && rules.contains("job=\\\"transom\\\""),
        "{rules}"
    );
}
