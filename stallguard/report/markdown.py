"""An incident as Markdown, to be pasted into an issue: what hung, why it is thought so, stacks, output, versions.

Pure.  Foreign text stands in code, or escaped, so that it is no markup there either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from stallguard import __version__
from stallguard.report import labels
from stallguard.report.document import Document, IncidentText
from stallguard.report.sanitize import one_line

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#@~])")
STACKS, OUTPUT = 6, 15  # stacks, and lines of output, at most: an issue is read by people


def incident(made: Document, trouble: IncidentText) -> str:
    """Return an incident of a report as Markdown."""
    return "\n".join(_lines(made, trouble)) + "\n"


def _lines(made: Document, trouble: IncidentText) -> Iterator[str]:
    yield f"### {labels.name(trouble)}: {escaped(trouble.headline)}"
    yield ""
    if trouble.where:
        yield f"It {labels.STOOD[trouble.kind]} at {code(trouble.where)}."
        yield ""
    yield f"- run: {code(made.run)}, attempt {trouble.attempt}, {labels.summary(trouble)}"
    yield f"- command: {code(one_line(' '.join(made.command)))}"
    versions = ", ".join(
        f"{name} {its}" for name, its in {**made.versions, "stallguard": __version__}.items()
    )
    yield f"- versions: {escaped(versions)}"
    for cause in trouble.causes:
        yield ""
        yield f"**{escaped(cause.title)}** ({cause.word}, {cause.confidence:.0%})"
        yield ""
        yield from (f"- for it: {escaped(text)}" for text in cause.evidence)
        yield from (f"- against it: {escaped(text)}" for text in cause.against)
    kept = trouble.evidence
    for group in labels.own_first(kept.stacks)[:STACKS] if kept else ():
        yield ""
        yield f"{escaped(labels.threads(group))}:"
        yield ""
        frames = (
            frame
            for segment in group.segments
            for frame in (segment.frames if not segment.package else (f"  ({labels.calls(segment)})",))
        )
        yield from fenced(frames)
    if trouble.announced:
        yield ""
        yield "What was done:"
        yield ""
        yield from (f"- {line.clock} {escaped(line.text)}" for line in trouble.announced)
    if kept and kept.output:
        yield ""
        yield "The last output before it:"
        yield ""
        yield from fenced(kept.output[-OUTPUT:])


def escaped(text: str) -> str:
    """Return a text that means itself in Markdown, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """Return a text as code within a line."""
    marks = "`" * (_longest_run(text) + 1)
    return f"{marks} {text} {marks}" if "`" in text else f"{marks}{text}{marks}"


def fenced(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines as a block of code; its fence is longer than each run of marks in them."""
    inside = list(lines)
    fence = "`" * max(3, _longest_run("\n".join(inside)) + 1)
    yield f"{fence}text"
    yield from inside
    yield fence


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
