//! Mutual TLS of a mesh: TLS 1.3 in QUIC (RFC 9001). Both ends have a certificate of the same CA. A peer is identified by
//! its certificate, not by its address: the list of peers only says where to call.

use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::NoServerSessionStorage;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, PeerIncompatible,
    RootCertStore, ServerConfig, SignatureScheme,
};
use vnic_backend::NicError;
use webpki::{CertRevocationList, KeyUsage, OwnedCertRevocationList, RevocationOptionsBuilder};

use super::spec::Files;
use crate::access::tls;

/// Application protocol (RFC 7301).
pub const ALPN: &[u8] = b"vnic-mesh/1";
/// Server name of calls. The other end does not check it.
pub const SERVER_NAME: &str = "vnic-mesh";

/// TLS configuration of both roles.
pub struct Configs {
    /// Configuration of calls.
    pub client: Arc<QuicClientConfig>,
    /// Configuration of incoming calls.
    pub server: Arc<QuicServerConfig>,
    /// Certificates that are accepted.
    pub trusted: Trusted,
}

/// Verifiers of peers' certificates.
#[derive(Clone)]
pub struct Trusted {
    callers: Arc<dyn ClientCertVerifier>,
    called: Arc<SignedByOurs>,
}

impl Trusted {
    /// Checks the certificates of a peer at a time.
    pub fn check(&self, chain: &[CertificateDer<'_>], we_called: bool, now: UnixTime) -> Result<(), String> {
        if !we_called {
            return tls::check(&*self.callers, chain, now);
        }
        let (first, between) = chain.split_first().ok_or("no certificate")?;
        self.called.verify(first, between, now).map_err(|e| e.to_string())
    }
}

/// Reads the files.
pub fn load(files: &Files) -> Result<Configs, NicError> {
    let invalid = |field: &'static str| {
        move |text: String| NicError::Invalid {
            field,
            // The field has the name of the key already.
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
    let lists = match &files.crl {
        Some(path) => tls::revoked(path, "crl").map_err(invalid("mesh.crl"))?,
        None => Vec::new(),
    };
    let broken = |e: String| match &files.crl {
        Some(path) => wrong("mesh.crl", path, e),
        None => wrong("mesh.ca", &files.ca, e),
    };
    let owned = lists
        .iter()
        .map(|list| OwnedCertRevocationList::from_der(list).map(Into::into));
    let called = Arc::new(SignedByOurs {
        revoked: owned
            .collect::<Result<_, _>>()
            .map_err(|e| broken(e.to_string()))?,
        roots: roots.clone(),
        provider: provider.clone(),
    });
    let callers = tls::verifier(roots, lists).map_err(broken)?;
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&versions);
    let mut server = builder
        .map_err(|e| wrong("mesh.key", &files.key, e.to_string()))?
        .with_client_cert_verifier(callers.clone())
        .with_single_cert(chain.clone(), key.clone_key())
        .map_err(pair)?;
    server.alpn_protocols = vec![ALPN.to_vec()];
    // Without resumption, each connection has a full handshake with certificates.
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;

    let builder = ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(&versions);
    let mut client = builder
        .map_err(|e| wrong("mesh.key", &files.key, e.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(called.clone())
        .with_client_auth_cert(chain, key)
        .map_err(pair)?;
    client.alpn_protocols = vec![ALPN.to_vec()];
    client.resumption = Resumption::disabled();

    let no_suite =
        |e: quinn::crypto::rustls::NoInitialCipherSuite| wrong("mesh.key", &files.key, e.to_string());
    Ok(Configs {
        client: Arc::new(QuicClientConfig::try_from(client).map_err(no_suite)?),
        server: Arc::new(QuicServerConfig::try_from(server).map_err(no_suite)?),
        trusted: Trusted { callers, called },
    })
}

/// Verifier of a called peer's certificate: it must be signed by the CA. Its names are checked after the handshake, as those of a caller.
#[derive(Debug)]
struct SignedByOurs {
    roots: Arc<RootCertStore>,
    revoked: Vec<CertRevocationList<'static>>,
    provider: Arc<CryptoProvider>,
}

impl SignedByOurs {
    fn verify(
        &self,
        first: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), webpki::Error> {
        let lists: Vec<&CertRevocationList<'_>> = self.revoked.iter().collect();
        // Without lists there is no revocation check.
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|all| all.build());
        webpki::EndEntityCert::try_from(first)?
            .verify_for_usage(
                self.provider.signature_verification_algorithms.all,
                &self.roots.roots,
                between,
                now,
                KeyUsage::server_auth(),
                revocation,
                None,
            )
            .map(|_| ())
    }
}

/// Error with the TLS alert for the other end.
fn refusal(error: webpki::Error) -> Error {
    use webpki::Error as E;
    Error::InvalidCertificate(match error {
        E::CertExpired { .. } => CertificateError::Expired,
        E::CertNotValidYet { .. } => CertificateError::NotValidYet,
        E::UnknownIssuer => CertificateError::UnknownIssuer,
        E::CertRevoked => CertificateError::Revoked,
        E::UnknownRevocationStatus => CertificateError::UnknownRevocationStatus,
        other => CertificateError::Other(OtherError(Arc::new(other))),
    })
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
        self.verify(end_entity, intermediates, now).map_err(refusal)?;
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
