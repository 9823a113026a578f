"""A job of MPI: each rank sends to each other one, in several sizes, and compares every byte; all reduce a sum. Started by
mpirun, as many times as there are ranks."""

import hashlib

from mpi4py import MPI

SIZES = (0, 1, 100, 5000, 70000, 1 << 20)

world = MPI.COMM_WORLD
rank, ranks = world.Get_rank(), world.Get_size()


def fill(source, target, size):
    """The bytes that one rank sends to another."""
    piece = hashlib.sha256(f"{source} {target} {size}".encode()).digest()
    return (piece * (size // len(piece) + 1))[:size]


for size in SIZES:
    for step in range(1, ranks):
        target, source = (rank + step) % ranks, (rank - step) % ranks
        got = bytearray(size)
        world.Sendrecv(fill(rank, target, size), target, 7, got, source, 7)
        assert bytes(got) == fill(source, rank, size), f"{size} bytes from {source} to {rank} differ"
    sent = [fill(rank, target, size) for target in range(ranks)]
    assert world.alltoall(sent) == [fill(source, rank, size) for source in range(ranks)], f"{size} bytes of all to all"
    assert world.allreduce(rank + size) == sum(range(ranks)) + ranks * size
world.Barrier()
if rank == 0:
    print(f"{ranks} ranks: every byte as it was sent")
