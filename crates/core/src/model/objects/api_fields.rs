//! The names of the fields of Kubernetes' own kinds, as data, and the fields of an object that its type does not have. The
//! API server drops such fields, or rejects the object if the client requests it, as kubectl does by default.

mod unknown;

use std::collections::HashMap;
use std::sync::LazyLock;

pub use self::unknown::{MeantField, UnknownField, unknown_fields};

/// The types: the table's own comment describes its form. A test compares it with the client library.
const TABLE: &str = include_str!("api_fields/fields.txt");

/// A type of the API: its fields by name.
#[derive(Debug)]
struct ApiType {
    name: &'static str,
    /// Sorted by name.
    fields: Vec<ApiField>,
}

/// A field of a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ApiField {
    name: &'static str,
    /// The type of its value, or of the items of its list; `None` for scalars, and for maps of scalars.
    of: Option<usize>,
    is_list: bool,
}

/// The types of every kind.
#[derive(Debug, Default)]
struct ApiTypes {
    types: Vec<ApiType>,
    /// The type of each kind, by `apiVersion` and kind.
    kinds: HashMap<(&'static str, &'static str), usize>,
}

impl ApiTypes {
    /// The table, read once.
    fn get() -> &'static ApiTypes {
        static TYPES: LazyLock<ApiTypes> = LazyLock::new(|| ApiTypes::read(TABLE));
        &TYPES
    }

    fn read(table: &'static str) -> ApiTypes {
        let lines = || {
            table
                .lines()
                .filter(|line| !line.is_empty() && !line.starts_with('#'))
        };
        let types = || lines().filter(|line| !line.starts_with("kind "));
        let name = |line: &'static str| line.split(' ').next().unwrap_or_default();
        let index: HashMap<&str, usize> = types().map(name).zip(0..).collect();
        let field = |text: &'static str| {
            let (name, of) = text
                .split_once(':')
                .map_or((text, None), |(name, of)| (name, Some(of)));
            let item = of.and_then(|of| of.strip_prefix('[')?.strip_suffix(']'));
            ApiField {
                name,
                of: item.or(of).and_then(|of| index.get(of).copied()),
                is_list: item.is_some(),
            }
        };
        let read = |line: &'static str| ApiType {
            name: name(line),
            fields: line.split(' ').skip(1).map(field).collect(),
        };
        let kinds = lines().filter_map(|line| {
            let mut words = line.strip_prefix("kind ")?.split(' ');
            let (api_version, kind, of) = (words.next()?, words.next()?, words.next()?);
            Some(((api_version, kind), *index.get(of)?))
        });
        ApiTypes {
            types: types().map(read).collect(),
            kinds: kinds.collect(),
        }
    }

    /// The fields of a type.
    fn fields(&self, of: usize) -> &[ApiField] {
        self.types.get(of).map_or(&[], |of| &of.fields)
    }

    /// A field of a type, by its name.
    fn field(&self, of: usize, name: &str) -> Option<ApiField> {
        let fields = self.fields(of);
        let at = fields.binary_search_by_key(&name, |field| field.name).ok()?;
        fields.get(at).copied()
    }

    /// The name of a type; empty if there is no such type.
    fn name(&self, of: usize) -> &'static str {
        self.types.get(of).map_or("", |of| of.name)
    }
}
