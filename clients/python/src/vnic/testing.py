"""Failures on demand for tests of RDMA programs: a NIC of its own for a test, rules, scenarios, and what really happened.

    with vnic.testing.start(adapters=2) as nic:
        with nic.recording() as recording, nic.playing("port-flap", nic="vf0"):
            nic.run(["vf0", "vf1"], ["./my-program"], check=True)
        assert not recording.report.lies, recording.report

`start` starts vnicd in a directory of its own, no root rights needed; `connect` takes one that runs. What a test has made ends with its
`with` block. As fixtures of pytest: `vnic.pytest_plugin`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator, List, Optional, Sequence, Union

import vnic
from vnic import v1

__all__ = ["Nic", "Recording", "Report", "connect", "start"]

# After this a daemon does not start any more, and a scenario does not end. Never a statement about speed.
_PATIENCE = 60.0
_LOOK = 0.02


def _program(name: str) -> str:
    """A program: in $VNIC_PROGRAMS, or else in the PATH."""
    return str(Path(os.environ.get("VNIC_PROGRAMS", "")) / name)


@dataclass
class Report:
    """What became of each work request: what its program was told, and what really happened."""

    #: All requests, messages `v1.Outcome`.
    outcomes: List[Any] = field(default_factory=list)
    #: Number of requests by verdict.
    verdicts: dict[str, int] = field(default_factory=dict)
    #: Whether all is there: a recording forgets the oldest requests beyond its limit.
    complete: bool = True

    @property
    def lies(self) -> List[Any]:
        """Requests whose program was told something else than what happened, or not told what did."""
        return [outcome for outcome in self.outcomes if outcome.lie]

    @property
    def failed(self) -> List[Any]:
        """Requests whose program was told that they failed."""
        return [outcome for outcome in self.outcomes if outcome.told_status not in ("", "Success")]

    def __str__(self) -> str:
        lines = [
            f"{o.adapter.rpartition('/')[2]} queue pair #{o.queue_pair_index} {o.operation} {o.wr_id}: {o.verdict}"
            for o in self.outcomes
            if o.lie or o.told_status not in ("", "Success")
        ]
        lines += [f"{requests:8}  {verdict}" for verdict, requests in sorted(self.verdicts.items())]
        return "\n".join(lines if self.complete else [*lines, "not all requests are here"])


class Recording:
    """A recording; when its block has ended it has a report."""

    def __init__(self) -> None:
        self._report: Optional[Report] = None

    @property
    def report(self) -> Report:
        if self._report is None:
            raise RuntimeError("the recording still runs: its report is there behind the block")
        return self._report


class Nic:
    """A NIC for tests; `client` is the connection to its daemon, `adapters` are the names of its adapters."""

    def __init__(self, sockets: Union[str, Path]) -> None:
        self.sockets = Path(sockets)
        self.client = vnic.connect(f"unix:{self.sockets}/control.sock")
        all_of_them = vnic.pages(self.client.adapters.ListAdapters, v1.ListAdaptersRequest())
        self.adapters = [adapter.name.rpartition("/")[2] for adapter in all_of_them]

    def command(self, adapters: Union[str, Sequence[str]], command: Sequence[str]) -> List[str]:
        """The command line that runs a program with the RDMA functions of these adapters as its devices."""
        names = adapters if isinstance(adapters, str) else ",".join(adapters)
        launcher = [_program("vnic-verbs"), "run", "--socket-dir", str(self.sockets), "--adapters", names, "--"]
        return [*launcher, *map(str, command)]

    def run(self, adapters: Union[str, Sequence[str]], command: Sequence[str], **how: Any) -> Any:
        """Runs a program so, as `subprocess.run` does: `check=True`, `timeout=60`."""
        return subprocess.run(self.command(adapters, command), **how)

    @contextlib.contextmanager
    def fault(self, name: str, fault: Any) -> Iterator[Any]:
        """A rule for frames (`v1.Fault`) while the block runs."""
        made = self.client.faults.CreateFault(v1.CreateFaultRequest(fault_id=name, fault=fault))
        try:
            yield made
        finally:
            self.client.faults.DeleteFault(v1.DeleteFaultRequest(name=made.name))

    @contextlib.contextmanager
    def verbs_fault(self, name: str, fault: Any) -> Iterator[Any]:
        """A rule for completions or commands (`v1.VerbsFault`) while the block runs."""
        request = v1.CreateVerbsFaultRequest(verbs_fault_id=name, verbs_fault=fault)
        made = self.client.faults.CreateVerbsFault(request)
        try:
            yield made
        finally:
            self.client.faults.DeleteVerbsFault(v1.DeleteVerbsFaultRequest(name=made.name))

    @contextlib.contextmanager
    def playing(self, scenario: str, *, wait: bool = False, **adapters: str) -> Iterator[Any]:
        """Plays a scenario while the block runs: a file, or the name of one that is shipped, with the adapters of its parts.

        Behind the block it is stopped and all is put back, or waited for. A step that failed raises RuntimeError.
        """
        folder = Path(os.environ.get("VNIC_SCENARIOS") or "/usr/share/vnic/scenarios/verbs")
        is_file = "/" in scenario or scenario.endswith(".toml")
        content = (Path(scenario) if is_file else folder / f"{scenario}.toml").read_text()
        begun = self.client.faults.PlayScenario(v1.PlayScenarioRequest(content=content, adapters=adapters))
        try:
            yield begun
            if wait:
                self._over(begun.name, begun.length.ToSeconds() + _PATIENCE)
        finally:
            self.client.faults.StopScenario(v1.StopScenarioRequest(name=begun.name))
            now = self._over(begun.name, _PATIENCE)
            begun.CopyFrom(now)
        if begun.state == v1.Scenario.FAILED:
            raise RuntimeError(begun.problem)

    def _over(self, name: str, patience: float) -> Any:
        end = time.monotonic() + patience
        while True:
            now = self.client.faults.GetScenario(v1.GetScenarioRequest(name=name))
            if now.state != v1.Scenario.PLAYING:
                return now
            if time.monotonic() > end:
                raise TimeoutError(f"{name} does not end")
            time.sleep(_LOOK)

    @contextlib.contextmanager
    def recording(self) -> Iterator[Recording]:
        """Records what becomes of all work requests while the block runs."""
        self.client.faults.StartRecording(v1.StartRecordingRequest())
        recording = Recording()
        try:
            yield recording
        finally:
            self.client.faults.StopRecording(v1.StopRecordingRequest())
            recording._report = self._report()

    def _report(self) -> Report:
        report, token = Report(), ""
        while True:
            page = self.client.faults.ListOutcomes(v1.ListOutcomesRequest(page_size=1000, page_token=token))
            report.outcomes.extend(page.outcomes)
            token = page.next_page_token
            if not token:
                report.verdicts = {v.verdict: v.requests for v in page.verdicts}
                report.complete = page.recording.dropped == page.recording.lost == 0
                return report

    def close(self) -> None:
        """Ends the connection."""
        self.client.close()


@contextlib.contextmanager
def connect(sockets: Union[str, Path] = "/run/vnic") -> Iterator[Nic]:
    """A daemon that runs with its sockets in this directory."""
    nic = Nic(sockets)
    try:
        yield nic
    finally:
        nic.close()


@contextlib.contextmanager
def start(adapters: int = 2) -> Iterator[Nic]:
    """A daemon of its own with so many adapters, `vf0`, `vf1`, …, in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="vnic") as place:
        log = Path(place) / "vnicd.log"
        words = ["--adapters", str(adapters), "--metrics", "off", "--socket-dir", place, "--state-dir", f"{place}/state"]
        with log.open("w") as said:
            daemon = subprocess.Popen(
                [_program("vnicd"), *words], stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT
            )
        try:
            end = time.monotonic() + _PATIENCE
            while "ready" not in log.read_text():
                if daemon.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"vnicd is not ready:\n{log.read_text()}")
                time.sleep(_LOOK)
            with connect(place) as nic:
                yield nic
        finally:
            daemon.terminate()
            daemon.wait()
