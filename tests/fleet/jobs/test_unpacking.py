"""Unpacking a project: whole or not at all, nothing outside of its folder, and removed if no job uses it."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallguard.fleet.jobs import packing, unpacking
from stallguard.fleet.store.records import Damaged
from tests.damage import change_last_byte

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def packed(tmp_path, **files):
    place, out = tmp_path / f"p{len(files)}", tmp_path / f"out{len(files)}"
    for name, content in files.items():
        path = place / name.replace("__", "/").replace("_py", ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    out.mkdir()
    return packing.pack(("-m", "x"), place, out, {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")})


def archive(tmp_path, *members):
    """Return an archive as no packing makes it, and its digest.  `members`: (name, type, link, size)."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as target:
        for name, kind, link, size in members:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.size = kind, link, size
            target.addfile(entry, io.BytesIO(b"x" * size))
    path = tmp_path / "bad.tar.gz"
    path.write_bytes(made.getvalue())
    return path, hashlib.sha256(made.getvalue()).hexdigest()


def left(home):
    return [path for path in home.rglob("*") if path.is_file() and path.name != unpacking.LOCK]


def test_a_project_comes_back_as_it_was_and_is_used_again(tmp_path):
    code, file, *_ = packed(tmp_path, train_py="x", lib__net_py="y")
    assert unpacking.present(code.digest, "job") is None
    folder = unpacking.unpack(file, code.digest, "job")
    assert (folder / "train.py").read_text() == "x"
    assert (folder / "lib/net.py").read_text() == "y"
    (folder / "model.keras").write_text("of the job")
    file.unlink()
    assert unpacking.unpack(file, code.digest, "job") == folder == unpacking.present(code.digest, "job")
    assert (folder / "model.keras").exists()


def test_links_that_lead_in_a_circle_are_files_of_a_project_as_others(tmp_path):
    project = unpacking.unpack(
        *archive(
            tmp_path,
            ("self", tarfile.SYMTYPE, "self", 0),
            ("d/x", tarfile.SYMTYPE, "y", 0),
            ("d/y", tarfile.SYMTYPE, "x", 0),
            ("train.py", tarfile.REGTYPE, "", 1),
        ),
        "job",
    )
    assert sorted(str(path.relative_to(project)) for path in project.rglob("*")) == [
        "d", "d/x", "d/y", "self", "train.py",
    ]  # fmt: skip


def test_a_project_is_unpacked_also_below_a_path_with_two_dots(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "here" / ".." / "home"))
    assert (unpacking.unpack(*archive(tmp_path, ("a..b", tarfile.REGTYPE, "", 1)), "job") / "a..b").is_file()


def test_two_jobs_of_the_same_code_have_folders_of_their_own(tmp_path):
    code, file, *_ = packed(tmp_path, train_py="x")
    first, second = (unpacking.unpack(file, code.digest, job) for job in ("a", "b"))
    (first / "train.py").write_text("changed by its own script")
    assert (second / "train.py").read_text() == "x"


def test_another_content_than_that_of_the_digest_is_refused_and_leaves_nothing(tmp_path, home):
    code, file, *_ = packed(tmp_path, train_py="x")
    change_last_byte(file)
    with pytest.raises(Damaged, match="does not match its digest"):
        unpacking.unpack(file, code.digest, "job")
    assert left(home) == []


