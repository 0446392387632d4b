"""Every verb and how click finds it: a module is imported only when one of its verbs is used.

The verbs of everyday use stand at the top level.  `tune`, `debug` and `fleet` hold those of one occasion each.  A form
of an earlier version still works: it is translated into the new words before click sees it, and once a day one line on
standard error says the new form.  Lists, help and completion show only the new ones.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import click

from stallguard import __version__
from stallguard.cli import completion
from stallguard.cli._errors import INTERRUPTED, say_error
from stallguard.errors import USAGE, StallguardError, nearest

DAY = 86400.0  # s between two lines about the same old form
WHOLE = 1000  # characters of a summary; none is longer


class Verb(NamedTuple):
    """Where a verb is, and what it does: a list of verbs imports none of them."""

    place: str  # "module:name" in this package
    summary: str


# The verbs of the top level, by section of the help.
SECTIONS: dict[str, dict[str, Verb]] = {
    "Train": {
        "run": Verb("run:command", "Start a training and guard it."),
        "stop": Verb("live_runs:stop", "End the training of a run."),
        "restart": Verb("live_runs:restart", "End a training and start it again."),
    },
    "Watch": {
        "status": Verb("status:command", "Show the state of a run."),
        "top": Verb("top:command", "Watch a live run."),
        "watch": Verb("watch:command", "Watch a process that was started without stallguard."),
        "logs": Verb("logs:command", "Show what happened in a run, line by line."),
    },
    "Afterwards": {
        "ls": Verb("ls:command", "List the runs: all, or the live ones."),
        "morning": Verb("history:morning", "Sum up each run of the last night."),
        "incidents": Verb("history:incidents", "List what went wrong in all runs, by name."),
        "report": Verb("report:command", "Explain what happened in a run, and why."),
    },
    "Setup": {
        "doctor": Verb("rehearsal:doctor", "Check what would spoil a night."),
        "drill": Verb("rehearsal:drill", "Rehearse a stall with a small training."),
        "agent": Verb("agent:command", "Train overnight: jobs of launchd or systemd."),
        "config": Verb("config:command", "Show and change the settings."),
        "notify": Verb("rehearsal:notify", "Test the notifications."),
        "mcp": Verb("mcp:command", "Let an agent read the runs, over the Model Context Protocol."),
        "completion": Verb("completion:command", "Print the code for completion in a shell."),
    },
    "Groups of verbs": {
        "fleet": Verb("fleet:command", "Train on several machines: submit, sweep, machines and more."),
        "tune": Verb("verbs:tune", "Choose batch and settings: find-batch, compare, learned."),
        "debug": Verb("verbs:debug", "Look closer: dump, profile, replay, bundle, mute, prune."),
    },
}
TOP = {name: verb for section in SECTIONS.values() for name, verb in section.items()}
# What earlier versions called a verb, and the words that it is now.  `help VERB` is `VERB --help`.
OLD_FORMS = {
    "find-batch": ("tune", "find-batch"), "compare": ("tune", "compare"), "learned": ("tune", "learned"),
    "dump": ("debug", "dump"), "profile": ("debug", "profile"), "replay": ("debug", "replay"),
    "bundle": ("debug", "bundle"), "mute": ("debug", "mute"), "prune": ("debug", "prune"),
    "submit": ("fleet", "submit"), "sweep": ("fleet", "sweep"), "ps": ("ls", "--live"), "list": ("ls",),
}  # fmt: skip
HELP = "help"
# Names that other programs use for the same verb.
MEANT = {
    "kill": "stop", "end": "stop", "cancel": "stop", "pause": "debug mute", "start": "run", "exec": "run",
    "show": "status", "tail": "logs", "log": "logs", "history": "ls", "runs": "ls",
    "rm": "debug prune", "clean": "debug prune", "settings": "config", "check": "doctor", "test": "drill",
    "stacks": "debug dump", "resume": "run", "stalls": "incidents", "crashes": "incidents",
    "flame": "debug profile", "speedscope": "debug profile", "man": "--help",
}  # fmt: skip
# These print while a training runs, with their own settings; of a group, its callback decides.
SUPERVISES = ("run", "watch", "drill", "agent", "fleet", "tune")


class VerbGroup(click.Group):
    """A group of verbs: its own, and those of `verbs`, which are imported when they are used."""

    def __init__(self, *arguments: Any, verbs: Mapping[str, Verb] | None = None, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.verbs = verbs or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs."""
        return sorted({*self.commands, *self.verbs})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, or None if there is no such verb."""
        if cmd_name not in self.verbs:
            return super().get_command(ctx, cmd_name)
        place, summary = self.verbs[cmd_name]
        module, _, name = place.partition(":")
        command: click.Command = getattr(importlib.import_module(f"stallguard.cli.{module}"), name)
        command.short_help = summary
        return command

    def summaries(self, ctx: click.Context) -> dict[str, str]:
        """Return the verbs, each with what it does."""
        own = {name: one.get_short_help_str(WHOLE) for name, one in self.commands.items() if not one.hidden}
        return dict(sorted((own | {name: verb.summary for name, verb in self.verbs.items()}).items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> completion.Items:
        """Return the verbs and options that begin with `incomplete`."""
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*completion.begun(incomplete, self.summaries(ctx).items()), *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs, each with its whole summary; click's own ends at 45 characters."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries(ctx).items()))


class Verbs(VerbGroup):
    """The top level.  It also understands old forms, and names the nearest verb if there is none of a name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb.  Raises StallguardError if there is none of that name."""
        words, is_old = new_form(args), args[0] in (HELP, *OLD_FORMS)
        if not words:  # `help` alone
            if not ctx.resilient_parsing:
                from stallguard.cli._console import echo

                echo(ctx.get_help())
                ctx.exit()
            return None, None, []
        if is_old and not ctx.resilient_parsing:
            say_new_form(ctx, args[0], " ".join(words if args[0] == HELP else OLD_FORMS[args[0]]))
        if args[0] == HELP and ctx.resilient_parsing:  # the next verb is completed
            words.pop()
        name = words[0]
        if name not in TOP and not name.startswith("-"):
            found = nearest(name, (*TOP, *OLD_FORMS)) or ""
            near = MEANT.get(name) or " ".join(OLD_FORMS.get(found, (found,)))
            hint = f"did you mean {near}? " if near else ""
            raise StallguardError(f"there is no verb {name!r}", cure=f"{hint}stallguard --help lists them", code=USAGE)
        return super().resolve_command(ctx, words)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs in sections."""
        for title, verbs in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, verb.summary) for name, verb in verbs.items()], col_max=12)


