//! Reading JSON into a type of ours, with everything that is wrong with it, where serde stops at the first.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::field_error::{FieldError, FieldStep, spell};
use crate::model::syntax::suggest::nearest;
use crate::model::syntax::text::cut;

/// The most unknown fields that are omitted from one object before it is rejected.
const MOST_UNKNOWN_FIELDS: usize = 200;
/// The most corrections that are tried on one object before it is rejected; the object is read again after each.
const MOST_CORRECTIONS: usize = 200;

/// What has been read.
pub struct Decoded<T> {
    /// The object; with problems only its valid parts, and `None` if they cannot be determined.
    pub read: Option<T>,
    /// What is wrong with it, in no order.
    pub problems: Vec<FieldError>,
    /// The places that were corrected to be able to read on: what is found wrong there later is not the author's doing.
    pub corrected: BTreeSet<Vec<FieldStep>>,
}

impl<T> Decoded<T> {
    /// What is made of the object where there is nothing wrong with it; else everything that is.
    pub fn then<M>(self, make: impl FnOnce(T) -> Result<M, Vec<FieldError>>) -> Result<M, Vec<FieldError>> {
        let mut problems = self.problems;
        match self.read.map(make) {
            Some(Ok(made)) if problems.is_empty() => return Ok(made),
            Some(Ok(_)) | None => {}
            Some(Err(more)) => {
                // What was put in the place of something wrong is not worth a word.
                let is_new = |problem: &FieldError| !stands_below(&problem.path, self.corrected.iter());
                problems.extend(more.into_iter().filter(is_new));
            }
        }
        Err(problems)
    }
}

/// Reads a value. With `left_out`, unknown fields are omitted and recorded there; otherwise they are a problem.
pub fn read<T: DeserializeOwned>(
    mut value: Value,
    mut left_out: Option<&mut BTreeSet<String>>,
) -> Decoded<T> {
    let mut problems = Vec::new();
    let mut tried: BTreeMap<Vec<FieldStep>, usize> = BTreeMap::new();
    let mut corrections = 0;
    let mut read = None;
    while corrections < MOST_CORRECTIONS {
        let error = match serde_path_to_error::deserialize::<_, T>(&value) {
            Ok(right) => {
                read = Some(right);
                break;
            }
            Err(error) => error,
        };
        let (place, message) = (places(error.path()), error.inner().to_string());
        if message.starts_with("unknown field")
            && let Some(unknown) = left_out.as_deref_mut()
            && unknown.len() < MOST_UNKNOWN_FIELDS
            && remove(&mut value, &place)
        {
            unknown.insert(spell(&place));
            continue;
        }
        corrections += 1;
        // serde asks for the text first, and names what there is only then.
        let found = at(&value, &place);
        if message.ends_with("expected string or map") && !found.is_some_and(Value::is_string) {
            let text = found.map(Value::to_string).unwrap_or_default();
            if put(&mut value, &place, Value::String(text)) {
                continue;
            }
        }
        let problem = problem(&place, &message, at(&value, &place));
        let place = problem.path.clone();
        if !stands_below(&place, tried.keys()) {
            problems.push(problem);
        }
        let times = tried.entry(place.clone()).or_default();
        if !correct(&mut value, &place, *times) {
            break;
        }
        *times += 1;
    }
    Decoded {
        read,
        problems,
        corrected: tried.into_keys().collect(),
    }
}

/// What serde says, as a problem: of a field that is missing at the field, else where it stumbled.
fn problem(place: &[FieldStep], error: &str, found: Option<&Value>) -> FieldError {
    let mut path = place.to_vec();
    let message = if let Some(field) = missing_field(error) {
        path.push(FieldStep::Key(field.to_owned()));
        format!(
            "{}: the field \"{field}\" is missing; it has no default",
            spell(place)
        )
    } else {
        explain(place, error, found)
    };
    FieldError { path, message }
}

/// Whether a place is one of these, or below one of them.
fn stands_below<'p>(place: &[FieldStep], mut places: impl Iterator<Item = &'p Vec<FieldStep>>) -> bool {
    places.any(|other| place.starts_with(other))
}

fn places(path: &serde_path_to_error::Path) -> Vec<FieldStep> {
    use serde_path_to_error::Segment;
    path.iter()
        .filter_map(|segment| match segment {
            Segment::Map { key } => Some(FieldStep::Key(key.clone())),
            Segment::Seq { index } => Some(FieldStep::Index(*index)),
            Segment::Enum { .. } | Segment::Unknown => None,
        })
        .collect()
}

fn missing_field(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.strip_suffix('`')
}

