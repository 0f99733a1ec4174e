//! Field paths: positions in an object, printed like kubectl and the API server print them.

use std::fmt;

use json_patch::jsonptr::{PointerBuf, Token};
use serde_json::Value;

use super::text::{cut, one_line};

/// The maximum length of a printed key, in bytes: enough for every valid key.
const LONGEST_KEY: usize = 320;

/// One step of a [`Path`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Segment {
    /// A field of a Kubernetes type, such as `spec`.
    Field(&'static str),
    /// A field that its Kubernetes type does not have.
    Unknown(Box<str>),
    /// A key of a map, such as a label; printed in brackets because it may contain dots.
    Key(Box<str>),
    /// An item of a list, with its name (container, volume, port) if it has one.
    Item(usize, Option<Box<str>>),
}

/// A position in an object, from the object's root.
///
/// Three spellings of the same position: [`Path`]'s `Display` is that of the API server (`spec.containers[0].image`),
/// [`Path::named`] is for people and survives a reordering (`spec.containers[web].image`), [`Path::pointer`] is a JSON
/// Pointer (RFC 6901).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Path(Vec<Segment>);

impl Path {
    /// The path of the object itself.
    pub const ROOT: Path = Path(Vec::new());

    /// A path of plain fields.
    pub fn of(fields: &[&'static str]) -> Self {
        Path(fields.iter().map(|f| Segment::Field(f)).collect())
    }

    /// This path with another field.
    #[must_use]
    pub fn field(mut self, name: &'static str) -> Self {
        self.0.push(Segment::Field(name));
        self
    }

    /// This path with more fields.
    #[must_use]
    pub fn fields(mut self, names: &[&'static str]) -> Self {
        self.0.extend(names.iter().map(|f| Segment::Field(f)));
        self
    }

    /// This path with a field that its type does not have.
    #[must_use]
    pub fn unknown_field(mut self, name: &str) -> Self {
        self.0.push(Segment::Unknown(name.into()));
        self
    }

    /// This path with a key of a map.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.0.push(Segment::Key(key.into()));
        self
    }

    /// This path with an item of a list without names.
    #[must_use]
    pub fn item(mut self, index: usize) -> Self {
        self.0.push(Segment::Item(index, None));
        self
    }

    /// This path with an item of a list, by name.
    #[must_use]
    pub fn named_item(mut self, index: usize, name: &str) -> Self {
        // No valid name is longer (RFC 1123 subdomain); longer names are not stored.
        let is_name = (1..=253).contains(&name.len()) && !name.chars().any(char::is_control);
        self.0.push(Segment::Item(index, is_name.then(|| name.into())));
        self
    }

    /// This path with these steps below it.
    #[must_use]
    pub fn join(mut self, below: &[Segment]) -> Self {
        self.0.extend_from_slice(below);
        self
    }

    /// The steps below another path; `None` if this path is not below it. The names of list items do not matter, nor whether a
    /// step is a field or a key.
    pub fn below(&self, other: &Path) -> Option<&[Segment]> {
        let is_same = |(a, b): (&Segment, &Segment)| match (a, b) {
            (Segment::Item(a, _), Segment::Item(b, _)) => a == b,
            (Segment::Field(a), Segment::Key(b)) | (Segment::Key(b), Segment::Field(a)) => **a == **b,
            (a, b) => a == b,
        };
        let (own, below) = self.0.split_at_checked(other.0.len())?;
        own.iter().zip(&other.0).all(is_same).then_some(below)
    }

    /// The steps, outermost first.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// The name of the last field or key; empty for an item of a list, and at the root.
    pub fn last_name(&self) -> &str {
        match self.0.last() {
            Some(Segment::Field(name)) => name,
            Some(Segment::Key(name) | Segment::Unknown(name)) => name,
            Some(Segment::Item(..)) | None => "",
        }
    }

    /// Whether its type does not have the last field.
    pub fn is_unknown(&self) -> bool {
        matches!(self.0.last(), Some(Segment::Unknown(_)))
    }

    /// The parent path, or `None` at the root.
    pub fn parent(&self) -> Option<Path> {
        let (_, rest) = self.0.split_last()?;
        Some(Path(rest.to_vec()))
    }

    /// Whether this path is `other` or below it.
    pub fn starts_with(&self, other: &Path) -> bool {
        self.0.starts_with(&other.0)
    }

    /// The path with items by name if they have one: `spec.containers[web].image`.
    pub fn named(&self) -> String {
        let mut text = String::with_capacity(self.0.len() * 12);
        // Writing to a String does not fail.
        let _ = self.spell(true, &mut text);
        text
    }

    /// The path as a JSON Pointer (RFC 6901): `/spec/nodeSelector/kubernetes.io~1os`.
    pub fn pointer(&self) -> PointerBuf {
        PointerBuf::from_tokens(self.0.iter().map(|segment| match segment {
            Segment::Field(name) => Token::new(*name),
            Segment::Key(key) | Segment::Unknown(key) => Token::new(&**key),
            Segment::Item(index, _) => Token::from(*index),
        }))
    }

    /// The value at this path, if any.
    pub fn get<'v>(&self, root: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(root, |value, segment| match segment {
            Segment::Field(name) => value.get(name),
            Segment::Key(key) | Segment::Unknown(key) => value.get(&**key),
            Segment::Item(index, _) => value.get(index),
        })
    }

    /// The same, for writing into another text.
    pub fn by_name(&self) -> impl fmt::Display + '_ {
        ByName(self)
    }

    fn spell(&self, by_name: bool, out: &mut impl fmt::Write) -> fmt::Result {
        for (at, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Field(name) => {
                    if at > 0 {
                        out.write_char('.')?;
                    }
                    out.write_str(name)?;
                }
                Segment::Unknown(name) => {
                    if at > 0 {
                        out.write_char('.')?;
                    }
                    out.write_str(&cut(&one_line(name), LONGEST_KEY))?;
                }
                Segment::Key(key) => {
                    out.write_char('[')?;
                    out.write_str(&cut(&one_line(key), LONGEST_KEY))?;
                    out.write_char(']')?;
                }
                Segment::Item(_, Some(name)) if by_name => {
                    out.write_char('[')?;
                    out.write_str(name)?;
                    out.write_char(']')?;
                }
                Segment::Item(index, _) => write!(out, "[{index}]")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spell(false, f)
    }
}

/// A path that prints items by name.
struct ByName<'p>(&'p Path);

impl fmt::Display for ByName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.spell(true, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_place_has_three_spellings() {
        let path = Path::of(&["spec", "template", "spec", "containers"])
            .named_item(0, "web")
            .field("image");
        assert_eq!(path.to_string(), "spec.template.spec.containers[0].image");
        assert_eq!(path.named(), "spec.template.spec.containers[web].image");
        assert_eq!(path.pointer(), "/spec/template/spec/containers/0/image");
    }

    #[test]
    fn map_keys_keep_their_dots_and_escape_their_slashes() {
        let path = Path::of(&["spec", "nodeSelector"]).key("kubernetes.io/os");
        assert_eq!(path.to_string(), "spec.nodeSelector[kubernetes.io/os]");
        assert_eq!(path.pointer(), "/spec/nodeSelector/kubernetes.io~1os");
        assert_eq!(Path::ROOT.key("a~/b").pointer(), "/a~0~1b");
    }
}