def new_form(words: list[str]) -> list[str]:
    """Return the words of a command line as they are now; none for `help` alone."""
    first, *rest = words
    if first == HELP:
        return [*new_form(rest), "--help"] if rest else []
    return [*OLD_FORMS.get(first, (first,)), *rest]


def say_new_form(ctx: click.Context, old: str, new: str) -> None:
    """Say what an old form is now: on standard error, once a day, by the time of an empty file for each form.

    If that file cannot be written, it is said each time.
    """
    if ctx.params.get("quiet"):
        return
    from stallguard.cli._console import note
    from stallguard.storage import paths, private

    mark = paths.home() / "old-forms" / old
    with contextlib.suppress(OSError):
        if 0 <= time.time() - mark.stat().st_mtime < DAY:
            return
    note(f"stallguard: {old!r} is now 'stallguard {new}'; the old form still works")
    with contextlib.suppress(OSError, StallguardError):
        private.ensure(mark.parent)
        private.write(mark, b"")


def quieten(ctx: click.Context, supervising: tuple[str, ...]) -> None:
    """Discard what the verb prints on standard error if -q was given, unless it is one of `supervising`."""
    if ctx.find_root().params.get("quiet") and ctx.invoked_subcommand not in supervising:
        silence = ctx.with_resource(open(os.devnull, "w"))  # noqa: SIM115, PTH123 - closed by the context
        ctx.with_resource(contextlib.redirect_stderr(silence))


@click.pass_context
def _quieten_learned(ctx: click.Context) -> None:
    quieten(ctx, ("find-batch", "compare"))


tune = VerbGroup(
    "tune",
    help="Find the largest batch, compare settings, and see what was learned from runs.",
    callback=_quieten_learned,
    verbs={
        "find-batch": Verb("tune:find_batch", "Find the largest batch that survives here."),
        "compare": Verb("compare:command", "Measure a training with several settings."),
        "learned": Verb("tune:learned", "Show or delete what was learned from runs."),
    },
)
debug = VerbGroup(
    "debug",
    help="Look closer at a run, hold stalls back while you debug, and pack or remove runs.",
    verbs={
        "dump": Verb("debug:dump", "Show where a training is right now."),
        "profile": Verb("debug:profile", "Show where the time of a run went."),
        "replay": Verb("debug:replay", "Decide a recorded run again."),
        "bundle": Verb("debug:bundle", "Pack a run for a bug report."),
        "mute": Verb("live_runs:mute", "Pause the handling of stalls."),
        "prune": Verb("debug:prune", "Remove old runs."),
    },
)


@click.group(cls=Verbs, verbs=TOP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name="stallguard")
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@click.option("-v", "--verbose", is_flag=True, help="Print what otherwise only the journal contains.")
@click.option("--no-color", is_flag=True, help="No colour and no other styling, like NO_COLOR.")
@click.option("--debug", is_flag=True, help="Show the Python trace of an error.")
@click.pass_context
def cli(ctx: click.Context, /, no_color: bool, **_others: bool) -> None:
    """Guard a training: detect a stall, explain it, restart the training, and report."""
    if no_color:
        ctx.color = False
    quieten(ctx, SUPERVISES)


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
