"""`scripts/setup`, with a uv that installs nothing: two at once in a fresh clone make each environment once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.host.children import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="on a Mac the script looks at the disk and the network")

ROOT = Path(__file__).parents[1]
# Installing lasts until the file `go` is there.
UV = """#!/bin/sh
case "$*" in
*--help*) echo "--group --clear" ;;
venv*)
    for home in "$@"; do :; done
    echo venv >> {log}
    rm -rf "$home" && mkdir -p "$home/bin" && ln -s {python} "$home/bin/python"
    ;;
*)
    echo install >> {log}
    until [ -e {go} ]; do sleep 0.05; done
    ;;
esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Path]:
    clone = tmp_path / "clone"
    (clone / "scripts").mkdir(parents=True)
    for name in ("scripts/setup", "scripts/_env.sh", "pyproject.toml"):
        shutil.copy(ROOT / name, clone / name)
    uv = tmp_path / "bin/uv"
    uv.parent.mkdir()
    uv.write_text(UV.format(log=tmp_path / "log", python=sys.executable, go=tmp_path / "go"))
    uv.chmod(0o755)
    yield clone
    (tmp_path / "go").touch()  # no setup waits on after a failure


def setup(clone: Path) -> subprocess.Popen[str]:
    path = f"{clone.parent / 'bin'}:{os.environ['PATH']}"
    words = ["sh", str(clone / "scripts/setup"), "keras2"]
    return subprocess.Popen(words, env=os.environ | {"PATH": path}, stderr=subprocess.PIPE, text=True)


def log(clone: Path) -> list[str]:
    path = clone.parent / "log"
    return path.read_text().split() if path.exists() else []


def test_two_at_once_make_an_environment_once(clone: Path) -> None:
    first = setup(clone)
    assert eventually(lambda: log(clone) == ["venv", "install"])
    second = setup(clone)
    assert second.stderr is not None
    assert f"waiting for process {first.pid}, which makes .venvs/keras2" in second.stderr.readline()
    (clone.parent / "go").touch()
    assert [first.wait(30), second.wait(30)] == [0, 0]
    assert log(clone) == ["venv", "install"]
    assert not list((clone / ".cache").iterdir())
    for process in (first, second):
        assert process.stderr is not None
        process.stderr.close()


def test_the_lock_of_a_process_that_is_gone_holds_nobody_up(clone: Path) -> None:
    with subprocess.Popen(["true"]) as gone:
        pass
    (clone / ".cache").mkdir()
    (clone / ".cache/setup-keras2.lock").symlink_to(str(gone.pid))
    (clone.parent / "go").touch()
    with setup(clone) as process:
        assert process.wait(30) == 0
    assert log(clone) == ["venv", "install"]


def test_where_no_lock_can_be_made_the_environment_is(clone: Path) -> None:
    (clone.parent / "bin/ln").write_text("#!/bin/sh\nexit 1\n")
    (clone.parent / "bin/ln").chmod(0o755)
    uv = clone.parent / "bin/uv"
    uv.write_text(uv.read_text().replace("ln -s", "/bin/ln -s"))
    (clone.parent / "go").touch()
    with setup(clone) as process:
        assert process.wait(30) == 0
    assert log(clone) == ["venv", "install"]
