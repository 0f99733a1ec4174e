//! Credential helpers: programs `docker-credential-NAME`, which a user's configuration names.

use std::collections::HashMap;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::{Credential, Secret};

/// The time for one answer: helpers of clouds ask their cloud.
const WHOLE: Duration = Duration::from_secs(20);
/// The maximum size of an answer, in bytes.
const ANSWER: u64 = 64 << 10;
/// The maximum length of a helper's name.
const NAME: usize = 64;

/// What a helper answered.
#[derive(Clone)]
pub(super) enum Helped {
    /// It has this credential.
    Credential(Credential),
    /// It has none for the registry.
    None,
    /// It did not answer: the reason, without what it printed.
    Failed(String),
}

/// Answers by registry: one registry has many images, and a helper may ask its user. A lock is held while one answers.
pub(super) type Cache = Mutex<HashMap<String, Helped>>;

/// The answer of a helper about a registry, from the cache if it has one.
pub(super) async fn get(name: &str, registry: &str, cache: &Cache) -> Helped {
    let mut cache = cache.lock().await;
    if let Some(known) = cache.get(registry) {
        return known.clone();
    }
    let program = format!("docker-credential-{name}");
    let answer = if is_name(name) {
        let run = timeout(WHOLE, run(&program, registry)).await;
        run.unwrap_or_else(|_| Err(format!("no answer within {WHOLE:?}")))
    } else {
        Err("its name may have lower-case letters, digits and hyphens only".to_owned())
    };
    let answer = match answer {
        Ok(Some(secret)) => Helped::Credential(Credential {
            source: program,
            secret,
        }),
        Ok(None) => Helped::None,
        Err(why) => Helped::Failed(format!("the credential helper {program}: {why}")),
    };
    cache.insert(registry.to_owned(), answer.clone());
    answer
}

/// Whether a name makes a program in PATH, and no path. Docker Desktop for WSL has `desktop.exe`.
fn is_name(name: &str) -> bool {
    let bare = name.strip_suffix(".exe").unwrap_or(name);
    let is_letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !bare.is_empty() && bare.len() <= NAME && bare.bytes().all(is_letter)
}

async fn run(program: &str, registry: &str) -> Result<Option<Secret>, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Answer {
        username: String,
        secret: String,
    }
    let mut child = Command::new(program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("cannot start: {error}"))?;
    // Docker stores its hub under this name.
    let server = if registry == "docker.io" {
        "https://index.docker.io/v1/"
    } else {
        registry
    };
    if let Some(mut stdin) = child.stdin.take() {
        // A helper that reads nothing closes the pipe.
        let _ = stdin.write_all(server.as_bytes()).await;
    }
    let mut answer = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let read = stdout.take(ANSWER + 1).read_to_end(&mut answer).await;
        read.map_err(|error| error.to_string())?;
    }
    if answer.len() as u64 > ANSWER {
        return Err(format!("an answer of more than {ANSWER} bytes"));
    }
    let status = child.wait().await.map_err(|error| error.to_string())?;
    if !status.success() {
        let is_missing = String::from_utf8_lossy(&answer).contains("credentials not found");
        return if is_missing {
            Ok(None)
        } else {
            Err(format!("it failed with {status}"))
        };
    }
    // The error itself may quote the secret.
    let answer: Answer =
        serde_json::from_slice(&answer).map_err(|_| "an answer that is not valid".to_owned())?;
    Ok(match &*answer.username {
        "" => None,
        "<token>" => Some(Secret::Identity(answer.secret)),
        _ => Some(Secret::Basic {
            user: answer.username,
            password: answer.secret,
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_is_a_program_in_path_and_no_path() {
        for name in ["ecr-login", "desktop.exe", "pass"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", ".exe", "../../tmp/x", "a b", "x;y", "A", &"a".repeat(65)] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[tokio::test]
    async fn a_helper_that_cannot_run_is_named_and_queried_once() {
        let cache = Cache::default();
        for name in ["../x", "of-nobody-at-all"] {
            cache.lock().await.clear();
            let Helped::Failed(why) = get(name, "registry.example", &cache).await else {
                panic!("{name}");
            };
            assert!(
                why.starts_with(&format!("the credential helper docker-credential-{name}: ")),
                "{why}"
            );
        }
        assert_eq!(cache.lock().await.len(), 1);
    }

    /// A helper that is this script.
    #[cfg(unix)]
    fn helper(folder: &std::path::Path, script: &str) -> String {
        let program = folder.join("docker-credential-test").display().to_string();
        // Written by another process: a program that is open for writing cannot be started.
        let write = std::process::Command::new("sh")
            .args([
                "-c",
                "printf '%s' \"$2\" > \"$1\" && chmod +x \"$1\"",
                "sh",
                &program,
            ])
            .arg(format!("#!/bin/sh\n{script}\n"))
            .status();
        assert!(write.unwrap().success());
        program
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_helper_is_queried_for_one_server() {
        let folder = tempfile::tempdir().unwrap();
        let cases = [
            (
                r#"read -r server; echo "{\"ServerURL\": \"x\", \"Username\": \"$1\", \"Secret\": \"$server\"}""#,
                "registry.example",
            ),
            (
                r#"read -r server; echo "{\"Username\": \"$1\", \"Secret\": \"$server\"}""#,
                "docker.io",
            ),
        ];
        for (script, registry) in cases {
            let found = run(&helper(folder.path(), script), registry).await.unwrap();
            let server = if registry == "docker.io" {
                "https://index.docker.io/v1/"
            } else {
                registry
            };
            let (user, password) = ("get".to_owned(), server.to_owned());
            assert!(found == Some(Secret::Basic { user, password }), "{registry}");
        }
        let token = r#"echo '{"Username": "<token>", "Secret": "it"}'"#;
        let found = run(&helper(folder.path(), token), "a.example").await;
        assert!(found == Ok(Some(Secret::Identity("it".to_owned()))));
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_helper_without_an_answer_is_none_or_an_error_without_what_it_printed() {
        let folder = tempfile::tempdir().unwrap();
        let run = async |script: &str| run(&helper(folder.path(), script), "a.example").await;
        assert!(run("echo 'credentials not found in native keychain'; exit 1").await == Ok(None));
        assert!(run(r#"echo '{"Username": "", "Secret": ""}'"#).await == Ok(None));
        for (script, why) in [
            ("echo hunter2; exit 3", "exit status: 3"),
            ("echo hunter2", "not valid"),
            ("echo '{\"Username\": \"hunter2\"}'", "not valid"),
            ("yes hunter2", "more than 65536 bytes"),
        ] {
            let Err(error) = run(script).await else {
                panic!("{script}")
            };
            assert!(
                error.contains(why) && !error.contains("hunter2"),
                "{script}: {error}"
            );
        }
    }
}
