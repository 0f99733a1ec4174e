//! What every view of a type of Kubernetes has in common: the macro that makes one out of its fields.

/// Structs that are read from the JSON of an object: fields have their names there in camel case, absent ones are the
/// default, others are skipped unread, and strings are borrowed. The names are Kubernetes' and documented there.
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
        #[allow(missing_docs)]
        pub struct $name<$lifetime> {
            $($(#[$of_field])* pub $field: $type,)*
        }
    )*};
}
pub(super) use k8s_structs;