fn at<'v>(from: &'v Value, place: &[FieldStep]) -> Option<&'v Value> {
    place.iter().try_fold(from, |value, step| match step {
        FieldStep::Key(key) => value.get(key),
        FieldStep::Index(index) => value.get(index),
    })
}

fn at_mut<'v>(from: &'v mut Value, place: &[FieldStep]) -> Option<&'v mut Value> {
    place.iter().try_fold(from, |value, step| match step {
        FieldStep::Key(key) => value.get_mut(key),
        FieldStep::Index(index) => value.get_mut(index),
    })
}

/// Puts a value at a place; says whether the place can be.
fn put(into: &mut Value, place: &[FieldStep], value: Value) -> bool {
    match place.split_last() {
        Some((FieldStep::Key(key), parent)) => {
            let parent = at_mut(into, parent).and_then(Value::as_object_mut);
            parent.map(|map| map.insert(key.clone(), value)).is_some()
        }
        Some((FieldStep::Index(_), _)) => at_mut(into, place).map(|item| *item = value).is_some(),
        None => false,
    }
}

/// Removes the field at a place; says whether it was there.
fn remove(from: &mut Value, place: &[FieldStep]) -> bool {
    let Some((FieldStep::Key(key), parent)) = place.split_last() else {
        return false;
    };
    let parent = at_mut(from, parent).and_then(Value::as_object_mut);
    parent.is_some_and(|map| map.shift_remove(key).is_some())
}

/// Removes a value that cannot be read, so that its neighbours can be read. A required value is replaced with a
/// placeholder, a different one each time. Returns whether anything was left to try.
fn correct(value: &mut Value, place: &[FieldStep], times: usize) -> bool {
    if times == 0 && remove(value, place) {
        return true;
    }
    // One of them fits every type that a field of ours has.
    let others = [
        json!(""),
        json!("Exists"),
        json!("Audit"),
        json!({}),
        json!([]),
        json!(false),
        json!(0),
    ];
    let other = others.into_iter().nth(times);
    other.is_some_and(|other| put(value, place, other))
}

/// Rewrites serde's message with the nearest valid name ("unknown field `validaton`, expected one of …") or with the
/// value ("invalid type: string, expected i32").
fn explain(place: &[FieldStep], error: &str, found: Option<&Value>) -> String {
    let mut quoted = error.split('`').skip(1).step_by(2);
    let unknown = error.starts_with("unknown field") || error.starts_with("unknown variant");
    let (Some(written), true) = (quoted.next(), unknown) else {
        let what = type_error(error, found).unwrap_or_else(|| error.to_owned());
        return format!("{}: {what}", spell(place));
    };
    let known: Vec<&str> = quoted.collect();
    let (what, place) = match place.split_last() {
        Some((_, parent)) if error.starts_with("unknown field") => ("field", parent),
        _ => ("value", place),
    };
    let hint = match nearest(written, known.iter().copied()) {
        Some(name) => format!("did you mean {name}?"),
        None => format!("use one of {}", known.join(", ")),
    };
    format!("{}: unknown {what} \"{written}\"; {hint}", spell(place))
}

