//! A TAP uplink: made over the control interface, its traffic counted and captured. Needs CAP_NET_ADMIN.

use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use tokio_stream::StreamExt as _;
use tonic::Code;
use tonic::transport::Endpoint;
use vnic_appliance::daemon::Daemon;
use vnic_control::v1;
use vnic_control::v1::capture_service_client::CaptureServiceClient;
use vnic_control::v1::port_service_client::PortServiceClient;

fn ip(arguments: &[&str]) -> bool {
    Command::new("ip")
        .args(arguments)
        .output()
        .is_ok_and(|o| o.status.success())
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_of_an_uplink_are_counted_and_captured() {
    let ifname = format!("vnt{}", std::process::id());
    if !ip(&["tuntap", "add", "dev", &ifname, "mode", "tap"]) {
        eprintln!("SKIP frames_of_an_uplink_are_counted_and_captured: no right to make a TAP device");
        return;
    }
    assert!(ip(&["tuntap", "del", "dev", &ifname, "mode", "tap"]));

    let dir = tempfile::tempdir().expect("a directory");
    let daemon = Daemon::start(crate::common::settings(dir.path(), 1))
        .await
        .expect("starts");
    let channel = Endpoint::from_shared(format!("unix:{}", dir.path().join("control.sock").display()))
        .expect("an address")
        .timeout(Duration::from_secs(60))
        .connect()
        .await
        .expect("a connection");
    let mut ports = PortServiceClient::new(channel.clone());
    let request = |id: &str| v1::CreatePortRequest {
        port_id: id.to_owned(),
        port: Some(v1::Port {
            uplink: Some(v1::port::Uplink::Tap(v1::TapUplink {
                queues: 0,
                ifname: ifname.clone(),
            })),
            ..v1::Port::default()
        }),
    };
    let port = ports
        .create_port(request("p0"))
        .await
        .expect("create")
        .into_inner();
    assert_eq!((port.name.as_str(), port.mtu), ("ports/p0", 1500));
    let twice = ports.create_port(request("p0")).await.expect_err("taken");
    assert_eq!(twice.code(), Code::AlreadyExists);
    let busy = ports.create_port(request("p1")).await.expect_err("busy");
    assert_eq!(busy.code(), Code::InvalidArgument, "{busy:?}");
    assert!(
        busy.message().contains("port p0 has the network device"),
        "{busy:?}"
    );

    let mut capture = CaptureServiceClient::new(channel.clone())
        .stream_capture(v1::StreamCaptureRequest {
            filter: Some(v1::CaptureFilter {
                owners: vec!["ports/p0".to_owned()],
                max_frames: 1,
                ..v1::CaptureFilter::default()
            }),
        })
        .await
        .expect("capture")
        .into_inner();
    let mut bytes = capture.next().await.expect("header").expect("no error").pcapng;

    // An address of a network for documentation (RFC 5737); asking for a neighbour makes a broadcast.
    assert!(ip(&["addr", "add", "192.0.2.1/24", "dev", &ifname]));
    assert!(ip(&["link", "set", &ifname, "up"]));
    let socket = UdpSocket::bind("192.0.2.1:0").expect("a socket");
    socket.send_to(b"hello", "192.0.2.2:9").expect("sent");

    let mut frames = 0;
    while let Some(chunk) = capture.next().await {
        let chunk = chunk.expect("no error");
        frames = chunk.frames;
        bytes.extend(chunk.pcapng);
    }
    assert_eq!(frames, 1, "the limit ends the capture");
    let port = ports
        .get_port(v1::GetPortRequest {
            name: "ports/p0".to_owned(),
        })
        .await
        .expect("get")
        .into_inner();
    assert!(port.traffic.expect("traffic").rx_frames >= 1);

    if crate::common::installed("tshark", "frames_of_an_uplink_are_counted_and_captured") {
        let file = dir.path().join("x.pcapng");
        std::fs::write(&file, bytes).expect("file");
        let output = Command::new("tshark")
            .args([
                "-r",
                file.to_str().expect("a path"),
                "-T",
                "fields",
                "-e",
                "frame.interface_name",
            ])
            .output()
            .expect("tshark");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "p0");
    }
    ports
        .delete_port(v1::DeletePortRequest {
            etag: String::new(),
            name: "ports/p0".to_owned(),
        })
        .await
        .expect("delete");
    assert!(
        ports
            .list_ports(v1::ListPortsRequest::default())
            .await
            .expect("list")
            .into_inner()
            .ports
            .is_empty()
    );
    drop((ports, channel));
    daemon.shutdown().await;
}
