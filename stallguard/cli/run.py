"""`stallguard run`: start a training and guard it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from stallguard import config
from stallguard.cli import guard
from stallguard.cli._console import echo
from stallguard.cli._options import given, settings


class RunCommand(click.Command):
    """Passes everything from the first word of COMMAND on to the training, including options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Split the words at COMMAND, and parse only those before it."""
        at = self.command_begins(args)
        words = args[at + 1 :] if at < len(args) and args[at] == "--" else args[at:]
        rest = super().parse_args(ctx, args[:at])
        ctx.params["words"] = tuple(words)
        return rest

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options and arguments of stallguard; completion offers none after the first word of COMMAND."""
        begun = ctx.resilient_parsing and ctx.params.get("words")
        return [] if begun else super().get_params(ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer options of stallguard; if none fits, the files of COMMAND."""
        return super().shell_complete(ctx, incomplete) or [CompletionItem(incomplete, type="file")]

    def command_begins(self, args: list[str]) -> int:
        """Return the index of the first word that is neither an option of stallguard nor the value of one."""
        takes_value = {
            name: not option.is_flag
            for option in self.params
            if isinstance(option, click.Option)
            for name in option.opts
        }
        index = 0
        while index < len(args) and args[index].startswith("-") and args[index] not in ("--", "-m"):
            index += 2 if takes_value.get(args[index]) else 1
        return min(index, len(args))


@click.command("run", cls=RunCommand, options_metavar="[OPTIONS] [--] COMMAND...")
@click.option("--name", default="", help="Name of the run, part of its id.  [that of the script]")
@click.option("--dry-run", is_flag=True, help="Only show what would be started.")
@settings()
@click.pass_context
def command(ctx: click.Context, /, name: str, dry_run: bool, **parameters: Any) -> None:
    """Start a training and guard it.

    COMMAND is `train.py ARGS`, `-m package.module ARGS`, or any program: `python train.py`, `bash train.sh`.
    The training runs as without stallguard; stallguard exits with its exit code.

    \b
    Examples:
      stallguard run train.py --epochs 200
      stallguard run --observe -m mypackage.train
      stallguard run --on-stall halve --max-restarts 5 -- python train.py
    """  # noqa: D301 - click wants the real backspace
    words = tuple(parameters.pop("words", ctx.params.get("words", ())))
    flags, cwd = given(parameters), Path.cwd()

    def load() -> config.Loaded:
        return config.load(flags, os.environ, cwd)

    if dry_run:
        echo(_plan(words, load(), cwd))
        return
    sys.exit(guard(words, config.read(load), name))


def _plan(words: tuple[str, ...], loaded: config.Loaded, cwd: Path) -> str:
    """Return what would be started, by which interpreter and with which settings.  Raises StallguardError."""
    from stallguard.config.table import all_keys, value_of
    from stallguard.core.text import shell_words
    from stallguard.launch.command import Disk, reach
    from stallguard.launch.request import command_of
    from stallguard.report.sanitize import one_line

    made = command_of(words, loaded, os.environ, cwd)
    inside = reach(made.argv, Disk(os.environ, str(cwd)))
    rows = [("command", shell_words(made.argv)), ("directory", str(cwd))]
    if made.interpreter:
        rows.append(("interpreter", "; ".join(filter(None, (made.interpreter.why, made.interpreter.hint)))))
    rows.append(("probe", "in the training" if inside.injectable else f"not possible: {inside.why}"))
    keys = all_keys()
    rows += [
        ("setting", f"{path} = {keys[path].kind.show(value_of(loaded.config, path))} ({origin})")
        for path, origin in loaded.origins.items() if origin != config.DEFAULT
    ]  # fmt: skip
    return "\n".join(f"{name:<11}  {one_line(text)}" for name, text in rows)
