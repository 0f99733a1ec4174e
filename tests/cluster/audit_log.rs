//! `transom audit-log` on a real log of kube-apiserver, and on what becomes of logs: rotated, compressed, broken, wrapped.

use crate::support::command::{CommandRun, assert_valid_reports, program, transom_with};
use crate::support::control_plane;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

/// Written by kube-apiserver 1.36 at the level Metadata while Transom looked, then denied, then was away.
const REAL: &str = include_str!("../audit_log/real.log");

/// Runs `transom audit-log` in a folder, with this on its standard input.
fn audit_log(folder: &Path, arguments: &[&str], input: &[u8]) -> CommandRun {
    transom_with(folder, &[&["audit-log"], arguments].concat(), input)
}

/// The report of a log on standard input.
#[track_caller]
fn report(input: &[u8]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    audit_log(folder.path(), &["-o", "json", "-"], input).json()
}

/// What a report adds up to, outcomes that never came left out.
fn summary(report: &Value) -> Value {
    let mut summary = report["summary"].clone();
    summary
        .as_object_mut()
        .unwrap()
        .retain(|_, count| *count != json!(0));
    summary
}

fn gzip(text: &str) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    gzip.finish().unwrap()
}

/// The events of the real log, as JSON.
fn events() -> Vec<Value> {
    REAL.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// What the real log adds up to.
fn all() -> Value {
    json!({"requests": 19, "denied": 2, "wouldDeny": 3, "patched": 1, "wouldPatch": 6, "withheld": 4, "failedOpen": 4})
}

/// The reader of the output has gone: what was found is told by the status all the same.
#[test]
fn the_status_is_right_where_the_output_is_read_no_further() {
    let mut child = Command::new(program())
        .args(["audit-log", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    child.stdin.take().unwrap().write_all(REAL.as_bytes()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[cfg(unix)]
#[test]
fn a_name_of_a_file_or_a_workload_does_no_more_than_stand_there() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a\u{1b}[31m\n::error ::x.log"), "no event\n").unwrap();
    fs::write(folder.path().join("b.log"), REAL).unwrap();
    let text = audit_log(folder.path(), &["."], b"").out;
    assert!(text.contains("[31m ::error"), "{text}");
    assert!(!text.contains(['\u{1b}']) && !text.contains("\n::"), "{text}");
    let hostile = REAL.replace("web2", "web\u{9b}31m ##vso[x]");
    let json = audit_log(folder.path(), &["-o", "json", "-"], hostile.as_bytes()).out;
    assert!(!json.contains("\u{9b}") && !json.contains("##"), "{json}");
}

#[test]
fn a_real_log_shows_who_was_denied_and_who_would_be_by_workload_user_and_rule() {
    let report = report(REAL.as_bytes());
    assert_eq!(summary(&report), all());
    assert_eq!(report["schema"], "transom.dev/audit-log/v1");
    assert_eq!(report["dryRuns"]["denied"], 1, "dry runs are counted apart");
    assert_eq!(report["dryRuns"]["wouldDeny"], 1);
    let workloads = report["workloads"].as_array().unwrap();
    let reported: Vec<String> = (workloads.iter())
        .map(|row| {
            let text = |key: &str| row[key].as_str().unwrap();
            let counts = &row["summary"];
            format!(
                "{} {} by {}: {} {} {} {} {}",
                text("namespace"),
                text("workload"),
                text("user"),
                counts["denied"],
                counts["wouldDeny"],
                counts["patched"],
                counts["wouldPatch"],
                counts["failedOpen"]
            )
        })
        .collect();
    for expected in [
        "bank Pod task-* by ci@example.com: 1 0 0 0 0",
        "shop Deployment web2 by jane: 1 0 0 0 0",
        "shop Deployment web by jane: 0 1 0 0 0",
        "shop Pod task-* by ci@example.com: 0 1 0 1 0",
        "shop Deployment web by system:kube-controller-manager: 0 0 0 2 0",
        "bank CronJob nightly by jane: 0 1 0 0 0",
        "bank CronJob nightly by system:kube-controller-manager: 0 0 0 1 0",
        "bank Pod good by ci@example.com: 0 0 1 0 0",
        "bank Deployment unseen by jane: 0 0 0 0 1",
    ] {
        assert!(
            reported.iter().any(|row| row == expected),
            "{expected}\n{}",
            reported.join("\n")
        );
    }
    assert!(
        !reported
            .iter()
            .any(|row| row.contains("linux") || row.contains("tried")),
        "{reported:?}"
    );
    let web = workloads
        .iter()
        .find(|row| row["workload"] == "Deployment web" && row["user"] == "jane")
        .unwrap();
    assert_eq!(web["rules"][0]["rule"], "host-pid");
    assert_eq!(web["rules"][0]["wouldDeny"], 1);
    assert_eq!(web["firstSeen"], web["rules"][0]["firstSeen"]);
    assert!(
        web["firstSeen"]
            .as_str()
            .unwrap()
            .starts_with("2026-11-22T01:03:43.")
    );
}

#[test]
fn each_outcome_is_counted_for_what_it_is() {
    let stored = events()
        .into_iter()
        .find(|event| event["objectRef"]["name"] == "good" && event["stage"] == "ResponseComplete");
    let mut event = stored.unwrap();
    let words = |about: &str| json!({"code": 403, "message": format!("{about} \"validate.transom.dev\" denied the request: x")});
    for (annotations, status, uri, expected) in [
        (
            json!({"decision": "deny", "denied-by": "host-pid,fs-group"}),
            words("admission webhook"),
            "",
            json!({"denied": 1}),
        ),
        (
            json!({"decision": "deny", "not-evaluated": "unreadable: x"}),
            words("admission webhook"),
            "",
            json!({"denied": 1, "notEvaluated": 1}),
        ),
        (
            json!({"decision": "allow", "not-evaluated": "unreadable: x"}),
            json!({"code": 201}),
            "",
            json!({"notEvaluated": 1}),
        ),
        (json!({}), words("admission webhook"), "", json!({"denied": 1})),
        (
            json!({"decision": "patch", "removed": "spec.x", "withheld": "spec.y"}),
            json!({"code": 201}),
            "",
            json!({"patched": 1, "removed": 1, "withheld": 1}),
        ),
        (
            json!({"decision": "patch", "removed": "spec.x"}),
            json!({"code": 403, "message": "quota"}),
            "",
            json!({"refusedOtherwise": 1}),
        ),
        (
            json!({"decision": "would-deny", "would-deny": "host-pid"}),
            json!({"code": 422, "message": "invalid"}),
            "",
            json!({"wouldDeny": 1, "refusedOtherwise": 1}),
        ),
        (
            json!({"decision": "allow", "exempted": "a until 2027-01-01: b", "owner-trusted": "false"}),
            json!({"code": 201}),
            "",
            json!({"exempted": 1, "ownerNotTrusted": 1}),
        ),
        (
            json!({"decision": "allow", "verdict": "Windows"}),
            json!({"code": 201}),
            "",
            json!({}),
        ),
        (
            json!({}),
            json!({"code": 500, "message": "failed calling webhook \"validate.transom.dev\": refused"}),
            "",
            json!({"failedClosed": 1}),
        ),
        (
            json!({"decision": "deny"}),
            words("admission webhook"),
            "?dryRun=All&x=1",
            json!(null),
        ),
    ] {
        let keys = annotations.as_object().unwrap().iter();
        event["annotations"] = keys
            .map(|(key, value)| (format!("validate.transom.dev/{key}"), value.clone()))
            .collect();
        event["responseStatus"] = status;
        event["requestURI"] = format!("/api/v1/namespaces/bank/pods{uri}").into();
        let mut found = summary(&report(event.to_string().as_bytes()));
        found.as_object_mut().unwrap().remove("requests");
        let expected = if expected.is_null() { json!({}) } else { expected };
        assert_eq!(found, expected, "{annotations} {}", event["responseStatus"]);
    }
    let probe = json!({"code": 403, "message": "admission webhook \"validate.transom.dev\" denied the request: transom-probe a1 seen by both"});
    event["responseStatus"] = probe;
    event["annotations"] = json!({});
    assert_eq!(
        report(event.to_string().as_bytes())["clusters"],
        json!([]),
        "the leader's own probe"
    );
}

#[test]
fn the_text_has_a_line_for_what_was_asked() {
    let folder = tempfile::tempdir().unwrap();
    for (by, expected) in [
        ("workload", "  shop       Deployment web "),
        ("namespace", "  shop               4 "),
        ("user", "  jane                                    4 "),
        (
            "rule",
            "  host-pid          5       2           3  2026-11-22T01:03:43Z  2026-11-22T01:04:54Z",
        ),
    ] {
        let run = audit_log(folder.path(), &["--by", by, "-"], REAL.as_bytes());
        assert!(
            run.out.lines().any(|line| line.starts_with(expected)),
            "{by}\n{}",
            run.out
        );
        assert!(run.out.contains("2 denied, 3 would be denied"), "{}", run.out);
    }
    let one = audit_log(folder.path(), &["--limit", "1", "-"], REAL.as_bytes()).out;
    assert!(one.contains("and 9 more"), "{one}");
}

#[test]
fn a_rotated_set_counts_each_event_once_in_whichever_order_and_packing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let lines: Vec<&str> = REAL.split_inclusive('\n').collect();
    let (old, new) = lines.split_at(20);
    let mut members = gzip(&old[..5].concat());
    members.extend(gzip(&old[5..].concat()));
    fs::create_dir(path("set")).unwrap();
    fs::write(path("set/audit-2026-11-22T01-04-00.000.log.gz"), members).unwrap();
    // What both have, with the line ends of Windows.
    let overlap = [&old[15..], new].concat().concat();
    fs::write(path("set/audit.log"), overlap.replace('\n', "\r\n")).unwrap();
    fs::write(path("set/audit-empty.log"), "").unwrap();
    fs::write(path("set/README"), "These are audit logs.\n").unwrap();
    fs::write(path("set/.hidden"), "{").unwrap();
    for arguments in [
        &["set"][..],
        &["set/audit.log", "set/audit-2026-11-22T01-04-00.000.log.gz"],
        &[
            "set/audit-2026-11-22T01-04-00.000.log.gz",
            "set/audit.log",
            "set/audit-empty.log",
        ],
    ] {
        let run = audit_log(folder.path(), &[&["-o", "json"], arguments].concat(), b"");
        assert_eq!(run.status, 1, "{}", run.out);
        assert_eq!(summary(&run.json()), all(), "{arguments:?}");
    }
}

#[test]
fn a_client_that_chooses_its_audit_id_hides_no_request() {
    let mut events = events();
    for event in &mut events {
        event["auditID"] = "mine".into();
    }
    let lines: Vec<String> = events.iter().map(ToString::to_string).collect();
    assert_eq!(summary(&report(lines.join("\n").as_bytes())), all());
}

#[test]
fn broken_lines_are_counted_and_cost_no_other_line() {
    let mut broken = String::new();
    for (index, line) in REAL.lines().enumerate() {
        broken += line;
        broken += match index {
            3 => "\n{\"kind\":\"Event\",\"annotations\":{\"validate.transom.dev/decision\":\"de\n",
            7 => "\nthis is no JSON, of transom.dev\n",
            9 => "\n\n   \n",
            11 => "\n[1, 2, \"transom.dev\"]\n",
            _ => "\n",
        };
    }
    broken += "{\"kind\":\"Event\",\"auditID\":\"validate.transom.dev";
    let found = report(broken.as_bytes());
    assert_eq!(summary(&found), all());
    let input = &found["inputs"][0];
    assert_eq!(
        (&input["invalid"], &input["truncated"]),
        (&json!(3), &json!(true)),
        "{input}"
    );
    let mut bytes = REAL.as_bytes().to_vec();
    bytes.extend(b"{\"auditID\":\"\xff\xfe transom.dev\"}\n");
    assert_eq!(
        report(&bytes)["inputs"][0]["invalid"],
        1,
        "bytes that are no text"
    );
}

#[test]
fn a_line_of_gigabytes_is_passed_over_in_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("huge.log");
    let mut file = File::create(&path).unwrap();
    let half = REAL.lines().count() / 2;
    let lines: Vec<&str> = REAL.split_inclusive('\n').collect();
    file.write_all(lines[..half].concat().as_bytes()).unwrap();
    file.write_all(b"{\"auditID\":\"transom.dev").unwrap();
    // A hole: it takes no room on the disk.
    let end = file.metadata().unwrap().len() + (64 << 20);
    file.set_len(end).unwrap();
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(format!("\"}}\n{}", lines[half..].concat()).as_bytes())
        .unwrap();
    let report = audit_log(folder.path(), &["-o", "json", "huge.log"], b"").json();
    assert_eq!(summary(&report), all());
    assert_eq!(report["inputs"][0]["tooLong"], 1);
}

#[test]
fn an_input_that_ends_early_is_reported_beside_what_it_held() {
    let folder = tempfile::tempdir().unwrap();
    let whole = gzip(REAL);
    fs::write(folder.path().join("cut.gz"), &whole[..whole.len() * 3 / 4]).unwrap();
    let mut damaged = whole.clone();
    damaged.extend(b"not gzip");
    fs::write(folder.path().join("tail.gz"), damaged).unwrap();
    let cut = audit_log(folder.path(), &["cut.gz"], b"");
    assert_eq!(cut.status, 2);
    assert!(
        cut.out
            .contains("error: cut.gz: the compressed data ends in the middle"),
        "{}",
        cut.out
    );
    assert!(cut.out.contains("would be denied"), "{}", cut.out);
    let tail = audit_log(folder.path(), &["-o", "json", "tail.gz"], b"");
    assert_eq!((tail.status, summary(&tail.json())), (2, all()));
}

#[test]
fn what_is_no_audit_log_is_an_error_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: transom.dev}\n";
    let review = r#"{"kind": "AdmissionReview", "request": {"uid": "transom.dev"}}"#;
    let utf16: Vec<u8> = [0xff, 0xfe]
        .into_iter()
        .chain(REAL.bytes().flat_map(|byte| [byte, 0]))
        .collect();
    for (input, expected) in [
        (pod.as_bytes(), "there is no audit event in it"),
        (review.as_bytes(), "there is no audit event in it"),
        (b"", "there is nothing in it; did the command before it fail?"),
        (&utf16, "it is UTF-16"),
        (b"\x28\xb5\x2f\xfd1234", "it is compressed with zstd: zstd -dc"),
    ] {
        let run = audit_log(folder.path(), &["-"], input);
        assert_eq!(run.status, 2, "{expected}: {}", run.out);
        assert!(
            run.out.contains(&format!("error: -: {expected}")),
            "{expected}: {}",
            run.out
        );
    }
    let missing = audit_log(folder.path(), &["missing.log"], b"");
    assert_eq!(missing.status, 2);
    assert!(missing.out.contains("error: missing.log: "), "{}", missing.out);
}

#[test]
fn clusters_are_distinguished_by_the_names_that_the_user_gives_them() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.log"), REAL).unwrap();
    fs::write(folder.path().join("b.log"), REAL).unwrap();
    let arguments = ["east=a.log", "west=b.log"];
    let report = audit_log(folder.path(), &[&["-o", "json"], &arguments[..]].concat(), b"").json();
    assert_eq!(
        report["summary"]["denied"], 4,
        "the same event in two clusters is two"
    );
    let names: Vec<&Value> = report["clusters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["name"])
        .collect();
    assert_eq!(names, ["east", "west"]);
    let text = audit_log(folder.path(), &arguments, b"").out;
    assert!(
        text.contains("cluster east\n") && text.contains("cluster west\n"),
        "{text}"
    );
}

#[test]
fn an_event_is_found_in_what_log_stores_wrap_it_in() {
    let wrap = |make: &dyn Fn(&Value) -> String| events().iter().map(make).collect::<String>();
    let azure = |event: &Value| {
        json!({"time": "2026-11-22T01:05:00Z", "category": "kube-audit", "operationName": "x",
            "resourceId": "/SUBSCRIPTIONS/1/RESOURCEGROUPS/G/PROVIDERS/MICROSOFT.CONTAINERSERVICE/MANAGEDCLUSTERS/EAST",
            "properties": {"log": event.to_string(), "stream": "stdout", "pod": "kube-apiserver-1"}})
    };
    let amazon = json!({"messageType": "DATA_MESSAGE", "logGroup": "/aws/eks/east/cluster", "logStream": "kube-apiserver-audit-1",
        "logEvents": events().iter().map(|event| json!({"id": "1", "timestamp": 1, "message": event.to_string()}))
            .collect::<Vec<_>>()});
    let list =
        json!({"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "metadata": {}, "items": events()});
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap();
    let filtered = json!({"events": events().iter().map(|event| json!({"message": event.to_string(), "timestamp": 1}))
        .collect::<Vec<_>>(), "searchedLogStreams": []});
    let columns = |event: &Value| {
        json!({"AuditId": event["auditID"], "Stage": event["stage"], "RequestUri": event["requestURI"],
            "User": event.get("impersonatedUser").unwrap_or(&event["user"]), "ObjectRef": event["objectRef"],
            "ResponseStatus": event["responseStatus"], "Annotations": event["annotations"],
            "RequestReceivedTime": event["requestReceivedTimestamp"], "StageReceivedTime": event["stageTimestamp"]})
    };
    for (what, text, cluster) in [
        (
            "Azure, one a line",
            wrap(&|event| format!("{}\n", azure(event))),
            "east",
        ),
        (
            "Azure, a document",
            json!({"records": events().iter().map(azure).collect::<Vec<_>>()}).to_string(),
            "east",
        ),
        ("AKSAudit", wrap(&|event| format!("{}\n", columns(event))), ""),
        (
            "AzureDiagnostics",
            wrap(&|event| format!("{}\n", json!({"log_s": event.to_string()}))),
            "",
        ),
        ("CloudWatch, subscribed", amazon.to_string(), "east"),
        (
            "CloudWatch, exported",
            wrap(&|event| format!("2026-11-22T01:05:00.000Z {event}\n")),
            "",
        ),
        ("CloudWatch, asked", pretty(&filtered), ""),
        (
            "Elasticsearch",
            wrap(&|event| format!("{}\n", json!({"_index": "a", "_source": event}))),
            "",
        ),
        (
            "Loki",
            wrap(&|event| format!("{}\n", json!({"labels": {}, "line": event.to_string()}))),
            "",
        ),
        ("EventList", list.to_string(), ""),
        ("EventList, laid out", pretty(&list), ""),
        ("an array", pretty(&Value::Array(events())), ""),
        ("an array on one line", Value::Array(events()).to_string(), ""),
        ("jq", wrap(&|event| format!("{}\n", pretty(event))), ""),
        ("one after another", wrap(&|event| event.to_string()), ""),
    ] {
        let found = report(text.as_bytes());
        assert_eq!(summary(&found), all(), "{what}");
        assert_eq!(
            found["clusters"][0]["name"].as_str().unwrap_or_default(),
            cluster,
            "{what}"
        );
        assert_eq!(found["inputs"][0]["invalid"], 0, "{what}");
    }
}

/// By what Google says of its entries; none was at hand.
#[test]
fn an_entry_of_google_has_its_annotations_among_its_labels() {
    let entries: Vec<String> = (events().iter())
        .filter(|event| event["stage"] == "ResponseComplete")
        .map(|event| {
            let object = &event["objectRef"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let group = Some(text(&object["apiGroup"])).filter(|group| !group.is_empty());
            let name = Some(text(&object["name"])).filter(|name| !name.is_empty());
            let resource = format!(
                "{}/v1/namespaces/{}/{}{}",
                group.as_deref().unwrap_or("core"),
                text(&object["namespace"]),
                text(&object["resource"]),
                name.map_or(String::new(), |name| format!("/{name}"))
            );
            let failed = event["responseStatus"]["code"].as_i64().unwrap() >= 400;
            let user = event.get("impersonatedUser").unwrap_or(&event["user"]);
            let entry = json!({
                "logName": "projects/p/logs/cloudaudit.googleapis.com%2Factivity",
                "protoPayload": {
                    "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
                    "authenticationInfo": {"principalEmail": user["username"]},
                    "methodName": format!("io.k8s.core.v1.{}.create", text(&object["resource"])),
                    "resourceName": resource,
                    "status": if failed { json!({"code": 7, "message": event["responseStatus"]["message"]}) } else { json!({}) },
                },
                "labels": event["annotations"], "timestamp": event["requestReceivedTimestamp"],
                "resource": {"type": "k8s_cluster", "labels": {"cluster_name": "east"}},
            });
            entry.to_string()
        })
        .collect();
    let found = report(entries.join("\n").as_bytes());
    // Which of them were dry runs is not said.
    assert_eq!(found["summary"]["denied"], 3);
    assert_eq!(found["summary"]["wouldDeny"], 4);
    assert_eq!(found["clusters"][0]["name"], "east");
    let rows = found["workloads"].as_array().unwrap();
    assert!(
        rows.iter()
            .any(|row| row["workload"] == "Deployment web2" && row["user"] == "jane"),
        "{rows:#?}"
    );
}

#[test]
fn time_and_namespace_choose_what_counts_and_what_fails() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let arguments = [&["-o", "json"], arguments, &["-"]].concat();
        audit_log(folder.path(), &arguments, REAL.as_bytes())
    };
    let later = run(&["--since", "2026-11-22T01:04:30Z"]).json();
    assert_eq!(
        (&later["summary"]["denied"], &later["summary"]["wouldDeny"]),
        (&json!(2), &json!(0))
    );
    let earlier = run(&["--until", "2026-11-22T01:04:30Z"]).json();
    assert_eq!(
        (&earlier["summary"]["denied"], &earlier["summary"]["wouldDeny"]),
        (&json!(0), &json!(3))
    );
    let bank = run(&["--namespace", "bank"]).json();
    assert_eq!(
        (&bank["summary"]["denied"], &bank["summary"]["failedOpen"]),
        (&json!(1), &json!(4))
    );
    assert!(
        bank["workloads"]
            .as_array()
            .unwrap()
            .iter()
            .all(|row| row["namespace"] == "bank")
    );
    for (arguments, status) in [
        (&[][..], 1),
        (&["--fail-on", "never"], 0),
        (&["--fail-on", "patch", "-n", "elsewhere"], 0),
        (&["--since", "2026-11-22T01:04:54.8Z"], 0),
        (
            &["--since", "2026-11-22T01:04:54.8Z", "--fail-on", "unanswered"],
            1,
        ),
        (
            &[
                "--since",
                "2026-11-22T01:04:54Z",
                "--until",
                "2026-11-22T01:04:00Z",
            ],
            2,
        ),
        (&["--since", "yesterday"], 2),
        (&["--since", "0d", "--fail-on", "unanswered"], 0),
    ] {
        assert_eq!(
            run(arguments).status,
            status,
            "{arguments:?}: {}",
            run(arguments).out
        );
    }
}

#[test]
fn webhooks_of_other_names_are_found_by_what_the_user_calls_them() {
    let renamed = REAL.replace("validate.transom.dev", "windows.example.com");
    let renamed = renamed.replace("mutate.transom.dev", "change.example.com");
    let folder = tempfile::tempdir().unwrap();
    let silent = audit_log(folder.path(), &["-o", "json", "-"], renamed.as_bytes());
    assert_eq!((silent.status, &silent.json()["clusters"]), (0, &json!([])));
    let arguments = [
        "--webhook",
        "windows.example.com",
        "--webhook",
        "example.com",
        "-o",
        "json",
        "-",
    ];
    assert_eq!(
        summary(&audit_log(folder.path(), &arguments, renamed.as_bytes()).json()),
        all()
    );
    // Another one's webhook with our name at its end is none of ours.
    let others = REAL.replace(".transom.dev", ".nottransom.dev");
    assert_eq!(report(others.as_bytes())["clusters"], json!([]));
}

#[test]
fn nothing_in_a_log_moves_a_terminals_cursor_or_begins_a_line() {
    let evil = "shop\\u001b[2J\\nerror: x";
    let log = REAL.replace("\"namespace\":\"shop\"", &format!("\"namespace\":\"{evil}\""));
    let folder = tempfile::tempdir().unwrap();
    let text = audit_log(folder.path(), &["-"], log.as_bytes()).out;
    assert!(
        !text.contains('\u{1b}') && !text.lines().any(|line| line.starts_with("error:")),
        "{text}"
    );
    assert!(text.contains("shop [2J error: x"), "{text}");
}

#[cfg(unix)]
#[test]
#[expect(clippy::too_many_lines, reason = "one procedure, step by step")]
fn what_is_still_open_is_looked_up_in_its_cluster() {
    let what = "what audit-log says of a cluster";
    let Some(programs) = control_plane::programs_or_skip(what) else {
        return;
    };
    let cluster = control_plane::ControlPlane::start(programs).unwrap();
    cluster.create_namespace("shop", &[]);
    let deployment = |name: &str, shares_pids: bool| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "shop"},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": {"app": name}}, "spec": {
                "nodeSelector": {"kubernetes.io/os": "windows"}, "hostPID": shares_pids,
                "containers": [{"name": "a", "image": "mcr.microsoft.com/windows/nanoserver:ltsc2022"}]}}}})
        .to_string()
    };
    for (name, shares_pids) in [("web", true), ("web2", false)] {
        let input = deployment(name, shares_pids);
        cluster.kubectl_with(&["create", "-f", "-"], &input).succeeded();
    }
    let kubeconfig = cluster.path("admin.kubeconfig").display().to_string();
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let arguments = [
            &["--check-cluster", "--kubeconfig", &kubeconfig],
            arguments,
            &["-"],
        ]
        .concat();
        audit_log(folder.path(), &arguments, REAL.as_bytes())
    };
    let report = run(&["-o", "json"]).json();
    assert_valid_reports("audit-log", &[&report]);
    let now = |workload: &str, user: &str| {
        let mut rows = report["workloads"].as_array().unwrap().iter();
        let row = rows
            .find(|row| row["workload"] == workload && row["user"] == user)
            .unwrap();
        row["current"].clone()
    };
    assert_eq!(
        now("Deployment web", "jane"),
        json!({"state": "open", "rules": ["host-pid"]})
    );
    assert_eq!(now("Deployment web2", "jane"), json!({"state": "fixed"}));
    assert_eq!(now("CronJob nightly", "jane"), json!({"state": "gone"}));
    assert_eq!(now("Pod task-*", "ci@example.com")["state"], "unknown");
    assert_eq!(
        now("Pod good", "ci@example.com"),
        json!(null),
        "it was never denied"
    );
    let text = run(&["--namespace", "shop"]);
    assert!(
        text.out.contains("now: 1 fixed, 1 open, 1 unknown"),
        "{}",
        text.out
    );
    assert!(text.out.contains("open: host-pid"), "{}", text.out);
    assert_eq!(text.status, 1);
    let admin = fs::read_to_string(&kubeconfig).unwrap();
    let mut of_reader: Value = serde_json::from_str(&admin).unwrap();
    of_reader["users"][0]["user"]["as"] = json!("reader");
    fs::write(folder.path().join("reader"), of_reader.to_string()).unwrap();
    let may = "--resource=deployments.apps,cronjobs.batch,pods";
    cluster
        .kubectl(&["create", "clusterrole", "reader", "--verb=get", may])
        .succeeded();
    let bind = [
        "create",
        "clusterrolebinding",
        "reader",
        "--clusterrole=reader",
        "--user=reader",
    ];
    cluster.kubectl(&bind).succeeded();
    let arguments = ["--check-cluster", "--kubeconfig", "reader", "-"];
    let unread = audit_log(folder.path(), &arguments, REAL.as_bytes());
    assert!(
        unread.out.contains("unknown: this user cannot read"),
        "{}",
        unread.out
    );
    assert!(!unread.out.contains("1 fixed"), "{}", unread.out);
    assert_eq!(unread.status, 1);
    cluster
        .kubectl(&["delete", "-n", "shop", "deployment", "web"])
        .succeeded();
    let since = ["--since", "2026-11-22T01:04:50Z", "--namespace", "shop"];
    assert_eq!(run(&since).status, 0, "what was denied is fixed");
    for name in ["a.log", "b.log"] {
        fs::write(folder.path().join(name), REAL).unwrap();
    }
    let two = audit_log(
        folder.path(),
        &[
            "--check-cluster",
            "--kubeconfig",
            &kubeconfig,
            "a=a.log",
            "b=b.log",
        ],
        b"",
    );
    assert_eq!(two.status, 2, "a kubeconfig is of one cluster");
    assert!(two.err.contains("the logs are of a, b"), "{}", two.err);
}
