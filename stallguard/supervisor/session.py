"""One run from start to end: makes the parts, starts the child first and everything slow after it, cleans up.

The child is started before most of stallguard is loaded: what decides (the core, the loop, what performs, the sensors)
is imported while the child's interpreter starts, in `_load`.  So this module imports only what the child waits for.
May not decide: the core decides, the loop asks it, perform acts.
"""

from __future__ import annotations

import contextlib
import datetime
import shutil
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from stallguard.config import Loaded
from stallguard.core.actions import Launch, Tell
from stallguard.core.events import Noted
from stallguard.core.sizes import Sizes
from stallguard.host.clock import SleepWatch, SystemClock
from stallguard.launch.request import Request
from stallguard.storage import attempt_file, paths, run_files
from stallguard.storage.attempt_file import Attempt
from stallguard.storage.run_files import Identity
from stallguard.supervisor import signals
from stallguard.supervisor.control import Control
from stallguard.supervisor.heartbeats import Beats
from stallguard.supervisor.launcher import Launcher
from stallguard.supervisor.mailbox import Mailbox
from stallguard.supervisor.output import terminal
from stallguard.supervisor.output.carrier import Output
from stallguard.supervisor.output.log import OutputLog
from stallguard.supervisor.output.matching import Matching
from stallguard.supervisor.output.notices import Terminal, wants_color
from stallguard.supervisor.process.child import Child
from stallguard.supervisor.recorder import Journaling

if TYPE_CHECKING:
    from stallguard.core.run import Run
    from stallguard.core.transitions import Step
    from stallguard.supervisor.background import Surroundings
    from stallguard.supervisor.executor import Performer
    from stallguard.supervisor.loop import Loop
    from stallguard.supervisor.output.file import Filed
    from stallguard.supervisor.process.adopted import Adopted
    from stallguard.supervisor.sensing import Watching

LAST_WORDS = 1.0  # seconds for the last output of an attempt to reach the user before we speak
LAST_OUTPUT = 60.0  # seconds that a reader who takes nothing can hold up the end of the run


