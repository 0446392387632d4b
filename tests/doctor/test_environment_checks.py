"""Which versions load together."""

from __future__ import annotations

import itertools
import re

import pytest

from stallguard.core.diagnosis import causes
from stallguard.doctor import environment_checks
from stallguard.doctor.environment_checks import pair, release, tensorflow_version
from stallguard.doctor.facts import FAIL, NOTE, OK, WARN, Installed

from .scene import MAC, spoiled


@pytest.mark.parametrize(
    ("tensorflow", "plugin", "how"),
    [
        # symbols compared in the wheels
        ("2.16.2", "1.2.0", "loads"),
        ("2.16.2", "1.1.0", "loads"),
        ("2.17.1", "1.1.0", "loads"),
        ("2.17.1", "1.2.0", "loads"),
        ("2.18.1", "1.1.0", "breaks"),
        ("2.18.1", "1.2.0", "loads"),
        ("2.19.1", "1.1.0", "breaks"),
        ("2.19.1", "1.2.0", "loads"),
        ("2.20.0", "1.1.0", "breaks"),
        ("2.20.0", "1.2.0", "breaks"),
        ("2.21.0", "1.2.0", "breaks"),
        # Apple's table
        ("2.9.2", "0.5.0", "loads"),
        ("2.13.0", "1.0.0", "loads"),
        ("2.15.1", "1.1.0", "loads"),
        # no source says it
        ("2.12.0", "1.2.0", "untested"),
        ("2.13.0", "0.5.0", "untested"),
        ("2.18.0", "0.5.0", "untested"),
        ("2.18.0", "1.3.0", "untested"),
        ("", "1.2.0", "untested"),
    ],
)
def test_a_pair_is_judged_as_the_wheels_and_apple_say(tensorflow, plugin, how):
    assert pair(tensorflow, plugin) == how


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("2.16.2", (2, 16, 2)), ("2.22.0rc0", (2, 22, 0)), ("2.15.0.post1", (2, 15, 0)), ("nonsense", ()), ("", ())],
)
def test_a_version_is_read_up_to_its_last_plain_number(version, numbers):
    assert release(version) == numbers


def test_the_shell_called_tensorflow_macos_does_not_hide_the_library():
    assert tensorflow_version({"tensorflow-macos": "2.16.2", "tensorflow": "2.18.1"}) == "2.18.1"
    assert tensorflow_version({"tensorflow-macos": "2.12.0"}) == "2.12.0"
    assert tensorflow_version({"keras": "3.0"}) == ""


# What the documents say, by plug-in and TensorFlow.  tensorflow-metal: Apple's table and the symbols of the wheels, as
# above.  tensorflow-metal-plugin: its README, "Requires macOS 15 or later on Apple silicon, and TensorFlow 2.21",
# "offers no device if the two disagree".
DOCUMENTS = {
    "1.1.0": {"2.16.2": OK, "2.17.1": OK, "2.18.1": FAIL, "2.19.1": FAIL, "2.20.0": FAIL, "2.21.0": FAIL},
    "1.2.0": {"2.16.2": OK, "2.17.1": OK, "2.18.1": OK, "2.19.1": OK, "2.20.0": FAIL, "2.21.0": FAIL},
    "community": dict.fromkeys(("2.16.2", "2.17.1", "2.18.1", "2.19.1", "2.20.0"), WARN) | {"2.21.0": NOTE},
}
# The wheels on the index for macOS on arm64: which Pythons can have what loads.
WHEELS = {"1.1.0": "3.9 3.10 3.11", "1.2.0": "3.9 3.10 3.11 3.12", "community": "3.10 3.11 3.12 3.13"}
PACKAGES = {
    "none": {}, "1.1.0": {"tensorflow-metal": "1.1.0"}, "1.2.0": {"tensorflow-metal": "1.2.0"},
    "community": {"tensorflow-metal-plugin": "0.4.1"},
    "both": {"tensorflow-metal": "1.2.0", "tensorflow-metal-plugin": "0.4.1"},
}  # fmt: skip
PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
SYSTEMS = ("13.7", "14.7.1", "15.0", "15.7", "26.1", None)  # None: not known
MACS = {  # stallguard's own machine, the interpreter's
    "arm64": ({"machine": "arm64", "rosetta": False}, "arm64", False),
    "Rosetta": ({"machine": "arm64", "rosetta": False}, "x86_64", True),
    "all under Rosetta": ({"machine": "x86_64", "rosetta": True}, "x86_64", True),
    "Intel": ({"machine": "x86_64", "rosetta": None}, "x86_64", None),
}


def documented(tensorflow, plugin, python, macos, mac):
    """Return the severity that the documents give an environment; "" if nothing is to be said."""
    if "Rosetta" in mac:
        return FAIL
    if mac == "Intel":
        return WARN if PACKAGES[plugin] else ""
    if plugin in ("none", "both"):
        return WARN
    if plugin == "community" and macos and int(macos.split(".")[0]) < 15:
        return FAIL
    said = DOCUMENTS[plugin][tensorflow]
    known = python in WHEELS[plugin].split() and (plugin != "community" or macos)
    return said if known or said == FAIL else WARN


def test_each_mac_is_told_what_the_documents_say_of_its_pair():
    product = itertools.product(DOCUMENTS["1.2.0"], PACKAGES, PYTHONS, SYSTEMS, MACS)
    wrong, cases = [], 0
    for tensorflow, plugin, python, macos, mac in product:
        about, machine, translated = MACS[mac]
        version = (*map(int, python.split(".")), 1)
        packages = {"tensorflow": tensorflow, **PACKAGES[plugin]}
        installed = Installed("/env/bin/python", version, machine=machine, translated=translated, packages=packages)
        facts = spoiled(MAC, environment__installed=installed, about={**about, "version": macos})
        found = [*environment_checks.rosetta(facts), *environment_checks.plugin(facts)]
        worst = max((severity for severity, *_ in found), key=(OK, NOTE, WARN, FAIL).index, default="")
        cases += 1
        if worst != documented(tensorflow, plugin, python, macos, mac) or len(found) > 1:
            wrong.append((tensorflow, plugin, python, macos, mac, found))
        assert all(cure for severity, _, cure in found if severity in (WARN, FAIL))
    assert wrong[:3] == []
    assert cases == 6 * 5 * 6 * 6 * 4


def test_the_pair_that_is_recommended_has_wheels_for_the_pythons_that_are_named():
    names = dict(re.findall(r"'([\w-]+)==([\d.]+)'", causes.PIN))
    assert pair(names["tensorflow"], names["tensorflow-metal"]) == "loads"
    first, last = environment_checks.PLUGINS[names["tensorflow-metal"]].pythons
    assert f"Python {'.'.join(map(str, first))} to {'.'.join(map(str, last))}" == causes.PIN_PYTHONS


def test_what_is_said_not_to_work_is_what_the_tables_have():
    (metal, tensorflow, python) = re.findall(r"\d+\.\d+(?:\.\d+)?", causes.PIN_LIMITS)
    span = environment_checks.PLUGINS[metal]
    assert release(tensorflow) == (2, span.last[1] + 1)
    assert release(python) == (3, span.pythons[1][1] + 1)
    version, theirs, macos = re.search(
        r"plugin ([\d.]+),.* TensorFlow ([\d.]+) and macOS (\d+)", causes.COMMUNITY
    ).groups()
    needs = environment_checks.COMMUNITY_PLUGINS[version]
    assert (release(theirs), release(macos)) == (needs.tensorflow, needs.macos)
