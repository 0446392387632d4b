"""The probe's files, as they were when a run began: all its attempts use them.

stallguard can be upgraded or removed while a training runs.  The next attempt would then load another version of
the probe, or none, and start from scratch.  So each version is copied once, to stallguard's home:

    <home>/probes/<version>-<digest>/stallguard/    the script's API and probe/

The digest is of names, sizes and times of the files: to read them would take longer than a start can wait.  A copy that
does not have the digest of its name is not used.
"""

from __future__ import annotations

import contextlib
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from stallguard import __version__
from stallguard.storage import private

PACKAGE = Path(__file__).resolve().parent.parent
API, PROBE = "__init__.py", "probe"
UNUSED = 90 * 86400.0  # seconds after which a copy that no run used is removed


class ProbeFiles:
    """The files of one run."""

    def __init__(self, home: Path, package: Path = PACKAGE) -> None:
        """Note which version is there now; 1 ms.  `home`: stallguard's; `package`: the installed stallguard."""
        self._package, self._place, self._digest = package, None, 0
        if os.pathsep not in str(home):  # PYTHONPATH cannot name such a directory
            with contextlib.suppress(OSError):
                self._digest = digest(package)
                self._place = home / "probes" / f"{__version__}-{self._digest:08x}"

    @property
    def inject(self) -> Path | None:
        """The directory that is to be first on PYTHONPATH; None if the files are gone."""
        if self._place is not None and self._is_kept():
            return self._place / "stallguard" / PROBE / "inject"
        inject = self._package / PROBE / "inject"
        return inject if (inject / "sitecustomize.py").is_file() else None

    def keep(self) -> None:
        """Copy the files unless that was done before: 0.1 s.  Raises OSError."""
        if self._place is None:
            return
        if not self._is_kept():
            self._copy(self._place)
        os.utime(self._place)

    def _is_kept(self) -> bool:
        try:
            return self._place is not None and digest(self._place / "stallguard") == self._digest
        except OSError:
            return False

    def _copy(self, place: Path) -> None:
        """Copy the files under another name, which is theirs at the end, and remove copies that are not used."""
        import shutil

        private.own(place.parent)
        draft = place.parent / f"tmp-{os.getpid()}-{os.urandom(4).hex()}"
        try:
            for name, _ in files(str(self._package)):
                path = Path(name)
                target = draft / "stallguard" / path.relative_to(self._package)
                private.ensure(target.parent)
                shutil.copy2(path, target)
                # Without the compiled files the next training would wait for the compiler.
                for one in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
                    private.ensure(target.parent / "__pycache__")
                    shutil.copy2(one, target.parent / "__pycache__" / one.name)
            try:
                draft.rename(place)
            except OSError:  # there is one: of a run that has made it meanwhile, or a damaged one
                if not self._is_kept():
                    shutil.rmtree(place, ignore_errors=True)
                    with contextlib.suppress(OSError):  # another run has made it now
                        draft.rename(place)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        for old in place.parent.iterdir():
            with contextlib.suppress(FileNotFoundError):  # the draft of another run
                if old != place and old.stat().st_mtime < time.time() - UNUSED:
                    shutil.rmtree(old, ignore_errors=True)


def digest(package: Path) -> int:
    """Return a number of the files' names, sizes and times.  Raises OSError."""
    root = len(str(package))
    found = sorted((name[root:], facts.st_size, facts.st_mtime_ns) for name, facts in files(str(package)))
    return zlib.crc32(repr(found).encode(errors="surrogateescape"))


def files(package: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files with their facts; without pathlib, which takes three times as long.  Raises OSError."""
    yield f"{package}/{API}", os.stat(f"{package}/{API}")  # noqa: PTH116
    folders = [f"{package}/{PROBE}"]
    for folder in folders:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    yield entry.path, entry.stat()
                elif entry.name != "__pycache__" and entry.is_dir():
                    folders.append(entry.path)
