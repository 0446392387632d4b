"""Packs the project of a command, so that another machine can run it: a tar.gz that is named by its SHA-256.

Equal projects are equal bytes: names are sorted, and of a file only its content and whether it can be executed counts,
not its time, its owner or its rights.  So a sweep of a hundred jobs stores one archive, and the digest in a signed
submission says which code is meant.

What the other machine cannot use is refused here, where a person sees it: links that lead out of the project, a script
that is not in the pack, and data that make it too large.
"""

from __future__ import annotations

import gzip
import io
import os
import posixpath
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from stallguard.core.text import quantity
from stallguard.errors import CANNOT_RUN, USAGE, StallguardError
from stallguard.fleet.checkpoint_files import digest
from stallguard.fleet.orders import Code
from stallguard.launch.command import SCRIPTS
from stallguard.pool import project_files
from stallguard.pool.project_files import Project

MOST = 200_000_000  # bytes of content: code and small files; data belong into storage that the machines share
NAMED = 5  # of the largest files
COMPRESSION = 6


class Packed(NamedTuple):
    """`archive`: the file, in the folder that `pack` was given."""

    code: Code
    archive: Path


class Piece(NamedTuple):
    """A file, or with `link` a symbolic link to that.  `read`: returns its content."""

    name: str
    size: int = 0
    read: Callable[[], bytes] = bytes
    is_program: bool = False
    link: str = ""


def pack(
    words: Sequence[str],
    cwd: Path,
    folder: Path,
    env: Mapping[str, str],
    *,
    revision: str = "",
    most: int = MOST,
) -> Packed:
    """Pack the project of `cwd` for the command `words` into a file in `folder`, an empty one of the caller.

    `revision`: of git, packed instead of the files as they are; `most`: bytes of content.  Raises StallguardError.
    """
    home = Path(env.get("HOME") or Path.home())
    try:
        project = project_files.find(cwd, home, env)
        below = cwd.resolve().relative_to(project.root).as_posix().removeprefix(".")
        if revision:
            commit, pieces = _of_revision(project, revision, folder, env)
            changed = False
        else:
            commit, changed = _state(project, env)
            pieces = _of_disk(project, env)
        archive, names = _write(pieces, folder, most)
        _refuse_missing_script(words, cwd, project, below, names, revision)
        made = digest(archive)
        named = archive.rename(folder / f"{made}.tar.gz")
    except OSError as error:
        raise StallguardError(
            f"cannot pack the project of {cwd}",
            why=f"{error.filename or folder}: {error.strerror or error}",
            cure="nothing was submitted; try it again",
            code=CANNOT_RUN,
        ) from error
    code = Code(digest=made, size=named.stat().st_size, folder=below, revision=commit, changed=changed)
    return Packed(code, named)


def _state(project: Project, env: Mapping[str, str]) -> tuple[str, bool]:
    """Return the commit of a work tree, "" if it has none, and whether its files differ from that."""
    if not project.has_git:
        return "", False
    head = project_files.git(project.root, env, "rev-parse", "--verify", "--quiet", "HEAD")
    status = project_files.answered(project.root, env, "status", "--porcelain", "-z")
    return (head.output.decode("ascii", "replace").strip() if head.code == 0 else ""), bool(status)


def _of_disk(project: Project, env: Mapping[str, str]) -> Iterator[Piece]:
    for name in project_files.names(project, env):
        path = project.root / name
        facts = path.lstat()
        if stat.S_ISLNK(facts.st_mode):
            yield Piece(name, link=str(path.readlink()))
        elif stat.S_ISREG(facts.st_mode):  # a socket or a pipe has no content
            yield Piece(name, facts.st_size, path.read_bytes, bool(facts.st_mode & stat.S_IXUSR))