/// The expected type, the value, and how to write it.
fn type_error(error: &str, found: Option<&Value>) -> Option<String> {
    if !error.starts_with("invalid type") && !error.starts_with("invalid value") {
        return None;
    }
    let found = found?;
    let expected = match error.rsplit_once(", expected ")?.1 {
        "i32" if found.is_i64() || found.is_u64() => "a whole number from -2147483648 to 2147483647",
        "i32" => "a whole number",
        "a string" => "text",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "a map",
        other if other.starts_with("struct ") => "a map of fields",
        other => other,
    };
    let written = match found {
        Value::Null => "nothing".to_owned(),
        Value::Bool(_) | Value::Number(_) => found.to_string(),
        Value::String(text) => format!("the text \"{}\"", cut(text, 64)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
    };
    let remedy = match found {
        Value::Bool(_) | Value::Number(_) if expected == "text" => {
            format!("; write it in quotes: \"{found}\"")
        }
        Value::String(text) if expected == "a whole number" && text.parse::<i32>().is_ok() => {
            format!("; write it without quotes: {text}")
        }
        Value::String(text) if expected == "true or false" && matches!(text.as_str(), "true" | "false") => {
            format!("; write it without quotes: {text}")
        }
        _ => String::new(),
    };
    Some(format!("expected {expected}, found {written}{remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::pod_policy::WindowsPodPolicySpec;

    fn problems(mut spec: Value) -> Vec<String> {
        let fields = spec.as_object_mut().unwrap();
        fields.entry("mode").or_insert_with(|| json!("Audit"));
        let reading = read::<WindowsPodPolicySpec>(spec, None);
        assert!(reading.read.is_some(), "it was given up: {:?}", reading.corrected);
        reading
            .problems
            .into_iter()
            .map(|problem| problem.message)
            .collect()
    }

    #[test]
    fn what_stands_there_and_what_has_to_is_reported_in_words() {
        for (spec, reported) in [
            (
                json!({"priority": "high"}),
                "priority: expected a whole number, found the text \"high\"",
            ),
            (
                json!({"priority": "10"}),
                "priority: expected a whole number, found the text \"10\"; write it without quotes: 10",
            ),
            (
                json!({"priority": 1.5}),
                "priority: expected a whole number, found 1.5",
            ),
            (
                json!({"priority": 99_999_999_999_i64}),
                "priority: expected a whole number from -2147483648 to 2147483647, found 99999999999",
            ),
            (
                json!({"placement": null}),
                "placement: expected a map of fields, found nothing",
            ),
            (
                json!({"exemptions": {"name": "a"}}),
                "exemptions: expected a list, found a map",
            ),
            (
                json!({"validation": {"rules": {"run-as-user": "Warn"}}}),
                "validation.rules: expected a list, found a map",
            ),
            (
                json!({"validation": {"action": "Off"}}),
                "validation.action: unknown value \"Off\"; use one of Disabled, Audit, Warn, Deny",
            ),
            (
                json!({"validation": {"action": "DENY"}}),
                "validation.action: unknown value \"DENY\"; did you mean Deny?",
            ),
            (
                json!({"namespaceOverrides": false}),
                "namespaceOverrides: unknown value \"false\"; use one of None, Stricter, Any",
            ),
            (
                json!({"namespaceSelector": {"matchLabels": {"example.com/team": 7}}}),
                "namespaceSelector.matchLabels[example.com/team]: expected text, found 7; write it in \
                 quotes: \"7\"",
            ),
            (
                json!({"exemptions": [{"name": "e", "expiresOn": "2027-01-01", "owner": "a", "rules": ["*"]}]}),
                "exemptions[0]: the field \"reason\" is missing; it has no default",
            ),
        ] {
            assert_eq!(problems(spec), [reported]);
        }
    }

    #[test]
    fn everything_that_is_wrong_is_found_and_nothing_that_was_put_in_its_place() {
        let found = problems(json!({
            "mode": "enforce",
            "priority": [],
            "tomorrow": 1,
            "namespaceSelector": {"matchExpressions": [{"key": 1, "operator": "Is", "values": [true]}, 5]},
            "validation": {"rules": [{"name": "run-as-user", "action": 1}, {"name": "host-pid", "action": "Warn"}]},
            "placement": {"runtimeClasses": {"names": ["win", {"release": []}, {"release": "a", "name": {}}]},
                "toleratedTaints": [{}]},
            "exemptions": [{"rules": "all"}],
        }));
        let begin = |start: &str| found.iter().filter(|message| message.starts_with(start)).count();
        for start in [
            "mode: unknown value \"enforce\"; did you mean Enforce?",
            "priority: expected a whole number, found a list",
            "the policy: unknown field \"tomorrow\"",
            "namespaceSelector.matchExpressions[0].key: expected text, found 1",
            "namespaceSelector.matchExpressions[0].operator: unknown value \"Is\"",
            "namespaceSelector.matchExpressions[0].values[0]: expected text, found true",
            "namespaceSelector.matchExpressions[1]: expected a map of fields, found 5",
            "validation.rules[0].action: unknown value \"1\"",
            "placement.runtimeClasses.names[0]: expected a map of fields, found the text \"win\"",
            "placement.runtimeClasses.names[1].release: expected text, found a list",
            "placement.runtimeClasses.names[1]: the field \"name\"",
            "placement.runtimeClasses.names[2].name: expected text, found a map",
            "placement.toleratedTaints[0]: the field \"key\"",
            "exemptions[0].rules: expected a list, found the text \"all\"",
            "exemptions[0]: the field \"name\"",
            "exemptions[0]: the field \"expiresOn\"",
            "exemptions[0]: the field \"owner\"",
            "exemptions[0]: the field \"reason\"",
        ] {
            assert_eq!(begin(start), 1, "{start}: {found:#?}");
        }
        assert_eq!(found.len(), 18, "{found:#?}");
    }

    #[test]
    fn nonsense_comes_to_an_end() {
        let fields: serde_json::Map<String, Value> =
            (0..1000).map(|i| (format!("field{i}"), json!(i))).collect();
        for value in [Value::Object(fields), json!(5), json!("text"), Value::Null] {
            let reading = read::<WindowsPodPolicySpec>(value, None);
            assert!(reading.read.is_none() && !reading.problems.is_empty());
            assert!(reading.problems.len() <= MOST_CORRECTIONS + 1);
        }
    }
}
