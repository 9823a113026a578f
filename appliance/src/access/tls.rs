//! Mutual TLS of the control interface: the daemon's certificate, and the CA of clients. TLS 1.3 only: there are no old
//! clients.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime,
};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// Paths of PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The daemon's certificate, followed by those between it and its CA.
    pub certificate: PathBuf,
    /// Private key of the certificate.
    pub key: PathBuf,
    /// CA certificates of clients.
    pub client_ca: PathBuf,
    /// Certificate revocation lists (X.509 CRL), one of each CA of clients and of each intermediate CA.
    pub client_crl: Option<PathBuf>,
}

/// TLS configuration, which can be read again while the daemon runs.
pub struct Tls {
    files: TlsFiles,
    read: RwLock<Read>,
}

struct Read {
    config: Arc<ServerConfig>,
    verifier: Arc<dyn ClientCertVerifier>,
}

fn read(path: &Path, key: &str) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|e| format!("{key}: cannot read {}: {e}", path.display()))
}

/// Certificates of a file: at least one, and all valid now. `key` is the key of the settings that names the file.
pub(crate) fn certificates(path: &Path, key: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |why: &str| format!("{key}: {}: {why}", path.display());
    let text = read(path, key)?;
    let all = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| wrong(&format!("not PEM: {e}")))?;
    if all.is_empty() {
        return Err(wrong("no certificate in it (BEGIN CERTIFICATE)"));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    for der in &all {
        let (_, certificate) =
            X509Certificate::from_der(der).map_err(|e| wrong(&format!("no certificate: {e}")))?;
        let (validity, subject) = (certificate.validity(), certificate.subject());
        if validity.not_after.timestamp() < now {
            return Err(wrong(&format!("{subject} expired on {}", validity.not_after)));
        }
        if validity.not_before.timestamp() > now {
            return Err(wrong(&format!(
                "{subject} is valid from {} on",
                validity.not_before
            )));
        }
    }
    Ok(all)
}

/// Private key of a file. `key` is the key of the settings that names the file.
pub(crate) fn private_key(path: &Path, key: &str) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(&read(path, key)?).map_err(|e| {
        format!(
            "{key}: {}: no private key in it (PKCS #8, PKCS #1 or SEC 1 in PEM, not encrypted): {e}",
            path.display()
        )
    })
}

/// CA certificates of a file. `key` is the key of the settings that names the file.
pub(crate) fn authorities(path: &Path, key: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(path, key)? {
        roots
            .add(authority)
            .map_err(|e| format!("{key}: {}: {e}", path.display()))?;
    }
    Ok(roots)
}

/// Certificate revocation lists of a file: at least one. `key` is the key of the settings that names the file.
pub(crate) fn revoked(path: &Path, key: &str) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let wrong = |why: &str| format!("{key}: {}: {why}", path.display());
    let all = CertificateRevocationListDer::pem_slice_iter(&read(path, key)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| wrong(&format!("not PEM: {e}")))?;
    if all.is_empty() {
        return Err(wrong("no list of revoked certificates in it (BEGIN X509 CRL)"));
    }
    Ok(all)
}

/// Verifier of clients' certificates. If there are revocation lists, there must be one of each CA.
pub(crate) fn verifier(
    roots: Arc<RootCertStore>,
    revoked: Vec<CertificateRevocationListDer<'static>>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    WebPkiClientVerifier::builder_with_provider(roots, provider)
        .with_crls(revoked)
        .build()
        .map_err(|e| e.to_string())
}

/// Returns an error if one of the certificates has expired.
pub(crate) fn expired(chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), String> {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    for der in chain {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|e| format!("its certificate: {e}"))?;
        let until = certificate.validity().not_after;
        if until.timestamp() < now {
            return Err(format!(
                "its certificate ({}) expired on {until}",
                certificate.subject()
            ));
        }
    }
    Ok(())
}

