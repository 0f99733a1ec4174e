//! The examples of rules: how a piece of a pod spec becomes a whole manifest.

/// The pod that a partial example is merged into: a Windows pod for which no rule above advice reports a finding.
pub const BASE: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"example","namespace":"default"},"spec":{"os":{"name":"windows"},"nodeSelector":{"kubernetes.io/os":"windows"},"containers":[{"name":"app","image":"registry.example.com/app:1.0","resources":{"limits":{"memory":"512Mi"}},"securityContext":{"windowsOptions":{"runAsUserName":"ContainerUser"}}}]}}"#;
