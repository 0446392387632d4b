"""Which versions load together."""

from __future__ import annotations

import pytest

from stallguard.doctor.environment_checks import pair, release, tensorflow_version


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
