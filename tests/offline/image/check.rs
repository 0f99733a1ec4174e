//! `check --registry`: the same files without and with what the registry reports.

use std::fs;

use serde_json::Value;

use super::*;

/// A pod that selects nothing, with this image.
fn pod(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers:\n  - name: app\n    image: {image}\n---\n"
    )
}

fn ids(report: &Value, name: &str) -> Vec<String> {
    let objects = report["objects"].as_array().unwrap();
    let subject = objects.iter().find(|it| it["name"] == name).unwrap();
    let findings = subject["findings"].as_array().unwrap().iter();
    findings
        .map(|finding| finding["rule"].as_str().unwrap().to_owned())
        .collect()
}

fn verdict(report: &Value, name: &str) -> String {
    let objects = report["objects"].as_array().unwrap();
    let subject = objects.iter().find(|it| it["name"] == name).unwrap();
    subject["verdict"].as_str().unwrap().to_owned()
}

#[test]
fn what_names_do_not_say_is_looked_up_and_what_is_not_known_is_a_note() {
    let Some(mut registry) = Registry::start_or_skip() else {
        return;
    };
    registry.push_index("shop/billing:1.4", &[windows(LTSC2019), windows(LTSC2022)]);
    registry.push_index("shop/both:1", &[linux(), windows(LTSC2022)]);
    let silent = format!("localhost:{}/app:1", free_port());
    let text = [
        pod("billing", &registry.reference("shop/billing:1.4")),
        pod("both", &registry.reference("shop/both:1")),
        pod("gone", &registry.reference("shop/billing:1.5"))
            .replace("spec:\n", "spec:\n  os: {name: windows}\n"),
        pod("silent", &silent),
        // Certainly for Linux: nothing is requested.
        pod("linux", &registry.reference("shop/linux:1")).replace("spec:\n", "spec:\n  os: {name: linux}\n"),
    ]
    .concat();
    let home = Home::new();
    fs::write(home.path("work/pods.yaml"), &text).unwrap();
    let check = |options: &[&str]| home.run(&[&["check", "pods.yaml"], options].concat());
    let names = check(&["-o", "json"]).json();
    assert_eq!(verdict(&names, "billing"), "Unknown");
    assert!(names.get("images").is_none() && registry.requests().is_empty());
    let run = check(&["--registry", "-o", "json"]);
    let report = run.json();
    assert_valid_reports("check", &[&report]);
    assert_eq!(verdict(&report, "billing"), "Windows", "{report:#}");
    assert_eq!(verdict(&report, "both"), "Unknown");
    assert!(
        ids(&report, "gone").contains(&"image-not-found".to_owned()),
        "{report:#}"
    );
    assert_eq!(ids(&report, "silent"), Vec::<String>::new());
    assert_eq!(
        report["images"],
        json!({"found": 2, "missing": 1, "unknown": 1, "cached": 0})
    );
    let requests = registry.requests();
    assert!(
        !requests.iter().any(|request| request.contains("shop/linux")),
        "{requests:#?}"
    );
    let notes = report["notes"].as_array().unwrap();
    let [note] = &notes[..] else { panic!("{notes:#?}") };
    assert_eq!(
        (note["source"].as_str(), note["line"].as_u64()),
        (Some("pods.yaml"), Some(32)),
        "{note}"
    );
    let message = note["message"].as_str().unwrap();
    let expected = format!("the image {silent} is not known: ");
    assert!(
        message.starts_with(&expected) && message.contains("refused"),
        "{message}"
    );
    // As text, by standard input, and from the cache when the registry is down.
    registry.stop();
    let run = home.run_with(&["check", "--registry", "-"], &text);
    assert!(
        run.out
            .contains("\nimages: 2 found, 1 missing, 1 not known (see the notes); 3 from the cache\n"),
        "{}",
        run.out
    );
    let offline = check(&["--registry", "--offline", "-o", "json"]).json();
    assert_eq!(offline["objects"], report["objects"]);
}

#[test]
fn an_image_that_does_not_exist_is_a_note_if_no_rule_reports_it() {
    let Some(registry) = Registry::start_or_skip() else {
        return;
    };
    let home = Home::new();
    let text = pod("web", &registry.reference("shop/web:1"));
    let notes = |text: &str| {
        let run = home.run_with(&["check", "--registry", "-o", "json", "-"], text);
        run.json()["notes"].as_array().unwrap().len()
    };
    assert_eq!(notes(&text), 1);
    assert_eq!(
        notes(&text.replace("spec:\n", "spec:\n  os: {name: windows}\n")),
        0
    );
}

