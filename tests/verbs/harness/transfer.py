"""Two processes move host memory by an engine for transfers (`mooncake` or `nixl`): one writes into memory of the other, which compares
every byte, and reads it back. Usage: transfer.py ENGINE"""

import multiprocessing
import os
import sys

import numpy

SIZES = (1, 4096, 100_000, 8 << 20)
MEMORY = max(SIZES)


def pattern(size):
    """What is written: the bytes of a pair of counters, so that a shift shows."""
    return (numpy.arange(size, dtype=numpy.uint64) * 31 + size).astype(numpy.uint8)


class Mooncake:
    """Mooncake's transfer engine; its sides find each other by a port of this machine."""

    def __init__(self, _name, device, memory):
        from mooncake.engine import TransferEngine

        self.engine = TransferEngine()
        assert self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", device) == 0, "it finds no device"
        self.memory = memory
        assert self.engine.register_memory(memory.ctypes.data, MEMORY) == 0

    def address(self):
        return f"127.0.0.1:{self.engine.get_rpc_port()}", self.memory.ctypes.data

    def move(self, operation, size, peer):
        name, there = peer
        move = self.engine.transfer_sync_write if operation == "WRITE" else self.engine.transfer_sync_read
        assert move(name, self.memory.ctypes.data, there, size) == 0, f"{operation} of {size} bytes"


class Nixl:
    """NIXL with UCX below it, by reliable connections alone."""

    def __init__(self, name, device, memory):
        os.environ.update(UCX_TLS="rc", UCX_NET_DEVICES=f"{device}:1")
        from nixl_cu12._api import nixl_agent, nixl_agent_config

        self.agent = nixl_agent(name, nixl_agent_config(backends=["UCX"]))
        self.memory = memory
        self.peer = None
        self.agent.register_memory(self.agent.get_reg_descs([(memory.ctypes.data, MEMORY, 0, "")], "DRAM"))

    def address(self):
        return self.agent.get_agent_metadata(), self.memory.ctypes.data

    def move(self, operation, size, peer):
        metadata, there = peer
        self.peer = self.peer or self.agent.add_remote_agent(metadata)
        pieces = [self.agent.get_xfer_descs([(base, size, 0)], "DRAM") for base in (self.memory.ctypes.data, there)]
        handle = self.agent.initialize_xfer(operation, *pieces, self.peer, b"")
        state = self.agent.transfer(handle)
        while state == "PROC":
            state = self.agent.check_xfer_state(handle)
        assert state == "DONE", f"{operation} of {size} bytes: {state}"
        self.agent.release_xfer_handle(handle)


ENGINES = {"mooncake": Mooncake, "nixl": Nixl}


def target(engine, pipe):
    """Has memory, and compares what comes."""
    memory = numpy.zeros(MEMORY, dtype=numpy.uint8)
    side = ENGINES[engine]("target", "vnic0", memory)
    pipe.send(side.address())
    for size in iter(pipe.recv, None):
        pipe.send(bool((memory[:size] == pattern(size)).all()))


def main(engine):
    spawn = multiprocessing.get_context("spawn")
    pipe, far = spawn.Pipe()
    other = spawn.Process(target=target, args=(engine, far))
    other.start()
    far.close()
    peer = pipe.recv()
    memory = numpy.zeros(MEMORY, dtype=numpy.uint8)
    side = ENGINES[engine]("initiator", "vnic1", memory)
    for size in SIZES:
        memory[:size] = pattern(size)
        side.move("WRITE", size, peer)
        pipe.send(size)
        assert pipe.recv(), f"{size} bytes came as others"
        memory[:size] = 0
        side.move("READ", size, peer)
        assert (memory[:size] == pattern(size)).all(), f"{size} bytes were read as others"
    print(f"{engine}: {len(SIZES)} sizes, every byte as it was sent", flush=True)
    del side
    pipe.send(None)
    other.join()
    return other.exitcode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
