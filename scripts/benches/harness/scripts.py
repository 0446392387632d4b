"""Scripts that a bench runs as users write them: a table has the lines in which they differ.

A line that begins with % names a part, the lines that many scripts share; what follows the name takes the place of %s.
"""

from __future__ import annotations

from collections.abc import Mapping


def written(text: str, parts: Mapping[str, str]) -> str:
    """Return the script that `text` stands for: its first line as a docstring, its parts written out."""
    title, *lines = text.strip("\n").splitlines()
    return "\n".join([f'"""{title}"""', "", *(_written(line, parts) for line in lines), ""])


def _written(line: str, parts: Mapping[str, str]) -> str:
    if not line.startswith("%"):
        return line
    whole = line[1:]
    name = max((name for name in parts if f"{whole} ".startswith(f"{name} ")), key=len)
    return parts[name].replace("%s", whole[len(name) + 1 :])
