"""How verbs print: the one place through which text, tables and JSON reach a terminal or a file that the user named.

Arguments, names, paths and messages are other programs' text, and can contain what steers a terminal.  So everything is
made visible here, by `report.sanitize`, and a test holds that no verb prints past it.  The console of tables is as wide
as the terminal, and without colours if they are off.  `--json` names the type of what a verb prints: docs/journal.md is
made from these types.  Lists and completion wait for this module, so it must not import the settings.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from stallguard.errors import CANNOT_RUN, StallguardError
from stallguard.report import sanitize

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

PIPED = 100  # columns if there is no terminal


def echo(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print text, or JSON given as bytes."""
    if isinstance(text, bytes):
        click.echo(sanitize.json_text(text), err=err, nl=nl)
    else:
        click.echo(sanitize.plain(str(text)), err=err, nl=nl)


def note(text: str) -> None:
    """Print a line that is no part of the answer, on standard error."""
    echo(text, err=True)


def write(data: bytes, *, lines: bool = False) -> None:
    """Write bytes to standard output as they are; on a terminal, as visible text.

    `lines`: they are the output of a program, in whole lines: of a progress bar its last state is shown, no colours.
    """
    if sys.stdout.isatty():
        text = "\n".join(sanitize.drawn(data)) if lines else sanitize.plain(data.decode(errors="replace"))
        data = text.encode(errors="replace")
    sys.stdout.buffer.write(data)
    sys.stdout.flush()


def console() -> Console:
    """Return the console for standard output."""
    from rich.console import Console
    from rich.segment import Segment

    class PlainConsole(Console):
        """Makes text visible before it is drawn; the styles and the movements of the cursor are rich's own."""

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else sanitize.plain(text), style, control)

    columns = os.environ.get("COLUMNS", "")
    width = None if sys.stdout.isatty() else int(columns) if columns.isdecimal() and int(columns) > 0 else PIPED
    plain = bool(os.environ.get("NO_COLOR")) or click.get_current_context().color is False
    return PlainConsole(width=width, color_system=None if plain else "auto")


def print_blocks(blocks: Iterable[RenderableType], target: Console) -> None:
    """Print parts of a page from the top down; no line ends in blanks."""
    with target.capture() as captured:
        for block in blocks:
            target.print(block, highlight=False)
    target.file.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())


@contextlib.contextmanager
def writing(target: Path, option: str) -> Iterator[BinaryIO]:
    """Yield a file that is `target` when the block has ended without an error; before, `target` is as it was.

    `option`: what names another file.  Raises StallguardError if `target` cannot be written.
    """
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        draft.unlink(missing_ok=True)
        try:
            with draft.open("xb") as file:  # never through a link: this can be /tmp
                yield file
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise StallguardError(
            f"cannot write {target}", why=error.strerror or str(error), cure=f"choose another: {option} FILE",
            code=CANNOT_RUN,
        ) from error  # fmt: skip


class JsonOption(click.Option):
    """`--json`.  `outputs`: the types of what is printed then, as "module:Name"; docs/journal.md is made from them."""

    def __init__(self, *arguments: Any, outputs: tuple[str, ...], **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.outputs = outputs


def prints_json(what: str, *outputs: str) -> Callable[[Any], Any]:
    """Return a decorator that adds `--json` to a command, which then prints one of `outputs`.  `what`: its help."""
    return click.option("--json", "as_json", is_flag=True, cls=JsonOption, outputs=outputs, help=what)
