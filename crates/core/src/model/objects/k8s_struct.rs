//! The macro that defines a view of a Kubernetes type from its fields.

/// Structs that are parsed from the JSON of an object: field names are in camel case there, missing fields have the
/// default, other fields are skipped, and strings are borrowed. Names and documentation are those of Kubernetes.
macro_rules! k8s_structs {
    (#![$derive:meta] $(
        $(#[$of_struct:meta])*
        pub struct $name:ident<$lifetime:lifetime> {
            $($(#[$of_field:meta])* pub $field:ident: $type:ty,)*
        }
    )*) => {$(
        $(#[$of_struct])*
        #[$derive]
        #[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
        pub struct $name<$lifetime> {
            $($(#[$of_field])* pub $field: $type,)*
        }
    )*};
}
pub(super) use k8s_structs;
