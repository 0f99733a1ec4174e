//! The playground: it answers as `check` and `fix` do, and its page works in a browser and sends nothing.

use std::path::PathBuf;
use std::{env, fs};

use serde_json::{Value, json};
use transom_playground::{EXAMPLES, answer};

use crate::page::browser::{Browser, chromium};
use crate::support::command::transom_with;
use crate::support::skipped::skipped;

/// The answer to a text, with these settings in place of the defaults.
fn answered(text: &str, settings: Value) -> Value {
    let mut request = json!({
        "text": text, "today": "2026-11-20", "mode": "Enforce", "kubernetes": 37, "forWindows": false, "placement": false,
    });
    let Value::Object(settings) = settings else {
        panic!("the settings are a map")
    };
    request.as_object_mut().unwrap().extend(settings);
    serde_json::from_str(&answer(request.to_string().as_bytes())).unwrap()
}

/// What `check` and the playground say about the objects of a text.
fn comparable(objects: &Value) -> Value {
    let finding = |finding: &Value| {
        let fields = [
            "id",
            "rule",
            "severity",
            "path",
            "message",
            "remedy",
            "line",
            "column",
            "resolvedBy",
            "action",
            "actionReason",
        ];
        Value::Object(
            fields
                .map(|field| (field.to_owned(), finding[field].clone()))
                .into_iter()
                .collect(),
        )
    };
    let object = |object: &Value| {
        let findings = object["findings"].as_array().unwrap().iter().map(finding);
        let findings: Vec<Value> = findings.collect();
        json!({
            "line": object["line"], "kind": object["kind"], "verdict": object["verdict"], "evidence": object["evidence"],
            "decision": object["decision"], "notReviewed": object["notReviewed"], "patch": object["patch"],
            "findings": findings,
        })
    };
    objects.as_array().unwrap().iter().map(object).collect()
}

#[test]
fn the_playground_reports_what_check_reports() {
    let folder = tempfile::tempdir().unwrap();
    for example in &EXAMPLES {
        for (settings, arguments) in [
            (json!({}), &[][..]),
            (json!({"forWindows": true}), &["--os", "windows"]),
            (json!({"kubernetes": 24}), &["--kubernetes-version", "1.24"]),
        ] {
            let ours = answered(example.text, settings);
            let always = ["check", "--no-config", "--today", "2026-11-20", "-o", "json", "-"];
            let run = transom_with(folder.path(), &[&always, arguments].concat(), example.text);
            let theirs = run.json();
            assert_eq!(
                comparable(&ours["objects"]),
                comparable(&theirs["objects"]),
                "{} {arguments:?}",
                example.title
            );
            assert_eq!(ours["errors"], theirs["errors"]);
        }
    }
}

#[test]
fn each_example_shows_its_mistake() {
    for example in &EXAMPLES {
        let answer = answered(example.text, json!({}));
        let objects = answer["objects"].as_array().unwrap().iter();
        let findings: Vec<&Value> = objects
            .flat_map(|object| object["findings"].as_array().unwrap())
            .collect();
        assert!(
            findings
                .iter()
                .any(|finding| finding["rule"] == json!(example.rule)),
            "{}: {findings:?}",
            example.title
        );
    }
}

#[test]
fn the_playground_fixes_what_fix_fixes() {
    let folder = tempfile::tempdir().unwrap();
    let mut changed = 0;
    for example in &EXAMPLES {
        for (placement, arguments) in [(false, &[][..]), (true, &["--placement"])] {
            let ours = answered(example.text, json!({"placement": placement}));
            let always = ["fix", "--no-config", "--today", "2026-11-20", "-"];
            let run = transom_with(folder.path(), &[&always, arguments].concat(), example.text);
            changed += usize::from(!ours["fixed"]["text"].is_null());
            let fixed = ours["fixed"]["text"].as_str().unwrap_or(example.text);
            assert_eq!(fixed, run.out, "{} {arguments:?}", example.title);
        }
    }
    assert!(changed > EXAMPLES.len(), "{changed} texts change");
}