fn load(files: &TlsFiles) -> Result<Read, String> {
    let chain = certificates(&files.certificate, "control.tls.certificate")?;
    let roots = authorities(&files.client_ca, "control.tls.client_ca")?;
    let key = private_key(&files.key, "control.tls.key")?;
    let (of, lists) = match &files.client_crl {
        Some(path) => (("client_crl", path), revoked(path, "control.tls.client_crl")?),
        None => (("client_ca", &files.client_ca), Vec::new()),
    };
    let verifier = verifier(Arc::new(roots), lists)
        .map_err(|e| format!("control.tls.{}: {}: {e}", of.0, of.1.display()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| e.to_string())?
        .with_client_cert_verifier(verifier.clone())
        .with_single_cert(chain, key)
        .map_err(|e| match e {
            rustls::Error::InconsistentKeys(_) => format!(
                "control.tls.key: {} is not the key of {}",
                files.key.display(),
                files.certificate.display()
            ),
            other => format!("control.tls.key: {}: {other}", files.key.display()),
        })?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    // Without resumption, each connection has a full handshake with certificates.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    let config = Arc::new(config);
    Ok(Read { config, verifier })
}

impl Tls {
    /// Reads the files.
    pub fn load(files: &TlsFiles) -> Result<Tls, String> {
        Ok(Tls {
            files: files.clone(),
            read: RwLock::new(load(files)?),
        })
    }

    /// Reads the files again; after an error the old configuration stays.
    pub fn reload(&self) -> Result<(), String> {
        let new = load(&self.files)?;
        *self.read.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    fn read(&self) -> RwLockReadGuard<'_, Read> {
        self.read.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acceptor of new connections.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.read().config.clone())
    }

    /// Checks a client's certificates at a time.
    pub fn check(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), String> {
        let verifier = self.read().verifier.clone();
        check(&*verifier, chain, now)
    }
}

