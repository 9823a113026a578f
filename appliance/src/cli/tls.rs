//! TLS options: the client's certificate, and the CA of the daemon's.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig};
use tonic::transport::Uri;

use super::Failure;
use crate::access::tls;

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
    pub fn config(&self) -> Result<Arc<ClientConfig>, Failure> {
        let given = |path: &Option<PathBuf>, option: &str, variable: &str| {
            path.clone().ok_or_else(|| {
                Failure::Usage(format!(
                    "an https endpoint takes --tls-ca, --tls-cert and --tls-key (or VNIC_TLS_CA, VNIC_TLS_CERT and VNIC_TLS_KEY): {option} \
                     ({variable}) is missing"
                ))
            })
        };
        let ca = given(&self.ca, "--tls-ca", "VNIC_TLS_CA")?;
        let cert = given(&self.cert, "--tls-cert", "VNIC_TLS_CERT")?;
        let key = given(&self.key, "--tls-key", "VNIC_TLS_KEY")?;
        let config = || {
            let roots = tls::authorities(&ca, "--tls-ca")?;
            let chain = tls::certificates(&cert, "--tls-cert")?;
            let key = tls::private_key(&key, "--tls-key")?;
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let mut config = ClientConfig::builder_with_provider(provider)
                .with_protocol_versions(&[&rustls::version::TLS13])
                .map_err(|e| e.to_string())?
                .with_root_certificates(roots)
                .with_client_auth_cert(chain, key)
                .map_err(|e| format!("--tls-key: {e}"))?;
            config.alpn_protocols = vec![b"h2".to_vec()];
            Ok(Arc::new(config))
        };
        config().map_err(Failure::Usage)
    }
}

/// Connects to a daemon and waits until it speaks.
///
/// In TLS 1.3 the client's handshake ends before the daemon has looked at the client's certificate, and what the daemon says of it
/// comes as an alert where HTTP/2 settings are expected: here it is an error of the connection, with its reason.
pub async fn connect(
    config: Arc<ClientConfig>,
    uri: Uri,
) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + use<>> {
    let host = uri.host().unwrap_or_default();
    // (Of an IPv6 address without its brackets.)
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let stream = TcpStream::connect((host.as_str(), uri.port_u16().unwrap_or(443))).await?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    let stream = TlsConnector::from(config).connect(name, stream).await?;
    let (mut reader, writer) = tokio::io::split(stream);
    let mut first = vec![0; 4096];
    let length = match reader.read(&mut first).await {
        Ok(0) => Err(io::Error::other("the daemon closed the connection")),
        Ok(length) => Ok(length),
        Err(error) => Err(io::Error::other(format!(
            "the daemon refused the client's certificate, or the connection broke: {error}"
        ))),
    }?;
    first.truncate(length);
    Ok(tokio::io::join(io::Cursor::new(first).chain(reader), writer))
}
