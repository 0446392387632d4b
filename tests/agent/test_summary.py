"""A job sends the summary of its night when it ends, if notify.on has `morning`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from msgspec.structs import replace

import stallguard.cli.agent as verbs
from stallguard.agent import job_memory, launchd
from stallguard.agent.job import AgentJob
from stallguard.storage.paths import list_runs
from tests.agent.little_launchd import LittleLaunchd

ROOT = Path(__file__).parent.parent.parent


def test_without_morning_in_its_settings_a_job_sends_no_summary(monkeypatch):
    sent = []
    monkeypatch.setattr(verbs, "_notify", lambda *words: sent.append(words))
    verbs._send_summary("night", ("--set", "notify.on=finish", "--", "train.py"), [])
    assert sent == []
    verbs._send_summary("night", ("--set", "notify.on=morning", "--", "train.py"), [])
    assert len(sent) == 1


def test_a_job_sends_the_summary_of_its_night_when_it_ends(tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "kept"))
    (tmp_path / "train.py").write_text("print('done')")
    names = ("PATH", "TMPDIR", "STALLGUARD_TEST_SESSION", "STALLGUARD_HOME")
    env = {name: os.environ[name] for name in names if name in os.environ} | {
        "PYTHONPATH": str(ROOT), "HOME": str(tmp_path),
    }  # fmt: skip
    tell = f'printf \'%s: %s\\n\' "$STALLGUARD_EVENT" "$STALLGUARD_TEXT" >> {tmp_path}/sent'
    options = ("--python", sys.executable, "--set", "notify.desktop=off", "--set", "notify.on=finish,morning", "--set",
               f"notify.command={tell}")  # fmt: skip
    job = AgentJob(
        name="night", python=sys.executable, run=(*options, "--", str(tmp_path / "train.py")), cwd=str(tmp_path),
        log=str(tmp_path / "night.log"), env=env,
    )  # fmt: skip
    job_memory.keep("night", replace(job_memory.recall("night"), wanted=True))
    little = LittleLaunchd(launchd.render(job))
    little.start()
    assert little.wait(90)

    (run,) = list_runs()
    text = (tmp_path / "sent").read_text()
    assert [line.partition(":")[0] for line in text.splitlines() if not line.startswith(" ")] == ["finish", "morning"]
    assert "train.py: finished" in text.partition("morning: ")[2]
    assert run.id in text.partition("morning: ")[2]
