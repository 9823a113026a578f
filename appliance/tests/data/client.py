"""Calls vnicd by reflection alone, as a program on gRPC's C core does that has no generated code."""

import sys

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

PATIENCE = 60

channel = grpc.insecure_channel("unix:" + sys.argv[1])
database = ProtoReflectionDescriptorDatabase(channel)
pool = DescriptorPool(database)
print("services", *sorted(database.get_services()))


def method(service, name):
    """The method's messages, and a callable for it."""
    described = pool.FindServiceByName(service).FindMethodByName(name)
    make = channel.unary_stream if described.server_streaming else channel.unary_unary
    answer = GetMessageClass(described.output_type)
    call = make(
        f"/{service}/{name}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=answer.FromString,
    )
    return GetMessageClass(described.input_type), call


request, list_adapters = method("vnic.v1.AdapterService", "ListAdapters")
# More header fields than the dynamic table of HPACK has room for, so that both ends must agree on what is in it.
for n in range(200):
    more = [("x-number", f"{n}-" + "x" * 100), (f"x-name-{n % 7}", "y" * (n % 90))]
    answer = list_adapters(request(), timeout=PATIENCE, metadata=more)
print("adapters", *(adapter.name for adapter in answer.adapters))

request, watch = method("vnic.v1.AdapterService", "WatchAdapters")
stream = watch(request(), timeout=PATIENCE)
print("watched", next(stream).adapter.name)
stream.cancel()

request, get_adapter = method("vnic.v1.AdapterService", "GetAdapter")
try:
    get_adapter(request(name="adapters/none"), timeout=PATIENCE)
except grpc.RpcError as error:
    print("refused", error.code().name)
