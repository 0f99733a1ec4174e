//! Which images are a sign of Windows, by substrings of their names.

use super::{CONTAINERS, IMAGE, quoted};

/// Substrings of Windows images that the other two lists do not match. The cost of `contains` grows with both
/// lengths: short substrings, and few of them per image.
pub(super) const OF_IMAGES: [&str; 4] = ["ltsc", "nanoserver", "servercore", "hostprocess"];
/// Substrings of Windows images that contain `microsoft`: repositories, and any token that begins with `win`.
pub(super) const OF_MICROSOFT: [&str; 13] = [
    ".com/windows",
    ":443/windows",
    "/dotnet/framework",
    "/businesscentral",
    "/dynamicsnav",
    ":win",
    "-win",
    "microsoft/iis",
    "microsoft/aspnet",
    "microsoft/dotnet-framework",
    "microsoft/wcf",
    "/windows-host-process",
    "-windows-gpu",
];
/// Substrings of other Windows images that contain `win`: releases after a word for Windows, and known
/// repositories.
pub(super) const OF_OTHERS: [&str; 18] = [
    ":windows-",
    "-windows-",
    "windows1",
    "windows2",
    ":win-",
    "-win-",
    "win1",
    "win2",
    "sac2016",
    "calico/windows",
    "/node-windows",
    "/cni-windows",
    "antrea-windows",
    "-community/windows",
    "/sig-windows/",
    "collector-windows",
    "_exporter-package",
    "grafana/agent:",
];

/// True if any of these containers has windowsOptions, or an image that `model::image::os_hint` classifies as Windows.
/// Each image is compared with at most one of the two longer lists, and most with none. Options are added to
/// the text as a word, so that the containers are iterated once. `text`: the text of a container `c`, with `OPTIONS` for
/// that word.
pub(super) fn says_windows_in_a_container(containers: &str, text: &str) -> String {
    // An array of four.
    let text = text.replace("OPTIONS", &quoted(OF_IMAGES[0]));
    let texts = format!("cs.map(c,\n      ({text}).lowerAscii())");
    let any = |words: &[&str]| {
        let each = words.iter().map(|word| format!("i.contains('{word}')"));
        each.collect::<Vec<_>>().join(" || ")
    };
    format!(
        "[{}].exists(cs, cs.size() > {CONTAINERS} || {texts}.exists(i,\n      \
         i.size() > {IMAGE} || {}\n      || (i.contains('microsoft')\n      ? {}\n      \
         : i.contains('win') && ({}))))",
        containers,
        any(&OF_IMAGES),
        any(&OF_MICROSOFT),
        any(&OF_OTHERS)
    )
}