/// Checks a client's certificates at a time.
pub(crate) fn check(
    verifier: &dyn ClientCertVerifier,
    chain: &[CertificateDer<'_>],
    now: UnixTime,
) -> Result<(), String> {
    let (first, between) = chain.split_first().ok_or("no certificate")?;
    let verified = verifier.verify_client_cert(first, between, now);
    verified.map(|_| ()).map_err(|e| e.to_string())
}

/// Name of the client in words, and its certificates.
pub(crate) fn of_client(
    stream: &TlsStream<TcpStream>,
) -> Result<(String, Vec<CertificateDer<'static>>), String> {
    let (_, connection) = stream.get_ref();
    let chain = connection.peer_certificates().unwrap_or_default();
    let (common, alternatives) = names(chain.first().ok_or("no certificate")?)?;
    let name = alternatives.into_iter().chain(common).next();
    let chain = chain.iter().map(|der| der.clone().into_owned()).collect();
    Ok((name.unwrap_or_default(), chain))
}

/// Common names and alternative names (DNS and URI) of a certificate. A certificate with alternative names of any type has
/// no common names here (RFC 6125, section 6.4.4), because a CA checks the alternative ones.
pub(crate) fn names(der: &[u8]) -> Result<(Vec<String>, Vec<String>), String> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|e| format!("its certificate: {e}"))?;
    let common = certificate.subject().iter_common_name();
    let common: Vec<String> = common
        .filter_map(|n| n.as_str().ok())
        .map(str::to_owned)
        .collect();
    let extension = certificate
        .subject_alternative_name()
        .map_err(|e| format!("its certificate: {e}"))?;
    let common = if extension.is_some() { Vec::new() } else { common };
    let all = extension.iter().flat_map(|e| &e.value.general_names);
    let alternatives = all
        .filter_map(|name| match name {
            GeneralName::DNSName(name) | GeneralName::URI(name) => Some((*name).to_owned()),
            _ => None,
        })
        .collect();
    Ok((common, alternatives))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Made {
        dir: tempfile::TempDir,
        files: TlsFiles,
    }

    fn made(days: std::ops::Range<i32>) -> Made {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        let files = TlsFiles {
            certificate: path("server.pem"),
            key: path("server.key"),
            client_ca: path("ca.pem"),
            client_crl: None,
        };
        let key = rcgen::KeyPair::generate().expect("a key");
        let alternatives = ["ops.example.com".to_owned()];
        let mut parameters = rcgen::CertificateParams::new(alternatives).expect("parameters");
        parameters
            .distinguished_name
            .push(rcgen::DnType::CommonName, "ops");
        let uri = "spiffe://example.com/ops".try_into().expect("a URI");
        parameters.subject_alt_names.push(rcgen::SanType::URI(uri));
        parameters.not_before = rcgen::date_time_ymd(2020 + days.start, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(2020 + days.end, 1, 1);
        let certificate = parameters.self_signed(&key).expect("a certificate");
        std::fs::write(&files.certificate, certificate.pem()).expect("a file");
        std::fs::write(&files.client_ca, certificate.pem()).expect("a file");
        std::fs::write(&files.key, key.serialize_pem()).expect("a file");
        Made { dir, files }
    }

    fn refused(files: &TlsFiles) -> String {
        Tls::load(files).err().expect("refused")
    }

    #[test]
    fn names_are_the_alternatives_or_else_the_common_one() {
        let made = made(0..100);
        let der = certificates(&made.files.certificate, "certificate").expect("a certificate");
        let (common, alternatives) = names(&der[0]).expect("names");
        assert!(common.is_empty());
        assert_eq!(alternatives, ["ops.example.com", "spiffe://example.com/ops"]);
        assert!(names(b"nonsense").is_err());
        let texts = |all: &[&str]| all.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        for (alternatives, common) in [(texts(&[]), texts(&["ops"])), (texts(&["192.0.2.1"]), texts(&[]))] {
            let mut parameters = rcgen::CertificateParams::new(alternatives).expect("parameters");
            parameters
                .distinguished_name
                .push(rcgen::DnType::CommonName, "ops");
            let key = rcgen::KeyPair::generate().expect("a key");
            let certificate = parameters.self_signed(&key).expect("a certificate");
            assert_eq!(names(certificate.der()), Ok((common, Vec::new())));
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_file() {
        let good = made(0..100);
        let tls = Tls::load(&good.files).expect("good");
        let text = refused(&made(0..1).files);
        assert!(
            text.contains("server.pem") && text.contains("expired on"),
            "{text}"
        );
        let text = refused(&made(90..100).files);
        assert!(text.contains("is valid from"), "{text}");
        let other = made(0..100);
        let mixed = TlsFiles {
            key: other.files.key.clone(),
            ..good.files.clone()
        };
        let text = refused(&mixed);
        assert!(text.contains("is not the key of"), "{text}");
        let missing = TlsFiles {
            client_ca: other.dir.path().join("nothing"),
            ..good.files.clone()
        };
        let text = refused(&missing);
        assert!(text.contains("control.tls.client_ca: cannot read"), "{text}");
        let no_key = TlsFiles {
            key: good.files.certificate.clone(),
            ..good.files.clone()
        };
        assert!(refused(&no_key).contains("no private key"));
        let no_certificate = TlsFiles {
            certificate: good.files.key.clone(),
            ..good.files.clone()
        };
        assert!(refused(&no_certificate).contains("no certificate in it"));

        // An error while the files are read again changes nothing.
        let before = tls.read().config.clone();
        std::fs::write(&good.files.certificate, "nonsense").expect("a file");
        assert!(tls.reload().is_err());
        assert!(Arc::ptr_eq(&before, &tls.read().config));
        std::fs::copy(&other.files.certificate, &good.files.certificate).expect("a copy");
        std::fs::copy(&other.files.key, &good.files.key).expect("a copy");
        tls.reload().expect("good");
        assert!(!Arc::ptr_eq(&before, &tls.read().config));
    }
}
