//! The page of a scan: what stands in it, that it can hurt no reader, and that it works in a browser.

pub mod browser;
mod sample;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::{env, fs};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use transom::render::{page, scan_sarif};
use transom::scan::report::ScanReport;

use crate::support::command::{assert_valid_reports, assert_valid_sarif};
use crate::support::skipped::skipped;

use self::browser::{Browser, chromium};

fn written(report: &ScanReport, with_plan: bool) -> String {
    let plan = sample::plan();
    let mut out = Vec::new();
    page(report, with_plan.then_some(&plan), None, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// What stands between the tags of one name.
fn inside<'p>(page: &'p str, tag: &str) -> Vec<&'p str> {
    let opening = format!("<{tag}>");
    let after = page.split(opening.as_str()).skip(1);
    after
        .map(|text| text.split(&format!("</{tag}>")).next().unwrap())
        .collect()
}

#[test]
fn no_text_of_an_object_becomes_a_part_of_the_page() {
    let page = written(&sample::report(20), true);
    // Two scripts and one style of ours, and not one tag of the author's.
    assert_eq!(
        (page.matches("<script").count(), page.matches("</script").count()),
        (2, 2)
    );
    assert_eq!(
        (page.matches("<style").count(), page.matches("</style").count()),
        (1, 1)
    );
    assert!(!page.contains("<img"), "a tag came through");
    assert!(!page.contains('\u{202e}'), "the direction of writing turns");
    let hostile = page.matches("window.hurt=1").count();
    assert!(
        hostile > 40,
        "only {hostile} hostile texts stand in the page: the sample does not reach them all"
    );
}

#[test]
fn only_the_scripts_and_the_style_of_the_page_may_run() {
    let page = written(&sample::report(3), true);
    let policy = page
        .split("http-equiv=\"Content-Security-Policy\" content=\"")
        .nth(1)
        .unwrap();
    let policy = policy.split('"').next().unwrap().replace("&#39;", "'");
    let reported: BTreeSet<String> = (policy
        .split([' ', ';'])
        .filter(|word| word.starts_with("'sha256-")))
    .map(str::to_owned)
    .collect();
    let stands: BTreeSet<String> = (inside(&page, "style").into_iter().chain(inside(&page, "script")))
        .map(|text| {
            format!(
                "'sha256-{}'",
                BASE64_STANDARD.encode(digest(&SHA256, text.as_bytes()))
            )
        })
        .collect();
    assert_eq!(stands.len(), 3);
    assert_eq!(reported, stands);
    assert!(
        policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert!(
        !page.contains(" style=") && !page.contains("onclick="),
        "the policy refuses these"
    );
    for fetched in ["src=", "href=\"http", "url(", "@import"] {
        // The hostile texts hold `src=`, with its quotes escaped; nothing of ours does.
        let ours = page.replace("&#60;img src=x", "");
        assert!(
            !ours.contains(fetched),
            "the page would fetch something: {fetched}"
        );
    }
}

/// The page without what stands in its style and scripts: the sections as a person reads them.
#[test]
fn the_page_says_what_the_report_says() {
    let mut report = sample::report(4);
    // The hostile workload is the other tests' matter; here a person reads.
    report.owners.retain(|owner| owner.name != sample::HOSTILE);
    let mut page = written(&report, true);
    for tag in ["style", "script"] {
        for text in inside(&page.clone(), tag) {
            page = page.replace(text, "…");
        }
    }
    let lines = page.lines().map(str::trim).filter(|line| !line.is_empty());
    let page: Vec<String> = lines.map(|line| line.replace("sha256-", "sha256 ")).collect();
    let body = page.iter().skip_while(|line| !line.starts_with("<body"));
    insta::assert_snapshot!(body.cloned().collect::<Vec<_>>().join("\n"));
}

#[test]
fn an_empty_report_has_a_page_too() {
    let mut report = sample::report(0);
    report.nodes.clear();
    report.pods.clear();
    report.gaps.clear();
    report.namespaces.clear();
    let page = written(&report, false);
    for message in [
        "There is no Windows node",
        "Nothing was found",
        "No workload has findings",
    ] {
        assert!(page.contains(message), "{message}");
    }
    assert!(!page.contains("id=\"pods\"") && !page.contains("id=\"gaps\"") && !page.contains("id=\"plan\""));
}

#[test]
fn the_libraries_are_those_that_are_listed() {
    let assets = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/render/html/assets");
    let list = fs::read_to_string(assets.join("README.md")).unwrap();
    for folder in fs::read_dir(&assets)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
    {
        let licence = fs::read_to_string(folder.join("LICENSE")).unwrap();
        assert!(
            licence.contains("Permission is hereby granted, free of charge"),
            "{folder:?} is not MIT"
        );
        let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        for file in files.filter(|file| !file.ends_with("LICENSE")) {
            let hash = digest(
                &SHA256,
                fs::read_to_string(&file).unwrap().replace('\r', "").as_bytes(),
            );
            let hex: Vec<String> = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
            let hex = hex.concat();
            assert!(list.contains(&hex), "{file:?} is not the listed file: {hex}");
        }
    }
}

/// Everything that only a browser can tell, in one browser.
#[test]
fn the_page_works_in_chromium() {
    if let Ok(file) = env::var("TRANSOM_PAGE") {
        fs::write(file, written(&sample::report(200), true)).unwrap();
    }
    let Some(program) = chromium() else {
        skipped(
            "SKIPPED: the page is not proved in a browser: there is no Chromium in the path, and no $CHROME",
        );
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    fs::write(&file, written(&sample::report(200), true)).unwrap();
    let mut browser = Browser::start(&program);
    browser.resize(1280, 900);
    browser.open(&file, "");
    filters(&mut browser);
    sorts_by_keyboard(&mut browser);
    links_keep_the_filter(&mut browser);
    wears_both_themes(&mut browser);
    tells_a_screen_reader(&mut browser);
    fits_a_telephone(&mut browser);
    repeats_nothing(&mut browser);
    opens_over_the_whole_width(&mut browser);
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    let requests = browser.requests();
    assert!(requests.is_empty(), "the page asked for {requests:?}");
    assert_eq!(
        browser.eval("window.hurt ?? 0"),
        json!(0),
        "a text of an object ran"
    );
    refuses_foreign_scripts(&mut browser);
    browser.open(&file, "#ns=shop&sort=name&dir=desc");
    opens_as_it_was_left(&mut browser);
    works_without_scripts(&mut browser, &file);
    pictures(&mut browser, &file);
}

const SHOWN: &str = "document.querySelectorAll('#owners tbody tr:not([hidden])').length";

fn choose(browser: &mut Browser, field: &str, value: &str) {
    browser.eval(&format!(
        "{{ const field = document.querySelector('#filter [name={field}]'); field.value = {value:?};
           field.dispatchEvent(new Event('input', {{ bubbles: true }})) }}"
    ));
}

