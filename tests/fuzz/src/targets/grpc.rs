//! Requests of every method, made from its descriptor. A refusal says what is wrong; none is an accident of the daemon's.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tonic::Code;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt as _;
use vnic_appliance::config::{Environment, Overrides, Settings, Simple};
use vnic_appliance::daemon::Daemon;

/// Requests of an input, at most.
const REQUESTS: usize = 8;
/// Messages within messages, at most.
const DEPTH: usize = 5;
/// What names, keys and patterns may be.
const WORDS: [&str; 24] = [
    "vf0",
    "vf1",
    "*",
    "",
    "RoceMode",
    "*RSS",
    "0",
    "1",
    "65535",
    "-1",
    "true",
    "10ms",
    "unix:",
    "eth",
    "rdma",
    "02:00:00:00:00:01",
    "fe80::1/64",
    "10.0.0.0/8",
    "port",
    "team",
    "\u{0}",
    "lo",
    "vf0,vf1",
    "vnic.v1",
];

struct Method {
    path: PathAndQuery,
    input: MessageDescriptor,
    streams: bool,
}

struct Stage {
    methods: Vec<Method>,
    channel: Channel,
    // (They live as long as the process: at its end there is nobody left to tell them.)
    runtime: ManuallyDrop<Runtime>,
    _daemon: ManuallyDrop<Daemon>,
    _dir: TempDir,
}

/// The daemon has a network of its own: what it is told to do with devices and addresses happens there. Nothing: that is
/// not allowed here.
fn own_network() -> Option<()> {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).ok()
}

impl Stage {
    fn new() -> Stage {
        let alone = own_network().is_some();
        let dir = TempDir::with_prefix("vnic-fuzz").expect("a directory");
        let runtime = Runtime::new().expect("a runtime");
        let overrides = Overrides {
            socket_dir: Some(dir.path().to_owned()),
            metrics: Some(None),
            ..Overrides::default()
        };
        let simple = Simple {
            adapters: 2,
            queue_pairs: 1,
            taps: Vec::new(),
            packets: Vec::new(),
            xdps: Vec::new(),
        };
        let settings = Settings::from_command_line(&simple, &overrides, &Environment::current());
        let daemon = runtime.block_on(Daemon::start(settings.expect("settings")));
        let daemon = daemon.expect("a daemon");
        let endpoint = format!("unix:{}", dir.path().join("control.sock").display());
        let endpoint = Endpoint::from_shared(endpoint).expect("an endpoint");
        let channel = runtime.block_on(endpoint.connect()).expect("a connection");
        let pool = DescriptorPool::decode(vnic_control::FILE_DESCRIPTOR_SET).expect("descriptors");
        let mut methods = Vec::new();
        for service in pool.services() {
            for method in service.methods() {
                let path = format!("/{}/{}", service.full_name(), method.name());
                // Without a network of its own, devices of this machine would be within its reach.
                let devices = [".PortService/", ".TeamService/", ".ConfigService/"];
                if alone || !devices.iter().any(|service| path.contains(service)) {
                    methods.push(Method {
                        path: path.try_into().expect("a path"),
                        input: method.input(),
                        streams: method.is_server_streaming(),
                    });
                }
            }
        }
        Stage {
            methods,
            channel,
            runtime: ManuallyDrop::new(runtime),
            _daemon: ManuallyDrop::new(daemon),
            _dir: dir,
        }
    }

