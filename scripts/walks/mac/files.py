"""The checks of files: what the disk promises, and the files sensor.

Does it notice a checkpoint that is created, renamed into place, overwritten?

The sensor is the product's: FSEvents on macOS, inotify on Linux.  FSEvents reports no close, and names a file by its
real path, so the same is asked of a working directory that is a symbolic link.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from mac.scene import Scene
from mac.table import Row, judged
from mac.verdicts_kernel import disk_order as order_row
from stallguard.core.readings import Files
from stallguard.host import system
from stallguard.probe import disk_order as commands
from stallguard.sensors import Target
from stallguard.sensors.file_activity import FilesSensor

PATIENCE = 20.0  # seconds for the sensor to notice
LOOK = 0.5  # seconds between two readings, as while a stall is suspected
SETTLED = 2.0  # seconds without a change, after which an overwritten file is distinguished from a new one
LARGER = 3000  # bytes of the file that is overwritten
WRITES, PIECE = 20, 1_000_000  # of each way to sync; bytes: the weights of a small model
SYNCS = {"fsync": None, "F_BARRIERFSYNC": commands.BARRIER, "F_FULLFSYNC": commands.FULL}
FRESH = 5.0  # seconds: the age of what has just been written


def disk_order(scene: Scene) -> Iterator[Row]:
    """Time each way to sync a file, and ask whether a folder can be synced so, as for a checkpoint."""
    path = scene.home / "written"
    with path.open("wb") as file:
        of_file = {name: _timed(file.fileno(), command, os.urandom(PIECE)) for name, command in SYNCS.items()}
    path.unlink()
    folder = os.open(scene.home, os.O_RDONLY)
    try:
        of_folder = {name: _timed(folder, command, b"") for name, command in SYNCS.items()}
    finally:
        os.close(folder)
    yield order_row(of_file, of_folder)


def _timed(descriptor: int, command: int | None, piece: bytes) -> list[float] | str:
    """Return the seconds of each sync after a write of `piece`, or the name of the error that refuses it."""
    taken = []
    for _ in range(WRITES if piece else 1):
        if piece:
            os.write(descriptor, piece)
        began = time.perf_counter()
        try:
            if command is None:
                os.fsync(descriptor)
            else:
                fcntl.fcntl(descriptor, command)
        except OSError as error:
            return errno.errorcode.get(error.errno or 0, str(error))
        taken.append(time.perf_counter() - began)
    return taken


def checks(scene: Scene) -> Iterator[Row]:
    """Write checkpoints as trainings do, below a directory and below a link to it."""
    for name, what in (("", ""), ("linked", " below a symlinked cwd")):
        place = scene.home / f"training{name}"
        place.mkdir()
        cwd = place
        if name:
            cwd = scene.home / "link"
            cwd.symlink_to(place, target_is_directory=True)
        with contextlib.closing(FilesSensor(Target(places=(_as_a_run_has_it(cwd),)), system)) as sensor:
            sensor.read()
            time.sleep(LOOK)  # events from before the watch began are delivered late
            yield _created(sensor, place, what)
            yield _renamed(sensor, place, what)
            yield _overwritten(sensor, place, what)


def _as_a_run_has_it(cwd: Path) -> Path:
    """Return the working directory as `stallguard run` finds it if it is started there."""
    words = (sys.executable, "-c", "import os; print(os.getcwd())")
    said = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=True)
    return Path(said.stdout.rstrip("\n"))


def _created(sensor: FilesSensor, place: Path, what: str) -> Row:
    (place / "first.keras").write_bytes(b"a" * 1000)
    return _row(f"files: create{what}", sensor, lambda seen: _is(seen, "first.keras"))


def _renamed(sensor: FilesSensor, place: Path, what: str) -> Row:
    draft = place / "second.tmp"
    draft.write_bytes(b"b" * 2000)
    draft.rename(place / "second.keras")
    return _row(f"files: rename{what}", sensor, lambda seen: _is(seen, "second.keras"))


def _overwritten(sensor: FilesSensor, place: Path, what: str) -> Row:
    time.sleep(SETTLED)
    with (place / "first.keras").open("r+b") as file:
        file.write(b"c" * LARGER)
    return _row(f"files: overwrite{what}", sensor, lambda seen: _is(seen, "first.keras") and seen.size == LARGER)


def _is(seen: Files, name: str) -> bool:
    return seen.path is not None and Path(seen.path).name == name and (seen.age or 0.0) < FRESH


def _row(check: str, sensor: FilesSensor, right: Callable[[Files], bool]) -> Row:
    """Read until the sensor shows what is right; return how long that took."""
    began, seen = time.monotonic(), None
    while time.monotonic() - began < PATIENCE:
        seen = sensor.read()
        if seen is not None and right(seen):
            return judged(check, holds=True, figure=f"noticed after {time.monotonic() - began:.1f} s",
                          means="a checkpoint that is written is seen")  # fmt: skip
        time.sleep(LOOK)
    figure = "nothing seen" if seen is None or seen.path is None else f"{Path(seen.path).name}, {seen.age} s old"
    return judged(check, holds=False, figure=figure, means="a checkpoint that is written is seen",
                  otherwise="a training that saves would count as silent")  # fmt: skip
