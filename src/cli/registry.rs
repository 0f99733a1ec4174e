//! The arguments for looking up images in registries, which several commands share, and how a look-up shows progress.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use super::progress::bar;
use super::{is_quiet, warn_line};
use crate::model::windows::image::ImageError;
use crate::model::windows::registry_patterns::RegistryPattern;
use crate::process::files::Accept;
use crate::registry::{CacheUse, Detail, DiskCache, Keychain, Registries, RegistryConfig};

/// How registries are reached.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Registries")]
pub struct RegistryArgs {
    /// Send no request: use what the cache has, however old it is
    #[arg(long)]
    offline: bool,
    /// Request tags again, even if the cache has them
    #[arg(long, conflicts_with = "offline")]
    refresh: bool,
    /// CA certificates in PEM that the certificates of registries may chain to, in addition to those of this machine.
    /// Repeatable
    #[arg(long, env = "TRANSOM_REGISTRY_CA", value_name = "FILE", value_delimiter = ',')]
    registry_ca: Vec<PathBuf>,
    /// A registry, with its port, that is asked by plain HTTP: others on the network can then read credentials and
    /// change answers. Repeatable
    #[arg(
        long,
        env = "TRANSOM_REGISTRY_PLAIN_HTTP",
        value_name = "HOST",
        value_delimiter = ',',
        value_parser = host
    )]
    registry_plain_http: Vec<String>,
    /// Ask this mirror for images of a registry, and the registry if the mirror has no answer, as in
    /// docker.io=mirror.example/hub. Repeatable
    #[arg(
        long,
        env = "TRANSOM_REGISTRY_MIRROR",
        value_name = "REGISTRY=MIRROR",
        value_delimiter = ',',
        value_parser = mirror
    )]
    registry_mirror: Vec<(String, String)>,
}

/// The same for a command that looks images up only on request.
#[derive(Clone, Debug)]
pub struct LookupArgs {
    /// How registries are reached.
    pub registries: RegistryArgs,
    /// The first of these options on the command line. Unlike clap's `requires`, this excludes the environment, which is
    /// the same for all commands.
    written: Option<String>,
}

impl LookupArgs {
    /// The registries, if they are asked.
    ///
    /// # Errors
    /// If an option is invalid, or has no effect because they are not asked.
    pub fn registries_if(&self, are_asked: bool, detail: Detail) -> anyhow::Result<Option<Registries>> {
        if are_asked {
            return self.registries.registries(detail).map(Some);
        }
        self.without_look_ups()?;
        Ok(None)
    }

    /// Refuses options that have no effect, because no image is looked up.
    ///
    /// # Errors
    /// If there is such an option on the command line.
    pub fn without_look_ups(&self) -> anyhow::Result<()> {
        if let Some(option) = &self.written {
            bail!("{option} has no effect without --registry; add --registry");
        }
        Ok(())
    }
}

impl Args for LookupArgs {
    fn augment_args(command: Command) -> Command {
        RegistryArgs::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        RegistryArgs::augment_args_for_update(command)
    }
}

