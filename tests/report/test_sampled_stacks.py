"""The file for speedscope has what its published format requires, and all the time of the samples."""

from __future__ import annotations

import json

from hypothesis import given

from stallguard import jsontext
from stallguard.core.profile import FEEDER, TRAINING
from stallguard.report import sampled_stacks
from stallguard.report.sampled_stacks import SampledTraining
from stallguard.storage.stack_samples import StackSamples
from tests.report.sampled import FIT, any_samples, of_keras, samples
from tests.report.test_flame_graph import training_of

# speedscope's src/lib/file-format-spec.ts, from which its JSON schema is made.
UNITS = {"none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"}
FRAME = {"name": str, "file": str, "line": int, "col": int}
PROFILE = {"type": str, "name": str, "unit": str, "startValue": int, "endValue": int, "samples": list, "weights": list}
FILE = {
    "$schema": str, "shared": dict, "profiles": list, "name": str, "activeProfileIndex": int, "exporter": str,
}  # fmt: skip


def conforms(text: bytes) -> dict:
    """Check a file against the format; return it."""
    value = json.loads(text)
    assert value["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert {"shared", "profiles"} <= value.keys() <= FILE.keys()
    assert all(type(item) is FILE[name] for name, item in value.items())
    frames = value["shared"]["frames"]
    for frame in frames:
        assert "name" in frame
        assert all(type(item) is FRAME[name] for name, item in frame.items())
    for profile in value["profiles"]:
        assert profile.keys() == PROFILE.keys()
        assert all(type(item) is PROFILE[name] for name, item in profile.items())
        assert profile["type"] == "sampled"
        assert profile["unit"] in UNITS
        assert len(profile["samples"]) == len(profile["weights"]) > 0
        assert all(0 <= number < len(frames) for stack in profile["samples"] for number in stack)
        assert all(stack for stack in profile["samples"])
        assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])
    assert 0 <= value["activeProfileIndex"] < max(1, len(value["profiles"]))
    return value


def of(*trainings: SampledTraining) -> dict:
    return conforms(jsontext.readable(sampled_stacks.speedscope_file("a run", trainings)))


@given(any_samples())
def test_any_samples_make_a_file_of_the_format_with_all_their_time(value: StackSamples):
    made = of(training_of(value))

    weights = sum(sum(profile["weights"]) for profile in made["profiles"])
    assert weights == sum(one.milliseconds for one in value.stacks)


def test_there_is_a_profile_for_each_training_and_role_with_whole_stacks_below_the_phase():
    made = of(training_of(of_keras(), 7), training_of(samples((TRAINING, "step", FIT, 900)), 8))

    assert [profile["name"] for profile in made["profiles"]] == [
        "attempt 1, process 7: training thread",
        "attempt 1, process 7: threads that feed it",
        "attempt 1, process 8: training thread",
    ]
    frames = made["shared"]["frames"]
    stack = [frames[number] for number in made["profiles"][0]["samples"][0]]
    assert stack[0] == {"name": "phase: step"}
    assert stack[1] == {"name": "<module>", "file": "/home/me/train.py", "line": 17}
    assert len(stack) == 1 + len(FIT)
    assert made["profiles"][0]["weights"] == [40_000, 6_000, 4_000]
    assert made["profiles"][0]["samples"][0] == made["profiles"][2]["samples"][0]  # frames are shared


def test_a_training_whose_file_is_not_readable_is_left_out():
    whole = training_of(samples((FEEDER, "step", FIT, 900)))
    made = of(whole, SampledTraining(2, 9, "", 0.0, whole.profile, None))

    assert [profile["name"] for profile in made["profiles"]] == ["attempt 1: threads that feed it"]
