//! The timeline of releases: from the first to the last day of each, with a mark for today.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::civil::Date;

use super::{matrix, release_name};
use crate::model::syntax::text::count;
use crate::model::windows::build::Build;
use crate::scan::report::ScanReport;

/// A release that ends within this number of days is highlighted.
const SOON: i32 = 365;
/// The maximum number of marked years: the number of axes that the chart supports.
const MOST_MARKS: i16 = 10;

/// The use of one build in the cluster.
#[derive(Default)]
struct PresentRelease {
    nodes: usize,
    workloads: usize,
}

impl PresentRelease {
    fn words(&self) -> String {
        format!(
            "{}, {}",
            count(self.nodes, "node"),
            count(self.workloads, "workload")
        )
    }
}

/// How long a release will be supported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SupportState {
    /// More than a year.
    Serviced,
    /// Less than a year.
    Ending,
    Ended,
}

impl SupportState {
    fn of(end: Date, today: Date) -> SupportState {
        match days(today, end) {
            ..0 => SupportState::Ended,
            0..SOON => SupportState::Ending,
            _ => SupportState::Serviced,
        }
    }

    /// The CSS class of its bar.
    pub(super) fn class(self) -> &'static str {
        match self {
            SupportState::Serviced => "ok",
            SupportState::Ending => "warning",
            SupportState::Ended => "error",
        }
    }
}

/// One release on the timeline.
pub(super) struct Life {
    pub(super) build: Build,
    /// Its release.
    pub(super) name: &'static str,
    /// Its use in the cluster, as text.
    pub(super) present: String,
    pub(super) available: Date,
    pub(super) end: Date,
    pub(super) state: SupportState,
    /// The support state as text.
    pub(super) words: String,
    /// The fractions of the timeline before it, of its past, and of its future.
    shares: [f64; 3],
}

/// A build whose dates are not documented.
pub(super) struct Undated {
    pub(super) build: Build,
    /// Its release.
    pub(super) name: &'static str,
    /// Its use in the cluster, as text.
    pub(super) present: String,
}

pub(super) struct Timeline {
    /// The releases with dates, lowest build first.
    pub(super) lives: Vec<Life>,
    /// The releases without dates.
    pub(super) undated: Vec<Undated>,
    /// The years on the axes.
    pub(super) years: Vec<i16>,
    today: f64,
}

impl Timeline {
    /// The timeline of the builds of the nodes and images.
    pub(super) fn of(report: &ScanReport, today: Date) -> Timeline {
        let mut dated = Vec::new();
        let mut undated = Vec::new();
        for (build, present) in present(report) {
            let (name, present) = (release_name(build), present.words());
            let release = build.release();
            match release.and_then(|release| Some((release.available?, release.end_of_support()?))) {
                Some((available, end)) => dated.push((build, name, present, available, end)),
                None => undated.push(Undated { build, name, present }),
            }
        }
        let first = dated.iter().map(|(.., available, _)| available.year()).min();
        let last = dated.iter().map(|(.., end)| end.year() + 1).max();
        let scale = Scale::of(
            first.unwrap_or(today.year()),
            last.unwrap_or(today.year() + 1),
            today,
        );
        let lives = dated
            .into_iter()
            .map(|(build, name, present, available, end)| Life {
                build,
                name,
                present,
                available,
                end,
                state: SupportState::of(end, today),
                words: words(end, today),
                shares: scale.shares(available, end, today),
            });
        Timeline {
            lives: lives.collect(),
            undated,
            years: scale.marks(),
            today: scale.share(today),
        }
    }

    /// The CSS rules with the sizes of the bars. They cannot be style attributes: the page's policy blocks
    /// those.
    pub(super) fn style(&self) -> String {
        let mut style = format!("#releases{{--today:{:.4}}}", self.today);
        for (at, life) in self.lives.iter().enumerate() {
            for (part, share) in ["before", "past", "left"].iter().zip(life.shares) {
                // Writing to a `String` cannot fail.
                let _ = write!(style, "\n#life-{at} .{part}{{--size:{share:.4}}}");
            }
        }
        style
    }
}