fn filters(browser: &mut Browser) {
    assert_eq!(browser.eval(SHOWN), json!(200));
    for (field, value, states) in [
        ("ns", "shop", "row.dataset.ns == 'shop'"),
        (
            "outcome",
            "denied: only ignored fields",
            "row.cells[5].textContent.trim() == 'denied: only ignored fields'",
        ),
        (
            "outcome",
            "denied: cannot run",
            "row.cells[5].textContent.trim() == 'denied: cannot run'",
        ),
        (
            "severity",
            "warning",
            "row.cells[6].textContent.includes('warning')",
        ),
    ] {
        choose(browser, field, value);
        browser.until(|browser| browser.eval(SHOWN) != json!(200));
        let all = format!(
            "[...document.querySelectorAll('#owners tbody tr')].every(row => row.hidden != ({states}))"
        );
        let is_right = if field == "severity" {
            // A row whose worst finding is an error may have warnings too.
            format!("[...document.querySelectorAll('#owners tbody tr:not([hidden])')].every(row => {states})")
        } else {
            all
        };
        assert_eq!(browser.eval(&is_right), json!(true), "{field}");
        let shown = browser.eval(SHOWN);
        let count = browser.eval("document.getElementById('count').textContent");
        assert_eq!(
            count,
            json!(format!("{shown} of 200 workloads")),
            "what is told to a screen reader"
        );
        let kept = browser.eval(&format!(
            "new URLSearchParams(location.hash.slice(1)).get({field:?})"
        ));
        assert_eq!(kept, json!(value));
        browser.eval("document.getElementById('filter').reset()");
        browser.until(|browser| browser.eval(SHOWN) == json!(200));
    }
    // As a person does it.
    browser.eval("document.querySelector('#filter [name=q]').focus()");
    for key in ["p", "r", "i", "n", "t"] {
        browser.press(key);
    }
    browser.until(|browser| browser.eval(SHOWN) == json!(25));
    browser.eval("document.getElementById('filter').reset()");
    browser.until(|browser| browser.eval(SHOWN) == json!(200));
}

