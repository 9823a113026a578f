"""One program, or a server and its client, as processes of this machine."""

import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
import time


class Ended:
    """What a process left."""

    def __init__(self, code, text):
        self.code = code
        self.text = text

    def how(self):
        """Its end, in words."""
        if self.code is None:
            return "hangs"
        if self.code < 0:
            try:
                return f"killed by {signal.Signals(-self.code).name}"
            except ValueError:
                return f"killed by signal {-self.code}"
        return f"exit {self.code}"

    def crashed(self):
        """Did a signal end it? (fi_pingpong catches those of crashes, tells where it was, and ends with 1.)"""
        return self.code is not None and (self.code < 0 or self.code == 1 and " terminated with signal 11 at " in self.text)


class Running:
    """A process with all it prints in a file. It has a process group of its own, which ends with it."""

    # What else there is to say of a process that hangs.
    beside = staticmethod(lambda: "")

    def __init__(self, command, environment, folder=None):
        self.output = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            # (No session of its own: Linux shares CPUs out by sessions first, and one that mostly sleeps may wait for seconds.)
            process_group=0,
        )

    def text(self):
        """What it has printed."""
        self.output.seek(0)
        return self.output.read().decode(errors="replace")

    def alive(self):
        """Does it still run?"""
        return self.process.poll() is None

    def kill(self):
        """Ends it and what it has started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def where(self):
        """Where its threads are, and those of what it has started: the name, what it waits for, and its system call."""
        lines = []
        for task in sorted(pathlib.Path("/proc").glob("[0-9]*/task/*")):
            try:
                if os.getpgid(int(task.parts[2])) == self.process.pid:
                    words = [(task / name).read_text().strip() for name in ("comm", "wchan", "syscall")]
                    lines.append(f"{task.parts[2]}/{task.name} {' '.join(words)}")
            except (OSError, ValueError):
                # It has ended meanwhile.
                pass
        return "\n".join(lines)

    def finish(self, end):
        """Waits for its end, or until then."""
        where = ""
        try:
            code = self.process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            code = None
            where = f"\nwhere it hung:\n{self.where()}\n{Running.beside()}\n"
        self.kill()
        ended = Ended(code, self.text() + where)
        self.output.close()
        return ended


def free_port():
    """A TCP port that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port):
    """Does somebody listen on this port? Asked without connecting: the programs here take one caller."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as lines:
                for line in lines:
                    words = line.split()
                    if len(words) > 3 and words[3] == "0A" and words[1].endswith(f":{port:04X}"):
                        return True
        except FileNotFoundError:
            pass
    return False


class Victims:
    """Processes that are started one after the other, and each killed once it has printed `ready`: a thread, until this is closed."""

    def __init__(self, command, environment, ready):
        self.killed = 0
        self.wrong = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(command, environment, ready))
        self._thread.start()

    def _run(self, command, environment, ready):
        while not self._over.is_set():
            victim = Running(command, environment)
            while victim.alive() and ready not in victim.text() and not self._over.wait(0.02):
                pass
            self._over.wait(0.1)
            if not victim.alive():
                self.wrong = f"the process beside it has ended by itself:\n{victim.text()}"
                self._over.set()
            self.killed += ready in victim.text()
            victim.kill()
            victim.output.close()

    def close(self):
        """Ends the last one. Says what went wrong, or None."""
        self._over.set()
        self._thread.join()
        return self.wrong or (None if self.killed else "no process beside it was killed")


def single(command, environment, patience, folder=None):
    """Runs one program."""
    return Running(command, environment, folder).finish(time.monotonic() + patience)


def pair(server, client, environments, patience, port, folder=None):
    """Runs a server and a client for each further environment; they have `patience` seconds together."""
    end = time.monotonic() + patience
    first = Running(server, environments[0], folder)
    while first.alive() and not listens(port) and time.monotonic() < end:
        time.sleep(0.02)
    if not first.alive():
        # It never listened: nobody needs to call.
        return first.finish(end), [Ended(0, "") for _ in environments[1:]]
    others = [Running(client, environment, folder) for environment in environments[1:]]
    running = [first, *others]
    # When one fails the others may wait for it for ever.
    while all(r.alive() for r in running) and time.monotonic() < end:
        time.sleep(0.02)
    failed = any(not r.alive() and r.process.returncode for r in running)
    if failed:
        end = min(end, time.monotonic() + 10)
    ended = [r.finish(end) for r in running]
    return ended[0], ended[1:]


def connected(server, client, environments, patience, listening, stays, folder=None):
    """Runs a server and then, once `listening()`, a client; they have `patience` seconds together. A server that `stays` is ended when
    its client has ended, which is no failure of its own."""
    end = time.monotonic() + patience
    while listening() and time.monotonic() < end:
        # What ran before.
        time.sleep(0.02)
    first = Running(server, environments[0], folder)
    while first.alive() and not listening() and time.monotonic() < end:
        time.sleep(0.02)
    if not first.alive():
        return first.finish(end), Ended(0, "")
    second = Running(client, environments[1], folder)
    while first.alive() and second.alive() and time.monotonic() < end:
        time.sleep(0.02)
    if (not first.alive() and first.process.returncode) or (not second.alive() and second.process.returncode):
        # The other one may wait for ever.
        end = min(end, time.monotonic() + 10)
    other = second.finish(end)
    if stays and first.alive():
        first.kill()
        text = first.text()
        first.output.close()
        return Ended(0, text), other
    return first.finish(end), other
