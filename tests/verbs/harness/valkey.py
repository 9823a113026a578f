"""Valkey's own clients at its server, by RDMA: values of all sizes come back as they were set, also after many clients have come, worked
and gone, and after others were killed, of which the server hears. Usage: valkey.py FOLDER ADDRESS PORT"""

import os
import random
import subprocess
import sys
import time

# Nothing is judged by it: it ends what hangs.
PATIENCE = 120
SIZES = (1, 100, 4096, 65_536, (1 << 20) - 1, 1 << 20, 5_000_001)
CLIENTS = 50
folder, address, port = sys.argv[1:]


def command(name, *words):
    """A client of Valkey's."""
    return [f"{folder}/src/valkey-{name}", "--rdma", "-h", address, "-p", port, *words]


def run(words, sent=b""):
    """What a program prints."""
    done = subprocess.run(words, input=sent, capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0 and not done.stderr, f"{words}: {done.returncode} {done.stdout[-500:]} {done.stderr[-500:]}"
    return done.stdout


def connected():
    """How many clients the server has, this one left out."""
    lines = run(command("cli", "info", "clients")).decode().splitlines()
    return next(int(line.split(":")[1]) for line in lines if line.startswith("connected_clients:")) - 1


def until(what, condition):
    """Waits."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"in vain: {what}; {connected()} clients"
        time.sleep(0.05)


values = {f"value-{size}": random.randbytes(size) for size in SIZES}
for name, value in values.items():
    assert run(command("cli", "-x", "set", name), value) == b"OK\n"


def compare(when):
    """Each value, by a client of its own."""
    for name, value in values.items():
        # (It ends what it prints with a newline.)
        assert run(command("cli", "--raw", "get", name))[:-1] == value, f"{name} {when} is another one"


compare("as it was set")
# Many clients, with one request at a time and with several.
for depth in (1, 16):
    options = ["-c", CLIENTS, "-n", 20_000, "-P", depth, "-d", 1000, "-r", 100, "-t", "set,get", "--csv"]
    table = run(command("benchmark", *map(str, options))).decode()
    assert all(f'"{verb}"' in table for verb in ("SET", "GET")), table
assert run(command("cli", "strlen", "key:000000000007")) == b"1000\n"
compare("after many clients")
# Valkey's own test of the transport: values of many sizes by several threads, compared.
assert b"Valkey Over RDMA test [OK]" in run([f"{folder}/tests/rdma/rdma-test", "-h", address, "-p", port, "-t", "4"])
run(command("cli", "del", "key:000000000007"))
until("clients that end are gone", lambda: connected() == 0)
for _ in range(2):
    victim = subprocess.Popen(
        command("benchmark", "-c", str(CLIENTS), "-n", "1000000000", "-t", "set", "-q"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until("a client comes", lambda: connected() >= CLIENTS)
    victim.kill()
    victim.wait()
    until("clients that are killed are gone", lambda: connected() == 0)
    compare("after clients were killed")
print(f"valkey: {len(values)} values, every byte as it was set")
