"""What `--json` prints is what docs/journal.md says: every verb, every field, the number of the schema."""

from __future__ import annotations

import json
import re
import sys
import types
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from stallguard.cli.verbs import cli
from stallguard.core.actions import AnyAction
from stallguard.core.events import AnyEvent
from stallguard.report import narrative
from stallguard.storage import journal, paths, run_files
from stallguard.supervisor.live_status import LiveStatus, snapshot
from tests.report import nights
from tests.simulation.simulation import Simulation

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def checks():
    """The module that makes the reference."""
    sys.path.insert(0, str(ROOT / "scripts" / "checks"))
    try:
        import json_reference

        import docs
    finally:
        sys.path.pop(0)
    return types.SimpleNamespace(verbs=docs.verbs, reference=json_reference)


def unwritten(value: Any, hint: Any, at: str = "") -> list[str]:
    """Return the places in `value` that its type does not know."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        fields = {one.encode_name: one for one in msgspec.structs.fields(hint)}
        hints = typing.get_type_hints(hint)
        known = {name: hints[one.name] for name, one in fields.items()} | {str(hint.__struct_config__.tag_field): str}
        found = [f"{at}.{name}" for name in value if name not in known]
        return found + [
            place for name in value if name in known for place in unwritten(value[name], known[name], f"{at}.{name}")
        ]
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        each = [unwritten(value, one, at) for one in inner if fits(value, one)]
        return min(each, key=len) if each else [f"{at}: {value!r}"]
    if origin is dict:
        return [place for name, one in value.items() for place in unwritten(one, inner[1], f"{at}.{name}")]
    if origin in (list, tuple) and inner:
        return [place for one in value for place in unwritten(one, inner[0], f"{at}[]")]
    return []


def fits(value: Any, hint: Any) -> bool:
    if hint is msgspec.UnsetType:
        return False
    try:
        msgspec.convert(value, hint)
    except msgspec.ValidationError:
        return False
    return True


def conforms(text: str | bytes, *kinds: Any, schema: int = 1) -> Any:
    """Check that a text is one of the types, and has no field that the reference does not have; return it."""
    value = json.loads(text)
    hint = typing.Union[kinds] if len(kinds) > 1 else kinds[0]  # noqa: UP007 - made here
    matching = [one for one in kinds if fits(value, one)]
    assert matching, [msgspec.convert(value, one) for one in kinds]
    assert unwritten(value, hint) == []
    assert value["schema"] == schema
    return value


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A night with two stalls, and no settings or jobs of whoever runs the tests."""
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    run = nights.night(tmp_path, minutes=5)
    run_files.keep_asked(
        run, run_files.RunRequest(1, run.id, ["train.py"], ["python", "train.py"], str(tmp_path),
        "2026-03-07T10:00:00Z",
                              run_files.Identity(1, 0.0, "another"), config={}, origins={}),
    )  # fmt: skip
    run_files.conclude(run, run_files.Outcome(1, 0, "finished", "2026-03-07T10:05:00Z", 300.0, 6000, 2, 3, 40.0))
    return tmp_path


SETTINGS = ["--set", "detector.patience=2"]
PRINTED = {
    "agent list": [[]],
    "agent status": [["--name", "nightly"]],
    "debug bundle": [[]],
    "config show": [[]],
    "incidents": [[]],
    "tune learned show": [[]],
    "ls": [["--all"], ["--live"]],
    "morning": [["--since", "9999d"]],
    "notify": [["--test", "--set", "notify.desktop=off", "--set", "notify.command=exit 7"]],
    "debug prune": [["--runs", "1", "--dry-run"]],
    "debug replay": [SETTINGS, ["--compare", *SETTINGS]],
    "report": [[]],
    "status": [[]],
}
# Of these the types are what is printed, too; they want a training, or many seconds, and are tried where they are.
ELSEWHERE = {
    "tune compare",
    "doctor",
    "debug dump",
    "tune find-batch",
    "fleet machines",
    "logs",
    "debug profile",
    "fleet submit",
    "fleet sweep",
}


def verbs_with_json(checks) -> dict[str, list[type]]:
    return {
        name: checks.reference.outputs(name, command)
        for name, command in checks.verbs(cli)
        if checks.reference.has_json(command)
    }


def test_every_verb_with_json_is_tried_here_or_elsewhere(checks):
    assert verbs_with_json(checks).keys() == PRINTED.keys() | ELSEWHERE


@pytest.mark.costly
@pytest.mark.parametrize(("verb", "options"), [(verb, each) for verb, all_of in PRINTED.items() for each in all_of])
def test_what_is_printed_is_what_the_reference_says(home, checks, verb, options):
    result = CliRunner().invoke(cli, [*verb.split(), *options, "--json"])
    kinds = verbs_with_json(checks)[verb]

    conforms(result.stdout, *kinds, schema=checks.reference.schema_of(kinds[0]))


@pytest.mark.costly
def test_the_lines_of_a_journal_are_what_the_reference_says(home):
    lines = CliRunner().invoke(cli, ["logs", "--json"]).stdout.splitlines()
    assert len(lines) > 300
    for line in lines:
        value = json.loads(line)
        if value["event"] in narrative.MESSAGES:
            assert value["message"]
            assert unwritten(value, journal.JournalLine) in ([], [".event"])
        else:
            every = {f".{name}" for name in journal.JournalLine.__struct_fields__}
            assert set(unwritten(value, AnyEvent | AnyAction)) <= every


def test_the_files_of_a_run_are_what_the_reference_says(home):
    run = paths.find_run("night")
    conforms(run.asked.read_bytes(), run_files.RunRequest)
    conforms((run.path / "outcome.json").read_bytes(), run_files.Outcome)


def test_the_snapshot_of_a_run_that_lives_is_what_the_reference_says():
    world = Simulation(several=True)
    world.start(11, 0.05)
    world.start(12, 0.5)
    world.go_on(40)
    world.leave(11)
    shown = conforms(msgspec.json.encode(snapshot("night", world.run, world.now)), LiveStatus)

    assert [one["how"] for one in shown["trainings"]] == ["ended", ""]
    assert shown["judgement"]
    assert shown["readings"]
    conforms(msgspec.json.encode(snapshot("night", None, 0.0)), LiveStatus)


@pytest.mark.costly
def test_a_field_without_a_meaning_and_a_meaning_without_a_field_are_refused(checks, monkeypatch):
    every = list(checks.verbs(cli))
    monkeypatch.setitem(checks.reference.MEANINGS, "ls.ListedRun.no_such", "nothing")
    monkeypatch.delitem(checks.reference.MEANINGS, "ls.ListedRun.id")
    with pytest.raises(
        ValueError, match=r"without a meaning .*: ls\.ListedRun\.id; .* of no field: ls\.ListedRun\.no_such"
    ):
        checks.reference.Reference().text(every)


def test_a_verb_that_does_not_name_what_it_prints_is_refused(checks):
    import click

    bare = click.Command("bare", params=[click.Option(["--json"], is_flag=True)])
    with pytest.raises(ValueError, match="does not say what it prints"):
        checks.reference.Reference().text([("bare", bare)])


def test_every_link_of_the_reference_leads_somewhere():
    text = (ROOT / "docs" / "journal.md").read_text()
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-") for title in titles}

    assert len(titles) == len(anchors)
    assert set(re.findall(r"\]\(#([^)]*)\)", text)) <= anchors
