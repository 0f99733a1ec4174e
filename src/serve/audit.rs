//! The audit log: one line for every review, in the form of the other logs. Written by hand, because it stands on the
//! path of every pod: a line costs a third of what the general machinery takes for it.

use std::io::Write as _;

use jiff::Timestamp;
use serde::Serialize;
use tracing::Level;

use crate::admission::Record;
use crate::model::os::Verdict;
use crate::process::logs::LogFormat;

/// One line, as the fields of the JSON form; the text form has the same.
#[derive(Serialize)]
struct Line<'l> {
    timestamp: String,
    level: &'static str,
    target: &'static str,
    message: &'static str,
    phase: &'static str,
    decision: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<&'static str>,
    operation: &'static str,
    kind: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subresource: &'l str,
    namespace: &'l str,
    name: &'l str,
    user: &'l str,
    uid: &'l str,
    dry_run: bool,
    policy: &'l str,
    rules: &'l [&'static str],
    #[serde(flatten, serialize_with = "as_map")]
    annotations: &'l [(&'static str, String)],
}

/// The annotations that say more than the fields before them.
fn as_map<S: serde::Serializer>(
    annotations: &&[(&'static str, String)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(told(annotations))
}

fn told<'l>(annotations: &'l [(&'static str, String)]) -> impl Iterator<Item = (&'static str, &'l str)> {
    (annotations.iter())
        .filter(|(key, _)| !matches!(*key, "decision" | "verdict" | "policy" | "rules"))
        .map(|(key, value)| (*key, value.as_str()))
}

/// Writes the line of a review, unless target `audit` is off.
pub fn log(format: LogFormat, phase: &'static str, record: &Record) {
    if !tracing::enabled!(target: "audit", Level::INFO) {
        return;
    }
    let line = Line {
        timestamp: format!("{:.6}", Timestamp::now()),
        level: "INFO",
        target: "audit",
        message: "review",
        phase,
        decision: record.decision,
        verdict: record.verdict.map(Verdict::as_str),
        operation: record.operation,
        kind: record.kind,
        subresource: &record.subresource,
        namespace: &record.namespace,
        name: &record.name,
        user: &record.user,
        uid: &record.uid,
        dry_run: record.dry_run,
        policy: &record.policy,
        rules: &record.rules,
        annotations: &record.annotations,
    };
    let mut bytes = Vec::with_capacity(768);
    // Neither can fail in memory; a line that cannot be written has nobody to tell.
    let _ = match format {
        LogFormat::Json => serde_json::to_writer(&mut bytes, &line).map_err(std::io::Error::from),
        LogFormat::Text => text(&mut bytes, &line),
    };
    bytes.push(b'\n');
    let _ = std::io::stderr().lock().write_all(&bytes);
}

fn text(out: &mut Vec<u8>, line: &Line<'_>) -> std::io::Result<()> {
    write!(
        out,
        "{}  {} {}: {}",
        line.timestamp, line.level, line.target, line.message
    )?;
    write!(out, " phase={} decision={}", line.phase, line.decision)?;
    if let Some(verdict) = line.verdict {
        write!(out, " verdict={verdict}")?;
    }
    write!(out, " operation={} kind={}", line.operation, line.kind)?;
    if !line.subresource.is_empty() {
        write!(out, " subresource={:?}", line.subresource)?;
    }
    write!(
        out,
        " namespace={:?} name={:?} user={:?}",
        line.namespace, line.name, line.user
    )?;
    write!(
        out,
        " uid={:?} dry_run={} policy={:?}",
        line.uid, line.dry_run, line.policy
    )?;
    out.extend_from_slice(b" rules=");
    for (index, rule) in line.rules.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"" } else { b"," });
        out.extend_from_slice(rule.as_bytes());
    }
    told(line.annotations).try_for_each(|(key, value)| write!(out, " {key}={value:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line<'l>(annotations: &'l [(&'static str, String)]) -> Line<'l> {
        Line {
            timestamp: "2026-01-01T00:00:00.000000Z".into(),
            level: "INFO",
            target: "audit",
            message: "review",
            phase: "validate",
            decision: "deny",
            verdict: Some("Windows"),
            operation: "CREATE",
            kind: "Pod",
            subresource: "",
            namespace: "shop",
            name: "a\nb",
            user: "alice",
            uid: "u-1",
            dry_run: false,
            policy: "built-in",
            rules: &["host-pid", "run-as-user"],
            annotations,
        }
    }

    #[test]
    fn both_forms_say_the_same_on_one_line() {
        let annotations = [
            ("decision", "deny".to_owned()),
            ("would-deny", "host-ipc".to_owned()),
        ];
        let mut out = Vec::new();
        text(&mut out, &line(&annotations)).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "2026-01-01T00:00:00.000000Z  INFO audit: review phase=validate decision=deny verdict=Windows \
             operation=CREATE kind=Pod namespace=\"shop\" name=\"a\\nb\" user=\"alice\" uid=\"u-1\" dry_run=false \
             policy=\"built-in\" rules=host-pid,run-as-user would-deny=\"host-ipc\""
        );
        let json: serde_json::Value = serde_json::to_value(line(&annotations)).unwrap();
        assert_eq!(json["would-deny"], "host-ipc");
        assert_eq!(json["rules"][1], "run-as-user");
        assert_eq!(json["decision"], "deny");
        assert!(json.get("subresource").is_none());
    }
}