fn sorts_by_keyboard(browser: &mut Browser) {
    let column = |browser: &mut Browser, at: usize| -> Vec<String> {
        let cells = format!(
            "[...document.querySelectorAll('#owners tbody tr')].map(row => row.cells[{at}].textContent.trim())"
        );
        serde_json::from_value(browser.eval(&cells)).unwrap()
    };
    browser.eval("document.querySelector('#owners th[data-key=name] button').focus()");
    browser.press("Enter");
    let state = "document.querySelector('#owners th[data-key=name]').ariaSort";
    assert_eq!(browser.eval(state), json!("ascending"));
    let names = column(browser, 2);
    assert!(names.is_sorted_by_key(|name| name.to_lowercase()), "{names:?}");
    browser.press(" ");
    assert_eq!(browser.eval(state), json!("descending"));
    let names = column(browser, 2);
    assert!(
        names.iter().rev().is_sorted_by_key(|name| name.to_lowercase()),
        "{names:?}"
    );
    let message = browser.eval("document.getElementById('sorted').textContent");
    assert_eq!(message, json!("Sorted by Name, descending"));
    // The next header is one Tab away; the worst findings come first.
    for _ in 0..4 {
        browser.press("Tab");
    }
    browser.press("Enter");
    let keys = "[...document.querySelectorAll('#owners tbody tr')].map(row => row.cells[6].dataset.sort)";
    let keys: Vec<String> = serde_json::from_value(browser.eval(keys)).unwrap();
    assert!(
        keys.iter().rev().is_sorted() && keys[0].starts_with('3'),
        "{keys:?}"
    );
    assert_eq!(
        browser.eval("document.querySelectorAll('#owners [aria-sort]').length"),
        json!(1)
    );
}

fn links_keep_the_filter(browser: &mut Browser) {
    let cell = "document.querySelector('.crosstab td a[data-ns=billing]')";
    let number = browser.eval(&format!("{cell}.closest('td').textContent.match(/\\d+/)[0]"));
    browser.eval(&format!("{cell}.click()"));
    browser.until(|browser| browser.eval(SHOWN) != json!(200));
    assert_eq!(
        browser.eval("document.activeElement.id"),
        json!("workloads-title")
    );
    let rule = browser.eval("document.querySelector('#filter [name=rule]').value");
    assert!(rule.as_str().is_some_and(|rule| !rule.is_empty()));
    let shown = browser.eval(SHOWN).as_u64().unwrap();
    // A workload may have several findings of one rule.
    let number: u64 = number.as_str().unwrap().parse().unwrap();
    assert!(
        shown > 0 && shown <= number,
        "{shown} workloads for {number} findings"
    );
    browser.eval("history.back()");
    browser.until(|browser| browser.eval(SHOWN) == json!(200));
}

fn wears_both_themes(browser: &mut Browser) {
    let ground = "getComputedStyle(document.body).backgroundColor";
    browser.prefer("dark");
    assert_eq!(browser.eval(ground), json!("rgb(21, 24, 27)"));
    browser.prefer("light");
    assert_eq!(browser.eval(ground), json!("rgb(252, 252, 250)"));
    let theme = "document.getElementById('theme')";
    for (name, expected) in [
        ("light", "rgb(252, 252, 250)"),
        ("dark", "rgb(21, 24, 27)"),
        ("system", "rgb(252, 252, 250)"),
    ] {
        browser.eval(&format!("{theme}.click()"));
        assert_eq!(
            browser.eval(&format!("{theme}.textContent")),
            json!(format!("Theme: {name}"))
        );
        assert_eq!(browser.eval(ground), json!(expected));
    }
}

