//! The flags and OpenTelemetry environment variables of tracing, parsed into types.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use hyper::Uri;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;

use super::otel_env::pairs;
use super::settings::{TracingError, TracingSettings};

/// The path for traces, appended to the base URL of a collector.
const TRACES: &str = "/v1/traces";
/// The port of OTLP/gRPC, which Transom does not support.
const GRPC: u16 = 4317;

/// Where spans of reviews go, and of which reviews. A variable that is empty is as good as none, as OpenTelemetry has
/// it.
#[derive(Args, Debug)]
#[command(next_help_heading = "Tracing")]
pub struct TracingArgs {
    /// The destination of spans of reviews: the base URL of an OTLP/HTTP receiver, such as http://collector:4318;
    /// /v1/traces is appended. Without it nothing is traced
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    otlp_endpoint: Option<String>,
    /// The complete URL for spans, used unchanged; takes precedence over --otlp-endpoint
    #[arg(long, env = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", value_name = "URL")]
    otlp_traces_endpoint: Option<String>,
    /// CA certificates in PEM that the receiver's certificate must chain to; read at the start. Without it: those of
    /// the machine, or Mozilla's where the machine has none
    #[arg(long, env = "OTEL_EXPORTER_OTLP_CERTIFICATE", value_name = "FILE")]
    otlp_ca: Option<PathBuf>,
    /// More headers for the receiver, as in key=value,key=value with percent-encoded values. Other users can read the
    /// arguments of a process: put secrets into the variable
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_HEADERS",
        value_name = "LIST",
        hide_env_values = true
    )]
    otlp_headers: Option<SecretHeaders>,
    /// The share of reviews without a parent span that are traced, from 0 to 1 (default 0). A review with a parent
    /// span is traced when its parent is
    #[arg(long, env = "OTEL_TRACES_SAMPLER_ARG", value_name = "SHARE")]
    trace_ratio: Option<String>,
    /// The attribute service.name of all spans (default transom)
    #[arg(long, env = "OTEL_SERVICE_NAME", value_name = "NAME")]
    service_name: Option<String>,
    /// More attributes of all spans, as in key=value,key=value with percent-encoded values
    #[arg(long, env = "OTEL_RESOURCE_ATTRIBUTES", value_name = "LIST")]
    resource_attributes: Option<String>,
    /// Turns tracing off
    #[arg(long, env = "OTEL_SDK_DISABLED", hide = true)]
    otel_sdk_disabled: Option<String>,
    /// OpenTelemetry's variables that ask for what Transom does not do
    #[arg(long, env = "OTEL_EXPORTER_OTLP_PROTOCOL", hide = true)]
    otlp_protocol: Option<String>,
    /// The same, for traces only
    #[arg(long, env = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", hide = true)]
    otlp_traces_protocol: Option<String>,
    /// The same
    #[arg(long, env = "OTEL_TRACES_SAMPLER", hide = true)]
    traces_sampler: Option<String>,
}

/// A text that is never logged.
#[derive(Clone)]
struct SecretHeaders(String);

