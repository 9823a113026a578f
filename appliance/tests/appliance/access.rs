//! Who may do what: users of the machine on the Unix socket, certificates over TCP.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use crate::common::lab::text;
use crate::common::process::{self, Process};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
    KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustix::process::Signal;
use serde_json::Value;

const ADAPTER: &str = "[[adapter]]\nname = \"vf0\"\nrdma = false\n";

fn me() -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").expect("this process").uid()
}

fn reads(daemon: &Process) {
    daemon.said(&["adapter", "list"]);
    daemon.said(&["health"]);
    daemon.said(&["event", "list"]);
    daemon.said(&["server", "info"]);
}

fn refusals(daemon: &Process) -> Vec<Value> {
    daemon.events(&["--kind", "access_refused"])
}

#[test]
fn a_user_may_do_what_its_role_says() {
    let uid = me();
    for (role, restarts, adds) in [
        ("viewer", false, false),
        ("operator", true, false),
        ("admin", true, true),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let daemon = process::start(dir.path(), &format!("access.users.{uid} = \"{role}\"\n{ADAPTER}"));
        reads(&daemon);
        for (arguments, method, needs, may) in [
            (
                &["adapter", "restart", "vf0"] as &[&str],
                "AdapterService/RestartAdapter",
                "operator",
                restarts,
            ),
            (
                &["adapter", "add", "blue"],
                "AdapterService/CreateAdapter",
                "admin",
                adds,
            ),
            (
                &["capture", "start", "vf0"],
                "CaptureService/CreateCapture",
                "admin",
                adds,
            ),
        ] {
            let before = refusals(&daemon).len();
            if may {
                daemon.said(arguments);
                assert_eq!(refusals(&daemon).len(), before);
                continue;
            }
            let said = daemon.refused(arguments);
            assert!(said.contains("PERMISSION_DENIED"), "{said}");
            assert!(
                said.contains(method) && said.contains(&format!("takes the role {needs}")),
                "{said}"
            );
            assert!(said.contains(&format!("has {role}")), "{said}");
            let all = refusals(&daemon);
            assert_eq!(all.len(), before + 1);
            let event = &all[before];
            assert_eq!(event["parameters"]["needs"], needs);
            assert_eq!(event["parameters"]["has"], role);
            let by = event["parameters"]["by"].as_str().expect("who");
            assert!(by.starts_with(&format!("uid {uid}")), "{by}");
        }
        daemon.end(Signal::TERM);
    }
}

/// Runs `vnicctl` as another user, who can get at nothing of ours but the socket.
fn as_user(daemon: &Process, vnicctl: &Path, uid: u32, gid: u32, arguments: &[&str]) -> Output {
    let like = daemon.vnicctl();
    let mut command = Command::new(vnicctl);
    for (name, value) in like.get_envs() {
        command.env(name, value.expect("a value"));
    }
    // Changing the user takes the groups of the one before away.
    command
        .gid(gid)
        .uid(uid)
        .args(arguments)
        .output()
        .expect("vnicctl")
}

#[test]
fn users_have_the_role_of_their_groups_or_the_default() {
    if me() != 0 {
        eprintln!("SKIP users_have_the_role_of_their_groups_or_the_default: only root can become others");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).expect("rights");
    let vnicctl = dir.path().join("vnicctl");
    std::fs::copy(env!("CARGO_BIN_EXE_vnicctl"), &vnicctl).expect("a copy");
    let (uid, gid) = (65_001, 65_002);
    for (config, restarts, lists) in [
        (String::new(), false, true),
        ("access.default = \"none\"\n".to_owned(), false, false),
        ("access.default = \"operator\"\n".to_owned(), true, true),
        (
            format!("access.default = \"none\"\naccess.groups = {{ {gid} = \"operator\" }}\n"),
            true,
            true,
        ),
        (
            format!("access.groups = {{ {gid} = \"operator\" }}\naccess.users = {{ {uid} = \"viewer\" }}\n"),
            false,
            true,
        ),
    ] {
        let daemon = process::start(dir.path(), &format!("control.mode = \"0666\"\n{config}{ADAPTER}"));
        for (arguments, may) in [
            (["adapter", "restart", "vf0"].as_slice(), restarts),
            (&["adapter", "list"], lists),
            (&["health"], lists),
        ] {
            let output = as_user(&daemon, &vnicctl, uid, gid, arguments);
            let said = text(&output.stderr);
            assert_eq!(output.status.success(), may, "{config}{arguments:?}: {said}");
            if !may {
                assert!(
                    said.contains("PERMISSION_DENIED") && said.contains("uid 65001"),
                    "{said}"
                );
            }
        }
        // Root stays an administrator.
        daemon.said(&["adapter", "restart", "vf0"]);
        daemon.end(Signal::TERM);
    }
}

