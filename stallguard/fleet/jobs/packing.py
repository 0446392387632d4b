"""Packs the project of a command, so that another machine can run it: a tar.gz that is named by its SHA-256.

Equal projects are equal bytes: names are sorted, and of a file only its content and whether it can be executed counts,
not its time, its owner or its rights.  So a sweep of a hundred jobs stores one archive, and the digest in a signed
submission says which code is meant.

What the other machine cannot use is refused here, where a person sees it: links that lead out of the project, a script
that is not in the pack, and data that make it too large.

A project is, by git, what git knows and does not ignore, without git the folder.  An environment is never part of it (a
machine makes its own, preparing.py), nor is what tools keep for themselves.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import posixpath
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pathspec import GitIgnoreSpec

from stallguard.core.text import counted, quantity
from stallguard.errors import CANNOT_RUN, USAGE, StallguardError
from stallguard.fleet.jobs.generations import digest
from stallguard.fleet.store.orders import Code
from stallguard.host import tool
from stallguard.launch.command import SCRIPTS

ASKED = 50_000_000  # bytes of content that are sent without a question
MOST = 200_000_000  # bytes of content: code and small files; data belong into storage that the machines share
NAMED = 5  # of the largest files
COMPRESSION = 6
PATIENCE = 120.0  # s for one call of git; `git status` of a large work tree on a cold disk takes some
LONGEST_LIST = 64 << 20  # bytes of names
# Names of folders that hold no code of the project.
LEFT_OUT = frozenset(
    ".venv venv .git .hg .svn __pycache__ .stallguard .mypy_cache .ruff_cache .pytest_cache .ipynb_checkpoints .tox "
    ".nox node_modules .cache .eggs .idea .vscode".split()
)
LEFT_OUT_FILES = (".pyc", ".pyo", ".DS_Store")  # ends of names
# In the form of .gitignore: files that hold secrets, also if git knows them.  From GitHub's templates, the manuals
# of the programs that write them, and the rules of gitleaks.  A line "!NAME" of the project's own file packs one.
SECRETS = (
    ".env", ".env.*", "!.env.example", "!.env.sample", "!.env.template", "*.env", ".envrc",
    ".netrc", "_netrc", ".pgpass", ".my.cnf", ".pypirc", ".npmrc", ".yarnrc.yml", ".git-credentials", ".htpasswd",
    ".dockercfg", ".docker/config.json", ".ssh/", ".gnupg/", ".aws/", ".azure/", ".kube/", ".config/gcloud/", ".oci/",
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "!*.pub",
    "*.pem", "*.key", "*.p8", "*.p12", "*.pfx", "*.ppk", "*.jks", "*.keystore", "*.kdbx", "*.keytab",
    "credentials.json", "client_secret*.json", "service[-_]account*.json", "kaggle.json",
    "secrets.json", "secrets.toml", "secrets.yaml", "secrets.yml", "huggingface/token", ".vault-token", "*.tfstate",
    "fleet.toml", "fleet-*.toml", "*-authority.json",  # of stallguard: they start programs on each machine of a fleet
)  # fmt: skip
IGNORED = ".stallguardignore"  # of the project: what is not sent, in the form of .gitignore
IS_ENVIRONMENT = "pyvenv.cfg"  # in the folder of each virtual environment (PEP 405)


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
                f"(a line !NAME in {IGNORED} sends one)"
            )
        if self.ignored:
            found.append(f"not sent, by {IGNORED}: {_listed(self.ignored)}")
        return found


class Piece(NamedTuple):
    """A file, or with `link` a symbolic link to that.  `read`: returns its content."""

    name: str
    size: int = 0
    read: Callable[[], bytes] = bytes
    is_program: bool = False
    link: str = ""


def pack(
    words: Sequence[str], cwd: Path, folder: Path, env: Mapping[str, str], *, revision: str = "",
    agreed: bool = False, most: int = MOST,
) -> PackedProject:  # fmt: skip
    """Pack the project of `cwd` for the command `words` into a file in `folder`, an empty one of the caller.

    `revision`: of git, packed instead of the files as they are; `agreed`: more than ASKED bytes are meant; `most`:
    bytes of content.  Raises StallguardError.
    """
    home = Path(env.get("HOME") or Path.home())
    try:
        project = find(cwd, home, env)
        below = cwd.resolve().relative_to(project.root).as_posix().removeprefix(".")
        if revision:
            commit, pieces = _of_revision(project, revision, folder, env)
            changed = False
        else:
            commit, changed = _state(project, env)
            pieces = _of_disk(project, env)
        choice = FileChoice(project.root)
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
    return PackedProject(code, named, len(sizes), sum(sizes.values()), tuple(choice.secrets), tuple(choice.ignored))


def _state(project: Project, env: Mapping[str, str]) -> tuple[str, bool]:
    """Return the commit of a work tree, "" if it has none, and whether its files differ from that."""
    if not project.has_git:
        return "", False
    head = git(project.root, env, "rev-parse", "--verify", "--quiet", "HEAD")
    status = answered(project.root, env, "status", "--porcelain", "-z")
    return (head.output.decode("ascii", "replace").strip() if head.code == 0 else ""), bool(status)


def _of_disk(project: Project, env: Mapping[str, str]) -> Iterator[Piece]:
    for name in names(project, env):
        path = project.root / name
        facts = path.lstat()
        if stat.S_ISLNK(facts.st_mode):
            yield Piece(name, link=str(path.readlink()))
        elif stat.S_ISREG(facts.st_mode):  # a socket or a pipe has no content
            yield Piece(name, facts.st_size, path.read_bytes, bool(facts.st_mode & stat.S_IXUSR))


def _of_revision(project: Project, revision: str, folder: Path, env: Mapping[str, str]) -> tuple[str, Iterator[Piece]]:
    """Return the commit of a revision, and its files as `git archive` has them."""
    unknown = StallguardError(
        f"there is no revision {revision} in {project.root}",
        cure="git log names those that there are; without --revision the files are packed as they are",
        code=USAGE,
    )
    if not project.has_git or revision.startswith("-"):
        raise unknown
    found = git(project.root, env, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if found.code != 0:
        raise unknown
    commit, draft = found.output.decode("ascii").strip(), folder / "revision.tar"
    answered(project.root, env, "archive", "--format=tar", f"--output={draft.resolve()}", commit)
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
    cure = f"put data where each machine finds them, and name them in .gitignore or {IGNORED}"
    raise StallguardError(
        f"the project has {quantity(total, 'bytes')} in {counted(len(sizes), 'file')}; "
        + (
            f"more than {quantity(most, 'bytes')} are sent only if you agree"
            if total <= most_ever
            else f"at most {quantity(most_ever, 'bytes')} are sent to other machines"
        ),
        why="the largest files: " + ", ".join(f"{name} ({quantity(sizes[name], 'bytes')})" for name in largest),
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
            why=f"{IGNORED} names it, or it has the name of a file that holds secrets",
            cure=f"write a line !{name} into {IGNORED}",
            code=USAGE,
        )
    if revision:
        raise StallguardError(f"the script {script} is not in revision {revision}", cure="commit it first", code=USAGE)
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


class Project(NamedTuple):
    """`root`: its folder; `has_git`: whether it is a work tree of git."""

    root: Path
    has_git: bool


class FileChoice:
    """What of a project's files is sent.  `secrets`, `ignored`: what the table and the project's file leave out."""

    def __init__(self, root: Path) -> None:
        """Read the project's own file.  Raises OSError."""
        own: list[str] = []
        with contextlib.suppress(FileNotFoundError):
            own = (root / IGNORED).read_text("utf-8", "replace").splitlines()
        self.secrets: list[str] = []
        self.ignored: list[str] = []
        self._table, self._own = GitIgnoreSpec.from_lines(SECRETS), GitIgnoreSpec.from_lines(own)

    def sends(self, name: str) -> bool:
        """Return whether a file is sent; note its name if it is not."""
        is_ignored = self._own.check_file(name).include  # None: no line of the project's file is about it
        if is_ignored:
            self.ignored.append(name)
        elif is_ignored is None and self._table.match_file(name.lower()):  # a Mac's disk takes ID_RSA for id_rsa
            self.secrets.append(name)
        else:
            return True
        return False


