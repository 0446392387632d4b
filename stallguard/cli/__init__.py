"""The command line.  `main` is the only function that prints errors or maps them to exit codes.

`stallguard run` with everyday options (`config.from_words`) needs no parsing by click, whose import takes 20 ms of
processor time (click 8.5, Python 3.11), so the training starts without it.  Everything else goes to `verbs`.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
from typing import TYPE_CHECKING, Any

from stallguard.cli._errors import COMPLETION, INTERRUPTED, say_error
from stallguard.errors import OWN_FAILURE, StallguardError

if TYPE_CHECKING:
    from stallguard.config import CurrentSettings


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line and exit."""
    words = sys.argv[1:] if arguments is None else arguments
    _prefer_own_packages()
    _make_home_absolute()
    if os.environ.get(COMPLETION, "").endswith("_complete"):
        from stallguard.cli import completion, verbs

        sys.exit(completion.answer(verbs.cli, "stallguard"))
    if None in (sys.stdin, sys.stdout, sys.stderr):  # closed before stallguard started
        from stallguard.supervisor import terminal_lines

        terminal_lines.occupy()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without these characters shows others
    try:
        code = _run(words[1:]) if words[:1] == ["run"] else None
        if code is None:
            from stallguard.cli.verbs import invoke

            code = invoke(words)
    except StallguardError as error:
        say_error(error)
        code = error.code
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:  # `stallguard ls | head`: the reader has closed the pipe
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - else the interpreter complains at its end
        code = 0
    except Exception as error:  # noqa: BLE001 - the last resort: a user never meets a bare trace
        code = _own_failure(error, debug="--debug" in words)
    sys.exit(code)


def _prefer_own_packages() -> None:
    """Search the places that are the training's last: PYTHONPATH, and the working directory (`python -m stallguard`).

    A module there, such as a click.py of the user's, would otherwise be imported in place of a package of stallguard.
    """
    try:
        theirs = {os.path.abspath(name) for name in ("", *os.environ.get("PYTHONPATH", "").split(os.pathsep))}  # noqa: PTH100 - importing pathlib takes 5 ms
    except OSError:  # the working directory is gone
        return
    sys.path.sort(key=(theirs | {""}).__contains__)


def _make_home_absolute() -> None:
    """Make STALLGUARD_HOME absolute, for us and all that we start: a script can change its working directory."""
    home = os.environ.get("STALLGUARD_HOME")
    if home:
        with contextlib.suppress(OSError):  # the working directory is gone
            os.environ["STALLGUARD_HOME"] = os.path.abspath(home)  # noqa: PTH100 - importing pathlib takes 5 ms


def _run(words: list[str]) -> int | None:
    """Guard a training; return its exit code, or None if only click can read the words."""
    gc.disable()  # until the session has begun: imports leave nothing to collect, and looking takes 5 % of the time
    _import_msgspec()
    from pathlib import Path

    from stallguard import config

    plain = config.from_words(words)
    if plain is None:
        return None
    flags, command = plain
    cwd = Path.cwd()
    return guard(command, config.read(lambda: config.load(flags, os.environ, cwd)))


def guard(words: tuple[str, ...], settings: CurrentSettings, name: str = "") -> int:
    """Resolve COMMAND, run it under guard, and return the exit code.  `name`: of the run.  Raises StallguardError."""
    if settings.config.store.job:
        from stallguard.fleet import seam

        return seam.guard(words, settings, os.environ, name)
    from pathlib import Path

    from stallguard.launch.request import prepare
    from stallguard.supervisor.session import Session
    from stallguard.supervisor.signals import deferred_signals

    with deferred_signals() as kept:
        request = prepare(words, settings.loaded, os.environ, Path.cwd(), name=name)
        return Session(request, settings, os.environ).guard(kept)


def _import_msgspec() -> None:
    """Import msgspec without typing_extensions, which it takes functions from if that is installed, as by TensorFlow.

    Since Python 3.11 typing has the same functions; typing_extensions with what it imports takes 10 ms of processor
    time (4.16, Python 3.11), for which the training would wait.
    """
    blocked = "typing_extensions" not in sys.modules
    if blocked:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # to import it raises ImportError
    try:
        import msgspec  # noqa: F401
    finally:
        if blocked:
            del sys.modules["typing_extensions"]


def _own_failure(error: Exception, *, debug: bool) -> int:
    if debug:
        import traceback

        from stallguard.report.sanitize import plain

        sys.stderr.write(plain("".join(traceback.format_exception(error))))
    say_error(
        StallguardError(
            f"stallguard itself failed: {type(error).__name__}: {error}",
            cure="run it again with --debug before the verb, and report what it prints",
        )
    )
    return OWN_FAILURE
