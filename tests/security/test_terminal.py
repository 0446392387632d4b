"""Nothing that another user wrote steers the terminal, through any verb.

The verbs are those of the command line itself: a new one is called here without a change, alone and with a run.
"""

from __future__ import annotations

import ast
import io
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest

import stallguard.cli
from stallguard.cli.verbs import cli
from stallguard.storage import paths, run_files
from stallguard.storage.paths import RunDir
from stallguard.supervisor.control import Control
from tests.security import hostile_home
from tests.security.hostile_home import ESCAPES, STEERING

SCRIPT = "from pathlib import Path\nPath('ran').touch()\n"
# Verbs that would wait for a training of minutes, install into the service manager, or replace this process.
APART = {
    "run": "below, on a terminal", "top": "below, on a terminal", "agent work": "its words are those of `run`",
    "mcp": "it writes the protocol's JSON to a client; tests/cli/test_agent_tools.py",
}  # fmt: skip
TRAINS = ("drill",)  # what starts a training without any words
# More than the name of a run and an option with the escapes, which each verb gets.
MORE: dict[str, list[list[str]]] = {
    "logs": [["-n", "3"], ["--output"], ["--output", "-n", "2"], ["--json"]],
    "report": [["--html", "-"], ["--html", f"/nowhere/{ESCAPES}"]],
    "debug profile": [["--speedscope", "-"], ["--speedscope", f"/nowhere/{ESCAPES}"]],
    "debug bundle": [["-o", "-"], ["-o", f"/nowhere/{ESCAPES}"]],
    "debug replay": [["--set", f"detector.grace={ESCAPES}"], [f"/{ESCAPES}"]],
    "config get": [["notify.command"], ["run.python"]],
    "config set": [["notify.command", ESCAPES], [ESCAPES, ESCAPES]],
    "config show": [["--all"]],
    "debug prune": [["--dry-run"], ["--dry-run", "--age", "0s", "--runs", "1"]],
    "morning": [["--since", "40000d"], ["--since", "40000d", "--notify"]],
    "incidents": [["--json"]],
    "ls": [["--all"], ["--live"]],
    "tune learned forget": [["--all"]],
    "agent show": [["--at", "23:00", "--", f"train{ESCAPES}.py"], ["--name", "night"]],
    "agent logs": [["--name", "night"]],
    "agent status": [["--name", "night"]],
    "agent install": [["--at", ESCAPES, "--", "train.py"], ["--at", "23:00", "--env", ESCAPES, "--", "train.py"]],
    "tune compare": [["--env", f"{ESCAPES}=1,2", "--", "train.py"], ["--batch", ESCAPES, "--", "train.py"]],
    "tune find-batch": [["--set", f"{ESCAPES}=1", "--", "train.py"], ["--", f"/nowhere/{ESCAPES}"]],
    "doctor": [["--python", f"/nowhere/{ESCAPES}"]],
    "drill": [["--python", f"/nowhere/{ESCAPES}"], ["--kind", ESCAPES]],
    "completion": [[ESCAPES]],
    "notify": [["--test", "--set", f"notify.urls={ESCAPES}"]],
}


def verbs(group: click.Group = cli, before: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Yield each verb of the command line, those in groups too."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from verbs(found, (*before, name))
        yield " ".join((*before, name)), found


VERBS = dict(verbs())


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal, and keeps what is written."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), "utf-8", errors="surrogatepass", write_through=True)

    def isatty(self) -> bool:
        return True

    def text(self) -> str:
        return self.buffer.getvalue().decode(errors="surrogateescape")  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunDir]:
    """Return a run in a home, a project and an environment that all are hostile."""
    place, project = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STALLGUARD_HOME", str(place))
        patch.setenv("HOME", str(place))
        patch.setenv("XDG_CONFIG_HOME", str(place / "config"))
        patch.setenv("XDG_STATE_HOME", str(place / "state"))
        patch.setenv("NO_COLOR", "1")
        patch.setenv("TERM", "dumb")
        patch.setenv("COLUMNS", "200")
        patch.setenv("VIRTUAL_ENV", f"/{ESCAPES}")
        patch.setenv("STALLGUARD_NAME", ESCAPES)
        patch.setenv("PATH", str(project / "bin"))  # no manual reader, no launchctl, no systemctl
        patch.chdir(project)
        (project / "train.py").write_text(SCRIPT)
        settings = {"notify": {"command": ESCAPES, "urls": [ESCAPES]}, "run": {"python": f"/{ESCAPES}"}}
        lines = (f"{name} = {msgspec.json.encode(value).decode()}" for name, value in settings["notify"].items())
        toml = "[notify]\n" + "\n".join(lines).replace("\x7f", "\\u007f")
        (project / "stallguard.toml").write_text(toml)
        made = hostile_home.build(place, place / "config" / "systemd" / "user")
        (place / "state" / "stallguard" / "log").mkdir(parents=True)
        (place / "state" / "stallguard" / "log" / "night.log").write_bytes(ESCAPES.encode() + b"\x9b\n")
        yield made


