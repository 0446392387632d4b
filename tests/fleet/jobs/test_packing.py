"""Packing a project for another machine: the same bytes each time, and nothing that cannot work there."""

from __future__ import annotations

import os
import subprocess
import tarfile

import pytest

from stallguard.errors import StallguardError
from stallguard.fleet.jobs import packing

ENV = {
    "PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b",
}  # fmt: skip


def git(folder, *words):
    subprocess.run(["git", *words], cwd=folder, env=ENV, check=True, capture_output=True)


def made(place, files, *, is_repository=True):
    for name, content in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(content)
    if is_repository:
        git(place, "init", "-q")
    return place


def packed(place, *words, tmp_path, below="", **options):
    out = tmp_path / f"out-{len(list(tmp_path.iterdir()))}"
    out.mkdir()
    env = {**ENV, "HOME": str(tmp_path / "home")}
    return packing.pack(words or ("train.py",), place / below, out, env, **options)


def content(archive):
    with tarfile.open(archive) as source:
        return {one.name: one.linkname or source.extractfile(one).read().decode() for one in source}


FILES = {"train.py": "x = 1\n", "lib/net.py": "y = 2\n", ".gitignore": "data/\n*.log\n", "data/big": "0", "a.log": "l"}


def test_what_git_knows_and_what_it_does_not_ignore_is_packed(tmp_path):
    place = made(tmp_path / "p", FILES)
    git(place, "add", "train.py", "lib")
    git(place, "commit", "-qm", "first")
    (place / "new.py").write_text("z = 3\n")
    (place / "lib" / "net.py").write_text("y = 4\n")
    made(place / ".venv", {"pyvenv.cfg": "", "lib/site.py": ""}, is_repository=False)
    made(place / "env3", {"pyvenv.cfg": "", "lib/site.py": ""}, is_repository=False)
    made(place / "__pycache__", {"train.cpython-311.pyc": ""}, is_repository=False)
    code, archive, *_ = packed(place, tmp_path=tmp_path)
    assert content(archive) == {
        ".gitignore": FILES[".gitignore"], "lib/net.py": "y = 4\n", "new.py": "z = 3\n", "train.py": "x = 1\n",
    }  # fmt: skip
    assert (code.changed, len(code.revision), code.folder) == (True, 40, "")
    assert archive.stat().st_size == code.size


def test_equal_projects_are_equal_bytes_whoever_packs_them_when_and_where(tmp_path):
    first = made(tmp_path / "p", FILES)
    second = made(tmp_path / "elsewhere" / "q", dict(reversed(FILES.items())), is_repository=False)
    for path in (second / "data/big", second / "a.log"):
        path.unlink()
    for path in (*second.iterdir(), second / "lib/net.py"):
        os.utime(path, (5, 5))
    (second / "train.py").chmod(0o600)
    one, other = packed(first, tmp_path=tmp_path), packed(second, tmp_path=tmp_path)
    assert one.code.digest == other.code.digest
    assert one.archive.read_bytes() == other.archive.read_bytes()
    (second / "train.py").chmod(0o700)
    assert packed(second, tmp_path=tmp_path).code.digest != one.code.digest


def test_a_revision_is_packed_as_it_was_committed(tmp_path):
    place = made(tmp_path / "p", FILES)
    git(place, "add", ".")
    git(place, "commit", "-qm", "first")
    before = packed(place, tmp_path=tmp_path)
    assert not before.code.changed
    (place / "train.py").write_text("broken")
    code, archive, *_ = packed(place, tmp_path=tmp_path, revision="HEAD")
    assert content(archive)["train.py"] == "x = 1\n"
    assert (code.digest, code.revision, code.changed) == (before.code.digest, before.code.revision, False)
    for revision in ("nowhere", "--output=/tmp/x"):
        with pytest.raises(StallguardError, match="there is no revision"):
            packed(place, tmp_path=tmp_path, revision=revision)


