//! Daemons that ports of type `mesh` join: their certificates and configuration.

use std::path::Path;

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// Names of the two ends.
pub const MESH_ENDS: [&str; 2] = ["a", "b"];

/// Makes a certificate for each end, of one CA, in a directory.
pub fn mesh_certificates(dir: &Path) -> Result<()> {
    let mut parameters = CertificateParams::new(Vec::new())?;
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(parameters, KeyPair::generate()?)?;
    std::fs::write(dir.join("ca.pem"), ca.pem())?;
    for name in MESH_ENDS {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new([name.to_owned()])?.signed_by(&key, &ca)?;
        std::fs::write(dir.join(format!("{name}.pem")), certificate.pem())?;
        std::fs::write(dir.join(format!("{name}.key")), key.serialize_pem())?;
    }
    Ok(())
}

/// Keys of configuration of an end's port beside its name and MTU. Both ends call each other; addresses have ports.
pub fn mesh_port(end: usize, dir: &Path, addresses: &[String; 2]) -> String {
    let (name, dir) = (MESH_ENDS[end], dir.display());
    let (own, other) = (&addresses[end], &addresses[1 - end]);
    format!(
        "type = \"mesh\"\nlisten = \"{own}\"\npeers = [\"{other}\"]\ncertificate = \"{dir}/{name}.pem\"\n\
         key = \"{dir}/{name}.key\"\nca = \"{dir}/ca.pem\"\nnames = {MESH_ENDS:?}\n"
    )
}