@pytest.mark.parametrize(
    "members",
    [
        [("../out", tarfile.REGTYPE, "", 1)],
        [("a/../../../out", tarfile.REGTYPE, "", 1)],
        [("/tmp/stallguard-out", tarfile.REGTYPE, "", 1)],
        [("link", tarfile.SYMTYPE, "/etc", 0), ("link/passwd", tarfile.REGTYPE, "", 1)],
        [("link", tarfile.SYMTYPE, "../..", 0)],
        [("a/b/up", tarfile.SYMTYPE, "../..", 0), ("out", tarfile.SYMTYPE, "a/b/up/../x", 0)],
        [("out", tarfile.SYMTYPE, "a/b/up/../x", 0), ("a/b/up", tarfile.SYMTYPE, "../..", 0)],
        [("lib", tarfile.SYMTYPE, "a", 0), ("a/x", tarfile.REGTYPE, "", 1), ("lib/y", tarfile.REGTYPE, "", 1)],
        [("file", tarfile.REGTYPE, "", 1), ("file/below", tarfile.REGTYPE, "", 1)],
        [("device", tarfile.CHRTYPE, "", 0)],
        [("pipe", tarfile.FIFOTYPE, "", 0)],
        [("hard", tarfile.LNKTYPE, "/etc/passwd", 0)],
        [("same", tarfile.REGTYPE, "", 1), ("same", tarfile.REGTYPE, "", 1)],
        [("big", tarfile.REGTYPE, "", 2000)],
        [(f"file{number}", tarfile.REGTYPE, "", 0) for number in range(12)],
    ],
)
def test_what_leads_out_or_takes_too_much_is_refused_and_leaves_nothing(tmp_path, home, monkeypatch, members):
    monkeypatch.setattr(unpacking, "MOST", 1000)
    monkeypatch.setattr(unpacking, "FILES", 10)
    before = set(tmp_path.iterdir())
    with pytest.raises(Damaged):
        unpacking.unpack(*archive(tmp_path, *members), "job")
    assert left(home) == []
    assert {path.name for path in set(tmp_path.iterdir()) - before} <= {"bad.tar.gz", "home"}
    assert not Path("/tmp/stallguard-out").exists()


def test_what_is_no_archive_is_refused(tmp_path, home):
    for content in (b"", b"text", gzip.compress(b"text"), gzip.compress(b"\0" * 700)[:-9]):
        path = tmp_path / "bad"
        path.write_bytes(content)
        with pytest.raises(Damaged):
            unpacking.unpack(path, hashlib.sha256(content).hexdigest(), "job")
    assert left(home) == []


@pytest.mark.costly
def test_several_processes_at_once_get_one_whole_folder(tmp_path):
    code, file, *_ = packed(tmp_path, **{f"lib__f{number}_py": "x" * 1000 for number in range(200)})
    text = (
        "import sys; from pathlib import Path; from stallguard.fleet.jobs import unpacking;"
        "f = unpacking.unpack(Path(sys.argv[1]), sys.argv[2], 'job');"
        "print(f, len(list(f.rglob('*.py'))))"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", text, file, code.digest],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for _ in range(4)
    ]  # fmt: skip
    said = {one.communicate()[0] for one in started}
    assert [one.returncode for one in started] == [0] * 4
    assert len(said) == 1
    assert said.pop().split()[1] == "200"
    assert len(list((unpacking.home() / code.digest).iterdir())) == 2  # the folder and its marker


def test_the_folder_of_the_command_is_there_also_if_it_is_empty_and_never_outside(tmp_path):
    code, file, *_ = packed(tmp_path, train_py="x")
    folder = unpacking.unpack(file, code.digest, "job")
    assert unpacking.working_folder(folder, "") == folder
    assert unpacking.working_folder(folder, "out/today").is_dir()
    for below in ("..", "../..", "/etc"):
        with pytest.raises(Damaged):
            unpacking.working_folder(folder, below)


def test_what_no_job_uses_is_removed_and_what_a_job_uses_stays(tmp_path):
    code, file, *_ = packed(tmp_path, train_py="x")
    folders = {job: unpacking.unpack(file, code.digest, job) for job in ("old", "new", "busy", "back")}
    for job in ("old", "busy", "back"):
        os.utime(folders[job].with_name(f".{job}.used"), (1, 1))
    unpacking.present(code.digest, "back")
    assert unpacking.remove_unused({"busy"}) == [folders["old"]]
    assert [job for job, folder in folders.items() if folder.exists()] == ["new", "busy", "back"]
    assert unpacking.remove_unused((), kept=-1) == sorted(folders[job] for job in ("new", "busy", "back"))
    assert list(unpacking.home().glob("*/*")) == []


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.floats(-100, 200)), st.floats(0, 50), st.sets(st.sampled_from("abc"))
)
def test_only_what_is_old_and_of_no_job_here_is_removed(ages, kept, busy):
    removed = {path.name for path in unpacking.unused({Path(n): 100 - a for n, a in ages.items()}, 100, kept, busy)}
    assert removed == {name for name, age in ages.items() if 100 - (100 - age) > kept and name not in busy}