def test_the_folder_of_the_command_and_the_files_of_a_submodule_are_found(tmp_path):
    place = made(tmp_path / "p", {"jobs/train.py": "", "lib.py": ""})
    made(place / "vendor", {"net.py": "n"})
    git(place / "vendor", "add", ".")
    git(place / "vendor", "commit", "-qm", "first")
    git(place, "add", "jobs", "lib.py")
    code, archive, *_ = packed(place, tmp_path=tmp_path, below="jobs")
    assert code.folder == "jobs"
    assert sorted(content(archive)) == ["jobs/train.py", "lib.py", "vendor/net.py"]
    assert not code.revision


def test_a_link_inside_is_kept_and_a_file_that_git_knows_but_is_deleted_is_left_out(tmp_path):
    place = made(tmp_path / "p", {"train.py": "", "conf/a": "1", "gone.py": ""})
    (place / "conf" / "now").symlink_to("../conf/a")
    git(place, "add", ".")
    (place / "gone.py").unlink()
    assert content(packed(place, tmp_path=tmp_path).archive) == {
        "conf/a": "1", "conf/now": "../conf/a", "train.py": "",
    }  # fmt: skip


@pytest.mark.parametrize("is_repository", [True, False])
@pytest.mark.parametrize("target", ["../outside", "/etc/hosts", "lib/../../x", ".."])
def test_a_link_that_leads_out_is_refused(tmp_path, target, is_repository):
    place = made(tmp_path / "p", {"train.py": ""}, is_repository=is_repository)
    (place / "data").symlink_to(target)
    with pytest.raises(StallguardError, match=f"data is a symbolic link to {target}, outside"):
        packed(place, tmp_path=tmp_path)


def test_a_project_that_is_too_large_is_refused_with_its_largest_files(tmp_path):
    place = made(tmp_path / "p", {"train.py": "", "weights": "0" * 900, "small": "0" * 200})
    with pytest.raises(StallguardError) as refused:
        packed(place, tmp_path=tmp_path, most=1000)
    assert "weights (900 B), small (200 B)" in refused.value.why
    assert packed(place, tmp_path=tmp_path, most=1100).code.size > 0


SECRET = {
    ".env": "A=1", "api/.env.production": "A=1", ".ssh/id_rsa": "k", "deploy/.aws/credentials": "k",
    "certs/host.pem": "k", ".netrc": "k", "kaggle.json": "k", "secrets.toml": "k",
    "keys/Server.PEM": "k", "fleet-mini.toml": "k", "fleet-authority.json": "k",
}  # fmt: skip
HARMLESS = {".env.example": "A=", "keys/id_rsa.pub": "k", "environment.yml": "", "credentials/reader.py": ""}


@pytest.mark.parametrize("how", ["folder", "known to git", "not ignored by git", "revision"])
def test_files_that_hold_secrets_are_never_sent_and_named(tmp_path, how):
    place = made(tmp_path / "p", {**FILES, **SECRET, **HARMLESS}, is_repository=how != "folder")
    options = {"revision": "HEAD"} if how == "revision" else {}
    if how in ("known to git", "revision"):
        git(place, "add", "--force", ".")
        git(place, "commit", "-qm", "x")
    found = packed(place, tmp_path=tmp_path, **options)
    names = content(found.archive)
    assert not SECRET.keys() & names.keys()
    assert HARMLESS.keys() <= names.keys()
    assert set(found.secrets) == SECRET.keys()
    assert (found.files, found.size) == (len(names), sum(map(len, names.values())))
    said = "\n".join(found.lines())
    assert f"in {len(names)} files; " in said
    assert "not sent, because such files hold secrets: " in said
    assert "and 6 more (a line !NAME in .stallguardignore sends one)" in said


def test_the_project_says_itself_what_is_sent(tmp_path):
    own = "# data\n/data/\n*.npz\n!certs/host.pem\n"
    place = made(
        tmp_path / "p",
        {**FILES, **SECRET, ".stallguardignore": own, "lib/a.npz": "", "lib/data/b.py": ""},
        is_repository=False,
    )
    found = packed(place, tmp_path=tmp_path)
    names = content(found.archive)
    assert found.ignored == ("data/big", "lib/a.npz")
    assert {"certs/host.pem", "lib/data/b.py"} <= names.keys()
    assert set(found.secrets) == SECRET.keys() - {"certs/host.pem"}
    assert "not sent, by .stallguardignore: data/big, lib/a.npz" in found.lines()