/// A CA, with files.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: PathBuf,
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

impl Authority {
    fn new(dir: &Path, name: &str) -> Authority {
        let mut parameters = CertificateParams::new(Vec::new()).expect("parameters");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(parameters, key()).expect("a CA");
        let dir = dir.join(name);
        std::fs::create_dir(&dir).expect("a directory");
        std::fs::write(dir.join("ca.pem"), issuer.pem()).expect("a file");
        Authority { issuer, dir }
    }

    /// Makes a certificate; its files are `NAME.pem` and `NAME.key`.
    pub fn make(&self, name: &str, alternatives: &[&str]) {
        self.make_numbered(name, alternatives, None);
    }

    /// The same with a serial number.
    fn make_numbered(&self, name: &str, alternatives: &[&str], serial: Option<u64>) {
        let all: Vec<String> = alternatives.iter().map(|n| (*n).to_owned()).collect();
        let mut parameters = CertificateParams::new(all).expect("parameters");
        parameters.serial_number = serial.map(SerialNumber::from);
        parameters.distinguished_name.push(DnType::CommonName, name);
        let key = key();
        let certificate = parameters.signed_by(&key, &self.issuer).expect("a certificate");
        std::fs::write(self.dir.join(format!("{name}.pem")), certificate.pem()).expect("a file");
        std::fs::write(self.dir.join(format!("{name}.key")), key.serialize_pem()).expect("a file");
    }

    /// Writes `ca.crl`: the certificates with these numbers are revoked.
    fn revoke(&self, serials: &[u64]) {
        let revoked = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
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
        std::fs::write(self.dir.join("ca.crl"), list.expect("a list")).expect("a file");
    }

    pub fn path(&self, name: &str) -> String {
        self.dir.join(name).to_str().expect("a path").to_owned()
    }
}

pub struct Tcp {
    pub dir: tempfile::TempDir,
    pub ca: Authority,
    pub config: String,
}

pub fn tcp() -> Tcp {
    let dir = tempfile::tempdir().expect("a directory");
    let ca = Authority::new(dir.path(), "ours");
    ca.make("server", &["localhost", "127.0.0.1"]);
    let config = format!(
        "access.certificates = {{ boss = \"admin\", \"mon.example.com\" = \"viewer\" }}\n\
         [control]\nlisten = \"tcp:127.0.0.1:0\"\n[control.tls]\ncertificate = {:?}\nkey = {:?}\nclient_ca = {:?}\n{ADAPTER}",
        ca.path("server.pem"),
        ca.path("server.key"),
        ca.path("ca.pem"),
    );
    Tcp { dir, ca, config }
}

/// Runs `vnicctl` over TCP with the certificate `name` of an authority.
pub fn over_tcp(daemon: &Process, trusted: &str, ca: &Authority, name: &str, arguments: &[&str]) -> Output {
    let (_, rest) = daemon.ready.split_once("https://").expect("an address");
    let address = rest.split([',', ' ']).next().expect("an address");
    let (certificate, key) = (ca.path(&format!("{name}.pem")), ca.path(&format!("{name}.key")));
    let endpoint = format!("https://{address}");
    let options = [
        "--endpoint",
        &endpoint,
        "--tls-ca",
        trusted,
        "--tls-cert",
        &certificate,
        "--tls-key",
        &key,
    ];
    daemon.ctl(&[&options, arguments].concat())
}

