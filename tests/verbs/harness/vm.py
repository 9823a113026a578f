"""Virtual machines with RDMA functions and Soft-RoCE, and a shell in each of them (deploy/guest/init, deploy/guest/agent)."""

import re
import socket
import subprocess
import sys
import time

from .daemon import CHECKOUT, Missing, Trouble, find

# Emulated machines are slow to come up.
BOOT_PATIENCE = 400


# What a script of deploy/guest is for, and what to do when it cannot do it.
CURES = {
    "qemu11": "no QEMU with vhost-user-test-device-pci: deploy/guest/qemu11 fetches one, VNIC_QEMU11 names one",
    "build": "no image for guests: deploy/guest/build --verbs makes it, VNIC_LAB_DIR names the directory",
}


def script(name, *words):
    """A script of deploy/guest; its last line. What it tells of long work goes on to standard error."""
    command = [str(CHECKOUT / "deploy/guest" / name), *words]
    said = []
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        for line in running.stderr:
            said.append(line.strip())
            print(line, end="", file=sys.stderr, flush=True)
        printed = running.stdout.read()
    if running.returncode:
        reason = f"deploy/guest/{name}: {said[-1] if said else f'exit {running.returncode}'}"
        raise Missing(f"{CURES[name]} ({reason})") if name in CURES else Trouble(reason)
    return next((line for line in reversed(printed.split("\n")) if line), "")


class Machine:
    """A machine on adapter vf`number`, with the RDMA functions of `functions`."""

    def __init__(self, daemon, number, functions, cpus=1, memory=768):
        self.number = number
        script("build", "--verbs")
        images = script("build", "--print").rpartition("/")[0]
        image = daemon.folder / "initramfs-verbs.cpio"
        if not image.exists():
            programs = daemon.programs
            places = [find("vnic-guest", programs.vnicd.parent), programs.launcher, programs.library]
            script("add", "--base", "initramfs-verbs", str(image), *map(str, places))
        self.accel = script("accel")
        mac = re.search(r'"macs":\s*\[\s*"([^"]*)"', daemon.ctl("adapter", "show", f"vf{number}"))[1]
        agent = daemon.folder / f"agent{number}.sock"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(agent))
        listener.listen(1)
        words = [
            f"-name vm{number} -accel {self.accel} -m {memory}M -smp {cpus}",
            "-machine q35,memory-backend=mem,usb=off,vmport=off -nodefaults -no-user-config -display none -no-reboot",
            f"-object memory-backend-memfd,id=mem,size={memory}M,share=on",
            f"-chardev file,id=console,path={daemon.folder}/console{number}.log -serial chardev:console",
            f"-chardev socket,id=agent,path={agent} -serial chardev:agent",
            f"-chardev socket,id=vhost,path={daemon.folder}/vf{number}-eth.sock,reconnect-ms=1000",
            "-netdev vhost-user,id=net,chardev=vhost,queues=1",
            f"-device virtio-net-pci,netdev=net,mac={mac},romfile=,mq=off,vectors=4,rx_queue_size=1024",
        ]
        for function in functions:
            words.append(f"-chardev socket,id=rdma{function},path={daemon.socket(function)}")
            words.append(
                f"-device vhost-user-test-device-pci,id=roce{function},chardev=rdma{function},"
                "virtio-id=38,num_vqs=3,vq_size=128,config_size=64"
            )
        if self.accel == "kvm":
            words.append("-cpu host")
        kernel = (
            f"console=ttyS0 panic=-1 vnic.name=vm{number} vnic.ip=10.0.0.{number + 1}/24 vnic.mac={mac} vnic.mtu=9000 "
            "vnic.agent=ttyS1 vnic.rxe=1 vnic.rdma=1 hugepages=64"
        )
        command = [script("qemu11"), *" ".join(words).split()]
        command += ["-kernel", f"{images}/vmlinuz", "-initrd", str(image), "-append", kernel]
        self.agent = listener
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        try:
            listener.settimeout(BOOT_PATIENCE)
            self.agent, _ = listener.accept()
            self.lines = self.agent.makefile("r", errors="replace")
            self.agent.settimeout(BOOT_PATIENCE)
            while self._line() != "@@ready@@":
                pass
        except BaseException:
            self.close()
            raise
        finally:
            listener.close()

    def _line(self):
        line = self.lines.readline()
        if not line:
            raise Trouble(f"the machine vm{self.number} has ended")
        return line.rstrip("\r\n")

    def run(self, command, patience=BOOT_PATIENCE):
        """Exit code and output of a command of its shell."""
        self.agent.settimeout(patience)
        self.agent.sendall(command.encode() + b"\n")
        text = []
        while True:
            line = self._line()
            if line.startswith("@@exit="):
                return int(line[7:].rstrip("@")), "\n".join(text)
            text.append(line)

    def ok(self, command, patience=BOOT_PATIENCE):
        """Output of a command that must succeed."""
        code, text = self.run(command, patience)
        if code:
            raise Trouble(f"vm{self.number}: {command}: exit {code}\n{text}")
        return text

    def pair(self, server, client, patience=BOOT_PATIENCE):
        """A server and its client in this machine; the client's output."""
        self.ok(f"rm -f /tmp/server.*; ({server} >/tmp/server.out 2>&1; echo $? >/tmp/server.exit) &")
        end = time.monotonic() + patience
        while self.run("test -s /tmp/server.exit || netstat -ltn | grep -q :18515")[0] and time.monotonic() < end:
            time.sleep(0.05)
        code, text = self.run(client, patience)
        waited = self.run("for i in $(seq 300); do test -s /tmp/server.exit && break; sleep 0.1; done; cat /tmp/server.exit")[1]
        if code or waited.strip() != "0":
            raise Trouble(f"{client}: exit {code}\n{text}\nserver: {self.run('cat /tmp/server.out')[1]}")
        return text

    def close(self):
        """Ends it."""
        self.process.kill()
        self.process.wait()
        self.agent.close()
