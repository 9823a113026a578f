"""The newest perftest, rdma-core with its tests for Python, Valkey, and libfabric with its fabtests, built from the sources of Debian's
suite sid, in the folder of cargo's output. An archive keeps the newest version only: which one that is, each run asks."""

import os
import pathlib
import re
import shutil
import subprocess

from harness import wheels
from harness.daemon import CHECKOUT, Missing

FOLDER = CHECKOUT / "target/lab/newest"
PERFTEST, CORE = FOLDER / "perftest", FOLDER / "rdma-core"
VALKEY, FABTESTS = FOLDER / "valkey", FOLDER / "libfabric/fabtests"
# Of fabtests: what is built.
FABRIC = {
    "functional": (
        "msg", "msg_epoll", "cm_data", "cq_data", "inject_test", "shared_ctx", "multi_mr", "rdm", "rdm_atomic", "rdm_tagged_peek",
        "multi_recv", "multi_ep", "recv_cancel", "unexpected_msg",
    ),
    "benchmarks": ("msg_pingpong", "msg_bw", "rma_bw", "rma_pingpong", "rdm_pingpong", "rdm_tagged_pingpong", "rdm_cntr_pingpong"),
}
# apt's own files are here, not the machine's.
APT = FOLDER / "apt"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


def program(name):
    """A program of perftest."""
    return PERFTEST / name


def fabric(name):
    """A program of fabtests."""
    folder = next(folder for folder, names in FABRIC.items() if name in names)
    return FABTESTS / folder / f"fi_{name}"


def install():
    """Builds rdma-core and perftest, unless these versions are built, and says which they are."""
    wheels.install()
    versions = [source(name, build) for name, build in (("rdma-core", build_core), ("perftest", build_perftest))]
    print(f"newest: {', '.join(versions)}", flush=True)


def install_valkey():
    """Builds Valkey, with RDMA, as `install` does."""
    print(f"newest: {source('valkey', build_valkey)}", flush=True)


def install_fabtests():
    """Builds libfabric and fabtests, as `install` does."""
    print(f"newest: {source('libfabric', build_fabtests)}", flush=True)


def source(name, build):
    """Unpacks and builds a source package's newest version."""
    # (Of what is there already apt says no address: a run may have been ended.)
    for left in FOLDER.glob(f"{name}_*.orig.tar.*"):
        left.unlink()
    # 'ADDRESS' NAME_VERSION.orig.tar.gz SIZE HASH
    found = re.findall(rf"^'\S+' ({name}_(\S+)\.orig\.tar\.\w+) ", apt("source", "--print-uris", "--tar-only", name), re.MULTILINE)
    if not found:
        raise Missing(f"Debian's sid has no sources of {name}")
    file, version = found[-1]
    folder = FOLDER / name
    made = folder / "vnic-version"
    if not made.exists() or made.read_text() != version:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        # (It compares what it gets with the hash.)
        apt("source", "--download-only", "--tar-only", name)
        done("tar", "-x", "--strip-components=1", "-C", folder, "-f", FOLDER / file)
        (FOLDER / file).unlink()
        build(folder)
        made.write_text(version)
    return f"{name} {version}"


def build_core(folder):
    """rdma-core with pyverbs, to be used where it was built."""
    tools = wheels.FOLDER / "bin"
    options = ["IN_PLACE=1", "NO_MAN_PAGES=1", "ENABLE_RESOLVE_NEIGH=0", f"PYTHON_EXECUTABLE={wheels.PYTHON}", "CMAKE_BUILD_TYPE=None"]
    options.append(f"CMAKE_MAKE_PROGRAM={tools}/ninja")
    done(tools / "cmake", "-G", "Ninja", *(f"-D{option}" for option in options), "-S", folder, "-B", folder / "build")
    done(tools / "ninja", "-C", folder / "build")
    if not any((folder / "build/python/pyverbs").glob("device.*.so")):
        raise Missing("rdma-core was built without pyverbs; packages: python3-dev")


def build_perftest(folder):
    """perftest on that rdma-core."""
    built = CORE / "build"
    flags = [f"CPPFLAGS=-I{built}/include", f"LDFLAGS=-L{built}/lib -Wl,-rpath,{built}/lib"]
    done("./configure", "--quiet", *flags, cwd=folder)
    done("make", "--quiet", f"-j{os.cpu_count()}", cwd=folder)


def build_valkey(folder):
    """Valkey's server and clients, and its own test of RDMA, on the machine's rdma-core."""
    options = [f"-j{os.cpu_count()}", "BUILD_RDMA=yes", "MALLOC=libc", "OPTIMIZATION=-O2"]
    done("make", *options, "valkey-server", "valkey-cli", "valkey-benchmark", cwd=folder / "src")
    done("make", cwd=folder / "tests/rdma")


def build_fabtests(folder):
    """libfabric with its providers for verbs, and programs of fabtests, on the machine's rdma-core."""
    built = folder / "built"
    done("./autogen.sh", cwd=folder)
    providers = ["--enable-only", "--enable-verbs", "--enable-rxm", "--enable-rxd"]
    done("./configure", "--quiet", f"--prefix={built}", "--disable-static", *providers, cwd=folder)
    done("make", "--quiet", f"-j{os.cpu_count()}", "install", cwd=folder)
    done("./autogen.sh", cwd=folder / "fabtests")
    done("./configure", "--quiet", f"--with-libfabric={built}", f"LDFLAGS=-Wl,-rpath,{built}/lib", cwd=folder / "fabtests")
    programs = [f"{kind}/fi_{name}" for kind, names in FABRIC.items() for name in names]
    done("make", "--quiet", f"-j{os.cpu_count()}", *programs, cwd=folder / "fabtests")


def apt(*words):
    """apt-get with lists of its own: the sources of sid, from where this machine has Debian from."""
    if not (APT / "sources.list").exists():
        where = done("apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(REPO_URI)")
        mirror = re.search(r"^Debian Debian (\S+)$", where, re.MULTILINE)
        if not mirror:
            raise Missing("where does this machine have Debian from? apt-get update finds out")
        (APT / "lists/partial").mkdir(parents=True)
        (APT / "archives/partial").mkdir(parents=True)
        (APT / "sources.list").write_text(f"deb-src [signed-by={KEYS}] {mirror[1]} sid main\n")
    own = {
        "Dir::Etc::SourceList": APT / "sources.list",
        "Dir::Etc::SourceParts": "-",
        "Dir::State::Lists": APT / "lists",
        "Dir::Cache": APT,
        # (Root's apt would change to a user who cannot write here.)
        "APT::Sandbox::User": "root",
    }
    command = ["apt-get", "--quiet", *(f"-o{name}={value}" for name, value in own.items())]
    if not apt.updated:
        done(*command, "update")
        apt.updated = True
    return done(*command, *words)


apt.updated = False


def done(*command, cwd=FOLDER):
    """What a command says."""
    command = [str(word) for word in command]
    pathlib.Path(cwd).mkdir(parents=True, exist_ok=True)
    ended = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    if ended.returncode:
        needed = "packages: autoconf automake build-essential libibverbs-dev libpci-dev librdmacm-dev libtool pkg-config python3-dev"
        text = (ended.stdout + ended.stderr)[-3000:]
        raise Missing(f"the newest sources are not built ({' '.join(command)}; {needed}):\n{text}")
    return ended.stdout
