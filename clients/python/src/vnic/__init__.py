"""A client of vnicd, the NIC daemon.

    import vnic
    from vnic import v1

    with vnic.connect() as nic:
        for adapter in vnic.pages(nic.adapters.ListAdapters, v1.ListAdaptersRequest()):
            print(adapter.name, v1.Adapter.State.Name(adapter.state))

`vnic.v1` has the messages, enums and stubs of the API, generated from its .proto files. This module connects, goes through pages,
repeats changes that had no answer, asks whether a change would be made, and reads the details of errors.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterator, Optional, Union

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from vnic import v1

__all__ = ["Client", "Details", "ENDPOINT", "connect", "details", "once", "pages", "v1", "validate_only"]

#: Where the daemon of a package listens.
ENDPOINT = "unix:/run/vnic/control.sock"

# A call has its answer within 30 s, or DEADLINE_EXCEEDED by the daemon. A daemon that answers nothing at all is given up after this.
_CALL = "40s"
# While the daemon starts, or stops: what only reads is asked again.
_RETRY = {
    "maxAttempts": 5,
    "initialBackoff": "0.2s",
    "maxBackoff": "2s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}

_SERVICES = {
    "access_lists": v1.AccessListServiceStub,
    "adapters": v1.AdapterServiceStub,
    "captures": v1.CaptureServiceStub,
    "clock": v1.ClockServiceStub,
    "config": v1.ConfigServiceStub,
    "congestion": v1.CongestionServiceStub,
    "counters": v1.CounterServiceStub,
    "events": v1.EventServiceStub,
    "faults": v1.FaultServiceStub,
    "mirrors": v1.MirrorServiceStub,
    "nvconfig": v1.NvConfigServiceStub,
    "oids": v1.OidServiceStub,
    "ports": v1.PortServiceStub,
    "qos": v1.QosServiceStub,
    "rdma": v1.RdmaServiceStub,
    "registry": v1.RegistryServiceStub,
    "server": v1.ServerServiceStub,
    "subnet": v1.SubnetServiceStub,
    "switch": v1.SwitchServiceStub,
    "teams": v1.TeamServiceStub,
}


class Client:
    """A connection to a daemon, with a stub for each service: `nic.adapters.GetAdapter(request, timeout=5)`.

    It may be used by several threads. At the end of a `with` block it is closed.
    """

    access_lists: v1.AccessListServiceStub
    adapters: v1.AdapterServiceStub
    captures: v1.CaptureServiceStub
    clock: v1.ClockServiceStub
    config: v1.ConfigServiceStub
    congestion: v1.CongestionServiceStub
    counters: v1.CounterServiceStub
    events: v1.EventServiceStub
    faults: v1.FaultServiceStub
    mirrors: v1.MirrorServiceStub
    nvconfig: v1.NvConfigServiceStub
    oids: v1.OidServiceStub
    ports: v1.PortServiceStub
    qos: v1.QosServiceStub
    rdma: v1.RdmaServiceStub
    registry: v1.RegistryServiceStub
    server: v1.ServerServiceStub
    subnet: v1.SubnetServiceStub
    switch: v1.SwitchServiceStub
    teams: v1.TeamServiceStub

    def __init__(self, channel: grpc.Channel) -> None:
        #: For services that are not of vnic.v1: health, reflection.
        self.channel = channel
        for name, stub in _SERVICES.items():
            setattr(self, name, stub(channel))

    def close(self) -> None:
        """Ends all calls and the connection."""
        self.channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(
    endpoint: Optional[str] = None,
    *,
    ca: Union[str, Path, None] = None,
    cert: Union[str, Path, None] = None,
    key: Union[str, Path, None] = None,
) -> Client:
    """Connects to a daemon, at the first call.

    `endpoint` is `unix:PATH`, or `https://HOST:PORT` with PEM files: the CA of the daemon's certificate, and this client's
    certificate and private key. What is not given is what vnicctl takes: VNIC_ENDPOINT, VNIC_TLS_CA, VNIC_TLS_CERT and VNIC_TLS_KEY;
    without an endpoint in both, `ENDPOINT`.
    """
    endpoint = endpoint or os.environ.get("VNIC_ENDPOINT") or ENDPOINT
    options = [("grpc.service_config", _service_config())]
    if endpoint.startswith("unix:"):
        return Client(grpc.insecure_channel(endpoint, options))
    if not endpoint.startswith("https://"):
        raise ValueError(f"{endpoint}: an endpoint is unix:PATH or https://HOST:PORT")

    def pem(given: Union[str, Path, None], name: str) -> bytes:
        path = given or os.environ.get(f"VNIC_TLS_{name.upper()}")
        if not path:
            raise ValueError(f"{endpoint}: {name} is missing (or VNIC_TLS_{name.upper()})")
        return Path(path).read_bytes()

    credentials = grpc.ssl_channel_credentials(pem(ca, "ca"), pem(key, "key"), pem(cert, "cert"))
    return Client(grpc.secure_channel(endpoint[len("https://") :].rstrip("/"), credentials, options))


def pages(method: Callable[..., Any], request: Any, **call: Any) -> Iterator[Any]:
    """All items of a List method, whatever the number of pages. `call` goes to each call: `timeout=5`."""
    page = type(request)()
    page.CopyFrom(request)
    while True:
        answer = method(page, **call)
        for what, value in answer.ListFields():
            if what.is_repeated and what.message_type is not None:
                yield from value
                break
        page.page_token = answer.next_page_token
        if not page.page_token:
            return


def once(method: Callable[..., Any], request: Any, *, attempts: int = 5, **call: Any) -> Any:
    """Calls a method that changes something, up to `attempts` times until there is an answer; the change happens once.

    All attempts have the same id, by which the daemon knows the request again. A daemon that was started meanwhile does not: then
    the second attempt to make something may be refused with ALREADY_EXISTS. `call` goes to each call: `timeout=5`.
    """
    metadata = [*call.pop("metadata", ()), ("vnic-request-id", str(uuid.uuid4()))]
    for attempt in range(attempts):
        try:
            return method(request, metadata=metadata, **call)
        except grpc.RpcError as error:
            in_progress = details(error).reason == "REQUEST_IN_PROGRESS"
            again = error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED) or in_progress
            if not again or attempt + 1 == attempts:
                raise
            time.sleep(min(0.2 * 2**attempt, 2))


def validate_only(nic: Client, method: Callable[..., Any], request: Any, **call: Any) -> Any:
    """Asks a daemon whether it would make a change; nothing is changed. What is wrong raises what the change would raise.

    The answer is an empty message, but of methods that say what they would do. `call` goes to the call: `timeout=5`. A daemon that
    would make the change, because it does not know this, is not asked: NotImplementedError.
    """
    if "validate-only" not in nic.server.GetServerInfo(v1.GetServerInfoRequest(), **call).features:
        raise NotImplementedError("this daemon cannot validate only: it would make the change")
    metadata = [*call.pop("metadata", ()), ("vnic-validate-only", "true")]
    return method(request, metadata=metadata, **call)


@dataclass(frozen=True)
class Details:
    """What an error says besides its code and its message."""

    #: Why, for programs: such as `ETAG_MISMATCH`; empty if there is nothing to tell apart.
    reason: str = ""
    #: More about it.
    metadata: dict[str, str] = field(default_factory=dict)
    #: Fields of the request that are wrong, with what is allowed.
    violations: dict[str, str] = field(default_factory=dict)


def details(error: grpc.RpcError) -> Details:
    """Reads `google.rpc.ErrorInfo` and `google.rpc.BadRequest` of an error."""
    status = rpc_status.from_call(error)
    info, wrong = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details if status else ():
        detail.Unpack(info)
        detail.Unpack(wrong)
    return Details(info.reason, dict(info.metadata), {w.field: w.description for w in wrong.field_violations})


def _service_config() -> str:
    """A time limit for each call that has one answer; repetition of those that only read."""
    modules = [module for name, module in vars(v1).items() if name.endswith("_service_pb2")]
    services = [service for module in modules for service in module.DESCRIPTOR.services_by_name.values()]
    reads, writes = [], []
    for method in (method for service in services for method in service.methods if not method.server_streaming):
        only_reads = method.name.startswith(("Get", "List", "Read", "Query"))
        names = reads if only_reads else writes
        names.append({"service": method.containing_service.full_name, "method": method.name})
    configs = [{"name": reads, "timeout": _CALL, "retryPolicy": _RETRY}, {"name": writes, "timeout": _CALL}]
    return json.dumps({"methodConfig": configs})
