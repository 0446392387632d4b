"""The sample beside launchd/README.md is what the code makes."""

from __future__ import annotations

import plistlib
import re
import tomllib

from stallguard.agent import launchd
from stallguard.agent.launchctl_answers import ANSWERS
from tests.agent.launchd_schema import mistakes
from tests.agent.sample import FILE, JOB

README = FILE.with_name("README.md").read_text()


def test_the_sample_is_what_the_code_renders():
    assert FILE.read_bytes() == launchd.render(JOB), "renew it: python -m tests.agent.sample"


def test_the_sample_starts_the_python_that_uv_makes_for_this_distribution():
    """`uv tool install .` makes DATA/uv/tools/NAME, by the name of the distribution."""
    name = tomllib.loads((FILE.parent.parent / "pyproject.toml").read_text())["project"]["name"]
    assert plistlib.loads(FILE.read_bytes())["ProgramArguments"][0].endswith(f"/uv/tools/{name}/bin/python")


def test_the_sample_is_valid_by_launchds_manual():
    assert mistakes(plistlib.loads(FILE.read_bytes())) == []


def test_every_number_in_the_readme_is_known_to_the_code():
    numbers = {int(text) for row in re.findall(r"^\| ([\d, ]+) \|", README, re.MULTILINE) for text in row.split(",")}
    assert numbers - {78} <= set(ANSWERS)
    assert len(numbers) > 7


def test_the_readme_explains_keys_that_are_there():
    explained = re.findall(r"^\| `(\w+)` \|", README, re.MULTILINE)
    assert set(explained) <= set(plistlib.loads(FILE.read_bytes()))
    assert len(explained) > 9
