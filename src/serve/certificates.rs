//! Selects the certificate of a server in a cluster from the arguments.

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, ValueEnum};

use crate::certs::{CertificateConfig, CertificateMode, Lifetimes};
use crate::cluster::client::NamesArgs;
use crate::registration::{ServiceName, configuration_name};
use crate::tls::source::CertificateSource;

/// Who makes the certificate, and for which names.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Certificate in a cluster")]
pub struct CertificateArgs {
    /// Who issues the certificate: self-managed (the leader, in a Secret), cert-manager or provided (both --tls-cert
    /// and --tls-key)
    #[arg(
        long,
        env = "TRANSOM_CERTIFICATES",
        value_enum,
        value_name = "MODE",
        default_value = "self-managed"
    )]
    certificates: CertificateModeArg,
    /// With --certificates provided, CA certificates in PEM that the leader publishes as the caBundle of both webhook
    /// configurations; without it, you set the caBundle yourself
    #[arg(long, env = "TRANSOM_CA_BUNDLE", value_name = "FILE")]
    ca_bundle: Option<PathBuf>,
    /// The Service through which the API server reaches Transom, by default transom in Transom's namespace; a self-managed
    /// certificate contains its names, and any other one must contain NAME.NAMESPACE.svc
    #[arg(long, env = "TRANSOM_SERVICE", value_name = "NAME.NAMESPACE")]
    service: Option<ServiceName>,
    /// The address at which the API server reaches a Transom that runs outside the cluster; a self-managed certificate
    /// contains its host, and any other one must contain it. Register it with transom generate webhooks --url
    #[arg(long, env = "TRANSOM_WEBHOOK_URL", value_name = "https://HOST:PORT", value_parser = host)]
    webhook_url: Option<UrlHost>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum CertificateModeArg {
    SelfManaged,
    CertManager,
    Provided,
}

/// The host of a URL, without brackets.
#[derive(Clone, PartialEq, Eq, Debug)]
struct UrlHost(String);

impl CertificateArgs {
    /// The mode, with the files that it needs.
    ///
    /// # Errors
    /// If the files do not fit the mode; the error says what to set.
    pub fn mode(&self, source: &CertificateSource) -> anyhow::Result<CertificateMode> {
        match (self.certificates, source) {
            (CertificateModeArg::SelfManaged, CertificateSource::Files(_)) => bail!(
                "--tls-cert and --tls-key are for --certificates provided or cert-manager; choose one of these modes, or remove them"
            ),
            (CertificateModeArg::SelfManaged, _) if self.ca_bundle.is_some() => {
                bail!(
                    "--ca-bundle is for --certificates provided; a self-managed certificate brings its own CA"
                )
            }
            (CertificateModeArg::CertManager, _) if self.ca_bundle.is_some() => {
                bail!(
                    "--ca-bundle is for --certificates provided; with cert-manager its CA injector writes the caBundle: \
                     remove it"
                )
            }
            (
                _,
                CertificateSource::SelfSigned {
                    write_ca: Some(_), ..
                },
            ) => bail!(
                "--write-ca is for --standalone; in a cluster the leader publishes the CA in the webhook configurations: \
                 remove it"
            ),
            (CertificateModeArg::SelfManaged, _) => Ok(CertificateMode::SelfManaged),
            (CertificateModeArg::CertManager, CertificateSource::Files(files)) => {
                Ok(CertificateMode::CertManager(files.clone()))
            }
            (CertificateModeArg::Provided, CertificateSource::Files(files)) => {
                Ok(CertificateMode::Provided {
                    files: files.clone(),
                    ca_bundle: self.ca_bundle.clone(),
                })
            }
            (CertificateModeArg::CertManager | CertificateModeArg::Provided, _) => {
                bail!("--certificates cert-manager and provided need the files: add --tls-cert and --tls-key")
            }
        }
    }

    /// What to store, and where.
    pub fn config(
        &self,
        known_as: &NamesArgs,
        namespace: &str,
        source: &CertificateSource,
    ) -> CertificateConfig {
        let service = match &self.service {
            Some(ServiceName { name, namespace }) => format!("{name}.{namespace}"),
            None => format!("transom.{namespace}"),
        };
        // The only Service name that the API server dials.
        let mut names = vec![format!("{service}.svc")];
        // A certificate issued by Transom also has the other names. A certificate that you provide needs only
        // the dialled name: Transom is not ready while a required name is missing.
        if self.certificates == CertificateModeArg::SelfManaged {
            names.push(format!("{service}.svc.cluster.local"));
            names.push(service);
        }
        names.extend(self.webhook_url.iter().map(|UrlHost(host)| host.clone()));
        if let CertificateSource::SelfSigned { names: more, .. } = source {
            names.extend(more.iter().cloned());
        }
        CertificateConfig {
            namespace: namespace.to_owned(),
            secret: known_as.certificate_secret.clone(),
            configuration: configuration_name(&known_as.installation.name),
            names,
            lifetimes: Lifetimes::default(),
        }
    }
}

fn host(text: &str) -> Result<UrlHost, String> {
    let wrong = || format!("\"{text}\" is no such address; write it as in https://192.0.2.7:8443");
    let rest = text.strip_prefix("https://").ok_or_else(wrong)?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(six) => six.split_once(']').ok_or_else(wrong)?.0,
        None => authority.split(':').next().unwrap_or_default(),
    };
    if host.is_empty() || authority.contains('@') {
        return Err(wrong());
    }
    Ok(UrlHost(host.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        certificates: CertificateArgs,
        #[command(flatten)]
        names: NamesArgs,
    }

    #[test]
    fn a_certificate_that_transom_did_not_issue_needs_only_the_names_that_are_dialled() {
        let names = |arguments: &[&str]| {
            let parsed = Arguments::parse_from([&["transom"], arguments].concat());
            let source = CertificateSource::SelfSigned {
                names: Vec::new(),
                write_ca: None,
            };
            parsed.certificates.config(&parsed.names, "ns", &source).names
        };
        let issued = ["transom.ns.svc", "transom.ns.svc.cluster.local", "transom.ns"];
        assert_eq!(names(&[]), issued);
        for mode in ["cert-manager", "provided"] {
            let mode = format!("--certificates={mode}");
            assert_eq!(names(&[&mode, "--service=s.other"]), ["s.other.svc"]);
            assert_eq!(
                names(&[&mode, "--webhook-url=https://laptop:8443"]),
                ["transom.ns.svc", "laptop"]
            );
        }
    }

    #[test]
    fn the_host_of_a_webhook_url_is_found() {
        for (url, expected) in [
            ("https://192.0.2.7:8443", "192.0.2.7"),
            ("https://laptop.example.com", "laptop.example.com"),
            ("https://[2001:db8::1]:8443/", "2001:db8::1"),
        ] {
            assert_eq!(host(url), Ok(UrlHost(expected.to_owned())));
        }
        for wrong in [
            "http://a:1",
            "laptop:8443",
            "https://",
            "https://[::1",
            "https://me@host",
        ] {
            assert!(host(wrong).unwrap_err().contains("write it as in"), "{wrong}");
        }
    }
}
