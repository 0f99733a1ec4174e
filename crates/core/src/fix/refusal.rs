//! Why an object cannot be changed as planned.

/// Why an object cannot be changed as planned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The reason, in lower case, without the object.
    pub reason: String,
    /// The fields that stay as they are, each with its reason; empty if no change of the object can be made.
    pub fields: Vec<RefusedField>,
}

/// A field that cannot be changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefusedField {
    /// Its JSON Pointer in the object.
    pub pointer: String,
    /// The reason, in lower case.
    pub reason: String,
}

impl RefusedField {
    /// Whether a change at this JSON Pointer changes the field, or a part of it.
    pub fn is_touched_by(&self, pointer: &str) -> bool {
        let is_within = |inner: &str, outer: &str| {
            let rest = inner.strip_prefix(outer);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        is_within(pointer, &self.pointer) || is_within(&self.pointer, pointer)
    }
}

impl Refusal {
    /// Of the whole object.
    pub fn of_object(reason: impl Into<String>) -> Self {
        Refusal {
            reason: reason.into(),
            fields: Vec::new(),
        }
    }

    /// Of fields; there is at least one.
    pub fn of_fields(fields: Vec<RefusedField>) -> Self {
        let reason = fields.first().map(|field| field.reason.clone());
        Refusal {
            reason: reason.unwrap_or_default(),
            fields,
        }
    }
}