#[test]
fn the_mode_decides_what_findings_do() {
    let text = EXAMPLES[0].text;
    for (mode, decision, patches) in [
        ("Enforce", "deny", true),
        ("Warn", "would-deny", true),
        ("Audit", "would-deny", false),
    ] {
        let object = answered(text, json!({"mode": mode}))["objects"][0].take();
        assert_eq!(object["decision"], json!(decision), "{mode}");
        let patch = object["podPatch"].as_array().unwrap();
        assert_eq!(!patch.is_empty(), patches, "{mode}: {patch:?}");
        assert_eq!(object["patch"], json!([]), "admission does not change a template");
    }
}

#[test]
fn a_request_that_is_invalid_has_an_answer() {
    let answer: Value = serde_json::from_str(&answer(b"{\"text\": 1}")).unwrap();
    assert!(answer["invalid"].is_string(), "{answer}");
    let answer = answered("a: [", json!({}));
    assert_eq!(answer["errors"].as_array().unwrap().len(), 1, "{answer}");
}

const STATUS: &str = "document.getElementById('status').textContent";

/// Everything that only a browser can show, in one browser.
#[test]
fn the_playground_works_in_chromium() {
    let Some(page) = env::var_os("TRANSOM_PLAYGROUND").map(PathBuf::from) else {
        skipped(
            "SKIPPED: the playground is not tested in a browser: build it with .ci/site, and set TRANSOM_PLAYGROUND",
        );
        return;
    };
    let Some(program) = chromium() else {
        skipped(
            "SKIPPED: the playground is not tested in a browser: there is no Chromium in the path, and no $CHROME",
        );
        return;
    };
    let mut browser = Browser::start(&program);
    browser.resize(1280, 900);
    browser.open(&page, "");
    is_checked(&mut browser);
    shows_the_findings_of_check(&mut browser);
    checks_while_one_writes(&mut browser);
    takes_the_fix(&mut browser);
    works_by_keyboard(&mut browser);
    measures_a_long_manifest(&mut browser);
    fits_every_screen(&mut browser);
    let link = link_of(&mut browser);
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    let requests = browser.requests();
    assert!(requests.is_empty(), "the page asked for {requests:?}");
    sends_nothing(&mut browser);
    opens_a_link(&mut browser, &page, &link);
    pictures(&mut browser, &page);
}

fn is_checked(browser: &mut Browser) {
    browser.until(|browser| {
        let status = browser.eval(STATUS);
        status.as_str().is_some_and(|status| status.contains(" ms)"))
    });
}

/// Writes a text into the editor as a person does, and waits until it is checked.
fn write(browser: &mut Browser, text: &str) {
    browser.eval(&format!(
        "{{ const text = document.getElementById('text'); text.value = {};
           document.getElementById('status').textContent = '';
           text.dispatchEvent(new Event('input', {{ bubbles: true }})) }}",
        json!(text)
    ));
    is_checked(browser);
}

/// The rule, the line and the message of each finding on the page.
fn shown(browser: &mut Browser) -> Vec<(String, u64, String)> {
    let cards = "[...document.querySelectorAll('.finding')].filter(card => card.querySelector('a')).map(card => \
                 [card.querySelector('a').textContent, Number(card.dataset.line), card.children[1].textContent])";
    serde_json::from_value(browser.eval(cards)).unwrap()
}

fn shows_the_findings_of_check(browser: &mut Browser) {
    let text = browser.eval("document.getElementById('text').value");
    assert_eq!(text, json!(EXAMPLES[0].text));
    let folder = tempfile::tempdir().unwrap();
    let run = transom_with(
        folder.path(),
        &["check", "--no-config", "-o", "json", "-"],
        EXAMPLES[0].text,
    );
    let report = run.json();
    let mut expected: Vec<(String, u64, String)> = Vec::new();
    for finding in report["objects"][0]["findings"].as_array().unwrap() {
        let text = |field: &str| finding[field].as_str().unwrap();
        expected.push((
            format!("{} {}", text("id"), text("rule")),
            finding["line"].as_u64().unwrap(),
            format!("{}; {}", text("message"), text("remedy")),
        ));
    }
    expected.sort_by_key(|(_, line, _)| *line);
    assert!(expected.len() > 4, "{expected:?}");
    assert_eq!(shown(browser), expected);
    // A card begins at its line, or below the card before it.
    let tops = "[...document.querySelectorAll('.finding')].map(card => card.getBoundingClientRect().top - \
                [...document.querySelectorAll('#gutter span')].find(mark => mark.textContent === card.dataset.line)\
                .getBoundingClientRect().top)";
    let tops: Vec<f64> = serde_json::from_value(browser.eval(tops)).unwrap();
    assert!(tops.iter().all(|top| *top > -1.0) && tops[0] < 4.0, "{tops:?}");
}