@pytest.fixture
def live(night: RunDir, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunDir]:
    """Return a run that lives, whose answers are hostile."""
    place = paths.socket_dir("/tmp")
    run = paths.RunDir(night.path.parent / "live")
    control = Control(place / "control", lambda _event: None, time.monotonic, lambda: hostile_home.snapshot("live"))
    made = hostile_home.run_of(run.path.parent, "live", control=str(control.path))
    asked = run_files.asked(made)
    run_files.keep_asked(made, msgspec.structs.replace(asked, supervisor=run_files.identity(os.getpid())))
    yield made
    control.close()
    paths.remove_sockets(place)
    shutil.rmtree(made.path)


def shown(words: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what the command line writes to a terminal; it must not end with a trace or an error of its own."""
    out, said = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", said)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(SystemExit) as end:
        stallguard.cli.main(words)
    text = out.text() + said.text()
    assert end.value.code != 125, text  # "stallguard itself failed"
    return text


def steers(text: str) -> list[str]:
    return [character for character in STEERING if character in text] + [
        character for character in text if "\udc80" <= character <= "\udcff"
    ]


def calls(name: str, run: RunDir) -> list[list[str]]:
    """Return the arguments that a verb is called with."""
    takes = {parameter.name for parameter in VERBS[name].params}
    options = {option for parameter in VERBS[name].params for option in parameter.opts}
    found: list[list[str]] = [[f"--{ESCAPES}"], ["--help"], *([] if name in TRAINS else [[ESCAPES]])]
    if takes & {"run", "what"}:
        found.append([str(run.path)] if "run" in takes else [run.id])
    if name not in TRAINS and all(not one.required for one in VERBS[name].params):
        found.append([])
    if "--json" in options:
        found += [["--json"], ["--json", str(run.path)] if "run" in takes else ["--json"]]
    for more in MORE.get(name, []):
        found.append(more)
        if takes & {"run", "what"}:
            found.append([*more, str(run.path)])
    return found


@pytest.mark.costly
@pytest.mark.parametrize("name", sorted(set(VERBS) - set(APART)))
def test_no_verb_lets_text_of_others_steer_the_terminal(
    name: str, night: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in calls(name, night):
        found = steers(shown([*name.split(), *words], monkeypatch))
        assert not found, (name, words, found)


@pytest.mark.parametrize(
    "name",
    ["status", "ls --live", "debug dump", "stop", "debug mute", "restart", "logs", "ls", "report", "debug profile"],
)
def test_no_answer_of_a_live_run_steers_the_terminal(name: str, live: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in ([], ["--json"], [live.id], ["--run", live.id]):
        found = steers(shown([*name.split(), *words], monkeypatch))
        assert not found, (name, words, found)


def test_an_own_error_with_its_trace_steers_nothing(night: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError(ESCAPES)

    monkeypatch.setattr("stallguard.cli.verbs.invoke", lambda _words: fail())
    out = Terminal()
    monkeypatch.setattr(sys, "stderr", out)
    with pytest.raises(SystemExit):
        stallguard.cli.main(["--debug", "ls"])

    assert "Traceback" in out.text()
    assert not steers(out.text())


def test_completion_shows_no_escapes(night: RunDir) -> None:
    """A shell shows the help of what it offers, and inserts the word."""
    words = {"_STALLGUARD_COMPLETE": "zsh_complete", "COMP_WORDS": "stallguard report ", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-m", "stallguard"], env=os.environ | words, capture_output=True, check=True, timeout=120
    )
    assert b"over" in done.stdout
    assert not steers(done.stdout.decode())


def test_every_verb_prints_through_the_one_place_that_makes_text_visible() -> None:
    """`click.echo`, `print` and writes to the streams exist only there."""
    allowed = {
        "_console.py": {"click.echo", "sys.stdout.buffer"},
        "_errors.py": {"click.echo"},
        "rehearsal.py": {"click.echo"},  # lines with colours of its own
        "debug.py": {"sys.stdout.buffer"},  # an archive, and not to a terminal
        "__init__.py": {"sys.stderr.write"},  # a trace
    }
    words = {"click.echo", "click.secho", "print", "sys.stdout.buffer", "sys.stdout.write", "sys.stderr.write"}
    found = {}
    for path in sorted(Path(stallguard.cli.__file__).parent.glob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text()))
        used = {ast.unparse(node) for node in nodes if isinstance(node, (ast.Attribute, ast.Name))} & words
        if used:
            found[path.name] = used
    assert found == allowed
