"""Builds the package: generates `vnic.v1` from the .proto files of this checkout."""

import re
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

TOP = Path(__file__).resolve().parents[2]
PROTO = TOP / "proto" / "control" / "proto"


def generate(out):
    """Writes messages, stubs and their types below `out`."""
    from grpc_tools import protoc

    protos = sorted((PROTO / "vnic" / "v1").glob("*.proto"))
    if not protos:
        raise SystemExit(f"no .proto files in {PROTO}: build in a checkout, where clients lies beside proto")
    google = files("grpc_tools") / "_proto"
    words = [f"-I{PROTO}", f"-I{google}", f"--python_out={out}", f"--pyi_out={out}", f"--grpc_python_out={out}"]
    if protoc.main(["protoc", *words, *map(str, protos)]) != 0:
        raise SystemExit("protoc failed")
    lines = ['"""Messages, enums and stubs of package vnic.v1."""\n']
    for proto in protos:
        lines.append(f"from vnic.v1.{proto.stem}_pb2 import *")
        if proto.stem.endswith("_service"):
            lines.append(f"from vnic.v1.{proto.stem}_pb2_grpc import *")
    (Path(out) / "vnic" / "v1" / "__init__.py").write_text("\n".join(lines) + "\n")


class Build(build_py):
    """As setuptools does it; then the generated code."""

    def run(self):
        super().run()
        out = Path(self.build_lib).resolve()
        (out / "vnic" / "v1").mkdir(parents=True, exist_ok=True)
        generate(out)


# The version of all that is released together.
(ours,) = re.findall(r'^\[workspace\.package\]\nversion = "(.*)"', (TOP / "Cargo.toml").read_text(), re.MULTILINE)
# What the generated code runs with: it refuses what is older than its generator.
tools, protobuf = version("grpcio-tools"), version("protobuf")

setup(
    version=ours,
    cmdclass={"build_py": Build},
    install_requires=[f"grpcio>={tools}", f"grpcio-status>={tools}", f"protobuf>={protobuf}"],
)
