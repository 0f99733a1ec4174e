//! Parts of the JSON schemas of reports that no derive knows.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

/// A map from the names of an enum to counts.
pub fn counts_by<E: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let names = E::json_schema(generator);
    let names = names.get("oneOf").and_then(Value::as_array);
    let properties: Map<String, Value> = (names.into_iter().flatten())
        .filter_map(|name| {
            let count = json!({"type": "integer", "minimum": 0, "description": name.get("description")});
            Some((name.get("const")?.as_str()?.to_owned(), count))
        })
        .collect();
    json_schema!({"type": "object", "properties": properties})
}

/// The schema of a JSON Patch (RFC 6902).
pub fn json_patch(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "description": "An operation of a JSON Patch (RFC 6902).",
            "type": "object",
            "properties": {
                "op": {"enum": ["add", "remove", "replace", "move", "copy", "test"]},
                "path": {"type": "string", "description": "The JSON Pointer of the field."},
                "from": {"type": "string", "description": "For move and copy: the JSON Pointer of the source."},
                "value": {"description": "For add, replace and test: the value."},
            },
            "required": ["op", "path"],
        },
    })
}

/// The schema of a report as a command prints it.
pub fn of_report<R: JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<R>().to_value()
}
