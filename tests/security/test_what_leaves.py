"""Files that leave the machine contain no planted secret: bundle, report as page and JSON, profile, speedscope."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import stallguard.cli
from stallguard.core.profile import TRAINING
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir
from stallguard.storage.stack_samples import CodeLine
from tests.collectors import made_up
from tests.report import sampled
from tests.report.nights import night

SECRETS = {
    "in an argument": "planted-argument-1",
    "in an option": "planted-option-22",
    "of a variable": "planted-variable-333",
    "in an address": "planted-address-4444",
    "in the output": "hf_planted" + "5" * 24,
    "in a message": "ghp_planted" + "6" * 24,
    "in a stack": "planted-stack-777777",
    "in a name of a function": "AKIA" + "P" * 16,
    "in the evidence": "sk-planted" + "8" * 24,
}
KEY = "-----BEGIN RSA PRIVATE KEY-----\nplanted-key-99999\n-----END RSA PRIVATE KEY-----\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunDir]:
    place = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STALLGUARD_HOME", str(place))
        patch.setenv("DATABASE_PASSWORD", SECRETS["of a variable"])
        patch.setenv("SERVICE_TOKEN", SECRETS["in a stack"])
        patch.chdir(place)
        made = night(place, minutes=4, stalls=1)
        plant(made)
        yield made


def plant(made: RunDir) -> None:
    address = f"postgres://me:{SECRETS['in an address']}@host/db"
    command = [
        "train.py", "--api-key", SECRETS["in an option"], f"--token={SECRETS['in an argument']}", address,
        f"--note={SECRETS['in a stack']}",
    ]  # fmt: skip
    asked = run_files.asked(made)
    run_files.keep_asked(made, msgspec.structs.replace(asked, command=command, argv=command))
    printed = [around.format(secret) for around, secret in made_up.MADE.values()]
    said = "\n".join([*SECRETS.values(), f"key {SECRETS['of a variable']} in {address}", KEY, *printed])
    made.output.write_text(said)
    lines = []
    for line in made.journal.read_bytes().splitlines():
        fields = msgspec.json.decode(line)
        if fields.get("message"):
            fields["message"] += " ".join(printed).replace("\n", " ")
            fields["message"] += f" {SECRETS['in a message']} {address} {SECRETS['in an option']}"
        if "where" in fields:
            fields["where"] = f"/{SECRETS['in a message']}/train.py:3"
        lines.append(msgspec.json.encode(fields))
    made.journal.write_bytes(b"\n".join(lines) + b"\n")
    for path in made.incident(1).iterdir():
        if path.suffix in (".txt", ".log"):
            path.write_text(f"{path.read_text()}\n{said}")
    place = f"/home/me/{SECRETS['in a stack']}/train.py"
    stack = [CodeLine(place, 3, f"work_{SECRETS['in a name of a function']}"), *sampled.FIT]
    sampled.write(made, 7, sampled.samples((TRAINING, "step", stack, 60_000)))


def printed(words: list[str], monkeypatch: pytest.MonkeyPatch) -> bytes:
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    monkeypatch.setattr(sys, "stdout", out)
    with pytest.raises(SystemExit) as end:
        stallguard.cli.main(words)
    assert end.value.code in (0, 1)
    return out.buffer.getvalue()  # type: ignore[attr-defined]


def leaks(data: bytes) -> list[str]:
    forms = {form: secret for form, (_, secret) in made_up.MADE.items()}
    planted = {**SECRETS, "key": "planted-key", **forms}
    return [where for where, secret in planted.items() if secret.encode() in data]


@pytest.mark.parametrize(
    "words",
    [
        ["report", "--json"], ["report", "--html", "-"], ["report"], ["debug", "profile", "--json"],
        ["debug", "profile", "--speedscope", "-"], ["debug", "profile"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_no_secret_is_in(words: list[str], run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    data = printed([*words, str(run.path)], monkeypatch)

    assert len(data) > 200
    assert leaks(data) == []


@pytest.mark.costly
def test_no_secret_is_in_the_bundle(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    data = printed(["debug", "bundle", str(run.path), "-o", "-"], monkeypatch)
    found, names = [], set()
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            names.add(Path(member.name).name)
            assert member.isreg()
            assert member.mode == 0o600
            found += leaks(archive.extractfile(member).read()) + leaks(member.name.encode())  # type: ignore[union-attr]

    assert names >= {"journal.jsonl", "run.json", "output.log"}
    assert found == []


def test_the_page_opens_no_connection_and_runs_no_foreign_script(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of functions and files of the profile are in the page too: its flame graph is drawn from them."""
    evil = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=2>"
    stack = [CodeLine(f"/home/me/{evil}.py", 3, evil), *sampled.FIT]
    before = (run.probe / "7.profile").read_bytes()
    sampled.write(run, 7, sampled.samples((TRAINING, evil, stack, 60_000)))
    try:
        page = printed(["report", str(run.path), "--html", "-"], monkeypatch).decode()
    finally:
        (run.probe / "7.profile").write_bytes(before)

    assert "<script>window" not in page
    assert "<img src=x" not in page
    assert page.count("<script") == page.count("</script>")
    assert json.dumps("default-src 'none'")[1:-1] in page.replace("&#39;", "'")
