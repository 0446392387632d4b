"""The report as one HTML file: nothing is fetched, everything is inside, and nothing in it can be executed but ours.

Three walls against foreign text: templates escape, the data is JSON in which no markup can begin, and a policy in
the head forbids every request and every script whose hash it does not name.

Inside is also each incident as Markdown, to be pasted into an issue: what hung, why it is thought so, stacks, output,
versions.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from stallguard import __version__, jsontext
from stallguard.core.messages import duration
from stallguard.report import labels
from stallguard.report.document import Document, IncidentText
from stallguard.report.live_server import Rendered
from stallguard.report.sanitize import one_line
from stallguard.report.svg_chart import chart, lane
from stallguard.report.timeline import Timeline

ASSETS = Path(__file__).parent / "assets"
TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(ASSETS),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)
# < > & so that no markup can begin inside the data; U+2028 and U+2029 end a line in old JavaScript.
ESCAPES = {character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#@~])")
STACKS, OUTPUT = 6, 15  # stacks, and lines of output, at most: an issue is read by people


def render(made: Document, *, beside: bool = False) -> str:
    """Return the report as HTML.  `beside`: it lies in the run's directory, so it can link to the evidence there."""
    scripts = ["theme", "uPlot.iife.min", "report"] + (["flame"] if made.flames.graphs else [])
    values = _values(made, beside=beside)
    return page("report.html.j2", scripts, ("uPlot.min.css", "report.css"), data=data(made.timeline), **values)


def render_live(made: Document) -> tuple[str, Rendered, str]:
    """Return a page that follows its run, what an open page replaces, and the policy for the page's header."""
    scripts, styles = ("theme", "uPlot.iife.min", "report", "flame", "live"), ("uPlot.min.css", "report.css")
    values, points = _values(made, beside=False), data(made.timeline)
    whole = page("report.html.j2", scripts, styles, data=points, **values, policy="")
    body = TEMPLATES.get_template("report_body.html.j2").render(**values, **_written(), policy="")
    changed = Rendered(f"{title(made)} · stallguard", body, str(points))
    return whole, changed, f"{policy(scripts, styles)}; connect-src 'self'; img-src data:"


def page(
    template: str, scripts: Sequence[str] = ("theme", "report"), styles: Sequence[str] = ("report.css",), **values: Any
) -> str:
    """Return a page as HTML: our own scripts and styles, which its policy names, and `values` for the template."""
    return TEMPLATES.get_template(template).render({
        "scripts": {name: Markup(_asset(f"{name}.js")) for name in scripts},  # noqa: S704 - our own files
        "style": Markup("".join(map(_asset, styles))),  # noqa: S704 - our own files
        "policy": policy(scripts, styles),
        **_written(),
        **values,
    })  # fmt: skip


def _written() -> dict[str, Any]:
    now = dt.datetime.now(dt.UTC)
    return {"generated": f"{now:%Y-%m-%d %H:%M} UTC", "version": __version__, "words": labels}


def _values(made: Document, *, beside: bool) -> dict[str, Any]:
    return {
        "report": made, "duration": duration, "title": title(made), "markdown": incident,
        "advice": [labels.with_code(text) for text in made.advice],
        "sketches": {panel.key: chart(panel, made.timeline) for panel in made.timeline.panels},
        "lane": lane(made.timeline), "beside": beside,
    }  # fmt: skip


def title(made: Document) -> str:
    """Return the command as a title: the script by its name alone."""
    first, *rest = made.command or [made.run]
    return " ".join([first.rpartition("/")[2] or first, *rest])


def data(timeline: Timeline) -> Markup:
    """Return the timeline as JSON that may stand inside a script element."""
    text = jsontext.readable(timeline).decode()
    for character, escape in ESCAPES.items():
        text = text.replace(character, escape)
    return Markup(text)  # noqa: S704 - no markup can begin in it


def policy(scripts: Iterable[str], styles: Iterable[str]) -> str:
    """Return the content security policy: no request at all, these scripts, these styles."""
    allowed = " ".join(_hash(_asset(f"{name}.js")) for name in scripts)
    style = _hash("".join(map(_asset, styles)))
    return f"default-src 'none'; script-src {allowed}; style-src {style}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _asset(name: str) -> str:
    return (ASSETS / name).read_text("utf-8")


def incident(made: Document, trouble: IncidentText) -> str:
    """Return an incident of a report as Markdown."""
    return "\n\n".join(filter(None, map("\n".join, _paragraphs(made, trouble)))) + "\n"


def _paragraphs(made: Document, trouble: IncidentText) -> Iterator[Iterable[str]]:
    """Yield the lines of each paragraph."""
    yield [f"### {labels.name(trouble)}: {escaped(trouble.headline)}"]
    if trouble.where:
        yield [f"It {labels.STOOD[trouble.kind]} at {code(trouble.where)}."]
    if did := labels.device(trouble):
        yield [escaped(did)]
    versions = {**made.versions, "stallguard": __version__}.items()
    yield [
        f"- run: {code(made.run)}, attempt {trouble.attempt}, {labels.summary(trouble)}",
        f"- command: {code(one_line(' '.join(made.command)))}",
        f"- versions: {escaped(', '.join(f'{name} {its}' for name, its in versions))}",
    ]
    for cause in trouble.causes:
        yield [f"**{escaped(cause.title)}** ({cause.word}, {cause.confidence:.0%})"]
        pairs = [("for", text) for text in cause.evidence] + [("against", text) for text in cause.against]
        yield (f"- {side} it: {escaped(text)}" for side, text in pairs)
    kept = trouble.evidence
    for group in labels.own_first(kept.stacks)[:STACKS] if kept else ():
        yield [f"{escaped(labels.threads(group))}:"]
        yield fenced(
            frame
            for segment in group.segments
            for frame in (segment.frames if not segment.package else (f"  ({labels.calls(segment)})",))
        )
    if trouble.announced:
        yield ["What was done:"]
        yield (f"- {line.clock} {escaped(line.text)}" for line in trouble.announced)
    if kept and kept.output:
        yield ["The last output before it:"]
        yield fenced(kept.output[-OUTPUT:])


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