fn tells_a_screen_reader(browser: &mut Browser) {
    let tree = browser.call("Accessibility.getFullAXTree", json!({}));
    let nodes: Vec<&Value> = tree["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|node| node["ignored"] == json!(false))
        .collect();
    let named = |role: &str| -> Vec<&str> {
        let of_role = nodes.iter().filter(|node| node["role"]["value"] == json!(role));
        of_role
            .map(|node| node["name"]["value"].as_str().unwrap_or_default())
            .collect()
    };
    let tables = named("table");
    assert!(tables.len() >= 9, "{tables:?}");
    for role in [
        "table",
        "button",
        "link",
        "combobox",
        "searchbox",
        "heading",
        "region",
        "columnheader",
    ] {
        let names = named(role);
        assert!(!names.is_empty(), "there is no {role}");
        assert!(
            names.iter().all(|name| !name.is_empty()),
            "a {role} has no name: {names:?}"
        );
    }
    for title in [
        "Summary",
        "Findings by rule and namespace",
        "Which image runs on which node",
        "Workloads",
    ] {
        assert!(named("heading").contains(&title), "{title}");
    }
    for landmark in ["banner", "navigation", "main", "contentinfo", "search"] {
        assert_eq!(named(landmark).len(), 1, "{landmark}");
    }
    assert!(
        named("rowheader")
            .iter()
            .any(|name| name.contains("serviced until 2034-11-14")),
        "the time line is a table"
    );
    // Headings go down one step at a time.
    let levels = "[...document.querySelectorAll('h1, h2, h3')].map(heading => Number(heading.tagName[1]))";
    let levels: Vec<u64> = serde_json::from_value(browser.eval(levels)).unwrap();
    assert_eq!(levels[0], 1);
    assert!(
        levels
            .windows(2)
            .all(|pair| pair[1] <= pair[0] + 1 && pair[1] > 1),
        "{levels:?}"
    );
}

fn fits_a_telephone(browser: &mut Browser) {
    for width in [375, 390, 768, 1280] {
        browser.resize(width, 800);
        let wide = browser.eval("document.documentElement.scrollWidth");
        assert!(
            wide.as_u64().unwrap() <= u64::from(width),
            "at {width} px the page is {wide} px wide"
        );
    }
    // What a person reads row by row is not moved sideways.
    browser.resize(390, 800);
    let moved =
        "[...document.querySelectorAll('.wide:has(> .cards)')].filter(it => it.scrollWidth > it.clientWidth)
        .map(it => it.getAttribute('aria-labelledby') ?? it.ariaLabel)";
    assert_eq!(browser.eval(moved), json!([]));
    let pools = "[...document.querySelectorAll('[aria-labelledby=plan-pools] tbody td')].map(cell => cell.dataset.label)";
    let labels: Vec<String> = serde_json::from_value(browser.eval(pools)).unwrap();
    for label in [
        "Turn",
        "Build",
        "Nodes",
        "Check before the upgrade",
        "Support and known faults",
    ] {
        assert!(labels.iter().any(|known| known == label), "{label}: {labels:?}");
    }
    let header = "document.querySelector('[aria-labelledby=plan-pools] thead').checkVisibility({ opacityProperty: true }) &&
        getComputedStyle(document.querySelector('table[aria-labelledby=plan-pools] thead')).clipPath";
    assert_eq!(
        browser.eval(header),
        json!("inset(50%)"),
        "each cell has its label"
    );
    browser.resize(1280, 900);
}

/// Nothing is on the page twice: no figure under two names, and no caption that repeats its heading.
fn repeats_nothing(browser: &mut Browser) {
    let words = "[...document.querySelectorAll('.figures dt')].map(it => it.textContent.trim())";
    let words: Vec<String> = serde_json::from_value(browser.eval(words)).unwrap();
    assert!(
        !words.iter().any(|words| words.contains("mode Enforce")),
        "{words:?}"
    );
    for wanted in ["denied: cannot run", "denied: only ignored fields"] {
        assert_eq!(
            words.iter().filter(|words| *words == wanted).count(),
            1,
            "{words:?}"
        );
    }
    let captions = "[...document.querySelectorAll('caption')].filter(it => it.checkVisibility()).map(it => [it.textContent.trim(),
        document.getElementById(it.closest('[aria-labelledby]').getAttribute('aria-labelledby')).textContent.trim()])";
    let captions: Vec<(String, String)> = serde_json::from_value(browser.eval(captions)).unwrap();
    assert!(captions.len() > 4, "{captions:?}");
    let letters = |text: &str| text.to_lowercase().replace(|c: char| !c.is_alphanumeric(), "");
    for (caption, heading) in &captions {
        let (short, long) = (letters(heading), letters(caption));
        let repeats = short.contains(&long) || heading.contains(' ') && long.starts_with(&short);
        assert!(!repeats, "{caption} · {heading}");
    }
    let twice = "[...document.querySelectorAll('#owners li')].filter(it => it.textContent.includes('denies the object') && it.textContent.includes('would deny it')).length";
    assert_eq!(browser.eval(twice), json!(0));
    let all: BTreeSet<&String> = captions.iter().map(|(caption, _)| caption).collect();
    assert_eq!(all.len(), captions.len(), "{captions:?}");
}

/// Opened, the findings of a workload are as wide as the table.
fn opens_over_the_whole_width(browser: &mut Browser) {
    browser.resize(1280, 900);
    let share =
        "(() => { const details = document.querySelector('#owners tbody tr:not([hidden]) details:has(li)');
        details.open = true;
        const share = details.querySelector('ul').offsetWidth / document.getElementById('owners').offsetWidth;
        details.open = false; return share })()";
    let share = browser.eval(share).as_f64().unwrap();
    assert!(share > 0.95, "the findings have {share} of the width");
}

