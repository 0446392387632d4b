"""The tools that `stallguard mcp` offers to an agent, and their server, by the official library of the protocol.

Each tool answers what a verb prints with `--json`, made by the verb's own function.  None starts, ends or changes
anything, and none can name a run outside of the directory of runs.  Imported only if the extra `mcp` is installed.
"""

from __future__ import annotations

import functools
import io
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from mcp.types import ToolAnnotations
from pydantic import Field

from stallguard.cli import history, live_runs, ls, status, tune
from stallguard.cli._console import PIPED, print_blocks
from stallguard.collectors.redact import Redactor
from stallguard.errors import StallguardError
from stallguard.report import agent_answer
from stallguard.report.sanitize import drawn, plain
from stallguard.storage import journal, run_files
from stallguard.storage.paths import NEWEST, RunDir, find_run, list_runs

try:
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
except ImportError:  # before version 2
    from mcp.server.fastmcp import FastMCP as MCPServer  # type: ignore[attr-defined,no-redef]
    from mcp.server.fastmcp.exceptions import ToolError  # type: ignore[import-not-found,no-redef]

INSTRUCTIONS = (
    "stallguard guards trainings: it counts batches, notices stalls, keeps evidence and restarts from checkpoints. "
    "These tools only read what it recorded on this machine. " + agent_answer.UNTRUSTED
)
LEVELS = ("debug", "info", "warning", "error")
TAIL = 1 << 20  # bytes of the end of an output that are read
READ_ONLY = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}

Answer = dict[str, Any]
Run = Annotated[
    str,
    Field(description="Id of a run, or a part of one. Empty: the newest live run, else the newest.", max_length=200),
]
Name = Annotated[str, Field(max_length=200)]
Most = Annotated[int, Field(ge=1, le=400)]


def runs(most: Most = 20, *, live: bool = False, trials: bool = False) -> Answer:
    """List the runs on this machine, the newest last; with `live` the live ones, each with its state and speed.

    `trials`: the trials of find-batch and compare too.  As `stallguard ls --json`, `stallguard ls --live --json`.
    """
    if live:
        return _answer({"schema": ls.SCHEMA, "runs": ls.snapshots(most)}, *list_runs(), newest_last=True)
    listed = ls.listed(most, trials=trials)
    return _answer(listed, *(RunDir(Path(one.path)) for one in listed.runs), newest_last=True)


def run_status(run: Run = "") -> Answer:
    """Show the state of a run; `exit_code` 1: it is stalled or has failed.  As `stallguard status RUN --json`."""
    which = _pick(run)
    well, value = status.state(which)
    return _answer(value, which, exit_code=0 if well else live_runs.NO)


def run_report(run: Run = "", form: Literal["text", "json"] = "text") -> Answer:
    """Explain what happened in a run, why, what was done, what it cost and what to change, with its incidents.

    As `stallguard report RUN` (`text`), `stallguard report RUN --json` (`json`, which is long).
    """
    from rich.console import Console

    from stallguard.report import document, terminal_page

    which = _pick(run)
    made = document.make(which, os.environ)
    if form == "json":
        return _answer(made, which)
    page = io.StringIO()
    print_blocks(terminal_page.blocks(made, PIPED), Console(file=page, width=PIPED, color_system=None))
    return _answer({"run": which.id, "lines": page.getvalue().splitlines()}, which)


def incidents(name: Name = "", run: Name = "") -> Answer:
    """List what went wrong in all kept runs, by name: how often, when, where, and what helped against it.

    `name`: only those whose name contains it; `run`: only those of that run.  As `stallguard incidents NAME --json`.
    """
    found = history.known_incidents(name or None, time.time())
    if run:
        which = _pick(run).id
        found = msgspec.structs.replace(found, incidents=[one for one in found.incidents if which in one.runs])
    return _answer(found, *list_runs(), newest_last=True)


def run_profile(run: Run = "") -> Answer:
    """Show where the time of a run went, by phase and by line.  As `stallguard debug profile RUN --json`."""
    from stallguard.report import sampled_stacks

    which = _pick(run)
    return _answer(sampled_stacks.make(which, sampled_stacks.of_run(which), os.environ), which)


def run_journal(
    run: Run = "",
    most: Most = 100,
    level: Literal["debug", "info", "warning", "error"] = "info",
    event: Annotated[str, Field(max_length=100, description="Only events whose name begins so: training.stalled")] = "",
) -> Answer:
    """Show the last lines of a run's journal, at least of `level`.  As `stallguard logs RUN --json`."""
    which, shown = _pick(run), LEVELS[LEVELS.index(level) :]
    kept: deque[bytes] = deque(maxlen=most)
    for line, raw in journal.read(which.journal):
        if line.level in shown and line.event.startswith(event):
            kept.append(raw)
    return _answer({"run": which.id, "lines": [msgspec.json.decode(raw) for raw in kept]}, which, newest_last=True)


def run_output(run: Run = "", most: Most = 50) -> Answer:
    """Show the last lines that the script of a run printed.  As `stallguard logs RUN --output -n COUNT`."""
    which = _pick(run)
    try:
        with which.output.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            data = file.read(TAIL)
    except FileNotFoundError:
        data = b""
    lines = drawn(data.removesuffix(b"\n"))[-most:] if data else []
    return _answer({"run": which.id, "lines": lines}, which, newest_last=True)


def learned() -> Answer:
    """List what was learned of each script on this machine: usual gaps, batches that survive, each with its command.

    As `stallguard tune learned show --json`.
    """
    return _answer(tune.known_scripts(), newest_last=True)


TOOLS: tuple[Callable[..., Answer], ...] = (
    runs, run_status, run_report, incidents, run_profile, run_journal, run_output, learned,
)  # fmt: skip


def server() -> MCPServer:
    """Return the server with all tools; its `run` serves standard input and output until the client closes them."""
    made = MCPServer("stallguard", instructions=INSTRUCTIONS, log_level="WARNING")
    for tool in TOOLS:
        made.add_tool(
            _explained(tool),
            description=f"{' '.join((tool.__doc__ or '').split())}  {agent_answer.UNTRUSTED}",
            annotations=ToolAnnotations.model_validate(READ_ONLY),
        )
    return made


def _explained(tool: Callable[..., Answer]) -> Callable[..., Answer]:
    """Return the tool; an error of stallguard is its answer, with the cause and what to do next."""

    @functools.wraps(tool)
    def call(**arguments: Any) -> Answer:
        try:
            return tool(**arguments)
        except StallguardError as error:
            raise ToolError(plain("\n".join(error.lines()))) from error

    return call


def _pick(text: str) -> RunDir:
    """Return the run of a name, as the verbs do; a directory elsewhere is none.  Raises StallguardError."""
    return live_runs.pick(None) if text in ("", *NEWEST) else find_run(text, anywhere=False)


def _answer(value: Any, *about: RunDir, exit_code: int = 0, newest_last: bool = False) -> Answer:
    """Return the answer, without the secrets of this shell and of the runs that it is about."""
    asked = filter(None, map(run_files.asked, about))
    redactor = Redactor(os.environ, [word for one in asked for word in one.argv], str(Path.home()))
    made = agent_answer.made(value, redactor, exit_code=exit_code, newest_last=newest_last)
    answer: Answer = msgspec.to_builtins(made)
    return answer
