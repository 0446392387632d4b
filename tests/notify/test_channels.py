"""The channels of notifications: a command, the desktop."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from stallguard import notify
from stallguard.notify import channels
from stallguard.notify.channels import Channel
from tests.host.children import eventually, is_alive


def note(kind: str = "run.finished", text: str = "x", title: str = "t") -> notify.Notification:
    return notify.notification(kind, title, text, "20261120-230001-train")


def test_a_command_gets_the_words_as_environment_and_as_json_not_as_code(tmp_path: Path) -> None:
    words = '"$STALLGUARD_EVENT|$STALLGUARD_RUN_ID|$STALLGUARD_TITLE|$STALLGUARD_TEXT"'
    send = channels.command_sender(f'printf "%s" {words} > {tmp_path}/out; cat > {tmp_path}/in', dict(os.environ))

    send(note("training.stalled", "$(touch /tmp/no) `no` 'quoted'", "train"))

    run = "20261120-230001-train"
    assert (tmp_path / "out").read_text() == f"stall|{run}|train|$(touch /tmp/no) `no` 'quoted'"
    given = json.loads((tmp_path / "in").read_text())
    assert given.pop("time").endswith("Z")
    assert given == {
        "schema": 1, "event": "stall", "message": "training.stalled", "title": "train",
        "text": "$(touch /tmp/no) `no` 'quoted'", "run": run,
    }  # fmt: skip


def test_a_command_that_reads_nothing_is_no_failure() -> None:
    channels.command_sender("exec true", dict(os.environ))(note(text="x" * 100_000))


def test_a_command_that_hangs_is_ended_with_what_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "DEADLINE", 1.0)
    announced: list[str] = []
    send = channels.command_sender(f"sleep 600 & echo $! > {tmp_path}/pid; wait", dict(os.environ))
    sending = notify.Notifier([Channel("the command", send)], announced.append)
    sending.notify(note(), 0.0)
    sending.close()

    assert announced == ["notifications by the command are not sent: it did not end within 1 s"]
    child = int((tmp_path / "pid").read_text())
    assert eventually(lambda: not is_alive(child), 20)


def test_a_command_that_fails_is_not_quoted() -> None:
    announced: list[str] = []
    failing = channels.command_sender("exit 3 # token=hunter2", dict(os.environ))
    sending = notify.Notifier([Channel("the command", failing)], announced.append)
    sending.notify(note(), 0.0)
    sending.close()

    assert announced == ["notifications by the command are not sent: it ended with exit code 3"]


@pytest.mark.parametrize(
    ("platform", "found", "there"), [("darwin", None, True), ("linux", None, False), ("linux", "x", True)]
)
def test_the_desktop_is_used_where_there_is_one(platform: str, found: str | None, there: bool) -> None:
    assert (channels.desktop(lambda _: found, platform) is not None) == there
