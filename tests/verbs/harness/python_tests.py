"""rdma-core's own tests for Python, as Debian's package python3-pyverbs brings them, or its newest sources. None of them is copied here:
they are unpacked into a temporary directory, and run there as they are."""

import gzip
import json
import os
import pathlib
import shutil
import tempfile
import time

from . import expected, newest
from .daemon import CHECKOUT, Trouble
from .pair import Running

PLACE = "usr/share/doc/rdma-core/tests"
# Where the package has put them; or, on a system without documentation, where `lab_pyverbs_tests` (deploy/guest/lib.sh) has.
LAB = pathlib.Path(os.environ.get("VNIC_LAB_DIR") or CHECKOUT / "target/lab")
SOURCE = next((p for p in (pathlib.Path("/", PLACE), LAB / "pyverbs" / PLACE) if p.is_dir()), pathlib.Path("/", PLACE))
# pyverbs is built for Debian's own Python.
PYTHON = "/usr/bin/python3"
CHILD = pathlib.Path(__file__).resolve().parent / "python_child.py"
# Tests of other makers' hardware.
VENDORS = ("test_mlx5", "test_efa")
# Tests that connect to the address of the device's network interface.
CONNECTING = ("test_rdmacm",)


class Suite:
    """Tests of one version."""

    def __init__(self, name, source, pyverbs=None, prepare=None):
        # First word of the tests' names.
        self.name = name
        self.source = source
        # Where Python finds pyverbs, if not by itself.
        self.pyverbs = pyverbs
        # Makes both, where they are not a package's.
        self.prepare = prepare

    def modules(self, patterns):
        """Names of test modules that such patterns may mean."""
        wanted = not patterns or any(p.startswith((f"{self.name} ", f"{self.name}*", "*")) for p in patterns)
        if not wanted or not self.source.is_dir():
            return []
        names = sorted({f.name.split(".")[0] for f in self.source.iterdir()})
        return [n for n in names if n.startswith("test_") and not n.startswith(VENDORS)]


INSTALLED = Suite("pyverbs", SOURCE)
NEWEST = Suite("pyverbs-new", newest.CORE / "tests", newest.CORE / "build/python", newest.install)


def unpack(source, folder):
    """The tests, with those in the package compressed that are."""
    target = pathlib.Path(folder) / "tests"
    target.mkdir()
    for file in source.iterdir():
        if file.name.startswith(VENDORS):
            continue
        if file.suffix == ".gz":
            with gzip.open(file) as packed, open(target / file.stem, "wb") as out:
                shutil.copyfileobj(packed, out)
        elif file.is_file():
            shutil.copy(file, target / file.name)


def run(suite, patterns, daemon, programs, report, patience, list_file):
    """Each module in a process of its own; after a crash or when it hangs, what is left of it in another."""
    names = suite.modules(patterns)
    if not names:
        if not suite.source.is_dir() and not patterns:
            raise Trouble(f"there is no {suite.source}; tests/run e2e gets it")
        return
    known = expected.read(list_file)
    with tempfile.TemporaryDirectory(prefix="vnic-pyverbs-") as folder:
        unpack(suite.source, folder)
        for name in names:
            done = []
            while module(suite, name, patterns, folder, done, daemon, programs, report, patience, known):
                pass
            if not daemon.alive():
                report.add(f"{suite.name} tests.{name}", "FAIL", "vnicd has ended", daemon.errors())
                return


def module(suite, name, patterns, folder, done, daemon, programs, report, patience, known):
    """Runs a module's tests but those that are done. True: there may be more."""
    results = pathlib.Path(folder) / "results"
    results.write_text("")
    only = patterns or []
    order = json.dumps({"suite": suite.name, "module": name, "done": done, "only": only, "results": str(results)})
    environment = daemon.environment(0, PYTHONDONTWRITEBYTECODE="1")
    # (Python's own: which libraries it loads is no business of this one.)
    for variable in ("PYTHONPATH", "PYTHONHOME"):
        environment.pop(variable, None)
    if suite.pyverbs:
        environment["PYTHONPATH"] = str(suite.pyverbs)
    command = programs.command([PYTHON, str(CHILD), order])
    if name in CONNECTING:
        command = daemon.with_interface(0, command)
    child = Running(command, environment, folder)
    last, seen = time.monotonic(), 0
    while child.alive():
        lines = results.read_text().count("\n")
        if lines != seen:
            last, seen = time.monotonic(), lines
            report.progress(f"{suite.name} {name}: {lines} lines")
        if time.monotonic() - last > patience:
            break
        time.sleep(0.02)
    hung = child.alive()
    ended = child.finish(time.monotonic())
    started = None
    for line in results.read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "start":
            started = event["test"]
            continue
        started = None
        done.append(event["test"])
        judge(suite, event["test"], event["event"], event.get("text", ""), report, known, event.get("seconds", 0))
    if started:
        done.append(started)
        judge(suite, started, "hang" if hung else "crash", f"{ended.how()}\n{ended.text}", report, known, 0)
        return True
    if hung or ended.code != 0:
        report.add(f"{suite.name} tests.{name}", "FAIL", f"outside of a test: {ended.how()}", ended.text)
    return False


def judge(suite, test, event, text, report, known, seconds):
    """Compares what has happened with the list."""
    name = f"{suite.name} {test}"
    entry = expected.match(known, test)
    last = text.strip().splitlines()[-1] if text.strip() else ""
    # A list's entry begins with what happens: `skip`, `fail`; `skip?` where that depends on the machine.
    what, _, wanted = (part.strip() for part in entry.text.partition(":")) if entry else ("", "", "")
    if event == "ok":
        if entry and not what.endswith("?"):
            report.add(name, "FAIL", "it passes: remove it from pyverbs.expected", "", seconds)
        else:
            report.add(name, "pass", "", "", seconds)
    elif what.rstrip("?") == event:
        if wanted and wanted not in text:
            report.add(name, "FAIL", f"{event}, but not with {wanted!r}", text, seconds)
        else:
            report.add(name, "skipped" if event == "skip" else "refused", entry.reason, "", seconds)
    else:
        report.add(name, "FAIL", f"{event}: {last}", text, seconds)
