use super::*;

fn keychain(json: &str) -> Keychain {
    Keychain::of_docker_config_json(json.as_bytes(), "Secret shop/pull").unwrap()
}
