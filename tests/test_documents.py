"""The hand-written documents name what the code has: each cause with its remedy, each bottleneck, the versions."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from stallguard.cli.run import RunCommand
from stallguard.cli.verbs import HELP, OLD_FORMS, cli
from stallguard.core.bottleneck_kinds import KINDS
from stallguard.core.diagnosis.causes import (
    CAUSES,
    COMMUNITY,
    FINISH,
    PIN,
    PIN_LIMITS,
    PIN_PYTHONS,
    STOP,
    Remedy,
    title,
)

ROOT = Path(__file__).parents[1]
REPORTED, ENDS = "Reported, without a restart", "The run ends"


def rows(document: str) -> list[tuple[str, str, list[str]]]:
    """Return (heading, key, other cells) of each row whose first cell is a key of the code."""
    heading, found = "", []
    for line in (ROOT / document).read_text("utf-8").splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif match := re.match(r"\| (`[a-z`, or-]+`) \|(.*)\|$", line):
            cells = [cell.strip() for cell in match[2].split("|")]
            found += [(heading, key, cells) for key in re.findall(r"`([a-z0-9-]+)`", match[1])]
    return found


def steps(remedy: Remedy) -> str:
    """Return the steps of a remedy as docs/causes.md writes them."""
    return ", ".join(remedy.ladder).replace("cpu", "CPU") + ("+" if remedy.persists else "")


def test_each_cause_has_one_row_and_each_row_a_cause() -> None:
    assert sorted(key for _, key, _ in rows("docs/causes.md")) == sorted(CAUSES)


@pytest.mark.parametrize("key", sorted(CAUSES))
def test_the_row_of_a_cause_has_its_sentence_and_its_remedy(key: str) -> None:
    remedy = CAUSES[key].remedy
    ((heading, cells),) = [(heading, cells) for heading, name, cells in rows("docs/causes.md") if name == key]
    assert cells[0].split(";")[0] == title(key, phase="step")
    if remedy.ladder:
        written = re.split(r"; |, after ", cells[1])[0]
        assert written == steps(remedy)
    else:
        assert heading == (ENDS if remedy.instead in (STOP, FINISH) else REPORTED)


def test_each_kind_of_slowness_has_one_row() -> None:
    assert sorted(key for _, key, _ in rows("docs/slow.md")) == sorted(KINDS)


def test_the_readme_installs_the_pair_that_the_doctor_names() -> None:
    lines = [line for line in (ROOT / "README.md").read_text("utf-8").splitlines() if "tensorflow-metal==" in line]
    assert [line.strip() for line in lines] == [PIN]
    text = " ".join((ROOT / "README.md").read_text("utf-8").replace("`", "").split())
    assert f"With {PIN_PYTHONS}, these do: {PIN} " in text
    assert f"{PIN_LIMITS}." in text
    assert COMMUNITY.removeprefix("the community's ") in text


def test_the_readme_is_read_in_five_minutes():
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 1000


def texts() -> Iterator[tuple[str, str]]:
    """Yield (file, text) of each document, and of each module of the product and its scripts."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        of_code = name.endswith(".py") and name.startswith(("stallguard/", "scripts/"))
        if of_code or (name.endswith(".md") and name != "CHANGELOG.md"):
            yield name, (ROOT / name).read_text("utf-8")


def fault(words: list[str]) -> str:
    """Return what is wrong with a command, given as its words after `stallguard`; empty: nothing."""
    command: click.Command = cli
    while isinstance(command, click.Group):
        words = words[next((at for at, word in enumerate(words) if word[:1] != "-"), len(words)) :]
        if not words or not re.fullmatch("[a-z-]+", words[0]):  # the group itself, or VERB
            return ""
        found = command.get_command(click.Context(command), words[0])
        if found is None:
            return f"there is no verb {words[0]}"
        command, words = found, words[1:]
    known = {"-h", "--help", *(one for p in command.params for one in (*p.opts, *p.secondary_opts))}
    if isinstance(command, RunCommand):
        words = words[: command.command_begins(words)]
    for word in words:
        if re.match(r"--$|[|#&>]", word):  # the rest is for the shell
            return ""
        option = re.match(r"\[?(--[a-z-]+)", word)
        if option and option[1] not in known:
            return f"it has no option {option[1]}"
    return ""


def test_each_command_that_is_named_exists_and_is_no_old_form() -> None:
    old = re.compile(rf"stallguard\s+(?:{'|'.join([HELP, *OLD_FORMS])})\b(?!-)")
    commands = re.compile(r"`stallguard\s+([^`]+)`|^ {2,}stallguard ([^\n`]+)$", re.MULTILINE)
    wrong = [f"{name}: {found[0]}" for name, text in texts() for found in old.finditer(text)]
    for name, text in texts():
        for found in commands.finditer(text):
            words = (found[1] or found[2]).split()
            if why := fault(words):
                wrong.append(f"{name}: stallguard {' '.join(words)}: {why}")
    assert wrong == []
