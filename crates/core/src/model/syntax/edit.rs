//! Edits: changes as data, and their spelling as a JSON Patch (RFC 6902).

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, MoveOperation, Patch, PatchOperation, RemoveOperation};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::path::Path;

/// One change to an object.
///
/// The parent of the path must exist; the engine's draft, which plans every edit, ensures that.
#[derive(Clone, PartialEq, Debug)]
pub enum Edit {
    /// Sets a value at a path, replacing any existing value.
    Set(Path, Value),
    Remove(Path),
    /// Appends an item to an existing list.
    Append(Path, Value),
    /// Moves a value from the first path to the second one: the new name of a key.
    Move(Path, Path),
}

impl Edit {
    /// The path that is changed (for `Append`, the list; for `Move`, the path as written).
    pub fn path(&self) -> &Path {
        match self {
            Edit::Set(path, _) | Edit::Remove(path) | Edit::Append(path, _) | Edit::Move(path, _) => path,
        }
    }

    /// Replaces its paths: those of a part of an object by those of the object.
    pub fn relocate(&mut self, place: impl Fn(&Path) -> Path) {
        match self {
            Edit::Set(path, _) | Edit::Remove(path) | Edit::Append(path, _) => *path = place(path),
            Edit::Move(from, to) => {
                *from = place(from);
                *to = place(to);
            }
        }
    }
}

/// The edit as one JSON Patch operation.
impl From<Edit> for PatchOperation {
    fn from(edit: Edit) -> Self {
        match edit {
            Edit::Set(path, value) => {
                let path = path.pointer();
                PatchOperation::Add(AddOperation { path, value })
            }
            Edit::Append(path, value) => {
                let mut path = path.pointer();
                path.push_back("-");
                PatchOperation::Add(AddOperation { path, value })
            }
            Edit::Remove(path) => PatchOperation::Remove(RemoveOperation { path: path.pointer() }),
            Edit::Move(from, path) => PatchOperation::Move(MoveOperation {
                from: from.pointer(),
                path: path.pointer(),
            }),
        }
    }
}

/// Also one JSON Patch operation, without a copy of the value.
impl Serialize for Edit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Operation<'e> {
            op: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            from: Option<PointerBuf>,
            path: PointerBuf,
            #[serde(skip_serializing_if = "Option::is_none")]
            value: Option<&'e Value>,
        }
        let (mut path, mut from) = (self.path().pointer(), None);
        let (op, value) = match self {
            Edit::Move(_, to) => {
                from = Some(std::mem::replace(&mut path, to.pointer()));
                ("move", None)
            }
            Edit::Set(_, value) => ("add", Some(value)),
            Edit::Append(_, value) => {
                path.push_back("-");
                ("add", Some(value))
            }
            Edit::Remove(_) => ("remove", None),
        };
        Operation {
            op,
            from,
            path,
            value,
        }
        .serialize(serializer)
    }
}

/// The edits as a JSON Patch, in their order.
pub fn to_json_patch(edits: &[Edit]) -> Patch {
    Patch(edits.iter().cloned().map(PatchOperation::from).collect())
}

/// An object with one string member: the value for a missing map.
pub fn string_map(key: &str, value: &str) -> Value {
    let mut map = Map::new();
    map.insert(key.to_owned(), Value::from(value));
    Value::Object(map)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn edits_become_json_patch_operations() {
        let selector = Path::of(&["spec", "nodeSelector"]);
        let edits = [
            Edit::Set(selector.clone().key("kubernetes.io/os"), "windows".into()),
            Edit::Remove(selector.clone().key("beta.kubernetes.io/os")),
            Edit::Append(Path::of(&["spec", "tolerations"]), json!({"key": "os"})),
            Edit::Move(selector.clone().key("a"), selector.key("b")),
        ];
        assert_eq!(
            serde_json::to_value(to_json_patch(&edits)).unwrap(),
            json!([
                {"op": "add", "path": "/spec/nodeSelector/kubernetes.io~1os", "value": "windows"},
                {"op": "remove", "path": "/spec/nodeSelector/beta.kubernetes.io~1os"},
                {"op": "add", "path": "/spec/tolerations/-", "value": {"key": "os"}},
                {"op": "move", "from": "/spec/nodeSelector/a", "path": "/spec/nodeSelector/b"},
            ])
        );
        assert_eq!(
            serde_json::to_string(&edits).unwrap(),
            to_json_patch(&edits).to_string()
        );
    }
}
