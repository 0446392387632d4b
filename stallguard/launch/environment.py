"""What an attempt's child gets from its run: environment, seed, signing key, and the probe's files.

The environment is the user's, with the variables that load the probe.  The seed is drawn once, kept beside the run's
checkpoints and given to each attempt; a run that resumes from the checkpoints of another uses its seed.

The key is that with which trainings sign pickles in their checkpoints: one of the user, or one of the fleet.  A pickle
can run code, and a checkpoint can come from elsewhere: a run that was shared, the store of a fleet.  So the probe loads
only pickles that a key signed which no other user can read (probe/checkpoint/pickled.py).  A job of a fleet goes on on
other machines: its key follows from the token of the fleet, which the store does not have.

The probe's files are those that were there when the run began: all its attempts use them.  stallguard can be upgraded
or removed while a training runs.  The next attempt would then load another version of the probe, or none, and start
from scratch.  So each version is copied once, to stallguard's home:

    <home>/probes/<version>-<digest>/stallguard/    the script's API and probe/

The digest is of names, sizes and times of the files: to read them would take longer than a start can wait.  A copy that
does not have the digest of its name is not used.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
import zlib
from _blake2 import blake2b  # hashlib also loads OpenSSL: milliseconds before the start of the training
from collections.abc import Iterator, Mapping
from pathlib import Path

from stallguard import __version__
from stallguard.probe import process_key
from stallguard.storage import private
from stallguard.storage.paths import SEED

INJECT = Path(__file__).resolve().parent.parent / "probe" / "inject"
OURS = "STALLGUARD_"
HOME = "STALLGUARD_HOME"
# Its default is to be ignored, in each program that has no probe (yet), and no batch system sends it.  SIGUSR1 is the
# user's: Slurm sends it before the time limit, and a script without a handler ends by it, as without stallguard.
STACKS_SIGNAL = int(signal.SIGURG)

SEED_BYTES = 16

KEY_BYTES = 32
KEY_NAME = "signing.key"
KEY_VARIABLE = "STALLGUARD_SIGNING_KEY"  # a file of the key, which the worker of a fleet gives its runs

PACKAGE = Path(__file__).resolve().parent.parent
API, PROBE = "__init__.py", "probe"
UNUSED = 90 * 86400.0  # seconds after which a copy that no run used is removed


def child_environment(user: Mapping[str, str], hashes: str = "", inject: Path = INJECT) -> dict[str, str]:
    """Return the child's environment: the user's, and the probe's directory first on PYTHONPATH.

    `hashes`: PYTHONHASHSEED, "" for the user's.
    """
    # What a `stallguard run` inside of this one needs: the settings, and where the runs are.
    kept = {name: value for name, value in user.items() if not name.startswith(OURS) or "__" in name or name == HOME}
    path = user.get("PYTHONPATH")
    kept["PYTHONPATH"] = str(inject) if not path else f"{inject}{os.pathsep}{path}"
    return kept | ({"PYTHONHASHSEED": hashes} if hashes else {})


def keep_reference(pages: Path, environment: Mapping[str, str], project: str) -> None:
    """Write digests of the variables of an attempt's first process: those that differ later belong to one process.

    `project`: its root, if it can have another path on another machine.

    Raises OSError.
    """
    lines = (f"{digest} {name}\n" for name, digest in process_key.digests(environment, project).items())
    file = pages / process_key.REFERENCE
    with open(file, "w", encoding="utf-8", errors="surrogateescape", opener=private.opener) as out:
        out.writelines(lines)


def run_seed(folder: Path) -> str:
    """Return the seed kept in `folder`, in decimal digits; drawn and written if there is none.

    Raises OSError if it can be neither read nor written.
    """
    file = folder / SEED
    try:
        kept = file.read_text("ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        kept = ""
    if kept.isdecimal():
        return kept
    private.ensure(folder)
    drawn, new = drawn_seed(), file.with_name(f"{SEED}.new")
    private.write(new, drawn.encode("ascii"))
    new.replace(file)
    return drawn


def drawn_seed() -> str:
    """Return a random seed."""
    return str(int.from_bytes(os.urandom(SEED_BYTES), "little"))


def hash_seed(seed: str, user: Mapping[str, str]) -> str:
    """Return the PYTHONHASHSEED of a run; "" if it has no seed, or the user's environment has one of its own.

    Never 0: that would turn hash randomization off.
    """
    if not seed or user.get("PYTHONHASHSEED"):  # an empty one counts as none
        return ""
    digest = blake2b(seed.encode(), digest_size=4, person=b"hashes").digest()
    return str(max(1, int.from_bytes(digest, "little")))


def signing_key(home: Path, given: str) -> str:
    """Return the file of the key: `given`, which the worker of a fleet named, or one in `home`, made if it is missing.

    Raises OSError, PermissionError for a key that others can read: the probe would sign nothing with it.
    """
    file = home / KEY_NAME
    if given:
        return given
    if file.exists() and (file.stat().st_mode & private.OTHERS or not private.is_ours(file)):
        raise PermissionError(13, "others can read the key, or it is another user's; remove it", str(file))
    if not file.exists():
        private.ensure(home)
        new = home / f"{KEY_NAME}.{os.getpid()}"
        private.write(new, os.urandom(KEY_BYTES))
        try:
            with contextlib.suppress(FileExistsError):  # another run has made it meanwhile
                os.link(new, file)
        finally:
            new.unlink()
    return str(file)


def fleet_signing_key(home: Path, token: str) -> str:
    """Write the key that belongs to the token of a fleet, and return its file.  Raises OSError."""
    file = home / "fleet" / KEY_NAME
    private.ensure(file.parent)
    new = file.with_name(f"{KEY_NAME}.{os.getpid()}")
    private.write(new, blake2b(bytes.fromhex(token), digest_size=KEY_BYTES, person=b"checkpoints").digest())
    new.replace(file)
    return str(file)


class ProbeFiles:
    """The files of one run."""

    def __init__(self, home: Path, package: Path = PACKAGE) -> None:
        """Note which version is there now; 1 ms.  `home`: stallguard's; `package`: the installed stallguard."""
        self._package, self._place, self._digest = package, None, 0
        if os.pathsep not in str(home):  # PYTHONPATH cannot name such a directory
            with contextlib.suppress(OSError):
                self._digest = probe_digest(package)
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
            return self._place is not None and probe_digest(self._place / "stallguard") == self._digest
        except OSError:
            return False

    def _copy(self, place: Path) -> None:
        """Copy the files under another name, which is theirs at the end, and remove copies that are not used."""
        import shutil

        private.own(place.parent)
        draft = place.parent / f"tmp-{os.getpid()}-{os.urandom(4).hex()}"
        try:
            for name, _ in probe_files(str(self._package)):
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


def probe_digest(package: Path) -> int:
    """Return a number of the files' names, sizes and times.  Raises OSError."""
    root = len(str(package))
    found = sorted((name[root:], facts.st_size, facts.st_mtime_ns) for name, facts in probe_files(str(package)))
    return zlib.crc32(repr(found).encode(errors="surrogateescape"))


def probe_files(package: str) -> Iterator[tuple[str, os.stat_result]]:
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
