"""`stallguard completion`: the shell code that completes verbs, options and files."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from stallguard.cli._console import echo
from stallguard.cli._errors import COMPLETION

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, /, shell: str) -> None:
    """Print the code that makes SHELL complete stallguard's words.

    \b
    Examples:
      eval "$(stallguard completion bash)"      # in ~/.bashrc
      eval "$(stallguard completion zsh)"       # in ~/.zshrc, after compinit
      stallguard completion fish > ~/.config/fish/completions/stallguard.fish
    """  # noqa: D301 - click wants the real backspace
    source = get_completion_class(shell)
    assert source is not None  # noqa: S101 - click knows the three
    echo(source(ctx.find_root().command, {}, "stallguard", COMPLETION).source())