def _of_revision(
    project: Project, revision: str, folder: Path, env: Mapping[str, str]
) -> tuple[str, Iterator[Piece]]:
    """Return the commit of a revision, and its files as `git archive` has them."""
    unknown = StallguardError(
        f"there is no revision {revision} in {project.root}",
        cure="git log names those that there are; without --revision the files are packed as they are",
        code=USAGE,
    )
    if not project.has_git or revision.startswith("-"):
        raise unknown
    found = project_files.git(project.root, env, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if found.code != 0:
        raise unknown
    commit, draft = found.output.decode("ascii").strip(), folder / "revision.tar"
    project_files.answered(
        project.root, env, "archive", "--format=tar", f"--output={draft.resolve()}", commit
    )
    return commit, _of_tar(draft)


def _of_tar(path: Path) -> Iterator[Piece]:
    try:
        with tarfile.open(path, "r:") as source:
            for member in sorted(source, key=lambda one: os.fsencode(one.name)):
                if member.issym():
                    yield Piece(member.name, link=member.linkname)
                elif (file := source.extractfile(member)) is not None:
                    yield Piece(member.name, member.size, file.read, bool(member.mode & stat.S_IXUSR))
    finally:
        path.unlink()


def _write(pieces: Iterable[Piece], folder: Path, most: int) -> tuple[Path, frozenset[str]]:
    """Return an archive of the pieces, which come sorted, and their names.  Raises StallguardError and OSError."""
    sizes: dict[str, int] = {}
    total, draft = 0, folder / "draft.tar.gz"
    with (
        draft.open("xb") as raw,
        gzip.GzipFile(filename="", mode="wb", compresslevel=COMPRESSION, fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as target,
    ):
        for piece in pieces:
            entry = tarfile.TarInfo(piece.name)  # with time 0, user and group 0, and no names of them
            entry.mode = 0o755 if piece.is_program else 0o644
            if piece.link:
                _refuse_link_out(piece)
                entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, piece.link, 0o777
            sizes[piece.name] = piece.size
            total += piece.size
            if total <= most:  # else only the sizes are of interest
                content = piece.read()
                entry.size = len(content)
                target.addfile(entry, io.BytesIO(content))
    if not sizes:
        raise StallguardError("the project has no files", cure="submit from the project's folder", code=USAGE)
    _refuse_large(sizes, most)
    return draft, frozenset(sizes)


def _refuse_large(sizes: Mapping[str, int], most: int) -> None:
    total = sum(sizes.values())
    if total <= most:
        return
    largest = sorted(sizes, key=lambda name: -sizes[name])[:NAMED]
    raise StallguardError(
        f"the project has {quantity(total, 'bytes')}; at most {quantity(most, 'bytes')} are sent to other machines",
        why="the largest files: "
        + ", ".join(f"{name} ({quantity(sizes[name], 'bytes')})" for name in largest),
        cure="put data where each machine finds them, and name them in .gitignore",
        code=USAGE,
    )


def _refuse_link_out(piece: Piece) -> None:
    """Of a link only its own text counts: another machine has nothing else."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(piece.name), piece.link))
    if not posixpath.isabs(piece.link) and target != ".." and not target.startswith("../"):
        return
    raise StallguardError(
        f"{piece.name} is a symbolic link to {piece.link}, outside of the project",
        why="another machine does not have what it leads to",
        cure="name it in .gitignore, or copy there what it leads to",
        code=USAGE,
    )


def _refuse_missing_script(
    words: Sequence[str], cwd: Path, project: Project, below: str, names: frozenset[str], revision: str
) -> None:
    """Raise StallguardError if the script of a command is a file that the pack lacks."""
    script = _script(words)
    if not script:
        return  # a module or a program: only the other machine knows
    if posixpath.isabs(script) or _inside(below, script) is None:
        raise StallguardError(
            f"the script {script} is not below the project {project.root}",
            why="only the project is sent to another machine, and to another path there",
            cure="name a script of the project, by its path from the current folder",
            code=USAGE,
        )
    name = _inside(below, script)
    if name in names or (cwd / script).is_dir():
        return
    if revision:
        raise StallguardError(
            f"the script {script} is not in revision {revision}", cure="commit it first", code=USAGE
        )
    exists = (cwd / script).exists()
    raise StallguardError(
        f"the script {script} is not packed" if exists else f"no such script: {script}",
        why="git ignores it" if exists and project.has_git else "",
        cure="git add --force makes it part of the project" if exists else "check the path and the folder",
        code=USAGE,
    )


def _script(words: Sequence[str]) -> str:
    """Return the script that a command names, "" if that cannot be seen."""
    rest = iter(words)
    first = next(rest, "")
    if first.endswith(SCRIPTS) or not posixpath.basename(first).startswith("python"):
        return first if first.endswith(SCRIPTS) else ""
    for word in rest:
        if word in ("-m", "-c", "-"):
            return ""
        if word.endswith(SCRIPTS):
            return word
    return ""


def _inside(below: str, script: str) -> str | None:
    """Return the path of a script below the project's root, None if it is outside."""
    name = posixpath.normpath(posixpath.join(below, script))
    return None if name == ".." or name.startswith("../") else name
