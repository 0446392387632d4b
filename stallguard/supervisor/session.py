"""One run from start to end: makes the parts, starts the child first and everything slow after it, cleans up.

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
from typing import Any

import msgspec

from stallguard import keep, outcome, paths
from stallguard.config import Loaded
from stallguard.core import asked, fold, lost, trainings
from stallguard.core.actions import Launch, Tell
from stallguard.core.events import Noted
from stallguard.core.run import Run, beats
from stallguard.core.sizes import Sizes
from stallguard.core.steps import Step
from stallguard.core.words import counted
from stallguard.errors import STOPPED_ON_TIME
from stallguard.host.clock import SleepWatch, SystemClock
from stallguard.journal import Journal
from stallguard.outcome import Identity
from stallguard.report import aside
from stallguard.sensors import Training
from stallguard.supervisor import attempts, signals, streams, surprise
from stallguard.supervisor.adopted import Adopted
from stallguard.supervisor.appointment import local
from stallguard.supervisor.attempts import Attempt
from stallguard.supervisor.beats import Beats
from stallguard.supervisor.child import Child
from stallguard.supervisor.control import Control
from stallguard.supervisor.filed import Filed
from stallguard.supervisor.loop import Loop
from stallguard.supervisor.mailbox import Mailbox
from stallguard.supervisor.matching import Matching
from stallguard.supervisor.output import Output
from stallguard.supervisor.outputlog import OutputLog
from stallguard.supervisor.perform import Performer
from stallguard.supervisor.request import Request
from stallguard.supervisor.snapshot import snapshot
from stallguard.supervisor.surroundings import Surroundings
from stallguard.supervisor.terminal import Terminal, wants_color

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
        settings = loaded.config
        self.request, self.dir, self.loaded = request, request.run, loaded
        self.clock = SystemClock()
        self.mailbox = Mailbox(self.clock.monotonic)
        self.matching = Matching(self.mailbox.post, self.clock.monotonic, lambda: self.attempt)
        self.place = self._open_place()
        self.beats = Beats(self.place, self.dir.probe, self.mailbox.post, self.clock.monotonic)
        self.output = self._open_output()
        self.terminal = self._terminal(env)
        self.performer = Performer(self, env)
        self.loop = Loop(
            self.mailbox,
            settings.limits(),
            self.performer.perform,
            self.clock.monotonic,
            SleepWatch(self.clock).tick,
        )
        self.control = Control(
            self.place / "control",
            self.mailbox.post,
            self.clock.monotonic,
            self.status,
            self._refuses,
            self.trouble,
        )
        self.surroundings = Surroundings(self, self._began(), reload)
        self._told_all = False  # the last output has been passed on
        self._samplers: Any = None
        self._files = contextlib.ExitStack()  # open while anything may still be told

    # ---- what a run that outlives us does otherwise (supervisor.detached) ------------------------------------

    def _open_place(self) -> Path:
        return paths.socket_dir(owner=self.dir.path)

    def _open_output(self) -> Output | Filed:
        log = OutputLog(self.dir.output, self.trouble, self.loaded.config.keep.output // 3)
        chosen = streams.choose(streams.look(1), streams.look(2))
        return Output(chosen, log, self.trouble, tap=self.matching.feed)

    def _begin(self) -> Step:
        known = self.sizes()
        run, actions = fold.begin(
            self.loop.limits,
            self.clock.monotonic(),
            self._first_factor(known),
            self.performer.learned(),
            known,
        )
        resume = bool(self.request.heir_of)
        return run, [
            msgspec.structs.replace(action, resume=resume) if isinstance(action, Launch) else action
            for action in actions
        ]

    def _began(self) -> datetime.datetime:
        """Return when the run began, by the clock on the wall."""
        asked = outcome.asked(self.dir)
        return local(asked.began if asked else outcome.utc())

    def take_over(self, loaded: Loaded) -> None:
        """Let other settings hold from now on; from the thread that watches them."""
        if loaded != self.loaded:
            self.loaded = loaded
            self.loop.limits = loaded.config.limits()
            self.performer.open_notifier()

    def sizes(self) -> Sizes:
        """Return which batches earlier runs of this script survived, and `find-batch` found."""
        return self.performer.sizes()

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
        attempts.keep(self.dir, Attempt(attempts.SCHEMA, action.attempt, child, token, str(self.place)))

    # ---- one run ---------------------------------------------------------------------------------------------

    def _terminal(self, env: Mapping[str, str]) -> Terminal:
        output = self.loaded.config.output
        tty = streams.look(2).kind == "terminal"
        color = wants_color(output.color, env, tty=tty)
        return Terminal(
            sys.stderr, quiet=output.quiet, color=color, fresh=self.output.fresh, verbose=output.verbose
        )

    def trouble(self, words: str, **facts: str) -> None:
        """Have something of our own told: a full disk, a channel that fails.  `facts`: for the journal alone."""
        if self.loop.code is not None:  # the last notification, say: nobody takes an event any more
            self._tell("trouble", {"text": words})
            return
        now, attempt = self.clock.monotonic(), self.attempt
        self.mailbox.post(Noted(at=now, attempt=attempt, kind="trouble", text=words, facts=facts))

    @property
    def attempt(self) -> int:
        """The number of the present attempt."""
        # Before the first one is launched it counts as present: what is said then belongs to no attempt that is over.
        return max(1, self.loop.run.attempt) if self.loop.run else 1

    def status(self) -> Any:
        """Return what the control socket shows."""
        return snapshot(self.dir.id, self.loop.newest(), self.clock.monotonic())

    def _refuses(self, verb: str) -> str:
        return asked.refuses(self.loop.run, verb) if self.loop.run else ""

    def guard(self, kept: list[int]) -> int:
        """Run the training to its end; return the exit code.  `kept`: the signals of the time before (signals.held)."""
        before, threading.excepthook = threading.excepthook, self._thread_failed
        try:
            with signals.forwarded(self.mailbox, self.clock.monotonic, self.performer.pass_on, kept):
                code = self._guard()
            self._conclude()
            return code
        finally:
            self._close()
            threading.excepthook = before

    def _thread_failed(self, what: threading.ExceptHookArgs) -> None:
        name = what.thread.name if what.thread else "?"
        error = what.exc_value
        self.trouble(
            f"stallguard itself failed in its thread {name} ({surprise.words(error)})",
            trace=surprise.trace(error),
        )

    def _guard(self) -> int:
        self._announce()
        run, actions = self._begin()
        self.loop.start(run, actions)
        # From here on there is a training that no error of ours may cost.
        self._each(
            {
                "opening the journal": self._open_journal,
                "keeping room for its outcome": self._keep_room,
                "opening the file of its own stacks": self._open_stacks,
                "saying where its socket is": self._name_control,
                "starting the sensors": self._start_sensors,
                "looking after the machine": self.surroundings.open,
                "preparing notifications": self.performer.open_notifier,
            }
        )
        return self.loop.until_concluded()

    def _open_journal(self) -> None:
        self.journal = Journal(
            self.dir.journal, self.trouble, self.loaded.config.keep.journal, self.clock.monotonic
        )
        self._files.callback(self.journal.close)
        self.loop.open_journal(self.journal)

    def _keep_room(self) -> None:
        with contextlib.suppress(OSError):  # a full disk now: perhaps not at the end
            outcome.keep_room(self.dir)

    def _open_stacks(self) -> None:
        self.loop.stacks = self._files.enter_context((self.dir.path / "stallguard.stacks").open("w"))

    def _announce(self) -> None:
        self._tell("guarding", {"command": " ".join(self.request.words), "run": self.dir.id})
        for text in self.loaded.ignored:
            self._tell("trouble", {"text": text})
        chosen, reach = self.request.command.interpreter, self.request.reach
        if chosen is not None:
            self._tell("interpreter", {"python": chosen.path, "why": chosen.why})
            if chosen.hint:
                self._tell("elsewhere", {"python": chosen.path, "hint": chosen.hint})
        if self.request.heir_of:
            self._tell("goes_on", {"run": self.request.heir_of})
        if not reach.injectable:
            self._tell("outside", {"why": reach.why})
        self._announce_ceiling(self.sizes())

    def _announce_ceiling(self, known: Sizes) -> None:
        given = self.performer.given(1)
        if 1 < known.factor == self._first_factor(known):
            text = f"find-batch saw this script survive with its batches in {known.factor} parts: beginning there"
            self._tell("smaller", {"text": text})
        elif given.whole is not None and given.whole == known.rows:
            text = (
                f"find-batch saw this script survive with batches of up to {known.rows} rows: none is larger"
            )
            self._tell("smaller", {"text": text})

    def _tell(self, kind: str, facts: dict[str, str]) -> None:
        self.loop.remember(self.clock.monotonic(), "action", Tell(kind, facts))
        self.terminal.tell(kind, facts)

    def _name_control(self) -> None:
        asked = outcome.asked(self.dir)
        if asked is not None:
            with contextlib.suppress(OSError):  # a full disk: the run is only harder to find
                outcome.write(self.dir.asked, msgspec.structs.replace(asked, control=str(self.control.path)))

    def _start_sensors(self) -> None:
        from stallguard.sensors.output import Matcher
        from stallguard.sensors.registry import sensors
        from stallguard.sensors.sampler import Samplers

        failed = self.performer.sensor_failed
        self.matching.begin(Matcher())
        watched = sensors(self.performer.target, self.clock, failed)
        self._samplers = Samplers(watched, self.mailbox.post, self.clock, failed)
        self._samplers.start()
        self.loop.after = self._tune

    def _tune(self, run: Run) -> None:
        """Have the sensors look closer at what a detector wants to see closer."""
        wanted = trainings.wanted(run, self.loop.limits.detector)
        self._samplers.urgent(any(want.period < 1.0 for _, want in wanted))
        self.performer.look(run.now)
        self.surroundings.look(run)
        target, greeted = self.performer.target, run.history.greeted
        target.main, target.probe_threads = (greeted.pid, greeted.threads) if greeted else (None, ())
        target.census_wanted = any(want.census for _, want in wanted)
        target.trainings = tuple(
            Training(
                training.pid, training.history.greeted.threads if training.history.greeted else (),
                close=want.period < 1.0, census=want.census,
            )
            for training, want in wanted if training.trains
        )  # fmt: skip

    def settle(self) -> None:
        """Pass on, and read, what an attempt that has ended still said."""
        self.output.settle(LAST_WORDS)
        self.matching.finish()

    def _conclude(self) -> None:
        run = self.loop.run
        assert run is not None  # noqa: S101 - concluded
        self._pass_the_last_output_on()
        self._each(
            {
                "keeping what the run taught": lambda: self._remember(run),
                "writing its outcome": lambda: self._write_outcome(run),
                "removing old runs": self._make_room,
                "telling the story": lambda: self._tell_where_it_is_told(run),
            }
        )

    def _each(self, steps: Mapping[str, Callable[[], None]]) -> None:
        """Do all `steps`, by what is told where one fails: none of them may cost the training, or its exit code."""
        for doing, step in steps.items():
            with self.loop.passing_over(doing):
                step()

    def _write_outcome(self, run: Run) -> None:
        end = outcome.Outcome(
            schema=outcome.SCHEMA,
            code=run.code,
            why=self.performer.why,
            ended=outcome.utc(),
            seconds=round(run.now - run.began, 3),
            batches=beats(run),
            incidents=run.totals.incidents,
            attempts=run.attempt,
            lost=round(lost.total(run.lost, run.now), 3),
        )
        with contextlib.suppress(OSError):  # a full disk: the journal has the same, if anything has
            outcome.conclude(self.dir, end)

    def _tell_where_it_is_told(self, run: Run) -> None:
        if run.code == STOPPED_ON_TIME:
            self._tell("resumable" if self.dir.has_checkpoints() else "left_nothing", {"run": self.dir.id})
        if run.totals.incidents or run.code:
            self._tell("report", {"path": self._report(run)})

    def _report(self, run: Run) -> str:
        """Return where the story is; where there is one to tell, it is written as a page too."""
        page = aside.write(self.dir.path) if run.totals.incidents or run.attempt > 1 else None
        return f"stallguard report {self.dir.id}" + (f", or {page}" if page else "")

    def _make_room(self) -> None:
        """Remove what the settings have no room for; this run is the newest and stays."""
        gone = keep.prune(self.loaded.config.keep, self.dir.path.parent)
        if gone:
            self._tell("pruned", {"count": counted(len(gone), "old run")})

    def _pass_the_last_output_on(self) -> None:
        if not self._told_all:
            self._told_all = True
            self.output.finish(LAST_OUTPUT)

    def _close(self) -> None:
        self._each(
            {
                "ending the sensors": self._end_sensors,
                "letting the machine be": self.surroundings.close,
                "letting the training be": self.performer.close,
                "passing the last output on": self._pass_the_last_output_on,
                "leaving the terminal": self.terminal.close,
                "closing its socket": self.control.close,
                "closing the probe's socket": self.beats.close,
                "closing the journal": self._files.close,
            }
        )
        shutil.rmtree(self.place, ignore_errors=True)

    def _end_sensors(self) -> None:
        if self._samplers is not None:
            self._samplers.close()
