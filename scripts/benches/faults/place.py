"""Where a storm takes place: a folder, and in it the disk of the runs, which can be filled and made read-only.

The disk is a small tmpfs, so the machine's own disk is never full; a system on which none can be mounted (no root, or
macOS) has the folder itself as its disk, and the faults of the disk are left out there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

SIZE = 768  # MB: the checkpoints of a night, and the 64 MB that stallguard leaves free for the script
BLOCK = bytes(1 << 20)


class Place:
    """`work`: the script's directory; `orders`: how it is halted, and what it notes; `home`: STALLGUARD_HOME."""

    def __init__(self, folder: Path) -> None:
        """Make the directories in `folder`."""
        self.folder = folder
        self.work, self.orders, self.temporary = folder / "work", folder / "orders", folder / "tmp"
        self._disk = folder / "disk"
        self.home = self._disk / "kept"
        for path in (self.work, self.orders, self.temporary, self._disk):
            path.mkdir()
        self.has_disk = _mounted("-t", "tmpfs", "-o", f"size={SIZE}m", "tmpfs", str(self._disk))
        self.home.mkdir(mode=0o700)

    def fill(self) -> None:
        """Write to the disk until it is full."""
        with self._ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            for size in (len(BLOCK), 4096, 1):
                with contextlib.suppress(OSError):
                    while file.write(BLOCK[:size]):
                        pass

    def make_room(self) -> None:
        """Remove what `fill` wrote."""
        self._ballast.unlink(missing_ok=True)

    @property
    def _ballast(self) -> Path:
        return self._disk / "ballast"

    def make_read_only(self) -> bool:
        """Let nothing be made or opened for writing below `home`; what is open stays writable."""
        home = str(self.home)
        return _mounted("--bind", home, home) and _mounted("-o", "remount,ro,bind", home)

    def make_writable(self) -> None:
        """Undo `make_read_only`.  Lazily: what was opened for reading meanwhile stays open."""
        subprocess.run(["umount", "--lazy", str(self.home)], check=False, capture_output=True)

    def close(self) -> None:
        """Unmount and remove everything."""
        while os.path.ismount(self.home):
            self.make_writable()
        if self.has_disk:
            subprocess.run(["umount", "--lazy", str(self._disk)], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def _mounted(*words: str) -> bool:
    if sys.platform == "darwin":
        return False
    with contextlib.suppress(OSError):
        return subprocess.run(["mount", *words], check=False, capture_output=True).returncode == 0
    return False


@contextlib.contextmanager
def opened() -> Iterator[Place]:
    """Make a place, and remove it in the end."""
    place = Place(Path(tempfile.mkdtemp(prefix="sg-storm-")))
    try:
        yield place
    finally:
        place.close()