fn present(report: &ScanReport) -> BTreeMap<Build, PresentRelease> {
    let mut present: BTreeMap<Build, PresentRelease> = BTreeMap::new();
    for (build, nodes) in matrix::nodes(report).0 {
        present.entry(build).or_default().nodes = nodes;
    }
    for build in report.owners.iter().flat_map(|owner| &owner.image_builds) {
        present.entry(*build).or_default().workloads += 1;
    }
    present
}

/// The years that the timeline shows.
struct Scale {
    first: i16,
    step: i16,
    steps: i16,
}

impl Scale {
    fn of(first: i16, last: i16, today: Date) -> Scale {
        let (first, last) = (first.min(today.year()), last.max(today.year() + 1));
        let years = (last - first).max(1);
        let step = (years + MOST_MARKS - 1) / MOST_MARKS;
        let steps = (years + step - 1) / step;
        Scale { first, step, steps }
    }

    fn marks(&self) -> Vec<i16> {
        (0..self.steps).map(|at| self.first + at * self.step).collect()
    }

    /// The position of a day, from 0 to 1.
    fn share(&self, day: Date) -> f64 {
        let in_year = f64::from(day.day_of_year() - 1) / f64::from(day.days_in_year());
        let years = f64::from(day.year() - self.first) + in_year;
        (years / f64::from(self.step * self.steps)).clamp(0.0, 1.0)
    }

    fn shares(&self, available: Date, end: Date, today: Date) -> [f64; 3] {
        let [start, end, today] = [available, end, today].map(|day| self.share(day));
        let now = today.clamp(start, end.max(start));
        [start, now - start, (end - now).max(0.0)]
    }
}

/// The days from one date to another; negative if the second is earlier.
fn days(from: Date, to: Date) -> i32 {
    from.until(to).map_or(0, |span| span.get_days())
}

/// What the end of support means today, as text.
fn words(end: Date, today: Date) -> String {
    let days = days(today, end);
    match days {
        ..0 => format!("ended {end}, {} ago", long(-days)),
        0 => format!("ends today, {end}"),
        _ => format!("serviced until {end}, {} left", long(days)),
    }
}

/// A number of days as text, in a suitable unit.
fn long(days: i32) -> String {
    let (number, noun) = match days {
        ..60 => (days, "day"),
        60..730 => (days / 30, "month"),
        _ => (days / 365, "year"),
    };
    count(number, noun)
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    #[test]
    fn an_end_is_reported_in_words_too() {
        let today = date(2026, 11, 22);
        for (end, message, state) in [
            (
                date(2022, 8, 9),
                "ended 2022-08-09, 4 years ago",
                SupportState::Ended,
            ),
            (
                date(2026, 11, 21),
                "ended 2026-11-21, 1 day ago",
                SupportState::Ended,
            ),
            (date(2026, 11, 22), "ends today, 2026-11-22", SupportState::Ending),
            (
                date(2027, 1, 11),
                "serviced until 2027-01-11, 50 days left",
                SupportState::Ending,
            ),
            (
                date(2031, 10, 14),
                "serviced until 2031-10-14, 4 years left",
                SupportState::Serviced,
            ),
        ] {
            assert_eq!(words(end, today), message);
            assert_eq!(SupportState::of(end, today), state, "{message}");
        }
    }

    #[test]
    fn a_bar_reaches_from_the_first_day_to_the_last() {
        let today = date(2026, 7, 2);
        let scale = Scale::of(2016, 2035, today);
        assert_eq!(
            scale.marks(),
            [2016, 2018, 2020, 2022, 2024, 2026, 2028, 2030, 2032, 2034]
        );
        let close = |shares: [f64; 3], expected: [f64; 3]| {
            let near = shares.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.001);
            assert!(near, "{shares:?} is not {expected:?}");
        };
        close(
            scale.shares(date(2018, 1, 1), date(2030, 1, 1), today),
            [0.1, 0.425, 0.175],
        );
        // An ended release has no future, and one that has not begun has no past.
        close(
            scale.shares(date(2018, 1, 1), date(2020, 1, 1), today),
            [0.1, 0.1, 0.0],
        );
        close(
            scale.shares(date(2028, 1, 1), date(2030, 1, 1), today),
            [0.6, 0.0, 0.1],
        );
    }
}
