"""Fixtures and a marker of pytest for tests of RDMA programs under failures; pytest finds them when the package is installed.

    @pytest.mark.vnic_scenario("port-flap", nic="vf0")
    def test_my_program(vnic, vnic_adapters):
        vnic.run(vnic_adapters, ["./my-program"], check=True)
        assert not vnic.report().lies

`vnic` is a NIC (`vnic.testing.Nic`) that records; with the marker a scenario is played meanwhile, and stopped and put back behind the
test. What really happened stands in the report of a test that fails.
"""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, List, Optional

import pytest

from vnic import testing


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("vnic")
    group.addoption("--vnic-adapters", type=int, default=2, help="adapters of the NIC that is started (2)")
    group.addoption("--vnic-sockets", help="a daemon that runs, with its sockets in this directory; none is started")


def pytest_configure(config: Any) -> None:
    line = "vnic_scenario(scenario, **adapters): plays a scenario while the test runs, with the adapters of its parts"
    config.addinivalue_line("markers", line)


class Nic(testing.Nic):
    """The NIC of a test. Its recording ends with the test, or with `report`."""

    def __init__(self, sockets: Any) -> None:
        super().__init__(sockets)
        self._stack = contextlib.ExitStack()
        self._recording: Optional[testing.Recording] = None
        self.scenario: Optional[Any] = None

    def report(self) -> testing.Report:
        """Ends the scenario and the recording of this test; what really happened."""
        self._stack.close()
        if self._recording is None:
            raise RuntimeError("nothing was recorded")
        return self._recording.report

    def _begin(self, marker: Optional[Any]) -> None:
        self._recording = self._stack.enter_context(self.recording())
        self.scenario = marker and self._stack.enter_context(self.playing(*marker.args, **marker.kwargs))


@pytest.fixture(scope="session")
def _vnic_sockets(request: Any) -> Iterator[Any]:
    given = request.config.getoption("--vnic-sockets")
    with contextlib.ExitStack() as stack:
        if not given:
            given = stack.enter_context(testing.start(request.config.getoption("--vnic-adapters"))).sockets
        yield given


@pytest.fixture
def vnic(request: Any, _vnic_sockets: Any) -> Iterator[Nic]:
    """A NIC that records; the daemon is the same for all tests of a run."""
    nic = Nic(_vnic_sockets)
    request.node._vnic = nic
    try:
        with nic._stack:
            nic._begin(request.node.get_closest_marker("vnic_scenario"))
            yield nic
    finally:
        nic.close()


@pytest.fixture
def vnic_adapters(vnic: Nic) -> List[str]:
    """Names of the NIC's adapters."""
    return vnic.adapters


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Iterator[None]:
    outcome = yield
    report, nic = outcome.get_result(), getattr(item, "_vnic", None)
    if call.when != "call" or not report.failed or nic is None:
        return
    try:
        said = str(nic.report())
        log = "\n".join(nic.scenario.log) if nic.scenario else ""
    except Exception as error:  # (What the test says is worth more.)
        said, log = str(error), ""
    report.sections.append(("vnic: what really happened", said))
    if log:
        report.sections.append(("vnic: the scenario", log))
