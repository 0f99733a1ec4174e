//! A headless Chromium, driven by its DevTools protocol over two pipes: no port, no driver, no library.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use std::{env, fs, thread};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Where a browser that says nothing has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running browser with one page.
pub struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    session: Option<String>,
    last: u64,
    /// What the browser told by itself.
    pub events: Vec<Value>,
    _profile: TempDir,
}

/// `$CHROME`, or a Chromium in the path.
pub fn chromium() -> Option<PathBuf> {
    if let Some(reported) = env::var_os("CHROME").filter(|reported| !reported.is_empty()) {
        return Some(reported.into());
    }
    let names = [
        "chromium",
        "chromium-headless-shell",
        "chromium-browser",
        "google-chrome",
    ];
    let path = env::var_os("PATH")?;
    let folders: Vec<PathBuf> = env::split_paths(&path).collect();
    let mut all = names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    all.find(|file| file.is_file())
}

impl Browser {
    /// Starts a browser without a network, and opens a page in it.
    pub fn start(program: &Path) -> Browser {
        let profile = tempfile::tempdir().unwrap();
        let mut child = Command::new("sh")
            // Chromium reads commands from descriptor 3 and writes to 4.
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh"])
            .arg(program)
            .args([
                "--headless=new",
                "--remote-debugging-pipe",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-dev-shm-usage",
            ])
            .arg("--host-resolver-rules=MAP * ~NOTFOUND")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (commands, printed) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (post, messages) = channel();
        thread::spawn(move || {
            for message in BufReader::new(printed).split(0) {
                let Ok(message) = message else { return };
                if post.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser {
            child,
            commands,
            messages,
            session: None,
            last: 0,
            events: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let attached = browser.call(
            "Target.attachToTarget",
            json!({"targetId": target, "flatten": true}),
        );
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Gives a command, and waits for its answer.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        let answer = self.request(method, parameters);
        answer.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    #[allow(clippy::needless_pass_by_value)] // so that it can be written with json!
    fn request(&mut self, method: &str, parameters: Value) -> Result<Value, Value> {
        self.last += 1;
        let mut command = json!({"id": self.last, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        self.commands.write_all(command.to_string().as_bytes()).unwrap();
        self.commands.write_all(&[0]).unwrap();
        loop {
            let mut message = self.message(method);
            if message["id"] == json!(self.last) {
                let error = message["error"].take();
                return if error.is_null() {
                    Ok(message["result"].take())
                } else {
                    Err(error)
                };
            }
            self.events.push(message);
        }
    }

    fn message(&mut self, waits_for: &str) -> Value {
        let reported = self.messages.recv_timeout(PATIENCE);
        reported.unwrap_or_else(|error| panic!("Chromium did not answer {waits_for}: {error}"))
    }

    /// Opens a file, and waits until it is loaded.
    pub fn open(&mut self, file: &Path, hash: &str) {
        self.call("Page.navigate", json!({"url": "about:blank"}));
        self.until(|browser| browser.is_at("about:blank"));
        self.events.clear();
        let url = format!("file://{}{hash}", file.display());
        self.call("Page.navigate", json!({"url": url}));
        self.until(|browser| browser.is_at("file:"));
    }

    /// Whether a page of such an address is loaded. On the way from one page to another there is none to ask.
    fn is_at(&mut self, start: &str) -> bool {
        let is_there = format!("document.URL.startsWith({start:?}) && document.readyState == 'complete'");
        let requested = json!({"expression": is_there, "returnByValue": true});
        let answer = self.request("Runtime.evaluate", requested);
        answer.is_ok_and(|answer| answer["result"]["value"] == json!(true))
    }

    /// The value of an expression in the page.
    pub fn eval(&mut self, expression: &str) -> Value {
        let requested = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.call("Runtime.evaluate", requested);
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {}",
            answer["exceptionDetails"]
        );
        answer["result"]["value"].take()
    }

    /// Waits until something holds.
    pub fn until(&mut self, mut holds: impl FnMut(&mut Browser) -> bool) {
        for _ in 0..600 {
            if holds(self) {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("what the test waits for does not come");
    }

    /// Presses a key.
    pub fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            " " => (32, " "),
            "Tab" => (9, ""),
            _ => (0, key),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({"type": kind, "key": key, "windowsVirtualKeyCode": code});
            if !text.is_empty() && kind == "keyDown" {
                event["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Makes the window as wide as this.
    pub fn resize(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Pretends that the system wants this.
    pub fn prefer(&mut self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// A picture of the whole page, or of what fits into this height.
    pub fn picture(&mut self, file: &Path) {
        let taken = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let png = BASE64_STANDARD.decode(taken["data"].as_str().unwrap()).unwrap();
        fs::write(file, png).unwrap();
    }

    /// What went wrong in the page: exceptions, errors of the console, refusals.
    pub fn complaints(&self) -> Vec<String> {
        let is_bad = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown" | "Log.entryAdded") => true,
            Some("Runtime.consoleAPICalled") => event["params"]["type"] == json!("error"),
            _ => false,
        };
        self.events
            .iter()
            .filter(is_bad)
            .map(ToString::to_string)
            .collect()
    }

    /// The addresses that the page asked for, but for its own.
    pub fn requests(&self) -> Vec<String> {
        let requested = self
            .events
            .iter()
            .filter(|event| event["method"] == json!("Network.requestWillBeSent"));
        let urls = requested.filter_map(|event| event["params"]["request"]["url"].as_str());
        let foreign = urls.filter(|url| !url.starts_with("file:///") || !url.contains(".html"));
        foreign.map(str::to_owned).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