def find(cwd: Path, home: Path, env: Mapping[str, str]) -> Project:
    """Return the project that `cwd` belongs to.  Raises StallguardError, also for / and for the home directory."""
    found = _work_tree(cwd, env)
    root = (found or cwd).resolve()
    if root == home.resolve() or root == Path(root.anchor):
        raise StallguardError(
            f"{root} is no project: all that you have is in it",
            why="git has its work tree there" if found else "the command is submitted from there",
            cure="submit from the folder of the project; git init there makes it a project of its own",
            code=USAGE,
        )
    return Project(root, found is not None)


def _work_tree(cwd: Path, env: Mapping[str, str]) -> Path | None:
    try:
        answer = git(cwd, env, "rev-parse", "--show-toplevel")
    except FileNotFoundError:
        if not any((folder / ".git").exists() for folder in (cwd, *cwd.parents)):
            return None
        raise StallguardError(
            f"git is not installed, and {cwd} belongs to a work tree of git",
            why="only git knows which of its files are ignored",
            cure="install git",
            code=CANNOT_RUN,
        ) from None
    if answer.code == 0:
        return Path(os.fsdecode(answer.output.removesuffix(b"\n")))
    if b"not a git repository" in answer.errors:
        return None
    raise _failed(cwd, answer)


def git(folder: Path, env: Mapping[str, str], *words: str) -> tool.ToolResult:
    """Return what git answers in `folder`.  Raises FileNotFoundError if there is no git."""
    return tool.run(["git", "-C", str(folder), *words], PATIENCE, limit=LONGEST_LIST, env={**env, **tool.C_LOCALE})