fn refuses_foreign_scripts(browser: &mut Browser) {
    browser.eval(
        "{ const script = document.createElement('script'); script.textContent = 'window.hurt = 1'; document.body.append(script);
           const image = document.createElement('img'); image.src = 'https://example.com/'; document.body.append(image) }",
    );
    assert_eq!(
        browser.eval("window.hurt ?? 0"),
        json!(0),
        "an injected script ran"
    );
    browser.until(|browser| {
        browser
            .complaints()
            .iter()
            .any(|message| message.contains("Content Security Policy"))
    });
}

fn opens_as_it_was_left(browser: &mut Browser) {
    let rows = "[...document.querySelectorAll('#owners tbody tr:not([hidden])')].map(row => [row.dataset.ns, row.cells[2].textContent])";
    let rows: Vec<(String, String)> = serde_json::from_value(browser.eval(rows)).unwrap();
    assert!(
        !rows.is_empty() && rows.iter().all(|(namespace, _)| namespace == "shop"),
        "{rows:?}"
    );
    assert!(rows.iter().rev().is_sorted_by_key(|(_, name)| name), "{rows:?}");
}

fn works_without_scripts(browser: &mut Browser, file: &std::path::Path) {
    browser.call("Emulation.setScriptExecutionDisabled", json!({"value": true}));
    browser.open(file, "");
    assert_eq!(browser.eval(SHOWN), json!(200));
    let controls =
        "[...document.querySelectorAll('button, input, select')].filter(it => it.checkVisibility()).length";
    assert_eq!(
        browser.eval(controls),
        json!(0),
        "what does nothing without scripts is not shown"
    );
    browser.call("Emulation.setScriptExecutionDisabled", json!({"value": false}));
}

/// Where a person asks for them, pictures to look at.
fn pictures(browser: &mut Browser, file: &std::path::Path) {
    let Some(folder) = env::var_os("TRANSOM_PICTURES").map(PathBuf::from) else {
        return;
    };
    for (name, width, scheme) in [
        ("light", 1280, "light"),
        ("dark", 1280, "dark"),
        ("small", 375, "light"),
    ] {
        browser.prefer(scheme);
        browser.resize(width, 3200);
        browser.open(file, "");
        browser.eval("for (const each of [...document.querySelectorAll('.findings details')].slice(3, 5)) each.open = true");
        browser.picture(&folder.join(format!("{name}.png")));
    }
    let large = folder.join("large.html");
    fs::write(&large, written(&sample::report(5000), true)).unwrap();
    browser.resize(1280, 900);
    browser.open(&large, "");
    let timed = |what: &str| {
        format!(
            "(async () => {{ const start = performance.now(); {what}; document.body.offsetHeight;
           const script = performance.now() - start;
           await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
           return [Math.round(script), Math.round(performance.now() - start)] }})()"
        )
    };
    let load = browser.eval("Math.round(performance.getEntriesByType('navigation')[0].loadEventEnd)");
    eprintln!(
        "5,000 rows: {} bytes, loaded in {load} ms",
        fs::metadata(&large).unwrap().len()
    );
    for (name, what) in [
        (
            "sort by name",
            "document.querySelector('#owners th[data-key=name] button').click()",
        ),
        (
            "sort by findings",
            "document.querySelector('#owners th[data-key=findings] button').click()",
        ),
        (
            "filter by a namespace",
            "location.hash = 'ns=shop'; await new Promise(done => addEventListener('hashchange', () => setTimeout(done), { once: true }))",
        ),
        (
            "show all",
            "document.getElementById('filter').reset(); await new Promise(done => setTimeout(done, 5))",
        ),
        (
            "filter by a word, first",
            "location.hash = 'q=ltsc2019'; await new Promise(done => addEventListener('hashchange', () => setTimeout(done), { once: true }))",
        ),
        (
            "filter by a word, again",
            "location.hash = 'q=spooler'; await new Promise(done => addEventListener('hashchange', () => setTimeout(done), { once: true }))",
        ),
    ] {
        let spent = browser.eval(&timed(what));
        eprintln!("{name}: [script and layout, painted] = {spent} ms");
    }
}

#[test]
fn the_sarif_of_a_scan_is_valid() {
    let mut log = Vec::new();
    scan_sarif(&sample::report(40), None, &mut log).unwrap();
    let log: Value = serde_json::from_slice(&log).unwrap();
    assert!(!log["runs"][0]["results"].as_array().unwrap().is_empty());
    assert_valid_sarif(&log);
}

#[test]
fn a_report_of_a_scan_is_what_its_schema_says() {
    assert_valid_reports("scan", &[&serde_json::to_value(sample::report(40)).unwrap()]);
}
