"""`stallguard help`: the help of a verb."""

from __future__ import annotations

import click

from stallguard.cli import _complete
from stallguard.cli._console import echo


@click.command("help")
@click.argument("words", metavar="[VERB]...", nargs=-1, shell_complete=_complete.verbs)
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of VERB, or of all verbs."""
    context = ctx.find_root()
    for word in words:
        group = context.command
        if not isinstance(group, click.Group):
            raise click.UsageError(f"{context.command_path} has no verb {word!r}", context)
        name, found, _ = group.resolve_command(context, [word])
        assert found is not None  # noqa: S101 - resolve_command raises instead
        context = click.Context(found, info_name=name, parent=context, **found.context_settings)
    echo(context.get_help())
