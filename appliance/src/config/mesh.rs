//! Keys of a `[[port]]` of type `mesh`.

use super::diagnostics::Sink;
use super::reader::Section;
use crate::mesh::MeshSpec;
use crate::mesh::spec::{self, Files};

/// What a mesh is made from; what is wrong with the files themselves is found when the daemon starts.
pub(super) fn mesh(section: &Section<'_>, sink: &Sink<'_>) -> Option<MeshSpec> {
    let listen = section
        .required_string("listen")
        .and_then(|at| at.check(sink, spec::listen));
    let file = |key| {
        let at = section.required_string(key)?;
        at.check(sink, spec::file).map(|at| at.value)
    };
    let (certificate, key, ca) = (file("certificate"), file("key"), file("ca"));
    let crl = section
        .string("crl")
        .map(|at| at.check(sink, spec::file).map(|at| at.value));
    let (mut peers, mut names, mut wrong) = (Vec::new(), Vec::new(), false);
    for at in section.strings("peers").into_iter().flat_map(|list| list.value) {
        match at.check(sink, |text| spec::one_more_peer(&peers, text)) {
            Some(at) => peers.push(at.value),
            None => wrong = true,
        }
    }
    for at in section.strings("names").into_iter().flat_map(|list| list.value) {
        match at.check(sink, spec::name) {
            Some(at) => names.push(at.value),
            None => wrong = true,
        }
    }
    if wrong {
        return None;
    }
    let names = spec::names(names)
        .map_err(|why| sink.error(section.place("names"), section.path("names"), why))
        .ok()?;
    Some(MeshSpec {
        listen: listen?.value,
        peers,
        files: Files {
            certificate: certificate?,
            key: key?,
            ca: ca?,
            crl: match crl {
                Some(path) => Some(path?),
                None => None,
            },
        },
        names,
    })
}
