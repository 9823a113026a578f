//! Who this client is, and whom it trusts, when the daemon is reached over TCP.

use std::path::{Path, PathBuf};

use clap::Args;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::Failure;

/// Certificates for `https://` endpoints: PEM files.
#[derive(Debug, Clone, Args)]
pub struct TlsArgs {
    /// The CA of the daemon's certificate, for an https endpoint
    #[arg(
        long,
        global = true,
        env = "VNIC_CA",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub ca: Option<PathBuf>,
    /// The certificate of this client, for an https endpoint
    #[arg(
        long,
        global = true,
        env = "VNIC_CERT",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub cert: Option<PathBuf>,
    /// The private key of this client, for an https endpoint
    #[arg(
        long,
        global = true,
        env = "VNIC_KEY",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub key: Option<PathBuf>,
}

impl TlsArgs {
    /// What TLS needs; all three files must be named.
    pub fn config(&self) -> Result<ClientTlsConfig, Failure> {
        let file = |path: &Option<PathBuf>, option: &str, variable: &str| {
            let path: &Path = path.as_deref().ok_or_else(|| {
                Failure::Usage(format!(
                    "an https endpoint takes --ca, --cert and --key (or VNIC_CA, VNIC_CERT and VNIC_KEY): {option} \
                     ({variable}) is missing"
                ))
            })?;
            std::fs::read(path)
                .map_err(|e| Failure::Usage(format!("{option}: cannot read {}: {e}", path.display())))
        };
        let ca = file(&self.ca, "--ca", "VNIC_CA")?;
        let cert = file(&self.cert, "--cert", "VNIC_CERT")?;
        let key = file(&self.key, "--key", "VNIC_KEY")?;
        Ok(ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(ca))
            .identity(Identity::from_pem(cert, key)))
    }
}
