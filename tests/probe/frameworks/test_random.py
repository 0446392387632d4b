"""Python's generators: seeded from their beginning, and to the script the same classes."""

from __future__ import annotations

import sys

import pytest

from tests.probe.attempts import LOOK, Attempts


@pytest.mark.costly
def test_the_program_sees_the_same_classes_and_no_other_modules(receiver, tmp_path, any_python):
    attempts = Attempts(receiver, tmp_path, LOOK + "print(json.dumps(facts))", any_python)
    modules = {name for name in attempts.draws("")["modules"] if name.partition(".")[0] != "_stallguard_probe"}
    seen, bare = attempts.draws(), attempts.draws("", STALLGUARD_OWNER="1")
    extra = set(seen.pop("modules")) - modules - set(bare.pop("modules"))
    assert {name.rpartition(".")[0] for name in extra} <= {"_stallguard_probe", "_stallguard_probe.frameworks"}
    assert seen == bare


def test_generators_that_are_there_before_the_probe_are_seeded_too(receiver, tmp_path):
    """A .pth file of a package runs before it."""
    base = sys._base_executable
    user = tmp_path / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    user.mkdir(parents=True)
    (user / "early.pth").write_text("import random; random.early = True\n")
    code = "import json, random; print(json.dumps([random.early, random.random(), random.Random().random()]))"
    attempts = Attempts(receiver, tmp_path, code, base)
    first, second = (attempts.draws(PYTHONUSERBASE=str(tmp_path)) for _ in range(2))
    assert first == second
    assert first[0] is True
