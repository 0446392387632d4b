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

from stallguard.core.text import counted, quantity
from stallguard.errors import CANNOT_RUN, USAGE, StallguardError
from stallguard.fleet.checkpoint_files import digest
from stallguard.fleet.orders import Code
from stallguard.launch.command import SCRIPTS
from stallguard.pool import project_files
from stallguard.pool.project_files import Project

ASKED = 50_000_000  # bytes of content that are sent without a question
MOST = 200_000_000  # bytes of content: code and small files; data belong into storage that the machines share
NAMED = 5  # of the largest files
COMPRESSION = 6


class PackedProject(NamedTuple):
    """`archive`: the file, in the folder that `pack` was given; `files`, `size`: how many, and bytes of their content.

    `secrets`, `ignored`: names of files that are left out, by the table of secrets and by the project's own file.
    """

    code: Code
    archive: Path
    files: int
    size: int
    secrets: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return what a person should know before it is sent."""
        sent = f"{quantity(self.size, 'bytes')} in {counted(self.files, 'file')}"
        found = [f"the project has {sent}; {quantity(self.code.size, 'bytes')} are sent"]
        if self.secrets:
            found.append(
                f"not sent, because such files hold secrets: {_listed(self.secrets)} "
                f"(a line !NAME in {project_files.IGNORED} sends one)"
            )
        if self.ignored:
            found.append(f"not sent, by {project_files.IGNORED}: {_listed(self.ignored)}")
        return found


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
    agreed: bool = False,
    most: int = MOST,
) -> PackedProject:
    """Pack the project of `cwd` for the command `words` into a file in `folder`, an empty one of the caller.

    `revision`: of git, packed instead of the files as they are; `agreed`: more than ASKED bytes are meant; `most`:
    bytes of content.  Raises StallguardError.
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
        choice = project_files.FileChoice(project.root)
        chosen = (piece for piece in pieces if choice.sends(piece.name))
        archive, sizes = _write(chosen, folder, most if agreed else min(most, ASKED), most)
        left_out = frozenset((*choice.secrets, *choice.ignored))
        _refuse_missing_script(words, cwd, project, below, frozenset(sizes), left_out, revision)
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
    return PackedProject(
        code, named, len(sizes), sum(sizes.values()), tuple(choice.secrets), tuple(choice.ignored)
    )


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


def _write(pieces: Iterable[Piece], folder: Path, most: int, most_ever: int) -> tuple[Path, dict[str, int]]:
    """Return an archive of the pieces, which come sorted, and their sizes by name.

    Raises OSError, and StallguardError if they are more than `most` bytes.  `most_ever`: if a person agrees.
    """
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
    _refuse_large(sizes, most, most_ever)
    return draft, sizes


def _refuse_large(sizes: Mapping[str, int], most: int, most_ever: int) -> None:
    total = sum(sizes.values())
    if total <= most:
        return
    largest = sorted(sizes, key=lambda name: -sizes[name])[:NAMED]
    cure = f"put data where each machine finds them, and name them in .gitignore or {project_files.IGNORED}"
    raise StallguardError(
        f"the project has {quantity(total, 'bytes')} in {counted(len(sizes), 'file')}; "
        + (
            f"more than {quantity(most, 'bytes')} are sent only if you agree"
            if total <= most_ever
            else f"at most {quantity(most_ever, 'bytes')} are sent to other machines"
        ),
        why="the largest files: "
        + ", ".join(f"{name} ({quantity(sizes[name], 'bytes')})" for name in largest),
        cure=f"send it: --yes; or {cure}" if total <= most_ever else cure,
        code=USAGE,
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


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
    words: Sequence[str], cwd: Path, project: Project, below: str, names: frozenset[str], left_out: frozenset[str],
    revision: str,
) -> None:  # fmt: skip
    """Raise StallguardError if the script of a command is a file that the pack lacks.

    `left_out`: by the table of secrets, or by the project's own file.
    """
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
    if name in left_out:
        raise StallguardError(
            f"the script {script} is not sent",
            why=f"{project_files.IGNORED} names it, or it has the name of a file that holds secrets",
            cure=f"write a line !{name} into {project_files.IGNORED}",
            code=USAGE,
        )
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
