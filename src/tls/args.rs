//! The flags and environment variables of the certificate.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::process::arg_parsers::positive;

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
    /// How often to check the certificate and key files for new content
    #[arg(long, env = "TRANSOM_TLS_POLL", value_name = "DURATION", default_value = "5s", value_parser = positive)]
    pub tls_poll: Duration,
    /// File to write the CA of the self-issued certificate to, in PEM, for `clientConfig.caBundle`
    #[arg(
        long,
        env = "TRANSOM_WRITE_CA",
        value_name = "FILE",
        conflicts_with = "tls_cert"
    )]
    pub write_ca: Option<PathBuf>,
    /// Another DNS name or IP address in the self-issued certificate; may be repeated. The certificate
    /// always contains localhost, 127.0.0.1, ::1 and the address of --listen
    #[arg(
        long,
        env = "TRANSOM_TLS_NAME",
        value_name = "NAME",
        value_delimiter = ',',
        conflicts_with = "tls_cert"
    )]
    pub tls_name: Vec<String>,
}

/// Who may call, by the certificates that clients show.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Clients")]
pub struct ClientArgs {
    /// CA certificates in PEM that client certificates must be issued by; read again when their content changes
    #[arg(long, env = "TRANSOM_CLIENT_CA", value_name = "FILE")]
    pub client_ca: Option<PathBuf>,
    /// The name that a client certificate must have, as its common name or a DNS name; may be repeated. Without it,
    /// every certificate of the CA is accepted
    #[arg(
        long,
        env = "TRANSOM_CLIENT_NAME",
        value_name = "NAME",
        value_delimiter = ',',
        requires = "client_ca"
    )]
    pub client_name: Vec<String>,
    /// Reject clients without a certificate. The API server sends one only if its admission configuration names it
    #[arg(long, env = "TRANSOM_REQUIRE_CLIENT_CERTIFICATE", requires = "client_ca")]
    pub require_client_certificate: bool,
    /// How often to check the file of --client-ca for new content
    #[arg(long, env = "TRANSOM_CLIENT_CA_POLL", value_name = "DURATION", default_value = "5s", value_parser = positive)]
    pub client_ca_poll: Duration,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        tls: TlsArgs,
        #[command(flatten)]
        clients: ClientArgs,
    }

    fn parse(flags: &[&str]) -> Result<Flags, String> {
        Flags::try_parse_from(["test"].iter().chain(flags)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_certificate_needs_its_key_and_a_key_its_certificate() {
        assert_eq!(parse(&[]).unwrap().tls.tls_poll, Duration::from_secs(5));
        assert!(parse(&["--tls-cert", "a"]).is_err());
        assert!(parse(&["--tls-key", "a"]).is_err());
        assert!(parse(&["--tls-cert", "a", "--tls-key", "b"]).is_ok());
        assert!(parse(&["--tls-cert", "a", "--tls-key", "b", "--write-ca", "c"]).is_err());
    }

    #[test]
    fn what_is_required_of_client_certificates_needs_their_ca() {
        assert!(parse(&["--require-client-certificate"]).is_err());
        assert!(parse(&["--client-name", "kube-apiserver"]).is_err());
        let flags = parse(&[
            "--client-ca",
            "ca.crt",
            "--client-name",
            "a,b",
            "--client-name",
            "c",
        ]);
        assert_eq!(flags.unwrap().clients.client_name, ["a", "b", "c"]);
    }
}