def answered(folder: Path, env: Mapping[str, str], *words: str) -> bytes:
    """Return what git prints.  Raises StallguardError if it fails."""
    answer = git(folder, env, *words)
    if answer.code != 0:
        raise _failed(folder, answer)
    return answer.output


def _failed(folder: Path, answer: tool.ToolResult) -> StallguardError:
    said = answer.errors.decode(errors="replace").strip().splitlines()
    return StallguardError(
        f"git cannot read the project of {folder}",
        why=answer.incomplete or " ".join(said[:3]),
        cure="look at it with git status",
        code=CANNOT_RUN,
    )


def names(project: Project, env: Mapping[str, str]) -> list[str]:
    """Return the paths of the project's files and links below its root, sorted.  Raises StallguardError and OSError."""
    found = _of_git(project.root, "", env) if project.has_git else _of_folder(project.root)
    return sorted(set(found), key=os.fsencode)


def _of_git(root: Path, below: str, env: Mapping[str, str]) -> Iterator[str]:
    """Yield the files of a work tree and of those inside of it: submodules, and repositories that git does not know."""
    folder = root / below
    for other in ("--cached", "--others"):
        listed = answered(folder, env, "ls-files", "-z", other, "--exclude-standard")
        for name in map(os.fsdecode, listed.split(b"\0")):
            path = folder / name
            if not name or (other == "--others" and _is_left_out(root, below + name)):
                continue
            if path.is_dir() and not path.is_symlink():
                if (path / ".git").exists():
                    yield from _of_git(root, f"{below}{name.rstrip('/')}/", env)
            elif os.path.lexists(path):  # what git knows can be deleted
                yield below + name


def _is_left_out(root: Path, name: str) -> bool:
    if name.endswith(LEFT_OUT_FILES):
        return True
    *folders, _ = name.split("/")
    places = ("/".join(folders[: depth + 1]) for depth in range(len(folders)))
    return bool(LEFT_OUT.intersection(folders)) or any((root / one / IS_ENVIRONMENT).exists() for one in places)


def _of_folder(root: Path) -> Iterator[str]:
    def fail(error: OSError) -> None:
        raise error

    for place, folders, files in os.walk(root, onerror=fail):
        below = Path(place).relative_to(root)
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        folders[:] = [
            name
            for name in folders
            if name not in LEFT_OUT and name not in links and not (Path(place) / name / IS_ENVIRONMENT).exists()
        ]
        yield from (
            (below / name).as_posix()
            for name in (*files, *links)
            if not name.endswith(LEFT_OUT_FILES) and name not in LEFT_OUT
        )
