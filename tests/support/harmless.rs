//! Values of fields that Windows ignores and that cost the author of a pod nothing, written down apart from the rules.

use serde_json::{Value, json};

pub const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Whether a pod that the API server accepts loses nothing by a value that Windows ignores.
pub fn costs_nothing(pod: &Value, field: &str, value: &Value) -> bool {
    let is_host_process = || {
        let set =
            |of: &Value| of.pointer("/securityContext/windowsOptions/hostProcess") == Some(&json!(true));
        let lists = CONTAINER_LISTS
            .iter()
            .filter_map(|list| pod["spec"][list].as_array());
        set(&pod["spec"]) || lists.flatten().any(set)
    };
    match field {
        "allowPrivilegeEscalation" | "fsGroupChangePolicy" | "seLinuxChangePolicy" | "dnsPolicy" => true,
        "readOnlyRootFilesystem" => value == false,
        "hostUsers" => value == true,
        "privileged" | "shareProcessNamespace" => value == false || is_host_process(),
        "hostPID" | "hostIPC" => is_host_process(),
        "seccompProfile" | "appArmorProfile" => {
            matches!(value["type"].as_str(), Some("RuntimeDefault" | "Unconfined"))
        }
        "capabilities" => value["add"].as_array().is_none_or(Vec::is_empty),
        "procMount" => value == "Default",
        "supplementalGroupsPolicy" => value == "Merge",
        "supplementalGroups" => *value == json!([]),
        "seLinuxOptions" | "resources" => *value == json!({}),
        _ => false,
    }
}