impl FromStr for SecretHeaders {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for SecretHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl TracingArgs {
    /// The settings; `None` if tracing is off.
    ///
    /// # Errors
    /// If a value is invalid; the error names the flag and the accepted values.
    pub fn settings(self) -> Result<Option<TracingSettings>, TracingError> {
        let Self {
            otlp_endpoint,
            otlp_traces_endpoint,
            otlp_ca,
            otlp_headers,
            trace_ratio,
            service_name,
            resource_attributes,
            otel_sdk_disabled,
            otlp_protocol,
            otlp_traces_protocol,
            traces_sampler,
        } = self;
        let url = match (set(otlp_traces_endpoint), set(otlp_endpoint)) {
            _ if otel_sdk_disabled.is_some_and(|it| it.trim().eq_ignore_ascii_case("true")) => {
                return Ok(None);
            }
            (Some(whole), _) => url(
                &whole,
                "",
                "--otlp-traces-endpoint, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            )?,
            (None, Some(base)) => url(&base, TRACES, "--otlp-endpoint, OTEL_EXPORTER_OTLP_ENDPOINT")?,
            (None, None) => return Ok(None),
        };
        let protocol = set(otlp_traces_protocol).or(set(otlp_protocol));
        only(
            protocol,
            "http/protobuf",
            "OTEL_EXPORTER_OTLP_PROTOCOL, OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
            "spans are sent by http/protobuf only, which OTLP receivers take at port 4318",
        )?;
        only(
            set(traces_sampler),
            "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER",
            "the sampler is parentbased_traceidratio; set the share with --trace-ratio",
        )?;
        Ok(Some(TracingSettings {
            url,
            ca: otlp_ca.filter(|path| !path.as_os_str().is_empty()),
            headers: headers(otlp_headers)?,
            ratio: ratio(set(trace_ratio))?,
            resource: resource(set(service_name), set(resource_attributes))?,
        }))
    }
}

/// A value that is not empty.
fn set(value: Option<String>) -> Option<String> {
    value
        .map(|value| value.trim().to_owned())
        .filter(|value| !value.is_empty())
}

fn only(
    value: Option<String>,
    known: &str,
    flag: &'static str,
    why: &'static str,
) -> Result<(), TracingError> {
    match value {
        Some(value) if value != known => Err(TracingError::Value { value, flag, why }),
        _ => Ok(()),
    }
}

fn url(text: &str, appended: &str, flag: &'static str) -> Result<Uri, TracingError> {
    let bad = |value: &str, why| TracingError::Url {
        value: value.to_owned(),
        flag,
        why,
    };
    let shape = "write it as in http://collector:4318";
    let parsed: Uri = text.parse().map_err(|_| bad("", shape))?;
    let mut parts = parsed.into_parts();
    let is_http = parts
        .scheme
        .as_ref()
        .is_some_and(|scheme| matches!(scheme.as_str(), "http" | "https"));
    let authority = parts
        .authority
        .as_ref()
        .filter(|_| is_http)
        .ok_or_else(|| bad(text, shape))?;
    if authority.as_str().contains('@') {
        return Err(bad("", "write user and password into OTEL_EXPORTER_OTLP_HEADERS"));
    }
    if authority.port_u16() == Some(GRPC) {
        tracing::warn!(
            "4317 is the usual port of OTLP/gRPC; Transom uses OTLP/HTTP, with port 4318 ({flag})"
        );
    }
    let path = parts.path_and_query.as_ref();
    let (base, query) = path.map_or(("/", None), |path| (path.path(), path.query()));
    let mut target = base.to_owned();
    if !appended.is_empty() {
        target = target.trim_end_matches('/').to_owned() + appended;
    }
    if let Some(query) = query {
        target = target + "?" + query;
    }
    parts.path_and_query = Some(target.parse().map_err(|_| bad(text, shape))?);
    Uri::from_parts(parts).map_err(|_| bad(text, shape))
}

fn headers(list: Option<SecretHeaders>) -> Result<HeaderMap, TracingError> {
    const FLAG: &str = "OTEL_EXPORTER_OTLP_HEADERS (--otlp-headers)";
    let list = set(list.map(|SecretHeaders(list)| list)).unwrap_or_default();
    let mut headers = HeaderMap::new();
    let pairs = pairs(&list).map_err(|entry| TracingError::List { entry, flag: FLAG })?;
    for (index, (name, value)) in pairs.into_iter().enumerate() {
        let bad = || TracingError::List {
            entry: index + 1,
            flag: FLAG,
        };
        let name = HeaderName::from_str(&name).map_err(|_| bad())?;
        let mut value = HeaderValue::from_str(&value).map_err(|_| bad())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

fn ratio(text: Option<String>) -> Result<f64, TracingError> {
    let Some(text) = text else { return Ok(0.0) };
    let read = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    read.ok_or(TracingError::Value {
        value: text,
        flag: "--trace-ratio, OTEL_TRACES_SAMPLER_ARG",
        why: "write a number from 0 to 1, as in 0.01",
    })
}

/// The resource attributes of all spans. The list overrides the program's own attributes, and a service name
/// overrides the list.
fn resource(name: Option<String>, list: Option<String>) -> Result<Resource, TracingError> {
    let listed = pairs(&list.unwrap_or_default()).map_err(|entry| TracingError::List {
        entry,
        flag: "OTEL_RESOURCE_ATTRIBUTES (--resource-attributes)",
    })?;
    let resource = Resource::builder_empty()
        .with_service_name("transom")
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attributes(listed.into_iter().map(|(key, value)| KeyValue::new(key, value)));
    Ok(match name {
        Some(name) => resource.with_service_name(name),
        None => resource,
    }
    .build())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        tracing: TracingArgs,
    }

    fn settings(flags: &[&str]) -> Result<Option<TracingSettings>, String> {
        let flags = Flags::try_parse_from(["test"].iter().chain(flags)).unwrap();
        flags.tracing.settings().map_err(|error| error.to_string())
    }

    fn on(flags: &[&str]) -> TracingSettings {
        let flags = [&["--otlp-endpoint", "http://collector:4318"], flags].concat();
        settings(&flags).unwrap().unwrap()
    }

    #[test]
    fn nothing_is_traced_without_an_endpoint_or_where_that_is_wished() {
        for off in [
            &[][..],
            &["--trace-ratio", "1"],
            &["--otlp-endpoint", " "],
            &["--otlp-endpoint", "http://c:4318", "--otel-sdk-disabled", "TRUE"],
        ] {
            assert!(settings(off).unwrap().is_none(), "{off:?}");
        }
    }

    #[test]
    fn a_base_url_gets_the_path_of_traces_and_a_whole_one_is_used_as_it_is() {
        for (flag, given, expected) in [
            ("--otlp-endpoint", "http://c:4318", "http://c:4318/v1/traces"),
            ("--otlp-endpoint", "https://c/otlp/", "https://c/otlp/v1/traces"),
            (
                "--otlp-endpoint",
                "http://[::1]:4318/?a=b",
                "http://[::1]:4318/v1/traces?a=b",
            ),
            ("--otlp-traces-endpoint", "http://c:4318", "http://c:4318/"),
            ("--otlp-traces-endpoint", "https://c/v2/in/", "https://c/v2/in/"),
        ] {
            let url = settings(&[flag, given]).unwrap().unwrap().url;
            assert_eq!(url.to_string(), expected, "{given}");
        }
        let both = on(&["--otlp-traces-endpoint", "http://other/x"]);
        assert_eq!(both.url.to_string(), "http://other/x");
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_the_flag_and_the_cure() {
        let c = "http://c:4318";
        for (flags, words) in [
            (
                &["--otlp-endpoint", "collector:4318"][..],
                "cannot trace to the URL \"collector:4318\" (--otlp-endpoint, OTEL_EXPORTER_OTLP_ENDPOINT): write it as in",
            ),
            (
                &["--otlp-endpoint", "grpc://c:4317"],
                "write it as in http://collector:4318",
            ),
            (&["--otlp-endpoint", "http://"], "write it as in"),
            (&["--otlp-endpoint", "http://u:p@c"], "OTEL_EXPORTER_OTLP_HEADERS"),
            (
                &["--otlp-endpoint", c, "--trace-ratio", "2"],
                "write a number from 0 to 1",
            ),
            (
                &["--otlp-endpoint", c, "--trace-ratio", "NaN"],
                "\"NaN\" (--trace-ratio",
            ),
            (
                &["--otlp-endpoint", c, "--otlp-protocol", "grpc"],
                "http/protobuf only",
            ),
            (
                &["--otlp-endpoint", c, "--traces-sampler", "always_on"],
                "--trace-ratio",
            ),
            (
                &["--otlp-endpoint", c, "--otlp-headers", "a=1,b secret"],
                "cannot read entry 2 of OTEL_EXPORTER_OTLP_HEADERS",
            ),
            (&["--otlp-endpoint", c, "--otlp-headers", "a b=secret"], "entry 1"),
            (
                &["--otlp-endpoint", c, "--otlp-headers", "a=secret%0A"],
                "entry 1",
            ),
            (
                &["--otlp-endpoint", c, "--resource-attributes", "x"],
                "entry 1 of OTEL_RESOURCE",
            ),
        ] {
            let error = settings(flags).unwrap_err();
            assert!(error.contains(words), "{flags:?}: {error}");
            assert!(!error.contains("secret") && !error.contains("u:p"), "{error}");
        }
    }

    #[test]
    fn headers_are_kept_from_logs() {
        let settings = on(&["--otlp-headers", "authorization=Bearer%20hush,x-tenant=a"]);
        assert_eq!(settings.headers["authorization"], "Bearer hush");
        assert!(!format!("{settings:?}").contains("hush"));
        let flags = ["test", "--otlp-headers", "authorization=hush"];
        assert!(!format!("{:?}", Flags::try_parse_from(flags).unwrap().tracing).contains("hush"));
    }

    #[test]
    fn the_name_of_the_service_is_the_nearest_one() {
        let name = |flags: &[&str]| {
            let name = on(flags).resource.get(&"service.name".into());
            name.unwrap().to_string()
        };
        assert_eq!(name(&[]), "transom");
        let listed = [
            "--resource-attributes",
            "a=1,service.name=b,service.version=9,a=2",
        ];
        assert_eq!(name(&listed), "b");
        assert_eq!(name(&[&listed[..], &["--service-name", "c"]].concat()), "c");
        let mut all: Vec<String> = (on(&listed).resource.iter())
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        all.sort();
        assert_eq!(all, ["a=2", "service.name=b", "service.version=9"]);
    }
}
