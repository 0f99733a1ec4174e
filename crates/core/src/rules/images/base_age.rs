//! The rule on the age of the Windows base of an image.

use super::{LIFECYCLE, images};
use crate::model::cluster::severity::{Class, Severity};
use crate::model::field_set::FieldSet;
use crate::rules::rule::{Check, Rule};

/// Images with an old Windows base; the parameter `maxAgeDays` of a policy sets the age.
pub static IMAGE_BASE_OLD: Rule = Rule {
    id: "TSM614",
    name: "image-base-old",
    severity: Severity::Advice,
    class: Class::BestPractice,
    summary: "the Windows base of the image has not been updated for a long time",
    docs: "Microsoft publishes base images of Windows with the security updates of each month. An image keeps those of the \
           day on which it was built, and scanners of images do not see the layers of Windows. Their history has an entry \
           such as `Install update 10.0.20348.5622` with its date, which the rule reads from the registry. An image \
           without such an entry has no finding. By default, a base may be 180 days old; \
           `validation.rules: [{name: image-base-old, parameters: {maxAgeDays: 90}}]` of a policy changes that. `transom image` prints the \
           date.",
    remedy: "build the image again on the current base image",
    see: &[
        LIFECYCLE,
        "https://learn.microsoft.com/virtualization/windowscontainers/deploy-containers/update-containers",
    ],
    bad: &[
        "# image registry.example.com/app:1.0: windows/amd64 10.0.20348.2700 base=2024-09-10\ncontainers: [{name: app, image: 'registry.example.com/app:1.0'}]",
        // 181 days before the day of the examples, 2026-01-01.
        "# image registry.example.com/app:1.0: windows/amd64 10.0.20348.3932 base=2025-07-04\ncontainers: [{name: app, image: 'registry.example.com/app:1.0'}]",
    ],
    good: &[
        "# image registry.example.com/app:1.0: windows/amd64 10.0.20348.3932 base=2025-07-05\ncontainers: [{name: app, image: 'registry.example.com/app:1.0'}]",
        // The newest variant is current.
        "# image registry.example.com/app:1.0: windows/amd64 10.0.17763.1 base=2020-01-14, windows/amd64 10.0.20348.4529 base=2025-12-09\ncontainers: [{name: app, image: 'registry.example.com/app:1.0'}]",
        // Its history shows no base.
        "# image registry.example.com/app:1.0: windows/amd64 10.0.20348.2700 user=ContainerUser\ncontainers: [{name: app, image: 'registry.example.com/app:1.0'}]",
        // A Linux pod.
        "# image registry.example.com/app:1.0: windows/amd64 10.0.20348.2700 base=2024-09-10\n{os: {name: linux}, nodeSelector: {kubernetes.io/os: linux}, containers: [{name: app, image: 'registry.example.com/app:1.0'}]}",
    ],
    needs: FieldSet::IMAGE,
    check: Check::Pod(|cx, out| {
        let most = i32::from(cx.policy.base_max_age_days);
        for imaged in images(cx) {
            let (Some(facts), Some(contents)) = (imaged.facts, imaged.contents()) else {
                continue;
            };
            let Some(base) = contents
                .windows_base()
                .filter(|base| base.age(cx.facts.today) > most)
            else {
                continue;
            };
            let (version, days) = (base.version, base.age(cx.facts.today));
            out.report(imaged.container.at(&["image"])).message(format!(
                "{} has the Windows base {version} of {}, which is {days} days old ({facts})",
                imaged.shown(),
                base.date
            ));
        }
    }),
    ..Rule::BASE
};
