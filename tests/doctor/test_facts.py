"""The facts of the doctor, and the worst of its findings."""

from __future__ import annotations

from stallguard.doctor.checks import examine
from stallguard.doctor.facts import FAIL, OK, worst

from .scene import LINUX, MAC, packages, spoiled


def test_the_gravest_finding_is_the_verdict():
    assert worst(examine(MAC)) == OK
    assert worst(examine(spoiled(MAC, machine__power="battery", machine__lid_closed=True))) == FAIL
    assert worst([]) == OK


def test_metal_is_no_matter_on_linux():
    facts = packages(LINUX, tensorflow_metal="1.2.0")
    assert not [finding for finding in examine(facts) if finding.name == "plug-in"]
