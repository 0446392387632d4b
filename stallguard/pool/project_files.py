"""Which files are a project, for packing.py: by git what git knows and does not ignore, without git the folder.

An environment is never part of it (a machine makes its own, environments.py), nor is what tools keep for themselves.
Must not read the content of the files.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pathspec import GitIgnoreSpec

from stallguard.errors import CANNOT_RUN, USAGE, StallguardError
from stallguard.host import tool

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
        elif is_ignored is None and self._table.match_file(
            name.lower()
        ):  # a Mac's disk takes ID_RSA for id_rsa
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
    return tool.run(
        ["git", "-C", str(folder), *words], PATIENCE, limit=LONGEST_LIST, env={**env, **tool.C_LOCALE}
    )


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
    return bool(LEFT_OUT.intersection(folders)) or any(
        (root / one / IS_ENVIRONMENT).exists() for one in places
    )


def _of_folder(root: Path) -> Iterator[str]:
    def fail(error: OSError) -> None:
        raise error

    for place, folders, files in os.walk(root, onerror=fail):
        below = Path(place).relative_to(root)
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        folders[:] = [
            name
            for name in folders
            if name not in LEFT_OUT
            and name not in links
            and not (Path(place) / name / IS_ENVIRONMENT).exists()
        ]
        yield from (
            (below / name).as_posix()
            for name in (*files, *links)
            if not name.endswith(LEFT_OUT_FILES) and name not in LEFT_OUT
        )
