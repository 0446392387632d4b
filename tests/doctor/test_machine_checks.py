"""The checks of the machine."""

from __future__ import annotations

from stallguard.doctor.checks import examine
from stallguard.doctor.facts import OK, PlaceFacts
from stallguard.host.types import Sleep

from .scene import GB, MAC, spoiled


def test_a_file_system_is_reported_once_however_many_places_are_on_it():
    shared = (PlaceFacts("runs", "/a", True, 99 * GB, 7), PlaceFacts("results", "/b", True, 99 * GB, 7))
    assert sum(finding.name == "disk" for finding in examine(spoiled(MAC, places=shared))) == 1


def test_a_sleep_setting_is_no_fault_because_a_run_holds_it_off():
    found = [f for f in examine(spoiled(MAC, preferences__sleep=Sleep(600.0))) if f.name == "sleep"]
    assert [(f.severity, "10 min" in f.what) for f in found] == [(OK, True)]