impl FromArgMatches for LookupArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let options = RegistryArgs::augment_args(Command::new("look-ups"));
        let is_written = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let written = options
            .get_arguments()
            .find(|option| is_written(option.get_id().as_str()));
        Ok(LookupArgs {
            registries: RegistryArgs::from_arg_matches(matches)?,
            written: written.map(|option| format!("--{}", option.get_long().unwrap_or_default())),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = LookupArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

impl RegistryArgs {
    /// The registries of images, with the credentials and the cache of this user.
    ///
    /// # Errors
    /// If credentials or certificates cannot be read, or `--offline` has no cache.
    pub fn registries(&self, detail: Detail) -> anyhow::Result<Registries> {
        let RegistryArgs {
            offline,
            refresh,
            registry_ca,
            registry_plain_http,
            registry_mirror,
        } = self;
        let cache_use = match (offline, refresh) {
            (true, _) => CacheUse::Only,
            (_, true) => CacheUse::Refresh,
            _ => CacheUse::Normal,
        };
        let cache = match (DiskCache::of_user(), cache_use) {
            (Ok(cache), _) => Some(cache),
            (Err(why), CacheUse::Only) => {
                bail!("there is no cache that --offline could use: {why}")
            }
            (Err(why), _) => {
                if !is_quiet() {
                    warn_line(format_args!("warning: answers of registries are not kept: {why}"));
                }
                None
            }
        };
        let config = RegistryConfig {
            allowed: None,
            plain_http: registry_plain_http.clone(),
            ca_files: registry_ca.clone(),
            accept: Accept::RegularOrPipe,
            mirrors: registry_mirror.clone(),
        };
        let keychain = Keychain::of_user().context("cannot read the credentials of registries")?;
        Ok(Registries::new(config, keychain, cache, cache_use, detail)?)
    }
}

/// Looks up images, with a progress bar on a terminal.
pub async fn look_up(registries: &mut Registries, images: BTreeSet<String>) {
    let bar = bar(
        Some(images.len() as u64),
        "looking up {bar:40} {pos}/{len} images, {elapsed}",
    );
    registries.look_up(images, &|| bar.inc(1)).await;
    bar.finish_and_clear();
}

/// Why a text is not an image reference, and the remedy.
pub fn reference_error(text: &str, error: ImageError) -> String {
    if text.contains("://") {
        return "it begins with a scheme; write the image without it".to_owned();
    }
    error.to_string()
}

const SCHEME: &str = "begins with a scheme; write only the host";

/// Parses a registry, `host[:port]`.
fn host(text: &str) -> Result<String, String> {
    if text.contains("://") {
        return Err(format!("it {SCHEME}"));
    }
    let pattern: RegistryPattern = text.parse().map_err(|error| format!("{error}"))?;
    if pattern.host().contains('*') {
        return Err("name each registry with its port, without a *".to_owned());
    }
    Ok(text.trim().to_ascii_lowercase())
}

/// Parses `registry=mirror[/path]`.
fn mirror(text: &str) -> Result<(String, String), String> {
    const FORM: &str = "write a mirror as in docker.io=mirror.example/hub";
    let (registry, mirror) = text.split_once('=').ok_or_else(|| FORM.to_owned())?;
    let of_mirror = mirror.trim_end_matches('/');
    let registry = host(registry)?;
    if of_mirror.contains("://") {
        return Err(format!("the mirror {SCHEME}"));
    }
    host(of_mirror.split('/').next().unwrap_or_default())?;
    Ok((registry, of_mirror.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::windows::image::ImageRef;

    #[test]
    fn registries_and_mirrors_are_hosts() {
        assert_eq!(host("Registry.corp:5000").as_deref(), Ok("registry.corp:5000"));
        assert_eq!(
            mirror("docker.io=mirror.example/hub/"),
            Ok(("docker.io".to_owned(), "mirror.example/hub".to_owned()))
        );
        for bad in ["", "*.corp", "https://registry.corp"] {
            assert!(host(bad).is_err(), "{bad}");
        }
        assert_eq!(
            host("https://registry.corp").unwrap_err(),
            "it begins with a scheme; write only the host"
        );
        assert_eq!(
            mirror("docker.io=https://mirror.example").unwrap_err(),
            "the mirror begins with a scheme; write only the host"
        );
        let error = ImageRef::parse("http://registry.corp/app:1").unwrap_err();
        assert_eq!(
            reference_error("http://registry.corp/app:1", error),
            "it begins with a scheme; write the image without it"
        );
        let error = ImageRef::parse("registry.corp/App:1").unwrap_err();
        assert!(reference_error("registry.corp/App:1", error).contains("lower case"));
        for bad in [
            "docker.io",
            "docker.io=",
            "=mirror.example",
            "docker.io=https://mirror.example",
        ] {
            assert!(mirror(bad).is_err(), "{bad}");
        }
    }
}