class Session:
    """The parts of a run.  `env`: the user's environment."""

    def __init__(
        self,
        request: Request,
        loaded: Loaded,
        env: Mapping[str, str],
        reload: Callable[[], Loaded] | None = None,
    ) -> None:
        """Make what must exist before the child starts; raises StallguardError, leaving nothing behind."""
        self.request, self.dir, self.loaded = request, request.run, loaded
        self.clock = SystemClock()
        self.mailbox = Mailbox(self.clock.monotonic)
        self.matching = Matching(self.mailbox.post, self.clock.monotonic, lambda: self.attempt)
        self.place = self._open_place()
        self.beats = Beats(self.place, self.dir.probe, self.mailbox.post, self.clock.monotonic)
        self.output = self._open_output()
        self.terminal = self._terminal(env)
        self.launcher = Launcher(self, env)
        self.control = Control(
            self.place / "control",
            self.mailbox.post,
            self.clock.monotonic,
            self.status,
            self._refuses,
            self.trouble,
        )
        self.journaling = Journaling()
        self.start = self.clock.monotonic()
        self._env, self._reload = env, reload
        self._loaded = False  # what decides is there, and begins with a run
        self._told_all = False  # the last output has been passed on
        self._files = contextlib.ExitStack()  # open while anything may still be told

    def _load(self) -> None:
        """Import and make what decides and acts; a training may run by now."""
        from stallguard.supervisor.background import Surroundings
        from stallguard.supervisor.executor import Performer
        from stallguard.supervisor.loop import Loop
        from stallguard.supervisor.sensing import Watching

        self.performer: Performer = Performer(self, self._env)
        self.loop: Loop = Loop(
            self.mailbox,
            self.loaded.config.limits(),
            self.performer.perform,
            self.clock.monotonic,
            SleepWatch(self.clock).tick,
            self.journaling,
        )
        self.surroundings: Surroundings = Surroundings(self, self._began(), self._reload)
        self.watching: Watching = Watching(self)
        self.loop.after = self._tune

    # ---- what a run that outlives us does otherwise (supervisor.detached_run) ------------------------------------

    def _open_place(self) -> Path:
        return paths.socket_dir(owner=self.dir.path)

    def _open_output(self) -> Output | Filed:
        log = OutputLog(self.dir.output, self.trouble, self.loaded.config.keep.output // 3)
        chosen = terminal.choose(terminal.look(1), terminal.look(2))
        return Output(chosen, log, self.trouble, tap=self.matching.feed)

    def _new(self) -> Launch:
        """Return the launch of a new run's first attempt."""
        return Launch(attempt=1, factor=self._first_factor(self.sizes()), resume=bool(self.request.heir_of))

    def _first(self) -> Launch | None:
        """Return the launch that comes first; None if the core has to be asked."""
        return self._new()

    def _begin(self, first: Launch | None) -> Step:
        """Return the run as it begins, and what is to be done then.  `first`: the launch that is done already."""
        from stallguard.core import fold

        new = first or self._new()
        run, _ = fold.begin(self.loop.limits, self.start, new.factor, self.performer.learned(), self.sizes())
        return run, [new]

    def _began(self) -> datetime.datetime:
        """Return when the run began, by the clock on the wall."""
        from stallguard.supervisor import deadline

        user_commands = run_files.asked(self.dir)
        return deadline.local(user_commands.began if user_commands else run_files.utc())

    def _tune(self, run: Run) -> None:
        """Look after the run; called after every event."""
        self.watching.tune(run)

    def take_over(self, loaded: Loaded) -> None:
        """Let other settings hold from now on; from the thread that watches them."""
        if loaded != self.loaded:
            self.loaded = loaded
            self.loop.limits = loaded.config.limits()
            self.performer.open_notifier()

    def sizes(self) -> Sizes:
        """Return which batches earlier runs of this script survived, and `find-batch` found."""
        return self.launcher.sizes()

    def _remember(self, run: Run) -> None:
        self.performer.remember(run)

    def _first_factor(self, known: Sizes) -> int:
        """Return in how many parts the first attempt trains its batches: what was asked for, or `find-batch` found."""
        settings = self.loaded.config
        sliced = settings.run.probe and not settings.policy.gives_size
        return max(known.factor, settings.policy.microbatches) if sliced else 1

    def start_child(self, argv: Sequence[str], file: Path, **how: Any) -> Child | Adopted:
        """Start an attempt's process, as Child.start; `file`: where its exit code is kept if it outlives us."""
        del file  # a parent of its own reads the exit code
        return Child.start(argv, **how)

    def attempt_began(self, action: Launch, token: int, child: Identity) -> None:
        """Note the attempt that has begun, for whoever looks for it when we are dead."""
        attempt_file.keep(
            self.dir, Attempt(attempt_file.SCHEMA, action.attempt, child, token, str(self.place))
        )

    # ---- one run ---------------------------------------------------------------------------------------------

    def _terminal(self, env: Mapping[str, str]) -> Terminal:
        output = self.loaded.config.output
        tty = terminal.look(2).kind == "terminal"
        color = wants_color(output.color, env, tty=tty)
        return Terminal(
            sys.stderr, quiet=output.quiet, color=color, fresh=self.output.fresh, verbose=output.verbose
        )

    def trouble(self, words: str, **facts: str) -> None:
        """Have something of our own told: a full disk, a channel that fails.  `facts`: for the journal alone."""
        if self._loaded and self.loop.code is not None:
            # The run is over, and events are not read any more: this is a failure of the last notification.
            self.tell("trouble", {"text": words})
            return
        now, attempt = self.clock.monotonic(), self.attempt
        self.mailbox.post(Noted(at=now, attempt=attempt, kind="trouble", text=words, facts=facts))

    @property
    def attempt(self) -> int:
        """The number of the present attempt."""
        # Before the first one is launched it counts as present: what is said then belongs to no attempt that is over.
        return max(1, self.loop.run.attempt) if self._loaded and self.loop.run else 1

    def status(self) -> Any:
        """Return what the control socket shows."""
        from stallguard.supervisor.live_status import snapshot

        return snapshot(self.dir.id, self.loop.newest() if self._loaded else None, self.clock.monotonic())

    def _refuses(self, verb: str) -> str:
        from stallguard.core import user_commands

        return user_commands.refuses(self.loop.run, verb) if self._loaded and self.loop.run else ""

    def guard(self, kept: list[int]) -> int:
        """Run the training to its end; return the exit code.  `kept`: the signals of the time before (signals.held)."""
        before, threading.excepthook = threading.excepthook, self._thread_failed
        try:
            with signals.forwarded(self.mailbox, self.clock.monotonic, self.launcher.pass_on, kept):
                code = self._guard()
            if self._loaded:
                self._conclude()
            return code
        finally:
            self._close()
            threading.excepthook = before

    def _thread_failed(self, what: threading.ExceptHookArgs) -> None:
        from stallguard.supervisor import internal_error

        name = what.thread.name if what.thread else "?"
        error = what.exc_value
        self.trouble(
            f"stallguard itself failed in its thread {name} ({internal_error.words(error)})",
            trace=internal_error.trace(error),
        )

    def _guard(self) -> int:
        self._announce()
        first = self._first()
        failed = self._launch(first) if first is not None else None
        # From here on there is a training that no error of ours may cost.
        try:
            self._load()
            run, actions = self._begin(first)
        except Exception as error:
            if first is None:
                raise
            from stallguard.supervisor import unguarded

            return unguarded.wait(self, error)
        self._loaded = True
        self.loop.start(run, actions, first)
        with self.loop.passing_over(f"doing what is next ({Launch.__name__})"):
            if failed is not None:
                raise failed
        self._each(
            {
                "opening the journal": self._open_journal,
                "keeping room for its outcome": self._keep_room,
                "opening the file of its own stacks": self._open_stacks,
                "saying where its socket is": self._name_control,
                "starting the sensors": self.watching.start,
                "looking after the machine": self.surroundings.open,
                "preparing notifications": self.performer.open_notifier,
            }
        )
        return self.loop.until_concluded()

    def _launch(self, first: Launch) -> Exception | None:
        """Start the first attempt; return an error of ours."""
        self.journaling.write(self.clock.monotonic(), first)
        try:
            self.launcher.launch(first)
        except Exception as error:  # noqa: BLE001 - told once something can tell it
            return error
        return None

    def _open_journal(self) -> None:
        from stallguard.storage.journal import Journal

        self.journal = Journal(
            self.dir.journal, self.trouble, self.loaded.config.keep.journal, self.clock.monotonic, self.dir.id
        )
        self._files.callback(self.journal.close)
        self.journaling.open(self.journal)

    def _keep_room(self) -> None:
        with contextlib.suppress(OSError):  # a full disk now: perhaps not at the end
            run_files.keep_room(self.dir)

    def _open_stacks(self) -> None:
        self.loop.stacks = self._files.enter_context((self.dir.path / "stallguard.stacks").open("w"))

    def _announce(self) -> None:
        self.tell("guarding", {"command": " ".join(self.request.words), "run": self.dir.id})
        for text in self.loaded.ignored:
            self.tell("trouble", {"text": text})
        chosen, reach = self.request.command.interpreter, self.request.reach
        if chosen is not None:
            self.tell("interpreter", {"python": chosen.path, "why": chosen.why})
            if chosen.hint:
                self.tell("elsewhere", {"python": chosen.path, "hint": chosen.hint})
        if self.request.heir_of:
            self.tell("goes_on", {"run": self.request.heir_of})
        if not reach.injectable:
            self.tell("outside", {"why": reach.why})
        self._announce_ceiling(self.sizes())

    def _announce_ceiling(self, known: Sizes) -> None:
        given = self.launcher.given(1)
        if 1 < known.factor == self._first_factor(known):
            text = f"find-batch saw this script survive with its batches in {known.factor} parts: beginning there"
            self.tell("smaller", {"text": text})
        elif given.whole is not None and given.whole == known.rows:
            text = (
                f"find-batch saw this script survive with batches of up to {known.rows} rows: none is larger"
            )
            self.tell("smaller", {"text": text})

    def tell(self, kind: str, facts: dict[str, str]) -> None:
        """Say something that the core did not want said, and write it down."""
        self.journaling.write(self.clock.monotonic(), Tell(kind, facts))
        self.terminal.tell(kind, facts)

    def _name_control(self) -> None:
        user_commands = run_files.asked(self.dir)
        if user_commands is not None:
            with contextlib.suppress(OSError):  # a full disk: the run is only harder to find
                run_files.write(
                    self.dir.asked, msgspec.structs.replace(user_commands, control=str(self.control.path))
                )

    def settle(self) -> None:
        """Pass on, and read, what an attempt that has ended still said."""
        self.output.settle(LAST_WORDS)
        self.matching.finish()

    def _conclude(self) -> None:
        from stallguard.supervisor import conclusion

        run = self.loop.run
        assert run is not None  # noqa: S101 - concluded
        self._pass_the_last_output_on()
        self._each(
            {
                "keeping what the run taught": lambda: self._remember(run),
                "writing its outcome": lambda: conclusion.write_outcome(self.dir, run, self.performer.why),
                "removing old runs": lambda: conclusion.make_room(self.loaded, self.dir, self.tell),
                "telling the story": lambda: conclusion.tell_where_it_is_told(self.dir, run, self.tell),
            }
        )

    def _each(self, steps: Mapping[str, Callable[[], None]]) -> None:
        """Do all `steps`, by what is told where one fails: none of them may cost the training, or its exit code."""
        for doing, step in steps.items():
            with self.loop.passing_over(doing) if self._loaded else contextlib.suppress(Exception):
                step()

    def _pass_the_last_output_on(self) -> None:
        if not self._told_all:
            self._told_all = True
            self.output.finish(LAST_OUTPUT)

    def _close(self) -> None:
        if self._loaded:
            self._each(
                {
                    "ending the sensors": self.watching.close,
                    "letting the machine be": self.surroundings.close,
                    "sending the last notification": self.performer.close,
                }
            )
        self._each(
            {
                "letting the training be": self.launcher.close,
                "passing the last output on": self._pass_the_last_output_on,
                "leaving the terminal": self.terminal.close,
                "closing its socket": self.control.close,
                "closing the probe's socket": self.beats.close,
                "closing the journal": self._files.close,
            }
        )
        shutil.rmtree(self.place, ignore_errors=True)
