#!/usr/bin/python3
"""A program of perftest for raw Ethernet between two of our devices: PROGRAM OPTION…

These programs do not talk over TCP: each end is told the addresses of both. The client is started when the server can receive.
"""

import re
import subprocess
import sys
import tempfile
import time


def mac(device):
    """The Ethernet address of a device, from its first GID."""
    text = subprocess.run(["ibv_devinfo", "-v", "-d", device], check=True, capture_output=True, text=True).stdout
    gid = re.search(r"GID\[ +0\]:\s+fe80:?:(\S+?),", text)[1].split(":")
    word = [int(part, 16) for part in gid if part][-4:]
    octets = [word[0] >> 8 ^ 2, word[0] & 255, word[1] >> 8, word[2] & 255, word[3] >> 8, word[3] & 255]
    return ":".join(f"{octet:02x}" for octet in octets)


def main():
    """Runs both ends; the worse of both exit codes."""
    program, *options = sys.argv[1:]
    macs = [mac("vnic0"), mac("vnic1")]
    with tempfile.TemporaryFile("w+") as output:
        ends = []
        for here, side in ((0, "--server"), (1, "--client")):
            command = [program, "-F", "-d", f"vnic{here}", side, "-B", macs[here], "-E", macs[1 - here], *options]
            # What it prints is seen at once.
            ends.append(subprocess.Popen(["stdbuf", "-o0", *command], stdout=output if here == 0 else None, stderr=subprocess.STDOUT))
            while here == 0 and ends[0].poll() is None:
                output.seek(0)
                if "#bytes" in output.read():
                    break
                time.sleep(0.05)
        codes = [end.wait() for end in reversed(ends)]
        output.seek(0)
        print("-- server\n" + output.read())
    return max(codes, key=abs)


sys.exit(main())
