//! The images of a pod, and the Secrets that it pulls them with.

use super::pod::PodSpec;

/// The images of a pod, or of the pods of a workload.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PodImages {
    pub namespace: String,
    /// The references of its containers, as written.
    pub references: Vec<String>,
    /// The names of its imagePullSecrets.
    pub pull_secrets: Vec<String>,
}

impl PodImages {
    /// The images of a pod, with the names of its pull Secrets.
    pub fn of(pod: &PodSpec<'_>, namespace: &str) -> Self {
        let secrets = pod.image_pull_secrets.iter();
        PodImages {
            namespace: namespace.to_owned(),
            references: pod.images().map(str::to_owned).collect(),
            pull_secrets: secrets.map(|secret| secret.name.to_string()).collect(),
        }
    }
}
