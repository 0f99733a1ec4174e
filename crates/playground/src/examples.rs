//! The manifests that the page offers: the most usual mistakes.

/// A manifest with mistakes.
pub struct Example {
    /// Its name in the list.
    pub title: &'static str,
    /// A rule that reports it.
    pub rule: &'static str,
    /// The manifest.
    pub text: &'static str,
}

macro_rules! example {
    ($title:literal, $rule:literal, $file:literal) => {
        Example {
            title: $title,
            rule: $rule,
            text: include_str!(concat!("../examples/", $file)),
        }
    };
}

/// The page begins with the first one.
pub const EXAMPLES: [Example; 10] = [
    example!(
        "A Linux chart with a Windows image",
        "missing-os-selector",
        "01-linux-chart.yaml"
    ),
    example!(
        "No selector for Windows nodes",
        "missing-os-selector",
        "02-no-selector.yaml"
    ),
    example!("User and group IDs", "run-as-user", "03-user-id.yaml"),
    example!(
        "Hardening for Linux",
        "read-only-root-filesystem",
        "04-read-only-root.yaml"
    ),
    example!("A privileged node agent", "privileged", "05-privileged.yaml"),
    example!(
        "HostProcess without the host network",
        "host-process-requires-host-network",
        "06-host-process.yaml"
    ),
    example!(
        "An image that is for Linux only",
        "dotnet-tag-linux-only",
        "07-linux-image.yaml"
    ),
    example!(
        "Paths and commands of Linux",
        "empty-dir-memory",
        "08-unix-paths.yaml"
    ),
    example!(
        "A build that the nodes cannot run",
        "image-build-mismatch",
        "09-builds.yaml"
    ),
    example!("Linux and Windows in one pod", "mixed-os-images", "10-mixed.yaml"),
];
