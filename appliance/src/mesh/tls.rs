//! Mutual TLS of a mesh: TLS 1.3 in QUIC (RFC 9001). Both ends show a certificate of the same CA. What is in the
//! certificate counts, not the address behind which it is: a name in the list of peers is a way to find one.

use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::crypto::{CryptoProvider, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::{
    self, ClientConfig, DigitallySignedStruct, Error, PeerIncompatible, RootCertStore, ServerConfig,
    SignatureScheme,
};
use vnic_backend::NicError;

use super::spec::Files;
use crate::access::tls;

/// What is spoken inside (RFC 7301).
pub const ALPN: &[u8] = b"vnic-mesh/1";
/// What is asked for as server name. Nobody looks at it.
pub const SERVER_NAME: &str = "vnic-mesh";

/// Both roles of an end.
pub struct Configs {
    /// When it calls.
    pub client: Arc<QuicClientConfig>,
    /// When it is called.
    pub server: Arc<QuicServerConfig>,
}

/// Reads the files.
pub fn load(files: &Files) -> Result<Configs, NicError> {
    let invalid = |field: &'static str| {
        move |text: String| NicError::Invalid {
            field,
            // The key is said by the field.
            problem: text
                .split_once(": ")
                .map_or(text.clone(), |(_, why)| why.to_owned()),
        }
    };
    let chain = tls::certificates(&files.certificate, "certificate").map_err(invalid("mesh.certificate"))?;
    let key = tls::private_key(&files.key, "key").map_err(invalid("mesh.key"))?;
    let roots = Arc::new(tls::authorities(&files.ca, "ca").map_err(invalid("mesh.ca"))?);

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = [&rustls::version::TLS13];
    let wrong = |field: &'static str, path: &std::path::Path, error: String| NicError::Invalid {
        field,
        problem: format!("{}: {error}", path.display()),
    };
    let pair = |error: Error| {
        let why = match error {
            Error::InconsistentKeys(_) => format!("it is not the key of {}", files.certificate.display()),
            other => other.to_string(),
        };
        wrong("mesh.key", &files.key, why)
    };
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
        .build()
        .map_err(|e| wrong("mesh.ca", &files.ca, e.to_string()))?;
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&versions);
    let mut server = builder
        .map_err(|e| wrong("mesh.key", &files.key, e.to_string()))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain.clone(), key.clone_key())
        .map_err(pair)?;
    server.alpn_protocols = vec![ALPN.to_vec()];
    // Each connection shows its certificate anew.
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;

    let builder = ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(&versions);
    let mut client = builder
        .map_err(|e| wrong("mesh.key", &files.key, e.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(SignedByOurs { roots, provider }))
        .with_client_auth_cert(chain, key)
        .map_err(pair)?;
    client.alpn_protocols = vec![ALPN.to_vec()];
    client.resumption = Resumption::disabled();

    let no_suite =
        |e: quinn::crypto::rustls::NoInitialCipherSuite| wrong("mesh.key", &files.key, e.to_string());
    Ok(Configs {
        client: Arc::new(QuicClientConfig::try_from(client).map_err(no_suite)?),
        server: Arc::new(QuicServerConfig::try_from(server).map_err(no_suite)?),
    })
}

/// The certificate of whom we call must be signed by our CA; its names are looked at afterwards, as those of whoever calls
/// us.
#[derive(Debug)]
struct SignedByOurs {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for SignedByOurs {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, intermediates, now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::Tls13RequiredForQuic))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