fn checks_while_one_writes(browser: &mut Browser) {
    write(
        browser,
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  os: {name: windows}\n  hostPID: true\n  containers: [{name: a, image: a}]\n",
    );
    let found = shown(browser);
    assert!(
        found
            .iter()
            .any(|(rule, line, _)| rule == "TSM401 host-pid" && *line == 6),
        "{found:?}"
    );
    let status = browser.eval(STATUS);
    assert!(
        status.as_str().unwrap().contains("admission denies Pod a"),
        "{status}"
    );
    browser.eval("{ const mode = document.getElementById('mode'); mode.value = 'Audit'; mode.dispatchEvent(new Event('change')) }");
    let status = browser.eval(STATUS);
    assert!(
        status.as_str().unwrap().contains("admission denies nothing"),
        "{status}"
    );
    browser.eval("{ const mode = document.getElementById('mode'); mode.value = 'Enforce'; mode.dispatchEvent(new Event('change')) }");
    write(browser, "kind: [");
    let problems = browser.eval("document.querySelectorAll('.finding.error').length");
    assert_eq!(problems, json!(1));
}

fn takes_the_fix(browser: &mut Browser) {
    browser.eval("{ const list = document.getElementById('example'); list.value = '2'; list.dispatchEvent(new Event('change')) }");
    let before = shown(browser);
    assert!(
        before.iter().any(|(rule, ..)| rule.ends_with("run-as-group")),
        "{before:?}"
    );
    let added = browser.eval("document.querySelectorAll('#diff .removed').length");
    assert!(added.as_u64().unwrap() > 0);
    browser.eval("document.getElementById('take').click()");
    let text = browser.eval("document.getElementById('text').value");
    let fixed = answered(EXAMPLES[2].text, json!({}))["fixed"]["text"].take();
    assert_eq!(text, fixed);
    let after = shown(browser);
    assert!(after.len() < before.len(), "{after:?}");
    assert_eq!(
        browser.eval("document.getElementById('take').disabled"),
        json!(true)
    );
}

fn works_by_keyboard(browser: &mut Browser) {
    browser.eval("document.getElementById('example').focus()");
    let mut reached = Vec::new();
    for _ in 0..7 {
        browser.press("Tab");
        reached.push(browser.eval(
            "document.activeElement.id || document.activeElement.className || document.activeElement.tagName",
        ));
    }
    let named = ["mode", "kubernetes", "windows", "link", "text"];
    for name in named {
        assert!(reached.contains(&json!(name)), "{name}: {reached:?}");
    }
    browser.eval("document.querySelector('.finding .go').focus()");
    let line = browser.eval("document.querySelector('.finding').dataset.line");
    browser.press("Enter");
    assert_eq!(browser.eval("document.activeElement.id"), json!("text"));
    let selected = "String(document.getElementById('text').value.slice(0, document.getElementById('text').selectionStart).split('\\n').length)";
    assert_eq!(browser.eval(selected), line);
}

fn measures_a_long_manifest(browser: &mut Browser) {
    let mut text = String::new();
    while text.lines().count() < 2000 {
        text.push_str(EXAMPLES[0].text);
        text.push_str("---\n");
    }
    let text: Vec<&str> = text.lines().take(2000).collect();
    write(browser, &text.join("\n"));
    let objects = browser.eval("document.querySelectorAll('#objects tbody tr').length");
    assert!(objects.as_u64().unwrap() > 50, "{objects}");
    let mut times = Vec::new();
    for _ in 0..5 {
        browser.eval(
            "{ const mode = document.getElementById('mode'); mode.dispatchEvent(new Event('change')) }",
        );
        times.push(browser.eval("document.body.dataset.milliseconds"));
    }
    let shown = "{ const begun = performance.now(); document.getElementById('mode').dispatchEvent(new Event('change'));
                 document.body.offsetHeight; performance.now() - begun }";
    let shown = browser.eval(shown);
    println!("2000 lines, {objects} objects: evaluated in {times:?} ms, evaluated and shown in {shown} ms");
    // Most cards get their height from another one with the same text, until they are near the screen.
    let apart = "new Promise(done => { const editor = document.getElementById('editor');
                 editor.scrollTop = editor.scrollHeight / 2;
                 requestAnimationFrame(() => requestAnimationFrame(() => {
                   const boxes = [...document.querySelectorAll('.finding')].map(card => card.getBoundingClientRect());
                   done(boxes.every((box, index) => index === 0 || box.top >= boxes[index - 1].bottom)) })) })";
    assert_eq!(browser.eval(apart), json!(true), "cards overlap");
}

