//! `transom demo`: the webhook on this machine, with one review that it denies and one that it patches.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Context as _;
use axum::http::{Request, header};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;

use super::{block_on, print_line};
use crate::model::cluster::facts::Facts;
use crate::process::metrics::Metrics;
use crate::process::readiness::Readiness;
use crate::process::today;
use crate::rules::RUN_AS_USER;
use crate::serve::standalone::while_serving;
use crate::tls::source::CertificateSource;
use crate::webhook::{Limits, ListenArgs, WebhookConfig};

/// Reviews as an API server sends them: a Deployment that was written for Linux, and a Windows pod that does not say so.
const DENIED: &str = include_str!("../../manifests/examples/review-create-linux-fields.json");
const PATCHED: &str = include_str!("../../manifests/examples/review-create-windows-pod.json");

/// Run the webhook on this machine, and show a denial and a patch
///
/// Starts the webhook on a free port with the built-in policy and a certificate of its own, sends it two reviews as an API
/// server would, prints the answers and stops. Needs no cluster, and changes nothing.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom demo")]
pub struct DemoArgs {}

pub fn run(DemoArgs {}: &DemoArgs) -> anyhow::Result<ExitCode> {
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let config = WebhookConfig {
        listen: ListenArgs {
            listen: any_port,
            health_listen: any_port,
        },
        limits: Limits::default(),
        certificate: CertificateSource::SelfSigned {
            names: Vec::new(),
            write_ca: None,
        },
        clients: None,
        metrics: Metrics::new(env!("CARGO_PKG_VERSION"), None),
        readiness: Readiness::default(),
        tracer: None,
    };
    let facts = Facts::new(Facts::KUBERNETES, today());
    block_on(while_serving(facts, config, async |address, ca| {
        let server = Webhook::of(address, ca)?;
        print_line(format_args!(
            "The webhook listens on https://{address}. Its policy denies what cannot run on Windows.\n"
        ))?;
        let denied = server.answer("validate", DENIED).await?;
        print_line(format_args!("{}", shown("1. POST /validate", DENIED, &denied)?))?;
        let patched = server.answer("mutate", PATCHED).await?;
        print_line(format_args!("{}", shown("2. POST /mutate", PATCHED, &patched)?))?;
        print_line(format_args!(
            "Check your own manifests: transom check FILE\nExplain a rule: transom explain {}",
            RUN_AS_USER.name
        ))?;
        Ok(())
    }))?;
    Ok(ExitCode::SUCCESS)
}

/// A client of the webhook, which trusts only its CA.
struct Webhook(kube::Client);

impl Webhook {
    fn of(address: SocketAddr, ca: &str) -> anyhow::Result<Self> {
        let ca =
            CertificateDer::from_pem_slice(ca.as_bytes()).context("cannot read the CA of the webhook")?;
        let mut config = kube::Config::new(format!("https://{address}").parse()?);
        config.root_cert = Some(vec![ca.to_vec()]);
        Ok(Webhook(kube::Client::try_from(config)?))
    }

    /// The response to a review.
    async fn answer(&self, path: &str, review: &str) -> anyhow::Result<Value> {
        let request = Request::post(format!("/{path}"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(review.as_bytes().to_vec())?;
        let answer: Value = self.0.request(request).await?;
        Ok(answer["response"].clone())
    }
}

/// What was sent, and the answer to it.
fn shown(request: &str, review: &str, response: &Value) -> anyhow::Result<String> {
    let review: Value = serde_json::from_str(review)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let sent = &review["request"];
    let head = format!(
        "{request}: {} creates {} {}/{}\n",
        text(&sent["userInfo"]["username"]),
        text(&sent["kind"]["kind"]),
        text(&sent["namespace"]),
        text(&sent["name"]),
    );
    if response["allowed"] == false {
        return Ok(format!(
            "{head}denied: {}\n",
            text(&response["status"]["message"])
        ));
    }
    let patch = BASE64_STANDARD.decode(text(&response["patch"]))?;
    let patch: Vec<Value> = serde_json::from_slice(&patch)?;
    let shown = |edit: &Value| {
        format!(
            "  {} {} {}\n",
            text(&edit["op"]),
            text(&edit["path"]),
            edit["value"]
        )
    };
    let edits: String = patch.iter().map(shown).collect();
    Ok(format!("{head}allowed, with this patch:\n{edits}"))
}
