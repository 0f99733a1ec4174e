//! OTLP in protobuf, the parts that are sent (`opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest`).

use super::span::{Span, Value};

/// `Span.SpanKind.SPAN_KIND_SERVER`.
const SERVER: u64 = 2;
/// `Status.StatusCode.STATUS_CODE_ERROR`.
const ERROR: u64 = 2;
/// `SpanFlags`: it is known whether the parent is another process's, and it is.
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// The attributes of the resource, and who made the spans.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    pub attributes: Vec<(String, String)>,
}

/// An export request with these spans.
pub(super) fn encode(resource: &Resource, spans: &[Span]) -> Vec<u8> {
    let mut request = Message(Vec::with_capacity(1024 * (spans.len() + 1)));
    request.message(1, |resource_spans| {
        resource_spans.message(1, |inner| {
            for (key, value) in &resource.attributes {
                inner.message(1, |pair| {
                    pair.bytes(1, key.as_bytes());
                    pair.message(2, |any| any.bytes(1, value.as_bytes()));
                });
            }
        });
        resource_spans.message(2, |scope_spans| {
            scope_spans.message(1, |scope| {
                scope.bytes(1, env!("CARGO_PKG_NAME").as_bytes());
                scope.bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
            });
            for span in spans {
                scope_spans.message(2, |message| write(message, span));
            }
        });
    });
    request.0
}

fn write(message: &mut Message, span: &Span) {
    let Span {
        name,
        origin,
        start,
        end,
        attributes,
        error,
    } = span;
    message.bytes(1, &origin.trace);
    message.bytes(2, &origin.span);
    if !origin.state.is_empty() {
        message.bytes(3, origin.state.as_bytes());
    }
    if let Some(parent) = &origin.parent {
        message.bytes(4, parent);
    }
    message.bytes(5, name.as_bytes());
    message.number(6, SERVER);
    message.fixed64(7, *start);
    message.fixed64(8, *end);
    for (key, value) in attributes {
        message.message(9, |pair| {
            pair.bytes(1, key.as_bytes());
            pair.message(2, |any| write_value(any, value));
        });
    }
    if let Some(why) = error {
        message.message(15, |status| {
            status.bytes(2, why.as_bytes());
            status.number(3, ERROR);
        });
    }
    let remote = origin.parent.map_or(0, |_| IS_REMOTE);
    message.fixed32(16, u32::from(origin.flags) | HAS_IS_REMOTE | remote);
}

/// `AnyValue`: one of its fields stands there even where it is empty, zero or false.
fn write_value(any: &mut Message, value: &Value) {
    match value {
        Value::Word(word) => any.bytes(1, word.as_bytes()),
        Value::Text(text) => any.bytes(1, text.as_bytes()),
        Value::Flag(flag) => any.number(2, u64::from(*flag)),
        Value::Number(number) => any.number(3, number.cast_unsigned()),
        Value::Words(words) => any.message(5, |array| {
            for word in words {
                array.message(1, |any| any.bytes(1, word.as_bytes()));
            }
        }),
    }
}

/// The wire format of protobuf: fields by number, in the order of writing.
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }

    fn key(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    fn number(&mut self, field: u32, number: u64) {
        self.key(field, 0);
        self.varint(number);
    }

    fn fixed64(&mut self, field: u32, number: u64) {
        self.key(field, 1);
        self.0.extend(number.to_le_bytes());
    }

    fn fixed32(&mut self, field: u32, number: u32) {
        self.key(field, 5);
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.key(field, 2);
        // A usize is never wider than this.
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u32, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self(Vec::new());
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue};
    use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
    use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
    use prost::Message as _;

    use super::super::context::Origin;
    use super::*;

    fn decode(spans: &[Span]) -> ExportTraceServiceRequest {
        let resource = Resource {
            attributes: vec![("service.name".to_owned(), "transom".to_owned())],
        };
        ExportTraceServiceRequest::decode(encode(&resource, spans).as_slice()).unwrap()
    }

    fn any(value: Any) -> AnyValue {
        AnyValue { value: Some(value) }
    }

    fn pairs(attributes: &[KeyValue]) -> Vec<(&str, &AnyValue)> {
        let pair = |it| {
            let KeyValue { key, value, .. }: &KeyValue = it;
            (key.as_str(), value.as_ref().unwrap())
        };
        attributes.iter().map(pair).collect()
    }

    #[test]
    fn the_definitions_of_opentelemetry_read_what_is_written() {
        let span = Span {
            name: "POST /mutate",
            origin: Origin {
                trace: [7; 16],
                span: [8; 8],
                parent: Some([9; 8]),
                flags: 1,
                state: "a=1".to_owned(),
            },
            start: 1_700_000_000_000_000_001,
            end: u64::MAX,
            attributes: vec![
                ("word", "".into()),
                ("text", Value::text("ünïcode")),
                ("number", (-1_i64).into()),
                ("large", i64::MAX.into()),
                ("flag", false.into()),
                ("words", vec!["a", "b"].into()),
            ],
            error: Some("overloaded"),
        };
        let request = decode(std::slice::from_ref(&span));
        let [resource_spans] = request.resource_spans.as_slice() else {
            panic!("{request:?}");
        };
        let resource = resource_spans.resource.as_ref().unwrap();
        let name = any(Any::StringValue("transom".to_owned()));
        assert_eq!(pairs(&resource.attributes), [("service.name", &name)]);
        let [scope_spans] = resource_spans.scope_spans.as_slice() else {
            panic!("{resource_spans:?}");
        };
        let scope = scope_spans.scope.as_ref().unwrap();
        assert_eq!(
            (&*scope.name, &*scope.version),
            ("transom", env!("CARGO_PKG_VERSION"))
        );
        let [read] = scope_spans.spans.as_slice() else {
            panic!("{scope_spans:?}");
        };
        assert_eq!((&*read.trace_id, &*read.span_id), (&[7; 16][..], &[8; 8][..]));
        assert_eq!((&*read.parent_span_id, &*read.trace_state), (&[9; 8][..], "a=1"));
        assert_eq!((&*read.name, read.kind()), ("POST /mutate", SpanKind::Server));
        assert_eq!(
            (read.start_time_unix_nano, read.end_time_unix_nano),
            (span.start, span.end)
        );
        assert_eq!(read.flags, 0x301);
        let status = read.status.as_ref().unwrap();
        assert_eq!(
            (status.code(), &*status.message),
            (StatusCode::Error, "overloaded")
        );
        let words = ["a", "b"].map(|word| any(Any::StringValue(word.to_owned())));
        let values = [
            Any::StringValue(String::new()),
            Any::StringValue("ünïcode".to_owned()),
            Any::IntValue(-1),
            Any::IntValue(i64::MAX),
            Any::BoolValue(false),
            Any::ArrayValue(ArrayValue {
                values: words.to_vec(),
            }),
        ]
        .map(any);
        let keys = ["word", "text", "number", "large", "flag", "words"];
        assert_eq!(
            pairs(&read.attributes),
            keys.into_iter().zip(&values).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_root_span_that_did_not_fail_has_neither_parent_nor_status() {
        let origin = Origin {
            trace: [1; 16],
            span: [2; 8],
            flags: 3,
            ..Origin::default()
        };
        let span = Span {
            origin,
            ..Span::default()
        };
        let request = decode(&[span.clone(), span]);
        let spans = &request.resource_spans[0].scope_spans[0].spans;
        assert_eq!(spans.len(), 2);
        assert_eq!((spans[0].parent_span_id.len(), spans[0].flags), (0, 0x103));
        assert_eq!((&spans[0].status, spans[0].attributes.len()), (&None, 0));
    }
}
