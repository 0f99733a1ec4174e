//! The flags of the webhook's server and their environment variables, parsed into types at the border.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::limits::MAX_BODY;

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

/// What the server shows its clients: a certificate from files, or one that it issues to itself.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Certificate")]
pub struct TlsArgs {
    /// Certificate chain in PEM, the server's own certificate first; read again when its content changes.
    /// Without it, the server issues itself a certificate from a CA that lives as long as the process
    #[arg(long, env = "TRANSOM_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate in PEM: PKCS#8, SEC1 or RSA
    #[arg(long, env = "TRANSOM_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// How often the certificate and key files are looked at for new content
    #[arg(long, env = "TRANSOM_TLS_POLL", value_name = "DURATION", default_value = "5s", value_parser = positive)]
    pub tls_poll: Duration,
    /// Where to write the CA of the self-issued certificate in PEM, for `clientConfig.caBundle`
    #[arg(
        long,
        env = "TRANSOM_WRITE_CA",
        value_name = "FILE",
        conflicts_with = "tls_cert"
    )]
    pub write_ca: Option<PathBuf>,
    /// One more DNS name or IP address in the self-issued certificate; may be repeated. It always has
    /// localhost, 127.0.0.1, ::1 and the address of --listen
    #[arg(
        long,
        env = "TRANSOM_TLS_NAME",
        value_name = "NAME",
        value_delimiter = ',',
        conflicts_with = "tls_cert"
    )]
    pub tls_name: Vec<String>,
}

/// How much the server takes on, and how long it waits.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Limits")]
pub struct LimitArgs {
    /// Reviews in flight; one more is answered 503 at once
    #[arg(long, env = "TRANSOM_MAX_CONCURRENT", value_name = "N", default_value = "256", value_parser = count)]
    pub max_concurrent: usize,
    /// Bytes of request bodies in flight; what would not fit is answered 503 at once. At least 7MiB, the
    /// largest body that is accepted
    #[arg(
        long,
        env = "TRANSOM_MAX_BYTES_IN_FLIGHT",
        value_name = "SIZE",
        default_value = "24MiB",
        value_parser = bytes_in_flight
    )]
    pub max_bytes_in_flight: usize,
    /// How long a client may take to send the head of a request
    #[arg(
        long,
        env = "TRANSOM_HEADER_TIMEOUT",
        value_name = "DURATION",
        default_value = "5s",
        value_parser = positive
    )]
    pub header_timeout: Duration,
    /// How long a client may take to send the body of a request
    #[arg(
        long,
        env = "TRANSOM_BODY_TIMEOUT",
        value_name = "DURATION",
        default_value = "10s",
        value_parser = positive
    )]
    pub body_timeout: Duration,
    /// Time between not being ready and closing the listener, for the endpoints of the Service to follow
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

/// A duration as people write it: `5s`, `500ms`, `1m 30s`.
fn duration(text: &str) -> Result<Duration, String> {
    let help = "write a number and its unit, such as 500ms, 5s or 2m";
    let signed: jiff::SignedDuration = text.trim().parse().map_err(|_| help.to_owned())?;
    Duration::try_from(signed).map_err(|_| "a duration cannot be negative".to_owned())
}

/// A duration that is not zero.
fn positive(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("must be longer than zero".to_owned()),
        long => Ok(long),
    }
}

/// A number that is not zero, and small enough for a semaphore.
fn count(text: &str) -> Result<usize, String> {
    match text.trim().parse::<u32>() {
        Ok(0) => Err("must be at least 1".to_owned()),
        Ok(number) => Ok(usize::try_from(number).unwrap_or(usize::MAX)),
        Err(_) => Err("write a whole number, such as 256".to_owned()),
    }
}

/// A size as people write it: `24MiB`, `24Mi`, `24MB`, `1048576`.
fn bytes(text: &str) -> Result<usize, String> {
    let help = || "write a number and its unit, such as 24MiB, 512KiB or 25MB".to_owned();
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: usize = number.parse().map_err(|_| help())?;
    let factor = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "ki" | "kib" => 1 << 10,
        "mi" | "mib" => 1 << 20,
        "gi" | "gib" => 1 << 30,
        _ => return Err(help()),
    };
    number
        .checked_mul(factor)
        .ok_or_else(|| "is more than this machine can address".to_owned())
}

/// A size in which the largest acceptable body fits; smaller ones would refuse that body for ever.
fn bytes_in_flight(text: &str) -> Result<usize, String> {
    match bytes(text)? {
        small if small < MAX_BODY => Err(format!(
            "must be at least {}MiB, the largest body that is accepted",
            MAX_BODY >> 20
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
        tls: TlsArgs,
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
        assert_eq!(flags.limits.max_bytes_in_flight, 24 << 20);
        assert_eq!(flags.limits.header_timeout, Duration::from_secs(5));
        assert_eq!(flags.limits.drain_delay, Duration::ZERO);
        assert_eq!(flags.tls.tls_poll, Duration::from_secs(5));
    }

    #[test]
    fn a_certificate_needs_its_key_and_a_key_its_certificate() {
        assert!(parse(&["--tls-cert", "a"]).is_err());
        assert!(parse(&["--tls-key", "a"]).is_err());
        assert!(parse(&["--tls-cert", "a", "--tls-key", "b"]).is_ok());
        assert!(parse(&["--tls-cert", "a", "--tls-key", "b", "--write-ca", "c"]).is_err());
    }

    #[test]
    fn sizes_are_read_in_every_spelling() {
        let cases = [
            ("1", 1),
            ("2kB", 2_000),
            ("3Ki", 3 << 10),
            ("24MiB", 24 << 20),
            ("1 gib", 1 << 30),
            ("8M", 8_000_000),
        ];
        for (text, size) in cases {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
        for text in ["", "MiB", "1.5MiB", "-1", "1 parsec", "99999999999GiB"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        assert!(bytes_in_flight("1MiB").unwrap_err().contains("at least 7MiB"));
    }

    #[test]
    fn durations_need_a_unit_and_timeouts_are_not_zero() {
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert!(duration("5").unwrap_err().contains("unit"));
        assert!(duration("-5s").is_err());
        assert!(positive("0s").is_err());
        assert!(count("0").is_err());
    }
}
