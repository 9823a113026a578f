//! TLS options: the client's certificate, and the CA of the daemon's.

use std::path::{Path, PathBuf};

use clap::Args;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::Failure;

/// Heading of the options that every command has, so that they do not stand between its own.
pub const GLOBAL: &str = "Global options";

/// Certificates for `https://` endpoints: PEM files. A global option shares its name with those of every verb, and some
/// verbs have a `key`: hence the longer names.
#[derive(Debug, Clone, Args)]
pub struct TlsArgs {
    /// The CA of the daemon's certificate, for an https endpoint
    #[arg(
        id = "tls_ca",
        long = "tls-ca",
        global = true,
        help_heading = GLOBAL,
        env = "VNIC_TLS_CA",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub ca: Option<PathBuf>,
    /// The certificate of this client, for an https endpoint
    #[arg(
        id = "tls_cert",
        long = "tls-cert",
        global = true,
        help_heading = GLOBAL,
        env = "VNIC_TLS_CERT",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub cert: Option<PathBuf>,
    /// The private key of this client, for an https endpoint
    #[arg(
        id = "tls_key",
        long = "tls-key",
        global = true,
        help_heading = GLOBAL,
        env = "VNIC_TLS_KEY",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub key: Option<PathBuf>,
}

impl TlsArgs {
    /// TLS configuration; all three files must be given.
    pub fn config(&self) -> Result<ClientTlsConfig, Failure> {
        let file = |path: &Option<PathBuf>, option: &str, variable: &str| {
            let path: &Path = path.as_deref().ok_or_else(|| {
                Failure::Usage(format!(
                    "an https endpoint takes --tls-ca, --tls-cert and --tls-key (or VNIC_TLS_CA, VNIC_TLS_CERT and VNIC_TLS_KEY): {option} \
                     ({variable}) is missing"
                ))
            })?;
            std::fs::read(path)
                .map_err(|e| Failure::Usage(format!("{option}: cannot read {}: {e}", path.display())))
        };
        let ca = file(&self.ca, "--tls-ca", "VNIC_TLS_CA")?;
        let cert = file(&self.cert, "--tls-cert", "VNIC_TLS_CERT")?;
        let key = file(&self.key, "--tls-key", "VNIC_TLS_KEY")?;
        Ok(ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(ca))
            .identity(Identity::from_pem(cert, key)))
    }
}
