"""Decoders of files that another user or a crash can have written: runs, journals, settings, jobs, checkpoints."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from fuzzing.targets import RECORDINGS, Target, encoded, filed, text
from stallguard import config, jsontext, units
from stallguard.agent import job_memory, launchd, systemd
from stallguard.agent.job import AgentJob, Schedule, read_back
from stallguard.cli import logs, ls
from stallguard.collectors import stacks, surroundings
from stallguard.collectors.redact import Redactor
from stallguard.config.table import KEYS
from stallguard.core.learned import BatchSizes, Learned
from stallguard.errors import UNREADABLE, StallguardError
from stallguard.fleet.jobs import archive, fleet_page, job_table, readable_files
from stallguard.fleet.store import orders, records
from stallguard.probe.checkpoint import encoding, generations, names, tensors
from stallguard.probe.checkpoint.encoding import NotPlain
from stallguard.probe.checkpoint.saved_generation import AttemptRecords
from stallguard.probe.process_key import key as process_key
from stallguard.report import evidence_files, incident_history, sanitize
from stallguard.sensors.log_matcher import Matcher
from stallguard.storage import journal, learned_store, run_files
from stallguard.storage.paths import RunDir


def _of_stores() -> Iterator[Target]:
    """Yield the decoders of what a store has."""
    holder = records.Holder(host="studio", boot="a-boot", pid=4321, nonce="0123")
    file = records.StoredFile("p-1/fit-0001/g3/facts.json", 120, "0" * 64, "1-00000000")
    position = records.Position(1, 3, 40)
    entries: list[records.Entry] = [
        records.Claim(number=2, newest=4, at=run_files.utc(), holder=holder),
        records.Generation(number=2, newest=4, claim=5, run="a-run", files=(file,), position=position),
        records.HolderEnd(number=2, newest=6, claim=5, run="a-run", code=0, why="finished"),
    ]

    def stays_below(_data: bytes, entry: Any) -> None:
        for one in getattr(entry, "files", ()):
            place = Path("/checkpoints") / one.path
            assert place.is_relative_to("/checkpoints")
            assert ".." not in place.parts
            assert "/" not in one.name

    yield Target(
        "log of a job", [records.encode(one) for one in entries], records.decode, (records.Damaged,), stays_below
    )
    index = readable_files.Index(
        1, "a-run", "studio", run_files.utc(),
        (readable_files.Whole("run.json", 90, "1-2"), readable_files.Whole("incidents/1/stacks.txt", 9, "3-4")),
        (readable_files.Growing("output.log", 2, 1 << 20, 1 << 18, 1 << 19),),
    )  # fmt: skip

    def is_readable(_data: bytes, found: readable_files.Index) -> None:
        for path in [one.path for one in found.files] + [one.path for one in found.growing]:
            place = Path("/mirror") / found.run / path
            assert place.is_relative_to("/mirror")
            assert ".." not in place.parts
            assert path.startswith(("run.", "outcome.", "job.", "notif", "incidents/", "output.", "journal."))

    yield Target("index of a run", encoded(index), readable_files.decode_index, (records.Damaged,), is_readable)
    status = orders.RunStatus(
        1, run_files.utc(),
        {"state": "running", "rates": {"batches": 2.5}, "silent": 1.5, "effective": 0.9, "attempt": 2,
         "progress": {"epoch": 3, "epochs": 10, "batch": 4, "batches": 100, "loss": 0.5}},
    )  # fmt: skip

    def shown(data: bytes) -> Any:
        found = readable_files.decode_status(data)
        row = job_table.JobRow(job="a", state="running", heard=found.at, status=found.status)
        fleet = job_table.Fleet([row], [], [], ["a"])
        now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        return ls.live_job_line(row), fleet_page.make("file:///s", fleet, [], {}, {}, [], 0, "", now)

    yield Target("state of a job", encoded(status), shown, (records.Damaged,))
    row = job_table.JobRow(
        job="a", state="failed", machine="studio", number=2, since=run_files.utc(), run="a-run", newest=run_files.utc(),
        position=position, code=3, why="ValueError", is_submitted=True, by="ann@mini", needs={"metal": 1.0},
        command=["train.py", "--epochs", "2"], heard=run_files.utc(), status=status.status,
    )  # fmt: skip

    def listed(data: bytes) -> Any:
        found = archive.decoded(data, archive.Day)
        rows = found.jobs if found is not None else []
        now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        page = fleet_page.make("file:///s", job_table.Fleet(rows, [], [], []), [], {}, {}, [], 0, "", now)
        return [(ls.live_job_line(one), ls.job_line(one)) for one in rows], page

    yield Target("archive of jobs", encoded(archive.Day(1, [row])), listed, ())


WHO = run_files.Identity(4321, 12.5, "a-boot")
STEERS = frozenset(map(chr, (*range(9), *range(11, 32), *range(127, 160), 0x202E, 0x2066, 0x200B, 0xFEFF)))
FORMAT = 2  # of a checkpoint


def targets(place: Path) -> Iterator[Target]:
    yield from _of_runs(place)
    yield from _of_journals(place)
    yield from _of_settings(place)
    yield from _of_jobs()
    yield from _of_checkpoints(place)
    yield from _of_evidence(place)
    yield from _of_stores()


def _of_runs(place: Path) -> Iterator[Target]:
    run = RunDir(place / "run")
    run.path.mkdir()
    asked = run_files.RunRequest(
        2, "a-run", ["train.py", "--lr", "0.1"], ["python", "train.py"], "/home/me", run_files.utc(), WHO,
        control="/x/control", config={"stop": {"grace": 10.0}}, origins={"stop.grace": "default"},
    )  # fmt: skip
    end = run_files.Outcome(2, 1, "gave up: no progress", run_files.utc(), 60.5, 900, 2, 3, 12.5)
    yield Target("run.json", encoded(asked), filed(run.asked, lambda _path: run_files.asked(run)))
    with contextlib.suppress(OSError):
        run.asked.unlink()
    outcome = run.path / "outcome.json"
    yield Target(
        "outcome.json", encoded(end), filed(outcome, lambda _path: (run_files.outcome(run), run_files.state(run)))
    )
    with contextlib.suppress(OSError):
        outcome.unlink()
    channels = run_files.Notified(1, [run_files.ChannelRecord("the desktop", 3, 1, "it ended with exit code 1")])
    yield Target(
        "notifications.json", encoded(channels), filed(run.notifications, lambda _path: run_files.notifications(run))
    )
    seen = incident_history.Sighting(
        run.id, 1e9, "stall", "wait-3fa91c", "device-wait", "step", "train.py:3 in main", 1
    )
    incidents = run.path / incident_history.KEPT
    yield Target(
        "incidents.json",
        encoded(incident_history._KeptSightings(incident_history.VERSION, (0, 0), (seen,))),
        filed(incidents, lambda _path: incident_history.named(incident_history.of_run(run), 1e9)),
    )
    incidents.unlink(missing_ok=True)
    attempt = run_files.AttemptRecord(1, 2, WHO, 77, "/x/stallguard-12345678")
    yield Target(
        "attempt.json",
        encoded(attempt),
        filed(run_files.attempt_file(run), lambda _path: run_files.recall_attempt(run)),
    )
    key = learned_store.CommandKey(("train.py", "--lr"), "/home/me", "digest", "machine")
    learned = [learned_store.Kept(3, key, 1e9, sizes=BatchSizes(rows=8)), learned_store.Kept(3, key, 1e9, Learned())]
    yield Target(
        "what was learned", encoded(*learned), lambda data: _or_none(lambda: jsontext.decode(data, learned_store.Kept))
    )
    memory = job_memory.JobMemory(run="a-run", trouble="it failed", wanted=True)
    yield Target(
        "job's memory", encoded(memory), lambda data: _or_none(lambda: jsontext.decode(data, job_memory.JobMemory))
    )
    saved = journal._Snapshot(1, "0", run.id, journal.JournalPosition(1, 10, b"x"), b"d" * 32, b"v" * 40)
    path = journal.snapshot_file(run)
    yield Target("saved core", [msgspec.msgpack.encode(saved)], filed(path, lambda _path: journal.load_snapshot(run)))


def _or_none(decode: Any) -> Any:
    with contextlib.suppress(*UNREADABLE):
        return decode()
    return None


def _of_journals(place: Path) -> Iterator[Target]:
    recorded = (RECORDINGS / "journals" / "h200_keras_torch_lock.jsonl").read_bytes().splitlines()
    lines = sorted({line for line in recorded[:: max(1, len(recorded) // 60)] if len(line) < 1500})
    path = place / "journal.jsonl"

    def read(path: Path) -> Any:
        return [*journal.read(path)], [*journal.events(path)]

    yield Target("journal, events", lines, filed(path, read))
    yield Target("journal, shown line", lines, lambda data: logs.as_text(data, 0.0), (), _is_visible)
    path.unlink(missing_ok=True)


def _is_visible(_data: bytes, shown: Any) -> None:
    assert not shown or not STEERS & set(shown), "text that steers a terminal"


def _of_settings(place: Path) -> Iterator[Target]:
    whole = b"".join(
        f"# a remark\n[{section}]\n".encode()
        + b"".join(
            f"{key.path.rpartition('.')[2]} = {json.dumps(key.kind.show(key.default))}\n".encode()
            for key in KEYS.values() if key.path.rpartition(".")[0] == section
        )
        for section in ("policy", "stop", "notify", "run")
    )  # fmt: skip
    short = b'[policy]\non_stall = "halve"\nmax_restarts = 5\n[notify]\nurls = ["mailto://x"]\non = ["stall"]\n'

    def load(path: Path) -> Any:
        return config.load({}, {}, path.parent)

    project = place / "project"
    project.mkdir()
    yield Target("settings, TOML", [short, whole], filed(project / config.OWN, load), (StallguardError,))
    pyproject = b"[tool.stallguard.run]\nresume = \"last\"\n[project]\nname = 'x'\n"
    (project / config.OWN).unlink(missing_ok=True)
    yield Target("settings, pyproject", [pyproject], filed(project / config.SHARED, load), (StallguardError,))
    values = [b"90s", b"1h30m", b"2d", b"1.5GB", b"512 MiB", b"50%", b"23:30", b"0", b"never"]

    def measured(word: str) -> Any:
        return [
            _or_none(lambda read=read: read(word)) for read in (units.duration, units.size, units.share, units.clock)
        ]

    yield Target("settings, values", values, text(measured))
    given = [b"run.resume=last", b"policy.causes=lock=halve,oom=cpu", b"detector.grace=2s", b"notify.on=stall,finish"]

    def from_option(word: str) -> Any:
        return config.load(config.parse_set([word]), {}, project)

    (project / config.SHARED).unlink(missing_ok=True)
    yield Target("settings, --set", given, text(from_option), (StallguardError,))


def _of_jobs() -> Iterator[Target]:
    job = AgentJob(
        "night", "/bin/python", ("train.py", "--lr"), "/home/me", "/x/night.log", Schedule(("23:00",)), {"A": "b c"}
    )

    def program(data: bytes) -> Any:
        return read_back(launchd.program(data))

    binary = b"bplist00\xd1\x01\x02_\x10\x10ProgramArguments\xa1\x03Qx\x08\x0b\x1e \x00\x00\x00\x00\x00\x00\x01\x01"
    yield Target("property list of a job", [launchd.render(job), binary + bytes(24)], program)
    unit_text = systemd.service_text(job).encode()

    def service(word: str) -> Any:
        return read_back(systemd.program(word)), systemd.stop_timeout(word)

    yield Target("unit of a job", [unit_text], text(service))
    shown = b"LoadState=loaded\nActiveState=active\nSubState=running\nMainPID=123\nExecMainStatus=1\nExecMainCode=1\n"
    yield Target("systemctl show", [shown], text(systemd.parse_show))


def _of_checkpoints(place: Path) -> Iterator[Target]:
    import numpy

    values = [
        {"a": [1, 2.5, "x", None, True], "b": {1, 2}, "c": (1, b"x", 2j)}, [0.5] * 80, numpy.less, [numpy.float32(1)],
        numpy.random.default_rng(3), numpy.random.RandomState(3), {"deep": [{"er": [list]}]},
    ]  # fmt: skip
    samples = []
    for value in values:
        arrays: list[Any] = []
        samples.append(json.dumps(encoding.encode(value, arrays)).encode())
    samples += [
        json.dumps({"#": kind, "of": of, "at": at}).encode()
        for kind, of, at in (
            ("value", "pathlib:PosixPath", "/a"), ("value", "datetime:date", "2026-11-22"),
            ("member", "re:RegexFlag", "A"),
            ("value", "os:system", "true"), ("name", "", "os:system"), ("generator", "numpy:test", [1]),
        )
    ]  # fmt: skip
    held = [numpy.arange(6.0), numpy.zeros((2, 3), "int64"), numpy.arange(80.0)]

    def decoded(data: bytes) -> Any:
        code = json.loads(data)
        encoding.refused(code)
        return encoding.decode(code, held)

    bad = (NotPlain, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
    words = (
        b"os:system",
        b"builtins:eval",
        b"subprocess:Popen",
        b'"#":',
        b'"at":',
        b'"of":',
        b"numpy:load",
        b"shutil:rmtree",
    )
    yield Target("checkpoint, values", samples, decoded, bad, None, words)
    facts = {
        "format": FORMAT, "tensors": [["float32", [2]]], "identity": {"rate": 0.1}, "epoch": 1, "executions": 3,
        "drawn": 3,
        "ends": [[True, 3]], "epochs": 5, "finished": False, "stop": False, "unkept": {}, "prints": {}, "entries": [],
        "random": {"now": {"#": "dict", "at": []}}, "history": [], "blobs": [[0, 8, zlib.crc32(bytes(8))]],
    }  # fmt: skip
    folder = place / "process" / "fit-0001" / "g1"
    folder.mkdir(parents=True)
    (folder / "tensors.bin").write_bytes(bytes(8))
    records = AttemptRecords(str(place), "process", resuming=True)

    def found(data: bytes) -> Any:
        (folder / "facts.json").write_bytes(b"%08x\n" % zlib.crc32(data) + data)  # so that it comes past the checksum
        return [saved.groups() if "groups" in saved.facts else saved for saved in records.found(1, [])]

    yield Target("checkpoint, facts", encoded(facts), found, (LookupError, TypeError))
    whole = generations.read_facts, b"%08x\n" % zlib.crc32(b"{}") + b"{}"

    def annotated(data: bytes) -> Any:
        (folder / "next.json").write_bytes(data)
        return whole[0](str(folder), generations.NEXT)

    yield Target(
        "checkpoint, annotation", [whole[1]], annotated, (generations.DamagedGeneration, ValueError, RecursionError)
    )
    meta = [["float32", [2]], ["int64", []], ["bfloat16", [4]]]

    def unpacked(data: bytes) -> Any:
        return tensors.unpack(json.loads(data), [memoryview(bytes(8))] * 3)

    yield Target("checkpoint, arrays", encoded(meta, [["object", [1]]], [["float64", [1]]]), unpacked, bad)
    yield Target("checkpoint, names", [b"numpy:less", b"os:system", b"keras.ops:less", b"__main__:x"],
                 text(lambda word: names.can_be_kept(names.resolved(word))))  # fmt: skip


def _of_evidence(place: Path) -> Iterator[Target]:
    dumps = [path.read_bytes()[:1500] for path in sorted((RECORDINGS / "stacks").glob("*.txt"))[:6]]

    def grouped(word: str) -> Any:
        return stacks.parse(word), stacks.read(word, "/home/me"), [*evidence_files.fold(word, "/home/me")]

    yield Target("stacks of faulthandler", dumps, text(grouped))
    samples = [path.read_bytes()[:1200] for path in sorted((RECORDINGS / "macos").glob("sample_*"))]
    yield Target("sample (macOS)", samples, text(stacks.parse_sample))
    gdb = b"Thread 1 (LWP 7):\n#0  0x00007f in futex_wait () from /lib/libc.so.6\n#1  0x55 in main (argc=1) at a.c:3\n"
    yield Target("gdb", [gdb], text(stacks.parse_gdb))
    reports = [
        path.read_bytes() for path in sorted((RECORDINGS / "macos").glob("*")) if path.suffix in (".ips", ".json")
    ]
    yield Target("crash reports (macOS)", reports, text(surroundings.parse_report))
    manifest = {
        "seconds": 1.5,
        "size": 10,
        "where": "train.py:3",
        "removed": {"known": 1},
        "items": [{"name": "x", "state": "y"}],
    }
    incident = place / "incident"
    incident.mkdir()
    yield Target(
        "manifest of evidence",
        encoded(manifest),
        filed(incident / "manifest.json", lambda _p: evidence_files.manifest(incident)),
    )
    lines = b"Epoch 3/10\r 12/400 [==>...] - loss: 0.5\nRESOURCE_EXHAUSTED: OOM when allocating tensor\nTraceback:\n"

    def fed(data: bytes) -> Any:
        matcher = Matcher()
        return matcher.feed(data[: len(data) // 2], 1.0) + matcher.feed(data[len(data) // 2 :], 2.0)

    yield Target("output, searched", [lines, *(path.read_bytes() for path in (RECORDINGS / "macos").glob("std*"))], fed)

    def shown(data: bytes) -> str:
        word = data.decode(errors="replace")
        return sanitize.plain(word) + "\n".join(sanitize.screen(data, 20, 100)) + sanitize.json_text(data).decode()

    yield Target("output, shown", [lines, b"\x1b[31mred\x1b[0m \x9b2J \xe2\x80\xae\n"], shown, (), _is_visible)
    redactor = Redactor({"API_TOKEN": "planted-token-1"}, ["--password", "planted-word-2"], "/home/me")

    def cleaned(data: bytes) -> bytes:
        return redactor.data(data)

    def has_no_secret(_data: bytes, clean: Any) -> None:
        assert b"planted-token-1" not in clean, "a known secret"
        assert b"planted-word-2" not in clean, "a known secret"

    printed = b"token=abc planted-token-1 https://u:pw@host/x\n--password planted-word-2 a@b.com"
    yield Target("output, redacted", [printed], cleaned, (), has_no_secret)
    words = [b"train.py --lr 0.1", b"-m pkg --rows=8"]
    yield Target("words of a process", words, text(lambda word: process_key(word.split(), "/", {})))
