"""`stallguard debug bundle`: one file for a bug report."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stallguard import jsontext
from stallguard.cli import _complete
from stallguard.cli._console import echo
from stallguard.cli._json import prints_json
from stallguard.cli._writing import writing
from stallguard.core.text import counted
from stallguard.errors import USAGE, StallguardError
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir, find_run

if TYPE_CHECKING:  # completion must not wait for this import
    from stallguard.collectors.redact import Redactor


@click.command("bundle")
@click.argument("run", required=False, shell_complete=_complete.runs)
@click.option(
    "-o", "--output", type=click.Path(), help="The file to write, - for standard output.  [RUN.tar.gz]"
)
@prints_json("The packed files, as one JSON object.", "stallguard.collectors.bundle_archive:PackedBundle")
def command(run: str | None, output: str | None, as_json: bool) -> None:
    """Pack RUN (default: the newest) into one file without secrets, to be attached to a bug report."""
    from stallguard.collectors.bundle_archive import PackedBundle, pack

    which = find_run(run)
    if output == "-":
        if sys.stdout.isatty():
            raise StallguardError(
                "a bundle is not text, and is not written to a terminal",
                cure="choose a file: -o FILE",
                code=USAGE,
            )
        pack(which, _redactor(which), sys.stdout.buffer)
        return
    path = Path(output or f"{which.id}.tar.gz")
    draft = path.with_name(f".{path.name}.part")
    with writing(path, "-o"):
        draft.unlink(missing_ok=True)
        try:
            with draft.open("xb") as file:  # never through a link: this can be /tmp
                contents = pack(which, _redactor(which), file)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    if as_json:
        echo(jsontext.readable(PackedBundle(contents.schema, str(path), contents)))
        return
    echo(path)
    removed = ", ".join(f"{count} x {rule}" for rule, count in sorted(contents.removed.items()))
    echo(
        f"{counted(len(contents.files), 'file')}; removed: {removed or 'nothing'}; check it before you send it",
        err=True,
    )


def _redactor(run: RunDir) -> Redactor:
    """The secrets in this shell's environment are removed too: the training probably had the same."""
    from stallguard.collectors.redact import Redactor

    asked = run_files.asked(run)
    return Redactor(os.environ, asked.argv if asked else (), str(Path.home()))
