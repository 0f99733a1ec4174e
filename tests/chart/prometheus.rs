//! A real Prometheus that scrapes texts, for the queries of alerts, dashboard and documentation. Without the programs the test
//! says so, past the test harness, and proves nothing.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::control_plane::{free_ports, wait};
use crate::support::http;
use crate::support::skipped::skipped;

/// A text that is scraped as the metrics of a job.
pub struct Target {
    /// The job.
    pub job: &'static str,
    /// What the text is, as the `Content-Type` says it.
    pub content_type: &'static str,
    /// The metrics.
    pub text: String,
}

/// A running Prometheus; it ends with this.
pub struct Prometheus {
    port: u16,
    server: Child,
    folder: TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Whether Debian's package `prometheus` is installed, which has both programs.
pub fn is_installed() -> bool {
    ["prometheus", "promtool"].iter().all(|program| {
        let requested = Command::new(program)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        requested.is_ok_and(|status| status.success())
    })
}

impl Prometheus {
    /// Starts one with these rules, and waits until it has scraped each target a few times.
    pub fn start_or_skip(targets: Vec<Target>, groups: &Value) -> Option<Self> {
        if !is_installed() {
            skipped(
                "SKIPPED: the queries of alerts, dashboard and documentation: there is no prometheus or no promtool. To get \
                 both:\nSKIPPED:   apt-get install prometheus",
            );
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let [port] = free_ports();
        let jobs = targets.len();
        let scraped: Vec<Value> = (targets.into_iter())
            .map(|target| {
                let Target {
                    job,
                    content_type,
                    text,
                } = target;
                let address = http::serve(move |_| Some(http::text(content_type, text.clone())));
                json!({"job_name": job, "static_configs": [{
                    "labels": {"namespace": "transom-system", "pod": format!("{job}-0")},
                    "targets": [address.to_string()],
                }]})
            })
            .collect();
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.json"],
            "scrape_configs": scraped,
        });
        // JSON is YAML.
        fs::write(folder.path().join("prometheus.yml"), config.to_string()).unwrap();
        let rules = folder.path().join("rules.json");
        fs::write(&rules, json!({"groups": groups}).to_string()).unwrap();
        let checked = Command::new("promtool")
            .args(["check", "rules"])
            .arg(&rules)
            .output();
        let checked = checked.unwrap();
        assert!(checked.status.success(), "{checked:?}");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let server = Command::new("prometheus")
            .args([
                format!("--config.file={}", path("prometheus.yml")),
                format!("--storage.tsdb.path={}", path("data")),
                format!("--web.listen-address=127.0.0.1:{port}"),
                "--log.level=warn".to_owned(),
            ])
            .stderr(fs::File::create(folder.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let prometheus = Prometheus { port, server, folder };
        let enough = format!("count(count_over_time(up[1m]) > 3) == {jobs} and min(up) == 1");
        let has_scraped = || prometheus.query(&enough).is_ok_and(|found| !found.is_empty());
        assert!(
            wait(Duration::from_secs(60), has_scraped),
            "{:?}\n{}",
            prometheus.query("up"),
            prometheus.log()
        );
        Some(prometheus)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn get(&self, path: &str) -> Result<Value, String> {
        let words = |error: std::io::Error| error.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).map_err(words)?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: prometheus\r\n\r\n").map_err(words)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(words)?;
        let (_, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
        let body: Value = serde_json::from_str(body).map_err(|error| format!("{error}: {answer}"))?;
        match body["status"].as_str() {
            Some("success") => Ok(body["data"].clone()),
            _ => Err(body.to_string()),
        }
    }

    /// What a query finds now.
    ///
    /// # Errors
    /// It does not parse, or cannot be evaluated.
    pub fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let query = utf8_percent_encode(expression, NON_ALPHANUMERIC);
        let data = self.get(&format!("/api/v1/query?query={query}"))?;
        match data["resultType"].as_str() {
            Some("vector") => Ok(data["result"].as_array().cloned().unwrap_or_default()),
            _ => Ok(vec![data["result"].clone()]),
        }
    }

    /// The names of all metrics.
    pub fn metrics(&self) -> BTreeSet<String> {
        let names = self.get("/api/v1/label/__name__/values").unwrap();
        let names = names.as_array().unwrap().iter();
        names.map(|name| name.as_str().unwrap().to_owned()).collect()
    }

    /// Every rule with its state, its health and its last error, once each was evaluated.
    pub fn rules(&self) -> Vec<Value> {
        let rules = || {
            let groups = self.get("/api/v1/rules").unwrap()["groups"].clone();
            let groups = groups.as_array().cloned().unwrap_or_default();
            let rules = groups
                .iter()
                .filter_map(|group| group["rules"].as_array().cloned());
            rules.flatten().collect::<Vec<Value>>()
        };
        let evaluated = || {
            let rules = rules();
            !rules.is_empty() && rules.iter().all(|rule| rule["health"] != "unknown")
        };
        assert!(wait(Duration::from_secs(30), evaluated), "{:#?}", rules());
        rules()
    }
}

/// The names of the metrics that an expression selects, without what stands in quotes.
pub fn metrics_of(expression: &str) -> BTreeSet<String> {
    const PREFIXES: [&str; 3] = ["transom_", "process_", "apiserver_"];
    let plain: String = expression.split('"').step_by(2).collect::<Vec<_>>().join(" ");
    let words = plain.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = words.filter(|word| PREFIXES.iter().any(|prefix| word.starts_with(prefix)));
    names.map(str::to_owned).collect()
}

/// What is written as code within the sentences of a page and selects a metric.
pub fn queries_of(page: &str) -> Vec<String> {
    let mut is_fenced = false;
    let lines = page.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    });
    let text = lines.collect::<Vec<_>>().join(" ");
    let code = text.split('`').skip(1).step_by(2);
    let selects = |code: &&str| !metrics_of(code).is_empty() || code.contains("up{");
    code.filter(selects).map(str::to_owned).collect()
}

#[test]
fn queries_are_found_in_sentences_and_metrics_in_queries() {
    let page = "# A\n`x` and `sum(transom_a{b=\"transom_no\"})\n> process_b` so\n```sh\ngrep `transom_c`\n```\n`up{a=\"b\"}`\n";
    let queries = queries_of(page);
    assert_eq!(
        queries,
        ["sum(transom_a{b=\"transom_no\"}) > process_b", "up{a=\"b\"}"]
    );
    let names: Vec<String> = metrics_of(&queries[0]).into_iter().collect();
    assert_eq!(names, ["process_b", "transom_a"]);
}