#[test]
fn over_tcp_the_certificate_says_who_it_is() {
    let Tcp { dir, ca, config } = tcp();
    let other = Authority::new(dir.path(), "other");
    ca.make("monitor", &["mon.example.com"]);
    ca.make("nobody", &["nobody.example.com"]);
    let make = |name: &str, alternatives: &[&str], file: &str| {
        ca.make(name, alternatives);
        for kind in ["pem", "key"] {
            let (from, to) = (format!("{name}.{kind}"), format!("{file}.{kind}"));
            std::fs::rename(ca.path(&from), ca.path(&to)).expect("renamed");
        }
    };
    // What the CA has looked at is not the common name.
    make("boss", &["intern.example.com"], "intern");
    ca.make("boss", &[]);
    other.make("boss", &[]);
    let daemon = process::start(dir.path(), &config);
    let trusted = ca.path("ca.pem");
    let add = ["adapter", "add", "blue"];

    let output = over_tcp(&daemon, &trusted, &ca, "boss", &add);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = over_tcp(&daemon, &trusted, &ca, "monitor", &["adapter", "list"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("blue"));

    let refused = |output: &Output| {
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
        text(&output.stderr)
    };
    let said = refused(&over_tcp(
        &daemon,
        &trusted,
        &ca,
        "monitor",
        &["adapter", "remove", "blue"],
    ));
    assert!(
        said.contains("takes the role admin; certificate \"mon.example.com\" from 127.0.0.1 has viewer"),
        "{said}"
    );
    let said = refused(&over_tcp(&daemon, &trusted, &ca, "nobody", &["adapter", "list"]));
    assert!(
        said.contains("takes the role viewer; certificate \"nobody.example.com\" from 127.0.0.1 has no role"),
        "{said}"
    );
    let said = refused(&over_tcp(&daemon, &trusted, &ca, "intern", &["adapter", "list"]));
    assert!(
        said.contains("certificate \"intern.example.com\" from 127.0.0.1 has no role"),
        "{said}"
    );
    let all = refusals(&daemon);
    assert_eq!(all.len(), 3, "{all:?}");

    // A certificate of another CA comes not even so far.
    let said = refused(&over_tcp(&daemon, &trusted, &other, "boss", &["adapter", "list"]));
    assert!(
        said.contains("the daemon refused the client's certificate") && said.contains("UnknownCA"),
        "{said}"
    );
    // A daemon that the client does not trust.
    let said = refused(&over_tcp(
        &daemon,
        &other.path("ca.pem"),
        &ca,
        "boss",
        &["adapter", "list"],
    ));
    assert!(said.contains("cannot reach vnicd"), "{said}");
    // The event comes when the daemon has seen the end of the handshake.
    let mut all = refusals(&daemon);
    for _ in 0..6000 {
        if all.len() >= 5 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
        all = refusals(&daemon);
    }
    let by = |e: &Value| e["parameters"]["by"].as_str().map(str::to_owned);
    assert!(
        all[3..].iter().all(|e| by(e).as_deref() == Some("127.0.0.1")),
        "{all:?}"
    );
    // The Unix socket is there, too.
    reads(&daemon);
    daemon.end(Signal::TERM);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_certificate_and_no_tls_come_to_nothing() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_rustls::rustls::pki_types::pem::PemObject as _;
    use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
    /// What a client of HTTP/2 says first.
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let Tcp { dir, ca, config } = tcp();
    let daemon = process::start(dir.path(), &config);
    let (_, rest) = daemon.ready.split_once("https://").expect("an address");
    let address = rest.split([',', ' ']).next().expect("an address").to_owned();
    let connect = || tokio::net::TcpStream::connect(&address);

    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_file(ca.path("ca.pem")).expect("the CA");
    roots.add(root).expect("the CA");
    let anonymous = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("127.0.0.1").expect("a name");
    let stream = connect().await.expect("a connection");
    // With TLS 1.3 a client believes in its connection until it reads.
    let secure = tokio_rustls::TlsConnector::from(Arc::new(anonymous));
    let mut stream = secure.connect(name, stream).await.expect("half of a handshake");
    let refused = stream.read(&mut [0; 64]).await.expect_err("no word of HTTP/2");
    assert!(refused.to_string().contains("CertificateRequired"), "{refused}");

    let mut stream = connect().await.expect("a connection");
    stream.write_all(PREFACE).await.expect("written");
    let mut answer = Vec::new();
    let end = stream.read_to_end(&mut answer).await;
    // An alert of TLS, or the end of the connection.
    assert!(matches!(answer.first(), None | Some(0x15)), "{end:?}: {answer:?}");
    daemon.end(Signal::TERM);
}

/// As many connections as there may be.
const FLOOD: usize = 1024;

#[tokio::test(flavor = "multi_thread")]
async fn half_open_connections_keep_nobody_out() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).expect("more files");

    let Tcp { dir, ca, config } = tcp();
    ca.make("boss", &[]);
    let daemon = process::start(dir.path(), &config);
    let (_, rest) = daemon.ready.split_once("https://").expect("an address");
    let address = rest.split([',', ' ']).next().expect("an address").to_owned();
    // From eight hosts, and none of them says a word.
    let mut silent = Vec::new();
    for i in 0..FLOOD {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        let host = u8::try_from(2 + i % 8).expect("a number");
        socket.bind(([127, 0, 0, host], 0).into()).expect("a host");
        let connected = socket.connect(address.parse().expect("an address")).await;
        silent.push(connected.expect("a connection"));
    }
    let trusted = ca.path("ca.pem");
    let output = over_tcp(&daemon, &trusted, &ca, "boss", &["adapter", "list"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    reads(&daemon);
    let by = |e: &Value| e["parameters"]["problem"].as_str().map(str::to_owned);
    let told: Vec<_> = refusals(&daemon).iter().filter_map(by).collect();
    let text = "32 TLS handshakes from 127.0.0.2 are allowed at a time";
    assert!(told.iter().any(|t| t.contains(text)), "{told:?}");
    daemon.end(Signal::TERM);
}

#[test]
fn certificates_are_read_again_on_sighup_and_wrong_ones_stop_the_start() {
    let Tcp { dir, ca, config } = tcp();
    ca.make("boss", &[]);
    let trusted = ca.path("ca.pem");
    let daemon = process::start(dir.path(), &config);
    let list = ["adapter", "list"];
    let loaded = |count: usize| {
        for _ in 0..6000 {
            let all = daemon.events(&["--kind", "certificates_loaded"]);
            if all.len() >= count {
                return all;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("the certificates were not read again");
    };
    std::fs::write(ca.path("server.pem"), "nonsense").expect("a file");
    daemon.signal(Signal::HUP);
    let all = loaded(1);
    assert_eq!(all[0]["severity"], "SEVERITY_WARNING");
    let problem = all[0]["parameters"]["problem"].as_str().expect("why");
    assert!(problem.contains("server.pem: no certificate in it"), "{problem}");
    assert!(over_tcp(&daemon, &trusted, &ca, "boss", &list).status.success());
    // Another CA.
    let other = Authority::new(dir.path(), "other");
    other.make("boss", &[]);
    other.make("server", &["127.0.0.1"]);
    for name in ["server.pem", "server.key", "ca.pem"] {
        std::fs::copy(other.path(name), ca.path(name)).expect("a copy");
    }
    daemon.signal(Signal::HUP);
    assert_eq!(loaded(2)[1]["severity"], "SEVERITY_INFO");
    let trusted = other.path("ca.pem");
    assert!(
        over_tcp(&daemon, &trusted, &other, "boss", &list)
            .status
            .success()
    );
    assert!(!over_tcp(&daemon, &trusted, &ca, "boss", &list).status.success());
    daemon.end(Signal::TERM);

    for (file, part) in [
        ("server.key", "control.tls.key: cannot read"),
        ("ca.pem", "control.tls.client_ca: cannot read"),
    ] {
        let away = dir.path().join("away");
        std::fs::rename(ca.path(file), &away).expect("renamed");
        let log = process::try_start(dir.path(), &config).err().expect("refused");
        // The check of the configuration sees the same.
        let (code, said) = process::check_config(dir.path());
        assert_eq!(code, Some(2), "{said}");
        for text in [&log, &said] {
            assert!(
                text.contains(part) && text.contains(file) && text.contains("No such file"),
                "{text}"
            );
        }
        std::fs::rename(&away, ca.path(file)).expect("renamed");
        let (code, said) = process::check_config(dir.path());
        assert_eq!(code, Some(0), "{said}");
    }
    let mesh = "[[port]]\nname = \"m0\"\ntype = \"mesh\"\nlisten = \"127.0.0.1:0\"\nnames = [\"*\"]\n";
    let files = ["certificate", "key", "ca"].map(|key| format!("{key} = {:?}\n", dir.path().join("none")));
    std::fs::write(dir.path().join("vnicd.toml"), mesh.to_owned() + &files.concat()).expect("a file");
    let (code, said) = process::check_config(dir.path());
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("cannot add port m0: mesh.certificate: cannot read"),
        "{said}"
    );
    ca.make("server", &["localhost"]);
    std::fs::copy(ca.path("boss.key"), ca.path("server.key")).expect("a copy");
    let log = process::try_start(dir.path(), &config).err().expect("refused");
    assert!(log.contains("is not the key of"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_one_user_are_limited() {
    use vnic_control::v1::GetServerInfoRequest;
    use vnic_control::v1::server_service_client::ServerServiceClient;
    let dir = tempfile::tempdir().expect("a directory");
    let daemon = process::start(dir.path(), ADAPTER);
    let info = async || {
        let channel = unix(dir.path()).connect().await.expect("a connection");
        let request = GetServerInfoRequest {};
        ServerServiceClient::new(channel).get_server_info(request).await
    };
    let mut streams = Vec::new();
    for _ in 0..64 {
        streams.push(watch(unix(dir.path())).await);
    }
    let status = info().await.expect_err("refused");
    assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("64 connections from uid"), "{status}");
    // The end of a stream leaves its connection idle, and the next one takes its place. (The daemon may not have seen it yet.)
    streams.pop();
    let mut answer = info().await;
    for _ in 0..6000 {
        if answer.is_ok() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        answer = info().await;
    }
    answer.expect("an answer");
    let told = refusals(&daemon);
    let why = |text: &str| {
        let problem = |e: &Value| {
            e["parameters"]["problem"]
                .as_str()
                .is_some_and(|p| p.contains(text))
        };
        assert!(told.iter().any(problem), "{text}: {told:?}");
    };
    why("are allowed, and all of uid");
    // The others go on.
    daemon.said(&["adapter", "add", "a1"]);
    for stream in &mut streams {
        assert!(hears_of(stream, "a1").await);
    }
    daemon.end(Signal::TERM);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_of_one_user_keep_nobody_out() {
    use vnic_control::v1::GetServerInfoRequest;
    use vnic_control::v1::server_service_client::ServerServiceClient;
    let dir = tempfile::tempdir().expect("a directory");
    let daemon = process::start(dir.path(), ADAPTER);
    // An agent that keeps a connection for each of its requests, beside one that it uses.
    let mut changes = watch(unix(dir.path())).await;
    let mut kept = Vec::new();
    for _ in 0..130 {
        let channel = unix(dir.path()).connect().await.expect("a connection");
        let mut client = ServerServiceClient::new(channel);
        let answer = client.get_server_info(GetServerInfoRequest {}).await;
        answer.expect("an answer");
        kept.push(client);
    }
    reads(&daemon);
    // And connections on which nothing is ever said.
    let silent: Vec<_> = (0..200)
        .map(|_| {
            std::os::unix::net::UnixStream::connect(dir.path().join("control.sock")).expect("a connection")
        })
        .collect();
    reads(&daemon);
    let told = refusals(&daemon);
    let idle = |e: &Value| {
        e["parameters"]["problem"]
            .as_str()
            .is_some_and(|p| p.contains("took the place of this one, which was idle"))
    };
    assert!(told.iter().any(idle), "{told:?}");
    // What is in use goes on.
    daemon.said(&["adapter", "add", "a1"]);
    assert!(hears_of(&mut changes, "a1").await);
    drop(silent);
    daemon.end(Signal::TERM);
}

type Changes = tonic::Streaming<vnic_control::v1::WatchAdaptersResponse>;

/// What happens to adapters, from an endpoint; the picture of those that there are has been taken.
async fn watch(endpoint: tonic::transport::Endpoint) -> Changes {
    use vnic_control::v1::WatchAdaptersRequest;
    use vnic_control::v1::adapter_service_client::AdapterServiceClient;
    use vnic_control::v1::watch_adapters_response::Change;
    let channel = endpoint.connect().await.expect("a connection");
    let request = WatchAdaptersRequest::default();
    let answer = AdapterServiceClient::new(channel).watch_adapters(request).await;
    let mut changes = answer.expect("a stream").into_inner();
    while changes.message().await.expect("news").expect("more").change() != Change::Synced {}
    changes
}

fn unix(dir: &Path) -> tonic::transport::Endpoint {
    let socket = format!("unix:{}", dir.join("control.sock").display());
    tonic::transport::Endpoint::from_shared(socket).expect("an address")
}

fn with_certificate(daemon: &Process, ca: &Authority, name: &str) -> tonic::transport::Endpoint {
    use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
    let (_, rest) = daemon.ready.split_once("https://").expect("an address");
    let address = rest.split([',', ' ']).next().expect("an address");
    let read = |file: &str| std::fs::read(ca.path(file)).expect("a file");
    let identity = Identity::from_pem(read(&format!("{name}.pem")), read(&format!("{name}.key")));
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read("ca.pem")))
        .identity(identity);
    let endpoint = Endpoint::from_shared(format!("https://{address}")).expect("an address");
    endpoint.tls_config(tls).expect("TLS")
}

/// Does the stream go on? Whoever asks has made `adapter`.
async fn hears_of(changes: &mut Changes, adapter: &str) -> bool {
    while let Ok(Some(change)) = changes.message().await {
        if change.adapter.is_some_and(|a| a.name.ends_with(adapter)) {
            return true;
        }
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_end_with_what_let_them_in() {
    let Tcp { dir, ca, config } = tcp();
    let uid = me();
    ca.make_numbered("boss", &[], Some(7));
    ca.make_numbered("monitor", &["mon.example.com"], Some(8));
    ca.revoke(&[99]);
    let file = format!("client_ca = {:?}", ca.path("ca.pem"));
    let with_list = format!("{file}\nclient_crl = {:?}", ca.path("ca.crl"));
    let config = config.replace(&file, &with_list);
    let daemon = process::start(dir.path(), &format!("access.users.{uid} = \"admin\"\n{config}"));
    let mut boss = watch(with_certificate(&daemon, &ca, "boss")).await;
    let mut monitor = watch(with_certificate(&daemon, &ca, "monitor")).await;
    let mut local = watch(unix(dir.path())).await;
    let reload = |count: usize| {
        daemon.signal(Signal::HUP);
        for _ in 0..6000 {
            let all = daemon.events(&["--kind", "certificates_loaded"]);
            if let Some(event) = all.get(count - 1) {
                return event["parameters"]["problem"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("nothing was read again");
    };

    // Nothing has changed.
    assert_eq!(reload(1), "");
    daemon.said(&["adapter", "add", "a1"]);
    for changes in [&mut boss, &mut monitor, &mut local] {
        assert!(hears_of(changes, "a1").await);
    }

    // The monitor's certificate is revoked.
    ca.revoke(&[8, 99]);
    assert_eq!(reload(2), "");
    assert!(monitor.message().await.is_err());
    let output = over_tcp(&daemon, &ca.path("ca.pem"), &ca, "monitor", &["adapter", "list"]);
    assert!(!output.status.success());
    daemon.said(&["adapter", "add", "a2"]);
    assert!(hears_of(&mut boss, "a2").await && hears_of(&mut local, "a2").await);
    let why = |who: &str| {
        let all = refusals(&daemon).into_iter();
        let mine = all.filter(|e| e["parameters"]["by"].as_str().is_some_and(|by| by.contains(who)));
        mine.filter_map(|e| e["parameters"]["problem"].as_str().map(str::to_owned))
            .collect::<Vec<_>>()
            .join("; ")
    };
    assert!(
        why("mon.example.com").contains("Revoked"),
        "{}",
        why("mon.example.com")
    );

    // What cannot be read changes nothing.
    std::fs::write(ca.path("ca.crl"), "nonsense").expect("a file");
    let settings = dir.path().join("vnicd.toml");
    let before = std::fs::read_to_string(&settings).expect("the configuration");
    std::fs::write(&settings, before.replace("boss = \"admin\"", "boss = \"king\"")).expect("a file");
    let problem = reload(3);
    assert!(
        problem.contains("ca.crl: no list of revoked certificates"),
        "{problem}"
    );
    assert!(problem.contains("\"king\" is no role"), "{problem}");
    daemon.said(&["adapter", "add", "a3"]);
    assert!(hears_of(&mut boss, "a3").await && hears_of(&mut local, "a3").await);

    // The boss has less to say, and the monitor may come again.
    ca.revoke(&[99]);
    std::fs::write(&settings, before.replace("boss = \"admin\"", "boss = \"viewer\"")).expect("a file");
    assert_eq!(reload(4), "");
    assert!(boss.message().await.is_err());
    assert!(
        why("boss").contains("it has viewer now, and had admin"),
        "{}",
        why("boss")
    );
    for (name, arguments, may) in [
        ("boss", ["adapter", "list"].as_slice(), true),
        ("boss", &["adapter", "add", "a4"], false),
        ("monitor", &["adapter", "list"], true),
    ] {
        let output = over_tcp(&daemon, &ca.path("ca.pem"), &ca, name, arguments);
        assert_eq!(
            output.status.success(),
            may,
            "{name} {arguments:?}: {}",
            text(&output.stderr)
        );
    }

    // Users of the machine as well.
    let less = before.replace(&format!("{uid} = \"admin\""), &format!("{uid} = \"operator\""));
    std::fs::write(&settings, less).expect("a file");
    assert_eq!(reload(5), "");
    assert!(local.message().await.is_err());
    daemon.refused(&["adapter", "add", "a5"]);
    daemon.end(Signal::TERM);
}
