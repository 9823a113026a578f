"""Calls any method by reflection, without generated code: messages are JSON.

    call.py                                    what services and methods there are
    call.py vnic.v1.AdapterService             those of one
    call.py vnic.v1.AdapterService/GetAdapter '{"name": "adapters/vf0"}'

Needs grpcio-reflection.
"""

import sys

import grpc
from google.protobuf import json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

import vnic


def show(service):
    """Prints the methods of a service."""
    for method in service.methods:
        answer = "stream " * method.server_streaming + method.output_type.full_name
        print(f"{service.full_name}/{method.name} {method.input_type.full_name} -> {answer}")


def call(channel, method, text):
    """Prints each answer of a method."""
    answer = GetMessageClass(method.output_type)
    request = json_format.Parse(text, GetMessageClass(method.input_type)())
    make = channel.unary_stream if method.server_streaming else channel.unary_unary
    path = f"/{method.containing_service.full_name}/{method.name}"
    stub = make(path, request_serializer=type(request).SerializeToString, response_deserializer=answer.FromString)
    answers = stub(request) if method.server_streaming else [stub(request, timeout=40)]
    for message in answers:
        print(json_format.MessageToJson(message, preserving_proto_field_name=True), flush=True)


def main(name="", text="{}"):
    with vnic.connect() as nic:
        known = ProtoReflectionDescriptorDatabase(nic.channel)
        pool = DescriptorPool(known)
        service, slash, method = name.partition("/")
        if slash:
            call(nic.channel, pool.FindServiceByName(service).FindMethodByName(method), text)
        else:
            for found in [service] if service else sorted(known.get_services()):
                show(pool.FindServiceByName(found))


try:
    main(*sys.argv[1:])
except grpc.RpcError as error:
    sys.exit(f"{error.code().name}: {error.details()}")
except KeyError as error:
    sys.exit(f"there is no {error}")