#[test]
fn a_text_that_is_not_a_reference_is_a_note_and_not_counted() {
    let home = Home::new();
    let run = home.run_with(
        &["check", "--registry", "-o", "json", "-"],
        &pod("web", "registry.invalid/App:1"),
    );
    let report = run.json();
    let message = report["notes"][0]["message"].as_str().unwrap();
    assert!(
        message.contains("is not an image reference: the repository of the image must be lower case"),
        "{message}"
    );
    assert_eq!(
        report["images"],
        json!({"found": 0, "missing": 0, "unknown": 0, "cached": 0})
    );
}

#[test]
fn offline_an_old_tag_is_used_and_its_age_is_noted() {
    let Some(registry) = Registry::start_or_skip() else {
        return;
    };
    registry.push_image(Media::Oci, "app:1", &windows(LTSC2022));
    let image = registry.reference("app:1");
    let home = Home::new();
    assert_eq!(home.run(&["image", &image]).status, 0);
    let now = jiff::Timestamp::now();
    let old = (now - jiff::SignedDuration::from_hours(74)).to_string();
    for file in home.cached() {
        let mut entry: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        entry["entry"]["lookedUp"] = json!(old);
        fs::write(&file, entry.to_string()).unwrap();
    }
    let run = home.run_with(
        &["check", "--registry", "--offline", "-o", "json", "-"],
        &pod("a", &image),
    );
    let report = run.json();
    assert_eq!(verdict(&report, "a"), "Windows");
    let message = report["notes"][0]["message"].as_str().unwrap();
    let expected =
        format!("the image {image} is from the cache, looked up 3 days ago: its tag may have moved");
    assert_eq!(message, expected);
}

#[test]
fn the_plan_uses_the_cache_too() {
    let Some(mut registry) = Registry::start_or_skip() else {
        return;
    };
    registry.push_image(Media::Docker, "shop/api:1-ltsc2025", &windows(LTSC2025));
    let spec = json!({"os": {"name": "windows"}, "containers": [{"name": "a", "image": registry.reference("shop/api:1-ltsc2019")}]});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "api"}, "spec": {"template": {"spec": spec}}});
    let items = [node("old-1", "10.0.17763.6293"), deployment];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    let home = Home::new();
    let plan = |options: &[&str]| {
        let arguments = [
            &["plan", "--to", "ltsc2025", "--registry", "-o", "json", "-"],
            options,
        ]
        .concat();
        let plan = home.run_with(&arguments, &list).json();
        (
            plan["workloads"][0]["findings"][0]["proposed"]["verified"].clone(),
            plan["notes"].clone(),
        )
    };
    let first = plan(&[]);
    assert_eq!(first.0, "exists");
    registry.stop();
    assert_eq!(plan(&[]), first);
    assert_eq!(plan(&["--offline"]), first);
    assert_eq!(plan(&["--refresh"]).0, Value::Null);
}

#[test]
fn the_configuration_file_enables_it_and_offline_needs_it() {
    let Some(registry) = Registry::start_or_skip() else {
        return;
    };
    registry.push_image(Media::Oci, "app:1", &windows(LTSC2022));
    let home = Home::new();
    for folder in ["a", "b"] {
        fs::create_dir(home.path("work").join(folder)).unwrap();
        let text = pod(folder, &registry.reference("app:1"));
        fs::write(home.path("work").join(folder).join("pod.yaml"), text).unwrap();
    }
    fs::write(home.path("work/a/.transom.yaml"), "registry: true\n").unwrap();
    let run = home.run(&["check", "-o", "json", "a", "b"]);
    let report = run.json();
    assert_eq!(
        (verdict(&report, "a"), verdict(&report, "b")),
        ("Windows".to_owned(), "Unknown".to_owned())
    );
    assert_eq!(report["images"]["found"], 1);
    assert_eq!(home.run(&["check", "--offline", "a"]).status, 0);
    let run = home.run(&["check", "--offline", "b"]);
    assert_eq!(run.status, 2, "{}", run.err);
}

/// The options below a heading of `--help`, each with its value.
fn options_of(help: &str, heading: &str) -> Vec<(String, Option<String>)> {
    let below = help.lines().skip_while(|line| *line != heading).skip(1);
    let options = below.take_while(|line| line.is_empty() || line.starts_with(' '));
    let words = options.filter_map(|line| line.trim_start().strip_prefix("--"));
    words
        .map(|line| {
            let mut words = line.split_whitespace();
            let name = format!("--{}", words.next().unwrap());
            let value = words.next().filter(|word| word.starts_with('<'));
            (name, value.map(str::to_owned))
        })
        .collect()
}

