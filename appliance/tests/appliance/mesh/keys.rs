//! Certificates that are made for a test.

use std::sync::Arc;

use quinn::crypto::rustls::QuicClientConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
    KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};

/// A CA.
pub struct Authority {
    dir: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// Paths of files.
pub struct Keys {
    pub certificate: String,
    pub key: String,
    pub ca: String,
    serial: SerialNumber,
}

impl Keys {
    /// A caller that trusts the CA, with the certificate or without, and speaks this protocol.
    pub fn client(&self, certificate: bool, alpn: &str) -> quinn::ClientConfig {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(&self.ca).expect("a CA");
        roots.add(ca).expect("a CA");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3")
            .with_root_certificates(roots);
        let mut config = if certificate {
            let own = CertificateDer::from_pem_file(&self.certificate).expect("a certificate");
            let key = PrivateKeyDer::from_pem_file(&self.key).expect("a key");
            builder.with_client_auth_cert(vec![own], key).expect("a pair")
        } else {
            builder.with_no_client_auth()
        };
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(config).expect("a suite")))
    }
}

impl Authority {
    /// With this name.
    pub fn new(name: &str) -> Authority {
        let mut parameters = CertificateParams::new(Vec::new()).expect("parameters");
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(parameters, key).expect("a CA");
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("ca.pem"), issuer.pem()).expect("a file");
        Authority { dir, issuer }
    }

    /// A certificate with this alternative name.
    pub fn keys(&self, name: &str) -> Keys {
        let path = |file: String| self.dir.path().join(file).to_str().expect("a path").to_owned();
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new([name.to_owned()]).expect("parameters");
        let serial = SerialNumber::from(name.as_bytes().to_vec());
        parameters.serial_number = Some(serial.clone());
        let certificate = parameters.signed_by(&key, &self.issuer).expect("a certificate");
        let keys = Keys {
            certificate: path(format!("{name}.pem")),
            key: path(format!("{name}.key")),
            ca: path("ca.pem".to_owned()),
            serial,
        };
        std::fs::write(&keys.certificate, certificate.pem()).expect("a file");
        std::fs::write(&keys.key, key.serialize_pem()).expect("a file");
        keys
    }

    /// Writes a list of revoked certificates: these. Its path.
    pub fn revoke(&self, all: &[&Keys]) -> String {
        let revoked = all.iter().map(|keys| RevokedCertParams {
            serial_number: keys.serial.clone(),
            revocation_time: date_time_ymd(2024, 1, 2),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(2099, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).and_then(|list| list.pem());
        let path = self.dir.path().join("ca.crl");
        std::fs::write(&path, list.expect("a list")).expect("a file");
        path.to_str().expect("a path").to_owned()
    }
}
