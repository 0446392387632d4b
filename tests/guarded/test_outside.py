"""A process marks that its probe waits for a training library, and takes the mark back when it imports one."""

from __future__ import annotations

from pathlib import Path

import pytest

from .runs import guard

pytestmark = pytest.mark.live

SCRIPT = """
import os, pathlib, subprocess, sys
from _stallguard_probe import settings
run = pathlib.Path(settings.of(os.environ).pages)
def marks(pid):
    return sorted(path.suffix for path in run.glob(f"{pid}.*") if path.suffix in (".waiting", ".loading"))
print(marks(os.getpid()))
sys.path.insert(0, str(pathlib.Path(__file__).parent / "library"))
child = "import os; print(os.getpid(), flush=True); {}; input()"
for words in ("pass", "import keras", "import keras  # from multiprocessing.spawn"):
    one = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.path.insert(0, %r); " % sys.path[0] + child.format("exec(%r)" % words)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )
    pid = int(one.stdout.readline())
    one.stdin.flush()
    import time
    for _ in range(200):
        if words == "pass" or marks(pid) != [".waiting"]:
            break
        time.sleep(0.05)
    print(marks(pid))
    one.communicate("\\n")
    print(marks(pid))
"""


def test_the_marks_follow_the_imports(tmp_path: Path) -> None:
    (tmp_path / "library/keras").mkdir(parents=True)
    (tmp_path / "library/keras/__init__.py").write_text("")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)

    done = guard(tmp_path, str(script))

    shown = done.out.decode().split("\n")[:7]
    assert shown == [
        "['.waiting']", "['.waiting']", "[]",  # of a process that imports nothing, which then ends
        "[]", "[]",  # of one that imports a library: it sends records
        "['.loading']", "['.loading']",  # of a worker of a pool, which sends none before it trains
    ]  # fmt: skip
