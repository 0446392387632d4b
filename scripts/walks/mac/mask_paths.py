"""Which folders and programs of a path, or of a command line, are named by a person.

Kept are those of every Mac and of every Python; a folder of any other name is masked.  `of(kind, name)` returns the
mask of a name.  Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Of = Callable[[str, str], str]

# Programs that every Mac has, and those of the walk: they keep their names.
SYSTEM = re.compile(
    r"(?:-?(?:ba|z|da)?sh|caffeinate|env|footprint|ioreg|kernel|kernel_task|launchctl|launchd|lsof|powerd|pmset|ps"
    r"|[Pp]ython[\d.]*|ReportCrash|runningboardd|sample|stallguard|sysctl|vmmap|WindowServer|\?+)"
)
APPLES = re.compile(r"(?:com\.apple|com\.stallguard|org\.python)\b.*", re.DOTALL)
FOLDER = re.compile(
    r"(?:~|\.{1,2}|\[user\]|\[clone\]|Shared|\.?venvs?|bin|lib|share|include|tools|opt|usr|etc|tmp|var|private|dev"
    r"|System|Library|Logs|DiagnosticReports|LaunchAgents|Frameworks|[\w.-]+\.framework|Versions|[\d.]+|Current"
    r"|Resources|Python\.app|Contents|MacOS|Developer|Xcode\.app|CommandLineTools|\.?local|uv|cpython-[\w.-]+"
    r"|homebrew|Cellar|[Pp]ython[\w@.-]*|site-packages|envs|(?:mini|ana)(?:conda|forge)\d?|\.pyenv|versions"
    r"|\.?stallguard[\w.-]*|kept|runs|live|Documents|Desktop|Downloads|Caches|\.cache|Macintosh HD"
    r"|com\.(?:apple|stallguard)[\w.-]*)"
)
# What follows is of a distribution, or of the walk itself.
FREE = re.compile(r"(?:site-packages|lib/python[\d.]+|\.framework|\[clone\]|\.stallguard-walk-[\w-]+)/.*", re.DOTALL)
ROOTS = {"Users": "user", "home": "user", "Volumes": "volume"} | dict.fromkeys(
    ("Applications", "opt", "srv", "data", "mnt", "scratch"), "folder"
)
PRIVATE = ("~", *(f"/{root}/" for root in ROOTS))
# Folders can have spaces, but only a path in quotes or at the end of its line can end with such a name.
PLACES = re.compile(
    rf"(?<![\w.~/-])(?:~|/(?:{'|'.join(ROOTS)}))"
    r"(?:/(?:[^/\n\"'<>|:;,()\[\]{}=]*[^/\s\"'<>|:;,()\[\]{}=](?=/)|[^/\s\"'<>|:;,()\[\]{}=]+|\[user\]))+"
)
# sample, vmmap, launchctl print
TO_THE_END = re.compile(
    r"^((?:Path:|[ \t]*[a-z][\w ]* =|[ \t]*0x[^\n/]*<[0-9A-Fa-f-]{36}>)[ \t]*|\t\t)([~/][^\n]*)$", re.MULTILINE
)
QUOTED = re.compile(rf"(?<=[\"'])((?:~|/(?:{'|'.join(ROOTS)}))/[^\"'\n]*)(?=[\"'])")
ENDINGS = re.compile(r"(.+)(\.(?:py|sh|plist|log|json|jsonl|txt|so|dylib|zip|out|err))")
PER_USER = re.compile(r"(/var/folders)/[\w+]{2}/[\w+]{8,}")  # made from the user's UUID


def paths(text: str, of: Of) -> str:
    """Return a text with masked folders in its paths."""
    text = TO_THE_END.sub(lambda one: one[1] + path(one[2], of), text)
    text = QUOTED.sub(lambda one: path(one[1], of), text)
    return PER_USER.sub(r"\1/[user]", PLACES.sub(lambda one: path(one[0], of), text))


def path(text: str, of: Of) -> str:
    """Return a path whose folders are masked if they are not those of every Mac or of Python."""
    text = PER_USER.sub(r"\1/[user]", text)
    if not text.startswith(PRIVATE):
        return text
    free = FREE.search(text)
    head, tail = (text[: free.start()], free[0]) if free else (text, "")
    clean, kind = [], "folder"
    for number, part in enumerate(head.split("/")):
        name, app, rest = part.rpartition(".app")
        ending = ENDINGS.fullmatch(part)
        if number == 1 and not text.startswith("~"):
            clean.append(part)
            kind = ROOTS.get(part, "folder")
            continue
        if not part or FOLDER.fullmatch(part):
            clean.append(part)
        elif app and not rest:
            clean.append(of("program", name) + app)
        else:
            clean.append(of(kind, ending[1]) + ending[2] if ending else of(kind, part))
        kind = "program" if part == "MacOS" else "folder"
    return "/".join(clean) + tail


def program(name: str, of: Of) -> str:
    """Return the mask of a program's name, or its name if every Mac has it; another's path becomes its name."""
    last = name.rstrip("/").rpartition("/")[2] or name
    if SYSTEM.fullmatch(last):
        return path(name, of)
    return name if APPLES.fullmatch(name) else of("program", last)


OURS = ("stallguard", "[clone]", "print(flush=True)")  # in the arguments of processes of the walk
PYTHON = re.compile(r"((?:/[^\n]*?/)?[Pp]ython[\d.]*)((?:\s.*)?)")


def command(line: str, of: Of) -> str:
    """Return a command line: another program becomes its mask; the arguments of a Python are kept if it is ours."""
    python = PYTHON.fullmatch(line)
    if python:
        kept = not python[2].strip() or any(word in line for word in OURS)
        return path(python[1], of) + (python[2] if kept else " [arguments]")
    whole = re.split(r"\s-", line, maxsplit=1)[0].strip() if line.startswith("/") else line.strip()
    return program(whole, of) + (" [arguments]" if whole != line.strip() else "")
