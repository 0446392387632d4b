"""Every verb, and how click finds it: one module per verb, imported only when the verb is used."""

from __future__ import annotations

import contextlib
import importlib
import os

import click

from stallguard import __version__
from stallguard.cli import _complete
from stallguard.cli._errors import INTERRUPTED, say_error
from stallguard.errors import USAGE, StallguardError, nearest

# Every verb with its summary, so that `--help` imports none of them.
GROUPS: dict[str, dict[str, str]] = {
    "Run": {
        "run": "Start a training and guard it.",
        "stop": "End the training of a run.",
        "restart": "End a training and start it again.",
        "mute": "Pause the handling of stalls.",
        "find-batch": "Find the largest batch that survives here.",
        "compare": "Measure a training with several settings.",
        "submit": "Give a training to the fleet.",
        "sweep": "Submit each combination of parameters.",
        "drill": "Rehearse a stall with a small training.",
    },
    "Watch": {
        "ps": "List the live runs.",
        "status": "Show the state of a run.",
        "top": "Watch a live run.",
        "logs": "Show what happened in a run, line by line.",
        "dump": "Show where a training is right now.",
    },
    "Afterwards": {
        "ls": "List all runs.",
        "morning": "Sum up each run of the last night.",
        "incidents": "List what went wrong in all runs, by name.",
        "report": "Explain what happened in a run, and why.",
        "profile": "Show where the time of a run went.",
        "replay": "Decide a recorded run again.",
        "bundle": "Pack a run for a bug report.",
        "prune": "Remove old runs.",
    },
    "Setup": {
        "doctor": "Check what would spoil a night.",
        "agent": "Train overnight: jobs of launchd or systemd.",
        "fleet": "Train on several machines: a fleet.",
        "config": "Show and change the settings.",
        "learned": "Show or delete what was learned from runs.",
        "notify": "Test the notifications.",
        "completion": "Print the code for completion in a shell.",
        "help": "Show the help of a verb.",
    },
}
SUMMARIES = {name: summary for group in GROUPS.values() for name, summary in group.items()}
ALIASES = {"list": "ls"}
# Names that other programs use for the same verb.
MEANT = {
    "kill": "stop", "end": "stop", "cancel": "stop", "pause": "mute", "start": "run", "exec": "run", "show": "status",
    "watch": "top", "tail": "logs", "log": "logs", "history": "ls", "runs": "ls", "rm": "prune", "clean": "prune",
    "settings": "config", "check": "doctor", "test": "drill", "stacks": "dump", "resume": "run",
    "stalls": "incidents", "crashes": "incidents", "flame": "profile", "speedscope": "profile",
    "man": "help",
}  # fmt: skip
# These print while a training runs, with their own settings.
SUPERVISES = ("run", "drill", "find-batch", "compare", "agent", "fleet")


class Verbs(_complete.VerbGroup):
    """Finds each verb in the module of its name, so that `stallguard run` imports no other."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs."""
        return sorted(SUMMARIES)

    def summaries(self, ctx: click.Context) -> dict[str, str]:
        """Return the verbs with their summaries, without importing them."""
        return SUMMARIES

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, or None if there is no such verb."""
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in SUMMARIES:
            return None
        command: click.Command = importlib.import_module(f"stallguard.cli.{name.replace('-', '_')}").command
        command.short_help = SUMMARIES[name]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; the error for an unknown one names the nearest."""
        name = ALIASES.get(args[0], args[0])
        if name not in SUMMARIES and not name.startswith("-"):
            near = MEANT.get(name) or nearest(name, SUMMARIES)
            hint = f"did you mean {near}? " if near else ""
            raise StallguardError(
                f"there is no verb {args[0]!r}", cure=f"{hint}stallguard --help lists them", code=USAGE
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs in groups."""
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(list(verbs.items()), col_max=12)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name="stallguard")
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@click.option("-v", "--verbose", is_flag=True, help="Print what otherwise only the journal contains.")
@click.option("--no-color", is_flag=True, help="No colour and no other styling, like NO_COLOR.")
@click.option("--debug", is_flag=True, help="Show the Python trace of an error.")
@click.pass_context
def cli(ctx: click.Context, /, quiet: bool, no_color: bool, **_others: bool) -> None:
    """Guard a training: detect a stall, explain it, restart the training, and report."""
    if no_color:
        ctx.color = False
    if quiet and ctx.invoked_subcommand not in SUPERVISES:
        silence = ctx.with_resource(open(os.devnull, "w"))  # noqa: SIM115, PTH123 - closed by the context
        ctx.with_resource(contextlib.redirect_stderr(silence))


def invoke(words: list[str]) -> int:
    """Run the verb that `words` name; return the exit code.  Raises what the verb raises, but no errors of click."""
    try:
        code = cli.main(args=words, prog_name="stallguard", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "stallguard"
        text = error.format_message().rstrip(".")
        what = text[:1].lower() + text[1:]  # in the form of all errors
        say_error(StallguardError(what, cure=f"{path} --help lists the options", code=USAGE))
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    return code if isinstance(code, int) else 0
