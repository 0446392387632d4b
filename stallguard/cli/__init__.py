"""The command line: one module a verb, imported only when it is asked for.

`main` is the only place that prints an error or turns one into an exit code.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import traceback
from typing import Any

import click

from stallguard import __version__
from stallguard.errors import OWN_FAILURE, StallguardError, nearest

ALIASES = {"list": "ls"}


class Verbs(click.Group):
    """Finds each verb in the module of its name, so that `stallguard run` pays for nothing else."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs: the modules of this package that do not begin with an underscore."""
        modules = (name for _, name, _ in pkgutil.iter_modules(__path__) if not name.startswith("_"))
        return sorted(name.replace("_", "-") for name in modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, or None where there is no such verb."""
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"{__name__}.{name.replace('-', '_')}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; a wrong one is answered with the nearest."""
        if self.get_command(ctx, args[0]) is None:
            near = nearest(args[0], self.list_commands(ctx))
            if near is not None:
                raise click.UsageError(f"there is no verb {args[0]!r}; did you mean {near}?", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="stallguard")
@click.option("--debug", is_flag=True, help="Show the Python trace of an error.")
def cli(debug: bool) -> None:
    """Guard a training: notice a stall, explain it, restart it, and tell the story."""


def say_error(error: StallguardError) -> None:
    """Print what happened, why we think so, and what to do next."""
    first, *rest = error.lines()
    click.echo(f"stallguard: {first}", err=True)
    for line in rest:
        click.echo(f"  {line}", err=True)


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line and exit."""
    words = sys.argv[1:] if arguments is None else arguments
    if None in (sys.stdin, sys.stdout, sys.stderr):  # closed when we were started
        from stallguard.supervisor import streams

        streams.occupy()
    try:
        code = cli.main(args=words, prog_name="stallguard", standalone_mode=False)
    except StallguardError as error:
        say_error(error)
        code = error.code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except BrokenPipeError:  # `stallguard ls | head`: whoever read has enough
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - else the interpreter complains at its end
        code = 0
    except Exception as error:  # noqa: BLE001 - the last resort: a user never meets a bare trace
        code = _own_failure(error, debug="--debug" in words)
    sys.exit(code if isinstance(code, int) else 0)


def _own_failure(error: Exception, *, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    say_error(
        StallguardError(
            f"stallguard itself failed: {type(error).__name__}: {error}",
            cure="run it again with --debug before the verb, and report what it prints",
        )
    )
    return OWN_FAILURE
