"""A vnicd of our own, and what programs need to use its RDMA functions."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
# Nothing is judged by it: it ends what hangs.
PATIENCE = 120


class Trouble(Exception):
    """Something has gone wrong with the run itself."""


class Missing(Trouble):
    """Something that the run needs is not there; says what to do about it, in one line."""


def targets():
    """Where cargo may have put programs."""
    named = os.environ.get("CARGO_TARGET_DIR")
    roots = [pathlib.Path(named)] if named else []
    roots.append(CHECKOUT / "target")
    return [root / profile for root in roots for profile in ("release", "debug")]


def find(name, folder):
    """A file of ours: in `folder` if that is given, else where cargo puts it."""
    # Programs that get this path may run in other directories.
    folders = [pathlib.Path(folder).resolve()] if folder else targets()
    for candidate in folders:
        if (candidate / name).exists():
            return candidate / name
    places = ", ".join(str(f) for f in folders)
    raise Missing(
        f"there is no {name} in {places}: "
        "cargo build --locked --release -p vnic-appliance -p vnic-guest -p vnic-verbs-preload makes it"
    )


class Programs:
    """Our programs and the library."""

    def __init__(self, folder=None):
        folder = folder or os.environ.get("VNIC_BIN_DIR")
        self.vnicd = find("vnicd", folder)
        self.vnicctl = find("vnicctl", folder)
        self.library = find("libvnic_ibverbs.so", folder)
        self.launcher = find("vnic-verbs", folder)

    def command(self, words):
        """A program that shall find our devices."""
        return [str(self.launcher), "run", "--", *words]


class Daemon:
    """A daemon with adapters vf0, vf1, … in a directory that goes with it."""

    def __init__(self, programs, adapters=2):
        self.programs = programs
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="vnic-verbs-"))
        # Ethernet frames that are long enough for RDMA's longest MTU.
        config = "".join(f'[[adapter]]\nname = "vf{n}"\nmtu = 9000\n' for n in range(adapters))
        (self.folder / "vnicd.toml").write_text(config)
        # Adapters that have an address, and the machine's address if one of them has it.
        self.addressed = set()
        self.log = open(self.folder / "vnicd.log", "wb")
        self.process = subprocess.Popen(
            [
                str(programs.vnicd),
                *("--socket-dir", str(self.folder)),
                *("--state-dir", str(self.folder / "state")),
                *("--metrics", "127.0.0.1:0"),
                *("--config", str(self.folder / "vnicd.toml")),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.log,
        )
        self.ready = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        end = time.monotonic() + PATIENCE
        while not self.ready.wait(0.1):
            if self.process.poll() is not None or time.monotonic() > end:
                text = self.errors()
                self.close()
                raise Trouble(f"vnicd does not get ready:\n{text}")

    def _read(self):
        for line in self.process.stdout:
            self.log.write(line)
            if b"ready" in line:
                self.ready.set()

    def errors(self):
        """The end of its log."""
        self.log.flush()
        text = (self.folder / "vnicd.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-20:])

    def socket(self, adapter):
        """The RDMA socket of vf`adapter`."""
        return str(self.folder / f"vf{adapter}-rdma.sock")

    def environment(self, *adapters, **more):
        """The environment of a program that uses these adapters."""
        environment = dict(os.environ)
        environment["VNIC_SOCKET"] = ":".join(self.socket(a) for a in adapters)
        environment.update(more)
        return environment

    def ctl(self, *words):
        """vnicctl, in JSON."""
        endpoint = f"unix:{self.folder}/control.sock"
        command = [str(self.programs.vnicctl), "--endpoint", endpoint, "-o", "json", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        if done.returncode:
            raise Trouble(f"vnicctl {' '.join(words)}: {done.stderr}")
        return done.stdout

    def address(self, adapter):
        """An IPv4 address of vf`adapter`, which gets one."""
        address = f"10.9.0.{adapter + 1}"
        if adapter not in self.addressed:
            self.ctl("gid", "set", f"vf{adapter}", "--index", "7", "--gid", address, "--version", "v2")
            self.addressed.add(adapter)
        return address

    def with_interface(self, adapter, command):
        """The command in a network namespace that ends with it, where an interface has the addresses of vf`adapter`."""
        mac = json.loads(self.ctl("adapter", "show", f"vf{adapter}"))["macs"][0]
        steps = [
            # (Files of interfaces are those of the namespace that mounts them.)
            "mount -t sysfs sysfs /sys",
            "ip link set lo up",
            f"ip link add vf{adapter} address {mac} type veth peer name peer",
            f"ip address add {self.address(adapter)}/24 dev vf{adapter}",
            f"ip link set vf{adapter} up",
            "ip link set peer up",
            'exec "$@"',
        ]
        rights = [] if os.geteuid() == 0 else ["--map-root-user"]
        return ["unshare", "--net", "--mount", *rights, "sh", "-c", " && ".join(steps), "sh", *command]

    def machine(self):
        """An IPv4 address of this machine, which vf0 gets as well: the first one that is not of loopback. None: it has none."""
        links = json.loads(subprocess.check_output(["ip", "-json", "-4", "address", "show", "up", "scope", "global"], timeout=PATIENCE))
        address = next((a["local"] for link in links for a in link.get("addr_info", [])), None)
        if address and address not in self.addressed:
            self.ctl("gid", "set", "vf0", "--index", "8", "--gid", address, "--version", "v2")
            self.addressed.add(address)
        return address

    def listens(self, adapter):
        """Does a program listen for connections on vf`adapter`, has some or is in a group there? One that has ended does for a moment
        longer."""
        resources = json.loads(self.ctl("resource", "list", f"vf{adapter}"))["resources"]
        return any(r["type"] in ("cm_id", "mcast_group") and r["used"] for r in resources)

    def queue_pairs(self):
        """Its queue pairs, for whoever looks why a program hangs."""
        try:
            return self.ctl("qp", "list")
        except (Trouble, subprocess.TimeoutExpired) as trouble:
            return str(trouble)

    def alive(self):
        """Does it still run?"""
        return self.process.poll() is None

    def close(self):
        """Ends it; the directory goes."""
        if self.alive():
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