fn fits_every_screen(browser: &mut Browser) {
    for width in [390, 768, 1280] {
        browser.resize(width, 844);
        let wide = browser.eval("document.documentElement.scrollWidth");
        assert!(
            wide.as_u64().unwrap() <= u64::from(width),
            "at {width} px the page is {wide} px wide"
        );
    }
    let ground = "getComputedStyle(document.body).backgroundColor";
    browser.prefer("dark");
    assert_eq!(browser.eval(ground), json!("rgb(21, 24, 27)"));
    browser.prefer("light");
    assert_eq!(browser.eval(ground), json!("rgb(252, 252, 250)"));
}

/// The fragment of the link to a manifest.
fn link_of(browser: &mut Browser) -> String {
    browser.eval("{ const mode = document.getElementById('mode'); mode.value = 'Warn'; mode.dispatchEvent(new Event('change')) }");
    write(browser, EXAMPLES[4].text);
    browser.eval("document.getElementById('link').click()");
    browser.until(|browser| browser.eval("location.hash.length > 100") == json!(true));
    browser.eval("location.hash").as_str().unwrap().to_owned()
}

fn opens_a_link(browser: &mut Browser, page: &std::path::Path, link: &str) {
    browser.open(page, link);
    is_checked(browser);
    assert_eq!(
        browser.eval("document.getElementById('text').value"),
        json!(EXAMPLES[4].text)
    );
    assert_eq!(
        browser.eval("document.getElementById('mode').value"),
        json!("Warn")
    );
}

/// The policy of the page refuses every way out of it.
fn sends_nothing(browser: &mut Browser) {
    for attempt in [
        "fetch('https://example.com/').then(() => 'sent', () => 'refused')",
        "fetch('data:,x').then(() => 'sent', () => 'refused')",
        "new Promise(done => { const image = new Image(); image.onload = () => done('sent'); image.onerror = () => done('refused'); image.src = 'https://example.com/a.png' })",
        "new Promise(done => { const script = document.createElement('script'); script.onload = () => done('sent'); script.onerror = () => done('refused'); script.src = 'https://example.com/a.js'; document.body.append(script) })",
    ] {
        assert_eq!(browser.eval(attempt), json!("refused"), "{attempt}");
    }
    // The browser reports a request that the policy refuses, and its refusal.
    let of = |method: &str| -> Vec<Value> {
        let events = browser
            .events
            .iter()
            .filter(|event| event["method"] == json!(method));
        events.map(|event| event["params"].clone()).collect()
    };
    let refused = of("Network.loadingFailed");
    for request in of("Network.requestWillBeSent") {
        let url = request["request"]["url"].as_str().unwrap();
        let is_refused = |failed: &&Value| {
            failed["requestId"] == request["requestId"] && failed["blockedReason"] == json!("csp")
        };
        assert!(
            !url.starts_with("http") || refused.iter().any(|failed| is_refused(&failed)),
            "{url}"
        );
    }
}

/// For people who change the page: pictures of it, if a folder for them is named.
fn pictures(browser: &mut Browser, page: &std::path::Path) {
    let Some(folder) = env::var_os("TRANSOM_PICTURES").map(PathBuf::from) else {
        return;
    };
    fs::create_dir_all(&folder).unwrap();
    for (width, height) in [(1280, 2000), (390, 3200)] {
        for scheme in ["light", "dark"] {
            browser.resize(width, height);
            browser.prefer(scheme);
            browser.open(page, "");
            is_checked(browser);
            browser.picture(&folder.join(format!("playground-{width}-{scheme}.png")));
        }
    }
}
