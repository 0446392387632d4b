"""Unpacks a packed project for a job, whole or not at all, and removes those that are not used any more.

    fleet/code/<digest>/<job>/         the project, as the job's own folder: its script can write beside itself
    fleet/code/<digest>/.<job>.used    its time is that of the last use

A job has a folder of its own, because jobs of a sweep have the same code and write files of the same names.  A folder
gets its name after it is complete, so what has the name is whole, also if the process that made it was killed.

Who can write to the store can exchange the archive, but its digest is that of a signed submission.  A signer can be
careless: nothing is written outside of the folder, and no more than MOST bytes.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import tarfile
import time
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path

from stallguard.fleet.jobs.generations import digest as digest_of
from stallguard.fleet.store.records import Damaged
from stallguard.storage import paths, private

MOST = 1_000_000_000  # bytes of content; packing.py sends a fifth of that
FILES = 200_000
KEPT = 14 * 86400.0  # s without use
USED = ".used"
LOCK = ".lock"


def home() -> Path:
    """Return the directory of all unpacked projects."""
    return paths.home() / "fleet" / "code"


def present(digest: str, job: str) -> Path | None:
    """Return a job's folder if it is here, and note that it is used.  Raises OSError."""
    folder = home() / digest / job
    private.ensure(home())
    with private.locked(home() / LOCK):
        if not folder.is_dir():
            return None
        _marker(folder).touch()
        return folder


def unpack(archive: Path, digest: str, job: str) -> Path:
    """Return a job's folder, with the content of an archive unless it is there.

    Raises Damaged for an archive that is not that of `digest`, or that must not be unpacked; and OSError.  Leaves
    nothing then.
    """
    if (folder := present(digest, job)) is not None:
        return folder
    if digest_of(archive) != digest:
        raise Damaged(
            f"the packed project does not match its digest {digest}: it is damaged; "
            "remove it from the folder code of the store, and submit the job under another name"
        )
    folder = home() / digest / job
    draft = folder.with_name(f".{job}.{os.urandom(4).hex()}")
    with private.locked(home() / LOCK):
        private.ensure(folder.parent)
        private.make(draft)
    try:
        _extract(archive, draft)
        with private.locked(home() / LOCK):
            if not folder.is_dir():  # else another process was faster
                draft.rename(folder)
            _marker(folder).touch()
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def working_folder(project: Path, below: str) -> Path:
    """Return the folder of the command, `below` the unpacked project.  Raises Damaged if it is outside, and OSError."""
    folder = (project / below).resolve()
    if not folder.is_relative_to(project.resolve()):
        raise Damaged(f"{below} is not below the project")
    folder.mkdir(parents=True, exist_ok=True)  # git knows no empty folder
    return folder


def _extract(archive: Path, folder: Path) -> None:
    """Unpack: no absolute paths, no "..", nothing through a link, no links out, no devices.

    By hand: `tarfile.data_filter` came with Python 3.11.4, and Debian 12 has 3.11.2.  Raises Damaged.
    """
    total = count = 0
    links: list[Path] = []
    try:
        with tarfile.open(archive, "r:gz") as source:
            for count, member in enumerate(source, start=1):
                total += member.size
                if total > MOST or count > FILES:
                    raise Damaged(f"the packed project has more than {MOST} bytes or {FILES} files")
                if member.name.startswith("/") or not (member.isreg() or member.issym()):
                    raise Damaged(f"{member.name} is no file or symbolic link below the project")
                target = folder / member.name
                if ".." in member.name.split("/"):
                    raise Damaged(f"{member.name} leads out of the project")
                _make_parents(folder, target.parent)
                if os.path.lexists(target):  # also names that differ in case alone
                    raise Damaged(f"two files of the project are {member.name} here")
                if member.issym():
                    target.symlink_to(member.linkname)
                    links.append(target)
                    continue
                content = source.extractfile(member)
                if content is None:
                    raise Damaged(f"{member.name} has no content")
                with content, target.open("xb") as file:
                    shutil.copyfileobj(content, file)
                target.chmod(member.mode & 0o755 | 0o600)
                os.utime(target, (member.mtime, member.mtime))
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError, OverflowError) as error:
        if isinstance(error, Damaged):
            raise
        raise Damaged(f"the packed project cannot be unpacked: {error}") from error
    if not count:
        raise Damaged("the packed project is empty")
    root = folder.resolve()
    for link in links:  # last: where a link leads depends on the other ones
        # Not Path.resolve: before Python 3.13 it refuses links that lead in a circle, which a project can have.
        if link.readlink().is_absolute() or not Path(os.path.realpath(link)).is_relative_to(root):
            raise Damaged(f"{link.relative_to(folder)} is a link out of the project")


def _make_parents(folder: Path, parent: Path) -> None:
    """Make the folders from `folder` down to `parent`.  Raises Damaged if one of them is a link or a file."""
    for step in reversed([parent, *parent.parents][: len(parent.parts) - len(folder.parts)]):
        if step.is_symlink() or (step.exists() and not step.is_dir()):
            raise Damaged(f"{step.relative_to(folder)} is no folder, and a file of the project is below it")
        step.mkdir(exist_ok=True)


def _marker(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}{USED}")


def unused(uses: Mapping[Path, float], now: float, kept: float, busy: Collection[str]) -> list[Path]:
    """Return which folders are to be removed.

    `uses`: of each, when it was used last; `kept`: seconds that one stays without use; `busy`: jobs of this machine.
    A time in the future counts as one of now: clocks are put right.
    """
    return sorted(folder for folder, at in uses.items() if now - at > kept and folder.name not in busy)


def remove_unused(busy: Collection[str], kept: float = KEPT) -> list[Path]:
    """Remove the folders of jobs that were not used for `kept` seconds, and return them.  Raises OSError."""
    if not home().is_dir():
        return []
    with private.locked(home() / LOCK):
        uses = {
            marker.with_name(marker.name[1 : -len(USED)]): marker.stat().st_mtime
            for marker in home().glob(f"*/.*{USED}")
        }
        removed = unused(uses, time.time(), kept, busy)
        for folder in removed:
            aside = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}")
            with contextlib.suppress(FileNotFoundError):  # it was not unpacked completely
                folder.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)
            _marker(folder).unlink(missing_ok=True)
        for draft in home().glob("*/.*"):  # of a process that was killed
            if draft.is_dir() and time.time() - draft.stat().st_mtime > kept:
                shutil.rmtree(draft, ignore_errors=True)
        for folder in home().iterdir():
            with contextlib.suppress(OSError):  # another job has the same code
                folder.rmdir()
    return removed
