//! Tests of the palette: every text has enough contrast to its background in both themes.

use std::collections::BTreeMap;

use super::PALETTE;

/// The colours of the page by name: light and dark.
fn palette() -> BTreeMap<&'static str, [[f64; 3]; 2]> {
    let colour = |hex: &str| -> [f64; 3] {
        let hex = hex.trim().strip_prefix('#').unwrap();
        [0, 2, 4].map(|at| f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0)
    };
    let mut palette = BTreeMap::new();
    for line in PALETTE.lines() {
        if let Some((name, value)) = line
            .trim()
            .strip_prefix("--")
            .and_then(|line| line.split_once(": light-dark("))
        {
            let (light, dark) = value.trim_end_matches(");").split_once(',').unwrap();
            palette.insert(name, [colour(light), colour(dark)]);
        }
    }
    palette
}

/// The contrast of two colours, as WCAG 2.2 defines it.
fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
    let linear = |part: f64| {
        if part <= 0.04045 {
            part / 12.92
        } else {
            ((part + 0.055) / 1.055).powf(2.4)
        }
    };
    let luminance =
        |[red, green, blue]: [f64; 3]| 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn every_text_can_be_read_on_its_ground() {
    let palette = palette();
    assert_eq!(palette.len(), 16);
    let texts = ["ink", "muted", "accent", "error", "warning", "ok", "advice"];
    let mut pairs: Vec<(&str, &str, f64)> = texts
        .iter()
        .flat_map(|text| [(*text, "paper", 4.5), (*text, "band", 4.5)])
        .collect();
    for text in ["error", "warning", "ok", "advice"] {
        let ground = palette
            .keys()
            .find(|name| **name == format!("{text}-ground"))
            .unwrap();
        pairs.extend([(text, *ground, 4.5), ("ink", *ground, 4.5)]);
    }
    // Elements other than text: the edges of controls, and bars.
    pairs.extend([("edge", "paper", 3.0), ("ok", "paper", 3.0)]);
    for (text, ground, least) in pairs {
        for (at, theme) in ["light", "dark"].iter().enumerate() {
            let contrast = contrast(palette[text][at], palette[ground][at]);
            assert!(contrast >= least, "{text} on {ground}, {theme}: {contrast:.2}");
        }
    }
}