def test_a_script_that_is_not_sent_is_refused_with_the_line_that_sends_it(tmp_path):
    place = made(tmp_path / "p", {"train.py": "", ".stallguardignore": "train.py\n"})
    with pytest.raises(StallguardError) as refused:
        packed(place, tmp_path=tmp_path)
    assert refused.value.what == "the script train.py is not sent"
    assert "!train.py" in refused.value.cure


@pytest.mark.costly
def test_more_than_50_mb_are_sent_only_if_a_person_agrees(tmp_path):
    place = made(tmp_path / "p", {"train.py": ""})
    with (place / "weights").open("wb") as file:
        file.truncate(packing.ASKED)
    assert packed(place, tmp_path=tmp_path).size == packing.ASKED
    (place / "more").write_text("0")
    with pytest.raises(
        StallguardError, match="50 MB in 3 files; more than 50 MB are sent only if you agree"
    ) as refused:
        packed(place, tmp_path=tmp_path)
    assert "--yes" in refused.value.cure
    assert packed(place, tmp_path=tmp_path, agreed=True).size == packing.ASKED + 1


def test_a_huge_file_is_refused_without_being_read(tmp_path):
    place = made(tmp_path / "p", {"train.py": ""})
    with (place / "movie").open("wb") as file:
        file.truncate(1 << 42)  # more than any memory
    with pytest.raises(StallguardError, match="at most 200 MB"):
        packed(place, tmp_path=tmp_path)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("data/prepare.py",), "the script data/prepare.py is not packed"),
        (("python", "-u", "data/prepare.py"), "is not packed"),
        (("trian.py",), "no such script: trian.py"),
        (("../other/train.py",), "is not below the project"),
        (("/opt/train.py",), "is not below the project"),
    ],
)
def test_a_command_whose_script_is_not_packed_is_refused(tmp_path, words, says):
    place = made(tmp_path / "p", {**FILES, "data/prepare.py": ""})
    with pytest.raises(StallguardError, match=says):
        packed(place, *words, tmp_path=tmp_path)


@pytest.mark.parametrize(
    "words", [("-m", "pkg.train"), ("python", "-m", "x", "a.py"), ("make", "no.py"), ("lib/net.py",)]
)
def test_a_command_whose_script_cannot_be_seen_is_packed(tmp_path, words):
    assert packed(made(tmp_path / "p", FILES), *words, tmp_path=tmp_path)


def test_the_home_directory_and_the_root_are_no_project(tmp_path):
    home = made(tmp_path / "home", {"work/train.py": ""})
    with pytest.raises(StallguardError, match="is no project: all that you have is in it") as refused:
        packed(home / "work", tmp_path=tmp_path)
    assert "git has its work tree there" in refused.value.why
    with pytest.raises(StallguardError, match="/ is no project"):
        packed(packing.Path("/"), tmp_path=tmp_path)
    git(home / "work", "init", "-q")
    assert packed(home / "work", tmp_path=tmp_path).code.folder == ""


def test_without_git_a_work_tree_of_git_is_not_packed_by_guesses(tmp_path, monkeypatch):
    place = made(tmp_path / "p", FILES)
    monkeypatch.setitem(ENV, "PATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StallguardError, match="git is not installed"):
        packed(place, tmp_path=tmp_path)
    bare = made(tmp_path / "bare", FILES, is_repository=False)
    assert "data/big" in content(packed(bare, tmp_path=tmp_path).archive)


def test_a_file_that_vanishes_while_it_is_packed_is_one_clear_error(tmp_path, monkeypatch):
    place = made(tmp_path / "p", FILES)
    listed = packing.names

    def and_then_removed(*given):
        found = listed(*given)
        (place / "lib/net.py").unlink()
        return found

    monkeypatch.setattr(packing, "names", and_then_removed)
    with pytest.raises(StallguardError, match="cannot pack the project") as refused:
        packed(place, tmp_path=tmp_path)
    assert "lib/net.py" in refused.value.why
