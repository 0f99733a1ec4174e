//! The flags and environment variables of the webhook server, parsed into types.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;

use super::limits::{CONNECTION_BYTES, LEAST_IN_FLIGHT, Limits, MEMORY_SHARE, OTHER_DESCRIPTORS};
use crate::process::arg_parsers::{bytes, count, duration, positive};
use crate::process::resource_limits::ResourceLimits;

/// Where the server listens.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Listening")]
pub struct ListenArgs {
    /// Address of the webhook: HTTPS, POST /mutate and POST /validate. Port 0 takes any free port
    #[arg(
        long,
        env = "TRANSOM_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8443"
    )]
    pub listen: SocketAddr,
    /// Address of /livez, /readyz and /metrics: plain HTTP
    #[arg(
        long,
        env = "TRANSOM_HEALTH_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8080"
    )]
    pub health_listen: SocketAddr,
}

/// How much the server takes on, and how long it waits.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Limits")]
pub struct LimitArgs {
    /// Reviews in flight, each from the end of its body to its answer; others wait
    #[arg(long, env = "TRANSOM_MAX_CONCURRENT", value_name = "N", default_value = "256", value_parser = count)]
    pub max_concurrent: usize,
    /// Bytes in flight, of bodies and of answers; if they are used up, others wait. At least 24MiB: a body of 20 MiB,
    /// the largest that is read, together with small ones
    #[arg(
        long,
        env = "TRANSOM_MAX_BYTES_IN_FLIGHT",
        value_name = "SIZE",
        default_value = "64MiB",
        value_parser = bytes_in_flight
    )]
    pub max_bytes_in_flight: usize,
    /// How long a review may wait before it is answered with 503; at most half of the webhook's timeoutSeconds, which
    /// the API server sends
    #[arg(long, env = "TRANSOM_MAX_WAIT", value_name = "DURATION", default_value = "1s", value_parser = duration)]
    pub max_wait: Duration,
    /// Open connections of the webhook; another one replaces the least useful one. Without it, as many as fit in a
    /// quarter of the container's memory limit, 4096 at most. Never more than the limit of open files allows
    #[arg(long, env = "TRANSOM_MAX_CONNECTIONS", value_name = "N", value_parser = count)]
    pub max_connections: Option<usize>,
    /// How long a client may take to send the head of a request
    #[arg(
        long,
        env = "TRANSOM_HEADER_TIMEOUT",
        value_name = "DURATION",
        default_value = "5s",
        value_parser = positive
    )]
    pub header_timeout: Duration,
    /// How long a client may take to send the body of a request, from the end of its head
    #[arg(
        long,
        env = "TRANSOM_BODY_TIMEOUT",
        value_name = "DURATION",
        default_value = "2s",
        value_parser = positive
    )]
    pub body_timeout: Duration,
    /// Time between becoming unready and closing the listener, until the endpoints of the Service are updated
    #[arg(
        long,
        env = "TRANSOM_DRAIN_DELAY",
        value_name = "DURATION",
        default_value = "0s",
        value_parser = duration
    )]
    pub drain_delay: Duration,
    /// How long reviews in flight may take to finish once the listener is closed
    #[arg(
        long,
        env = "TRANSOM_DRAIN_TIMEOUT",
        value_name = "DURATION",
        default_value = "25s",
        value_parser = duration
    )]
    pub drain_timeout: Duration,
}

impl LimitArgs {
    /// The requested limits, reduced to what the process's resource limits allow.
    pub fn within(self, room: ResourceLimits) -> Limits {
        let LimitArgs {
            max_concurrent,
            max_bytes_in_flight,
            max_wait,
            max_connections,
            header_timeout,
            body_timeout,
            drain_delay,
            drain_timeout,
        } = self;
        Limits {
            max_concurrent,
            max_bytes_in_flight,
            max_wait,
            max_connections: connections(max_connections, room),
            header_timeout,
            body_timeout,
            drain_delay,
            drain_timeout,
            ..Limits::default()
        }
    }
}

/// How many connections the resource limits allow.
fn connections(configured: Option<usize>, room: ResourceLimits) -> u32 {
    /// The minimum: a server with fewer connections is unusable.
    const LEAST: u32 = 16;
    let fit = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let most = Limits::default().max_connections;
    let by_memory = (room.memory).map_or(most, |bytes| {
        fit(bytes / MEMORY_SHARE / CONNECTION_BYTES).min(most)
    });
    let wanted = configured.map_or(by_memory, |configured| {
        u32::try_from(configured).unwrap_or(u32::MAX)
    });
    let by_descriptors =
        (room.descriptors).map_or(u32::MAX, |all| fit(all.saturating_sub(OTHER_DESCRIPTORS)));
    wanted.min(by_descriptors).max(LEAST)
}

/// A size that fits the largest body plus small ones; a smaller one would always reject that body.
fn bytes_in_flight(text: &str) -> Result<usize, String> {
    match bytes(text)? {
        small if small < LEAST_IN_FLIGHT => Err(format!(
            "must be at least {}MiB, for the largest body that is read and small ones next to it",
            LEAST_IN_FLIGHT >> 20
        )),
        size => Ok(size),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        listen: ListenArgs,
        #[command(flatten)]
        limits: LimitArgs,
    }

    fn parse(flags: &[&str]) -> Result<Flags, String> {
        Flags::try_parse_from(["test"].iter().chain(flags)).map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_are_loopback_and_humane() {
        let flags = parse(&[]).unwrap();
        assert_eq!(flags.listen.listen.to_string(), "127.0.0.1:8443");
        assert_eq!(flags.listen.health_listen.to_string(), "127.0.0.1:8080");
        assert_eq!(flags.limits.max_bytes_in_flight, 64 << 20);
        assert_eq!(flags.limits.max_wait, Duration::from_secs(1));
        assert_eq!(flags.limits.header_timeout, Duration::from_secs(5));
        assert_eq!(flags.limits.drain_delay, Duration::ZERO);
    }

    #[test]
    fn connections_fit_into_memory_and_descriptors() {
        let room = |descriptors: u64, memory: u64| ResourceLimits {
            descriptors: Some(descriptors),
            memory: Some(memory << 20),
        };
        assert_eq!(connections(None, ResourceLimits::default()), 4_096);
        assert_eq!(connections(None, room(65_536, 256)), 1_024);
        assert_eq!(connections(None, room(65_536, 8_192)), 4_096);
        assert_eq!(connections(None, room(1_024, 256)), 704);
        assert_eq!(connections(Some(2_000), room(65_536, 256)), 2_000, "asked for");
        assert_eq!(connections(Some(2_000), room(1_024, 256)), 704);
        assert_eq!(connections(Some(2_000), room(64, 1)), 16);
    }

    #[test]
    fn the_largest_body_always_fits() {
        assert!(bytes_in_flight("1MiB").unwrap_err().contains("at least 24MiB"));
        assert_eq!(bytes_in_flight("24MiB"), Ok(24 << 20));
    }
}