    fn request(&self, u: &mut Unstructured<'_>) -> Result<()> {
        let method = u.choose(&self.methods)?;
        let message = message(u, &method.input, DEPTH)?;
        let said = format!("{} {message:?}", method.path);
        let ended = self.runtime.block_on(async {
            let mut client = Grpc::new(self.channel.clone());
            client.ready().await.expect("the daemon is there");
            let request = tonic::Request::new(message);
            let codec = ProstCodec::<DynamicMessage, ()>::default();
            if method.streams {
                let stream = client.server_streaming(request, method.path.clone(), codec).await;
                let Ok(stream) = stream else {
                    return stream.map(drop);
                };
                let mut stream = stream.into_inner();
                let first = tokio::time::timeout(Duration::from_millis(5), stream.message()).await;
                first.map_or(Ok(()), |first| first.map(drop))
            } else {
                client.unary(request, method.path.clone(), codec).await.map(drop)
            }
        });
        if let Err(status) = ended {
            let bad = [Code::Internal, Code::Unknown, Code::Unavailable, Code::DataLoss];
            assert!(!bad.contains(&status.code()), "{said}: {status}");
            assert!(!status.message().is_empty(), "{said}: {status:?}");
            if status.code() == Code::InvalidArgument {
                let named = status.get_details_bad_request();
                assert!(
                    named.is_some_and(|b| !b.field_violations.is_empty()),
                    "{said}: {status} names no field"
                );
            }
        }
        Ok(())
    }
}

fn number(u: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match u.int_in_range(0..=5)? {
        0 => u.arbitrary()?,
        1 => u64::MAX - u.int_in_range(0..=2)?,
        2 => 1 << u.int_in_range(0..=63)?,
        _ => u.int_in_range(0..=16)?,
    })
}

fn word(u: &mut Unstructured<'_>) -> Result<String> {
    Ok(if u.ratio(1, 6)? {
        u.arbitrary()?
    } else {
        (*u.choose(&WORDS)?).to_owned()
    })
}

fn value(u: &mut Unstructured<'_>, kind: &Kind, depth: usize) -> Result<Value> {
    Ok(match kind {
        Kind::Double => Value::F64(u.arbitrary()?),
        Kind::Float => Value::F32(u.arbitrary()?),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(number(u)? as i32),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(number(u)? as i64),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(number(u)? as u32),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(number(u)?),
        Kind::Bool => Value::Bool(u.arbitrary()?),
        Kind::String => Value::String(word(u)?),
        Kind::Bytes => {
            let len = u.arbitrary_len::<u8>()?.min(64);
            Value::Bytes(u.bytes(len)?.to_vec().into())
        }
        Kind::Message(inner) => Value::Message(message(u, inner, depth.saturating_sub(1))?),
        Kind::Enum(inner) => Value::EnumNumber(if u.ratio(1, 8)? {
            u.arbitrary()?
        } else {
            u.choose(&inner.values().collect::<Vec<_>>())?.number()
        }),
    })
}

fn field(u: &mut Unstructured<'_>, field: &FieldDescriptor, depth: usize) -> Result<Value> {
    let kind = field.kind();
    if field.is_map() {
        let Kind::Message(entry) = &kind else {
            unreachable!("an entry is a message")
        };
        let keys = entry.map_entry_key_field().kind();
        let values = entry.map_entry_value_field().kind();
        let mut map = std::collections::HashMap::new();
        for _ in 0..u.int_in_range(0..=2)? {
            let key = match keys {
                Kind::String => MapKey::String(word(u)?),
                _ => MapKey::U32(number(u)? as u32),
            };
            map.insert(key, value(u, &values, depth)?);
        }
        return Ok(Value::Map(map));
    }
    if field.is_list() {
        let list = (0..u.int_in_range(0..=3)?).map(|_| value(u, &kind, depth));
        return Ok(Value::List(list.collect::<Result<_>>()?));
    }
    value(u, &kind, depth)
}

fn message(u: &mut Unstructured<'_>, of: &MessageDescriptor, depth: usize) -> Result<DynamicMessage> {
    let mut message = DynamicMessage::new(of.clone());
    if depth > 0 {
        for descriptor in of.fields() {
            if u.arbitrary()? {
                let value = field(u, &descriptor, depth)?;
                message.set_field(&descriptor, value);
            }
        }
    }
    Ok(message)
}

/// See the module.
pub fn run(bytes: &[u8]) {
    thread_local! {
        static STAGE: RefCell<Option<Stage>> = const { RefCell::new(None) };
    }
    STAGE.with_borrow_mut(|stage| {
        let stage = stage.get_or_insert_with(Stage::new);
        let mut u = Unstructured::new(bytes);
        for _ in 0..REQUESTS {
            if u.is_empty() || stage.request(&mut u).is_err() {
                break;
            }
        }
    });
}
