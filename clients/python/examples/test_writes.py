"""Tests of a program that writes from a device to another, under failures: the program is the one that $WRITES names."""

import os

import pytest

from vnic import v1

WRITES = os.environ.get("WRITES", "./writes")


@pytest.mark.vnic_scenario("port-flap", nic="vf0")
def test_a_flap_costs_nothing_but_time(vnic, vnic_adapters):
    vnic.run(vnic_adapters, [WRITES, "300"], check=True, timeout=600)
    report = vnic.report()
    assert len(report.outcomes) == 300
    assert not report.lies and not report.failed, report


def test_a_write_that_is_told_to_have_failed_may_be_there(vnic, vnic_adapters):
    lie = v1.VerbsFault(
        adapter="adapters/vf0", count=1, completion=v1.CompletionFault(lie="retry-exceeded")
    )
    with vnic.verbs_fault("liar", lie):
        assert vnic.run(vnic_adapters, [WRITES, "3"], timeout=600).returncode == 1
    assert [lie.verdict for lie in vnic.report().lies] == ["reported as failed; its data was written"]