#[test]
fn every_option_of_look_ups_is_refused_without_look_ups() {
    let home = Home::new();
    let help = |command: &str| home.run(&[command, "--help"]).out;
    let commands = home.run(&["--help"]).out;
    let commands = commands.lines().take_while(|line| *line != "Options:");
    let commands = commands.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let mut refused = Vec::new();
    for command in commands.filter_map(|line| line.split_whitespace().next()) {
        let text = help(command);
        let mut options = options_of(&text, "Registries:");
        let all = options.len();
        options.retain(|(name, _)| name != "--registry");
        let is_on_request = options.len() < all;
        assert_eq!(
            is_on_request,
            !options.is_empty() && command != "image",
            "{command}"
        );
        if !is_on_request {
            continue;
        }
        assert_eq!(options.len(), 5, "{options:?}");
        let required: &[&str] = if command == "plan" {
            &["--to", "ltsc2025"]
        } else {
            &[]
        };
        for (option, value) in &options {
            let mut arguments = [&[command], required, &[&**option]].concat();
            arguments.extend(value.as_deref().map(|value| match value {
                "<HOST>" => "localhost:5000",
                "<REGISTRY=MIRROR>" => "docker.io=mirror.example.com",
                _ => "ca.pem",
            }));
            // The others read manifests; a scan reads a cluster.
            if command != "scan" {
                arguments.push("-");
            }
            let run = home.run_with(&arguments, &pod("web", "app:1"));
            assert_eq!(run.status, 2, "{arguments:?}: {}", run.out);
            let expected = format!("error: {option} has no effect without --registry; add --registry\n");
            assert_eq!(run.err, expected, "{arguments:?}");
            refused.push(command.to_owned());
        }
    }
    refused.dedup();
    refused.sort();
    assert_eq!(refused, ["check", "drain", "plan", "scan"]);
}

#[test]
fn the_environment_of_look_ups_refuses_nothing() {
    let home = Home::new();
    let variables: [(&str, &Path); 3] = [
        ("TRANSOM_REGISTRY_CA", Path::new("none.pem")),
        ("TRANSOM_REGISTRY_PLAIN_HTTP", Path::new("registry.corp:5000")),
        (
            "TRANSOM_REGISTRY_MIRROR",
            Path::new("docker.io=mirror.example.com"),
        ),
    ];
    let run = transom_in(
        &home.path("work"),
        &variables,
        &["check", "-"],
        pod("web", "app:1"),
    );
    assert_eq!((run.status, run.err.as_str()), (0, ""), "{}", run.out);
}

#[test]
fn only_images_of_selected_objects_are_requested() {
    let Some(registry) = Registry::start_or_skip() else {
        return;
    };
    for name in ["a", "b", "c"] {
        registry.push_image(Media::Oci, &format!("{name}:1"), &windows(LTSC2022));
    }
    let object = |name: &str| {
        let metadata = format!("{{name: {name}, namespace: {name}, labels: {{team: {name}}}}}");
        pod(name, &registry.reference(&format!("{name}:1"))).replace(&format!("{{name: {name}}}"), &metadata)
    };
    let text = [object("a"), object("b"), object("c")].concat();
    let home = Home::new();
    for (options, requested) in [(["-n", "a"], "a"), (["-l", "team=b"], "b")] {
        let before = registry.requests().len();
        home.run_with(&[&["check", "--registry"], &options[..], &["-"]].concat(), &text);
        let requests = registry.requests().split_off(before);
        let of_it = format!("/v2/{requested}/");
        assert!(!requests.is_empty(), "{requested}");
        assert!(
            requests.iter().all(|request| request.contains(&of_it)),
            "{requests:#?}"
        );
    }
}

#[test]
fn an_old_base_is_advice_unless_the_configuration_allows_its_age() {
    let Some(registry) = Registry::start_or_skip() else {
        return;
    };
    let built =
        |update: &str, date: &str| windows(LTSC2022).history(&format!("Install update {update}"), date);
    registry.push_image(Media::Oci, "shop/old:1", &built(LTSC2022, "2024-09-06T22:11:41Z"));
    registry.push_image(Media::Oci, "shop/none:1", &windows(LTSC2022));
    // Never old.
    registry.push_image(Media::Oci, "shop/new:1", &built(LTSC2022, "2200-01-01T00:00:00Z"));
    let text: Vec<String> = ["old", "none", "new"]
        .map(|name| pod(name, &registry.reference(&format!("shop/{name}:1"))))
        .into();
    let home = Home::new();
    fs::write(home.path("work/pods.yaml"), text.concat()).unwrap();
    let old = |output: &str| home.run(&["check", "pods.yaml", "--registry", "-o", output]);
    let report = old("json").json();
    let has = |report: &Value, name| ids(report, name).contains(&"image-base-old".to_owned());
    assert_eq!(
        ["old", "none", "new"].map(|name| has(&report, name)),
        [true, false, false],
        "{report:#}"
    );
    let sarif = old("sarif").out;
    assert!(
        sarif.contains("TSM614") && sarif.contains("10.0.20348.2700 of 2024-09-06"),
        "{sarif}"
    );
    fs::write(
        home.path("work/.transom.yaml"),
        "rules:\n- {name: image-base-old, parameters: {maxAgeDays: 3650}}\n",
    )
    .unwrap();
    let report = old("json").json();
    assert!(!has(&report, "old"), "{report:#}");
}
