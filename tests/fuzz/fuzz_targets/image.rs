//! Text as an image reference: no panic, and what a reference prints is read as the same reference.
#![no_main]

use libfuzzer_sys::fuzz_target;
use transom::model::windows::image::{ImageRef, build_hint, end_of_support, os_hint};

fuzz_target!(|text: &str| {
    let Ok(image) = ImageRef::parse(text) else { return };
    let printed = image.to_string();
    assert_eq!(ImageRef::parse(&printed), Ok(image), "{text} is printed as {printed}");
    let _ = os_hint(&image);
    if let Some(hint) = build_hint(&image) {
        let tag = image.tag.expect("a build is read from a tag");
        assert!(tag.split('-').any(|token| token == hint.token));
        let _ = end_of_support(&image, hint.build);
    }
    let _ = (image.mcr_equivalent(), image.is_windows_base(), image.is_servercore_or_server_base());
});
