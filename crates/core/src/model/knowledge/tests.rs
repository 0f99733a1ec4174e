use jiff::civil::date;
use serde_json::{Value, json};

use super::*;
use crate::model::windows::build::Build;

/// A file with these fault rows.
fn file(faults: &[Value]) -> Value {
    json!({"schema": SCHEMA, "source": "Example", "date": "2027-03-01", "faults": faults})
}

/// A row for kubelet 1.40.0.
fn row(id: &str, date: &str) -> Value {
    json!({
        "id": id, "date": date, "component": "kubelet", "kubelet": [{"from": "1.40.0", "fixed": "1.40.1"}], "certain": true,
        "symptom": "it does not start", "remedy": "upgrade it", "sources": ["https://example.com/1"],
        "examples": {"affected": {"kubelet": "v1.40.0"}, "unaffected": {"kubelet": "v1.40.1"}},
    })
}

fn parse(file: &Value) -> Result<KnowledgeFile, KnowledgeError> {
    KnowledgeFile::parse(&file.to_string())
}

fn kubelet(version: &str) -> NodeVersions {
    NodeVersions {
        kubelet: version.to_owned(),
        ..NodeVersions::default()
    }
}

#[test]
fn the_rows_of_this_program_have_the_form_of_the_schema_and_their_examples_hold() {
    let file = KnowledgeFile::parse(BUILT_IN).unwrap_or_else(|error| panic!("{error}"));
    let hidden: Vec<&str> = (file.faults.iter())
        .filter(|fault| fault.examples.is_none())
        .map(|fault| fault.id.as_str())
        .collect();
    assert_eq!(
        hidden,
        ["windows-2022-cimfs", "cve-2023-3893", "calico-hns-network-race"]
    );
    let known = Knowledge::built_in();
    assert_eq!(known.sources[0].rows, file.rows());
    assert_eq!(known.to_file(), file);
    let newest = file.faults.iter().map(|fault| fault.date).max().unwrap();
    assert!(file.date >= newest, "{newest} is newer than the file");
}

#[test]
fn a_file_adds_rows_and_supersedes_a_row_only_with_a_newer_date() {
    let known = Knowledge::built_in();
    let id = "kubelet-1.31-socket";
    for (day, supersedes) in [("2026-11-22", false), ("2026-11-23", true)] {
        let read = parse(&file(&[row("new", "2020-01-01"), row(id, day)])).unwrap();
        let all = known.with(read);
        assert_eq!(all.faults.len(), known.faults.len() + 1);
        let is_known = |version: &str| {
            all.faults_of(&kubelet(version))
                .iter()
                .any(|fault| fault.id == id)
        };
        assert_eq!(
            (is_known("v1.31.0"), is_known("v1.40.0")),
            (!supersedes, supersedes),
            "{day}"
        );
        let rows: Vec<usize> = all.sources.iter().map(|source| source.rows).collect();
        let own = known.sources[0].rows;
        assert_eq!(rows, if supersedes { [own - 1, 2] } else { [own, 1] });
        let lines = all.report(date(2027, 3, 1)).lines();
        assert!(
            lines.len() == 1 && lines[0].contains("Example of 2027-03-01"),
            "{lines:?}"
        );
    }
}

#[test]
fn a_file_of_another_schema_is_refused_whatever_it_contains() {
    let newer = json!({"schema": "transom.dev/knowledge/v2", "rows": 1});
    let Err(KnowledgeError::Schema(schema)) = parse(&newer) else {
        panic!("it was read");
    };
    assert_eq!(schema, "transom.dev/knowledge/v2");
    assert_eq!(parse(&json!({})), Err(KnowledgeError::Schema(String::new())));
    assert!(matches!(parse(&json!(1)), Err(KnowledgeError::Form(_))));
}

#[test]
fn a_wrong_row_is_named_with_its_id() {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut row = row("r", "2027-01-01");
        change(&mut row);
        parse(&file(&[row])).unwrap_err().to_string()
    };
    for (change, message) in [
        (
            &(|row: &mut Value| row["id"] = json!("R 1")) as &dyn Fn(&mut Value),
            "is not an id",
        ),
        (&|row| row["symptom"] = json!("it stops."), "r: a text is empty"),
        (&|row| row["remedy"] = json!("two\nlines"), "r: a text is empty"),
        (&|row| row["sources"] = json!([]), "r: it needs a source"),
        (
            &|row| row["kubelet"] = json!([{"from": "1.40.0", "fixed": "1.39.0"}]),
            "ends before it begins",
        ),
        (
            &|row| row["kubelet"] = json!([{"fixed": "1.40.1", "below": "1.40.2"}]),
            "fixed and below",
        ),
        (
            &|row| row["kubelet"] = json!([{"fixed": "1.40"}]),
            "faults[0].kubelet[0]",
        ),
        (
            &|row| row["examples"]["affected"] = json!({"kubelet": "v1.40.1"}),
            "affected example does not match",
        ),
        (
            &|row| row["examples"]["unaffected"] = json!({"kubelet": "v1.40.0"}),
            "unaffected example matches",
        ),
        (&|row| row["kubelet"] = json!([]), "no node shows it"),
        (&|row| row["platform"] = json!("Moon"), "faults[0].platform"),
        (&|row| row["severity"] = json!("high"), "severity"),
    ] {
        let error = with(change);
        assert!(error.contains(message), "{message}: {error}");
    }
    let twice = parse(&file(&[row("r", "2027-01-01"), row("r", "2027-01-02")])).unwrap_err();
    assert_eq!(twice.to_string(), "two rows have the id r");
}

#[test]
fn rows_are_old_after_six_months() {
    let known = Knowledge::built_in();
    let day = known.date().unwrap();
    assert_eq!(known.advice(day), None);
    assert_eq!(
        known.advice(day.saturating_add(jiff::Span::new().days(183))),
        None
    );
    let advice = known
        .advice(day.saturating_add(jiff::Span::new().days(184)))
        .unwrap();
    assert!(
        advice.contains(&day.to_string()) && advice.contains("--knowledge"),
        "{advice}"
    );
    let newer = known.with(parse(&file(&[])).unwrap());
    assert_eq!(newer.date(), Some(date(2027, 3, 1)));
}

#[test]
fn the_newest_row_about_the_same_thing_is_used_whatever_its_id() {
    let support = |day: &str, ends: &str| {
        json!({"id": format!("aks-{day}"), "date": day, "platform": "AKS",
        "build": 20348, "ends": ends, "source": "https://example.com/1"})
    };
    let containerd = |day: &str, ends: &str| {
        json!({"id": format!("containerd-{day}"), "date": day, "minor": 7,
        "ends": ends, "source": "https://example.com/1"})
    };
    let rows = |of: &dyn Fn(&str, &str) -> Value| {
        json!([
            of("2030-01-01", "2031-01-01"),
            of("2030-02-01", "2031-02-01"),
            of("2030-02-01", "2031-02-02"),
            of("2029-01-01", "2031-03-01")
        ])
    };
    let mut file = file(&[]);
    (file["support"], file["containerd"]) = (rows(&support), rows(&containerd));
    file["support"][2]["id"] = json!("aks-third");
    file["containerd"][2]["id"] = json!("containerd-third");
    let all = Knowledge::built_in().with(parse(&file).unwrap());
    let row = all.support_of(NodePlatform::Aks, Build::new(20348)).unwrap();
    assert_eq!(row.ends, Some(date(2031, 2, 1)));
    assert_eq!(all.containerd_end((1, 7)), Some(date(2031, 2, 1)));
}
