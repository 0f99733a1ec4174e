//! `transom plan --registry` against a real registry (Debian's docker-registry), whose images the test pushes. Without
//! the program it says so and proves nothing.
#![cfg(unix)]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const TRANSOM: &str = env!("CARGO_BIN_EXE_transom");
const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// A registry in a folder of its own; it ends with the test.
struct Registry {
    process: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Registry {
    fn start_or_skip() -> Option<Registry> {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let found: Option<PathBuf> = std::env::split_paths(&paths)
            .map(|folder| folder.join("docker-registry"))
            .find(|program| program.is_file());
        let Some(program) = found else {
            // Past the test harness, which would keep it to itself.
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: asking a registry is not proved: there is no docker-registry in PATH (apt-get install docker-registry)"
            );
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let config = folder.path().join("config.yml");
        let text = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{inmemory: {{}}}}\nhttp: {{addr: '127.0.0.1:{port}'}}\n"
        );
        std::fs::write(&config, text).unwrap();
        let process = Command::new(program)
            .arg("serve")
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let registry = Registry {
            process,
            port,
            _folder: folder,
        };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "docker-registry does not listen"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(registry)
    }

    /// Sends a request; gives the answer's head where it was taken.
    fn send(&self, method: &str, path: &str, kind: &str, body: &str) -> String {
        let mut connection = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let (port, length) = (self.port, body.len());
        write!(
            connection,
            "{method} {path} HTTP/1.1\r\nhost: localhost:{port}\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 20"), "{method} {path}: {answer}");
        answer
    }

    fn push_blob(&self, repository: &str, blob: &str) -> Value {
        let answer = self.send(
            "POST",
            &format!("/v2/{repository}/blobs/uploads/"),
            "text/plain",
            "",
        );
        let mut lines = answer.lines();
        let location = lines.find_map(|line| line.strip_prefix("Location: ")).unwrap();
        let path = &location[location.find("/v2/").unwrap()..];
        let digest = digest(blob);
        self.send(
            "PUT",
            &format!("{path}&digest={digest}"),
            "application/octet-stream",
            blob,
        );
        json!({"mediaType": "application/vnd.docker.container.image.v1+json", "size": blob.len(), "digest": digest})
    }

    /// Pushes an image without layers; gives its entry for an index.
    fn push_image(&self, repository: &str, tag: &str, platform: &Value) -> Value {
        let mut config = platform.clone();
        config["rootfs"] = json!({"type": "layers", "diff_ids": []});
        let config = self.push_blob(repository, &config.to_string());
        let manifest =
            json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": []}).to_string();
        self.send(
            "PUT",
            &format!("/v2/{repository}/manifests/{tag}"),
            MANIFEST,
            &manifest,
        );
        json!({"mediaType": MANIFEST, "size": manifest.len(), "digest": digest(&manifest), "platform": platform})
    }

    fn push_index(&self, repository: &str, tag: &str, platforms: &[Value]) {
        let mut entries = Vec::new();
        for (at, platform) in platforms.iter().enumerate() {
            entries.push(self.push_image(repository, &format!("part-{at}"), platform));
        }
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).to_string();
        self.send("PUT", &format!("/v2/{repository}/manifests/{tag}"), INDEX, &index);
    }
}

fn digest(text: &str) -> String {
    let sum = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let hex: Vec<String> = sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{}", hex.concat())
}

fn windows(version: &str) -> Value {
    json!({"architecture": "amd64", "os": "windows", "os.version": version})
}

fn linux() -> Value {
    json!({"architecture": "amd64", "os": "linux"})
}

/// The plan for workloads of these names and images, on a pool of Windows Server 2019.
fn plan(options: &[&str], images: &[(&str, &str)]) -> Value {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b-1", "labels": {"kubernetes.io/os": "windows"}},
        "status": {"nodeInfo": {"operatingSystem": "windows", "kernelVersion": "10.0.17763.1"}}});
    let mut items = vec![node];
    for (name, image) in images {
        let pod = json!({"os": {"name": "windows"}, "containers": [{"name": "app", "image": image}]});
        items.push(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {"template": {"spec": pod}}}));
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let mut child = Command::new(TRANSOM)
        .args(["plan", "--to", "ltsc2025", "-o", "json"])
        .args(options)
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(list.to_string().as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The class of a workload, and whether what is proposed for it is there.
fn said(plan: &Value, name: &str) -> (String, Option<String>) {
    let workloads = plan["workloads"].as_array().unwrap();
    let workload = workloads.iter().find(|it| it["name"] == name).unwrap();
    let statements = workload["statements"].as_array().unwrap();
    let verified = statements
        .iter()
        .find_map(|it| it["proposed"]["verified"].as_str());
    let class = workload["class"].as_str().unwrap();
    (class.to_owned(), verified.map(str::to_owned))
}

#[test]
fn a_registry_says_which_tags_are_there_and_which_builds_they_hold() {
    let Some(registry) = Registry::start_or_skip() else {
        return;
    };
    registry.push_image("there", "1-ltsc2025", &windows("10.0.26100.1742"));
    registry.push_image("linux", "1-ltsc2025", &linux());
    registry.push_image("one", "1.4", &windows("10.0.17763.6293"));
    registry.push_index(
        "both",
        "6.0",
        &[linux(), windows("10.0.17763.6293"), windows("10.0.26100.1742")],
    );
    let port = registry.port;
    let local = |name: &str| format!("localhost:{port}/{name}");
    let unused = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let images = [
        ("there", local("there:1-ltsc2019")),
        ("missing", local("missing:1-ltsc2019")),
        ("linux", local("linux:1-ltsc2019")),
        ("one", local("one:1.4")),
        ("both", local("both:6.0")),
        ("silent", format!("localhost:{unused}/app:1-ltsc2019")),
        ("metadata", "169.254.169.254/app:1-ltsc2019".to_owned()),
    ];
    let images = images.each_ref().map(|(name, image)| (*name, image.as_str()));
    let expected = [
        ("there", "newImage", Some("exists")),
        ("missing", "hyperVOnly", Some("missing")),
        ("linux", "hyperVOnly", Some("missing")),
        ("one", "hyperVOnly", None),
        ("both", "unchanged", None),
        ("silent", "newImage", Some("notVerified")),
        ("metadata", "newImage", Some("notVerified")),
    ];
    let asked = plan(&["--registry"], &images);
    for (name, class, verified) in expected {
        let expected = (class.to_owned(), verified.map(str::to_owned));
        assert_eq!(said(&asked, name), expected, "{name}: {asked:#}");
    }
    let notes: Vec<&str> = asked["notes"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    for registry in [
        format!("localhost:{unused}: "),
        "169.254.169.254: 169.254.169.254 is an address that Transom never calls".to_owned(),
    ] {
        let of_it = notes
            .iter()
            .filter(|note| note.starts_with(&registry) && note.contains("not verified"));
        assert_eq!(of_it.count(), 1, "{registry}: {notes:#?}");
    }
    assert!(
        !notes
            .iter()
            .any(|note| note.starts_with(&local("").replace('/', ""))),
        "{notes:#?}"
    );
    // Without the option nothing is asked, and nothing is said of registries.
    let unasked = plan(&[], &images);
    assert_eq!(said(&unasked, "there").1.as_deref(), Some("notVerified"));
    assert_eq!(said(&unasked, "both").0, "unknown");
}
