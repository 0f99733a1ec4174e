//! Events as lines of JSON. `tracing` has no lists, so some fields with commas represent lists.

use std::fmt::{self, Debug};

use jiff::Timestamp;
use serde::ser::{SerializeMap, Serializer as _};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{Format, Json, Writer, format};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The fields of target `audit` that are lists.
const LISTS: [&str; 1] = ["rules"];

/// The JSON format of logs: that of `tracing_subscriber`, with the lists of target `audit` as JSON arrays.
pub(super) struct JsonLines(Format<Json>);

impl JsonLines {
    pub(super) fn new() -> Self {
        Self(format().json().flatten_event(true))
    }
}

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'l> LookupSpan<'l>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        if metadata.target() != "audit" {
            return self.0.format_event(context, writer, event);
        }
        let mut line = Vec::with_capacity(768);
        let mut serializer = serde_json::Serializer::new(&mut line);
        let mut map = serializer.serialize_map(None).map_err(|_| fmt::Error)?;
        let mut fields = JsonFields(&mut map);
        fields.add("timestamp", &format_args!("{:.6}", Timestamp::now()));
        fields.add("level", metadata.level().as_str());
        fields.add("target", metadata.target());
        event.record(&mut fields);
        map.end().map_err(|_| fmt::Error)?;
        writeln!(writer, "{}", str::from_utf8(&line).map_err(|_| fmt::Error)?)
    }
}

/// Writes fields into a map.
struct JsonFields<'m, M>(&'m mut M);

impl<M: SerializeMap> JsonFields<'_, M> {
    fn add(&mut self, name: &str, value: &(impl serde::Serialize + ?Sized)) {
        // Cannot fail in memory.
        let _ = self.0.serialize_entry(name, value);
    }
}

impl<M: SerializeMap> Visit for JsonFields<'_, M> {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field.name(), &value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if LISTS.contains(&field.name()) {
            let text = format!("{value:?}");
            let list: Vec<&str> = text.split(',').filter(|item| !item.is_empty()).collect();
            self.add(field.name(), &list);
        } else {
            self.add(field.name(), &format_args!("{value:?}"));
        }
    }
}
