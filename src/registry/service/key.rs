//! What a look-up is for: an image reference in one form, and who may see the answer.

use std::sync::Arc;

use crate::model::windows::image::ImageRef;

/// Whose credentials a look-up uses, and so who may use its answer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Transom's own credentials, or none: every namespace may use the answer.
    Shared,
    /// First the pull secrets of a pod. Only pods of the same namespace that name the same secrets may use the answer.
    Own {
        /// The namespace of the secrets.
        namespace: Arc<str>,
        /// Their names, in the order of the pod.
        secrets: Arc<[String]>,
    },
}

/// One look-up: equal keys share one request and one answer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ImageKey {
    /// The reference in its full form, as in `docker.io/library/nginx:latest`.
    pub reference: Arc<str>,
    /// Whose credentials are used.
    pub access: Access,
}

impl ImageKey {
    /// The key of an image. References that mean the same have the same key.
    pub fn of(image: &ImageRef<'_>, access: Access) -> Self {
        ImageKey {
            reference: image.canonical().into(),
            access,
        }
    }

    /// The repository, with its registry; the reference if it does not parse.
    pub fn repository(&self) -> Arc<str> {
        match ImageRef::parse(&self.reference) {
            Ok(image) => format!("{}/{}", image.registry, image.repository).into(),
            Err(_) => Arc::clone(&self.reference),
        }
    }

    /// Whether the reference has a digest, so that its content never changes.
    pub fn is_immutable(&self) -> bool {
        self.reference.contains('@')
    }

    /// The key of a content of the same repository.
    pub fn content(&self, digest: &str) -> Arc<str> {
        format!("{}@{digest}", self.repository()).into()
    }

    /// An estimate of its memory, in bytes.
    pub fn bytes(&self) -> usize {
        let secrets = match &self.access {
            Access::Shared => 0,
            Access::Own { secrets, .. } => secrets.iter().map(|name| name.len() + 24).sum(),
        };
        self.reference.len() + secrets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> String {
        let image = ImageRef::parse(text).unwrap();
        ImageKey::of(&image, Access::Shared).reference.to_string()
    }

    #[test]
    fn references_that_mean_the_same_have_one_key() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (text, expected) in [
            ("nginx", "docker.io/library/nginx:latest"),
            ("docker.io/library/nginx:latest", "docker.io/library/nginx:latest"),
            ("Registry.Corp:443/shop/web:1", "registry.corp/shop/web:1"),
            (
                &format!("registry.corp/shop/web:1@{digest}"),
                &format!("registry.corp/shop/web@{digest}"),
            ),
        ] {
            assert_eq!(key(text), expected, "{text}");
            assert_eq!(key(&key(text)), expected, "{text}");
        }
    }
}
