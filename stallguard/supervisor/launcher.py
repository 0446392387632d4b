"""Starts the attempts of a run, and adopts one that an earlier stallguard started.

The first attempt is started before most of stallguard is imported, so that a training begins as soon as it would alone:
this module, and what it imports, must stay cheap to import.  Must not decide anything: a start that fails is an event.

`EarlierRuns` has what earlier runs of the script showed: the batch sizes that it survived, which the first attempt
needs, and the usual gaps between its batches.  `RunOptions` is what a detached run or a trial does otherwise.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from stallguard.config.table import for_probe
from stallguard.core.actions import Launch
from stallguard.core.events import Failed, Launched, ProbeNote
from stallguard.core.learned import NO_SIZES, BatchSizes
from stallguard.core.policy import slices_inside
from stallguard.core.text import counted
from stallguard.errors import SIGNALLED, StallguardError
from stallguard.host import system
from stallguard.launch import batch_option, resume_words
from stallguard.launch.environment import (
    KEY_VARIABLE,
    STACKS_SIGNAL,
    ProbeFiles,
    child_environment,
    drawn_seed,
    hash_seed,
    keep_reference,
    run_seed,
    signing_key,
)
from stallguard.probe.settings import VARIABLE, ProbeSettings, encode
from stallguard.sensors import Target
from stallguard.storage import learned_store, paths, run_files
from stallguard.storage.paths import RunDir
from stallguard.storage.run_files import AttemptRecord
from stallguard.supervisor.child import Child
from stallguard.supervisor.context import RunContext
from stallguard.supervisor.heartbeats import HeartbeatListener
from stallguard.supervisor.output import Matching

if TYPE_CHECKING:
    from stallguard.core.events import Event
    from stallguard.core.learned import Learned
    from stallguard.core.limits import Limits
    from stallguard.core.run import Run
    from stallguard.core.shutdown import Step

    # Given the run as it would begin anew.  Returns the run as it was left and the next actions; None: begin anew.
    TakeUp = Callable[["RunContext", "Launcher", "EarlierRuns", Limits, Run], Step | None]

LOOK_EVERY = 5.0  # seconds between two looks at the child's control group
LAST_OUTPUT = 1.0  # seconds for the last output of an attempt to reach the user before the end is reported
GONE = "stallguard's files are gone: it was removed or upgraded during the run"
UNUSABLE = "without the probe, its checkpoints cannot be used"
TOKEN_BYTES = 7  # a positive signed 64-bit number


class StartProcess(Protocol):
    """Starts an attempt's process.

    `exit_file`: where its exit code is stored if it outlives us; `trouble`: reports a problem; `how`: as Child.start.
    """

    def __call__(self, argv: Sequence[str], exit_file: Path, trouble: Callable[[str], None], /, **how: Any) -> Child:
        """Raises StallguardError."""


def start_child(argv: Sequence[str], _exit_file: Path, _trouble: Callable[[str], None], /, **how: Any) -> Child:
    """Start a child of ours, whose exit code the kernel gives to us."""
    return Child.start(argv, **how)


class Launcher:
    """Starts the attempts of one run.  `child`: the present attempt's process; `target`: what the sensors look at."""

    def __init__(
        self, context: RunContext, beats: HeartbeatListener, matching: Matching, earlier: EarlierRuns,
        start_process: StartProcess,
    ) -> None:  # fmt: skip
        """`beats` receives the probe's records, `matching` searches the output of the attempts."""
        self._context, self._beats, self._matching = context, beats, matching
        self._earlier, self._start_process = earlier, start_process
        self.child: Child | None = None
        self.target = Target(mine=(context.directory.path,), places=(context.request.cwd,))
        self.probe = ProbeFiles(paths.home())
        self.environment_of_child: dict[str, str] = {}
        self._memory: system.MemoryKill | None = None
        self._looked = 0.0
        self._unkept: AttemptRecord | None = None  # could not be written yet
        self._drawn = ""  # the run's seed, once an attempt needs it
        self._printed = 0  # bytes of the output that were there before the present attempt

    def signal(self, name: str, number: int = 0) -> None:
        """Send a signal to the training's process group; one that has a `number`, to its first process alone."""
        if self.child is not None and number:
            self.child.pass_on(number)
        elif self.child is not None:
            self.child.signal(name)

    def pass_on(self, name: str) -> None:
        """Send a signal that we received to the training's group at once; from a signal handler."""
        if name == "WINCH":
            self._context.output.resize()
        self.signal(name)

    def adopt(self, attempt: AttemptRecord, known: Collection[int]) -> None:
        """Guard a training that an earlier stallguard started.  `known`: the processes that it knew of."""
        from stallguard.supervisor.adopted import Adopted  # a new training needs none of it

        self._beats.follow(attempt.number, attempt.token, known)
        # The job's, then as now: its secrets are removed from evidence.
        self.environment_of_child = dict(self._context.env)
        file = run_files.exit_file(self._context.directory, attempt.token, attempt.number)
        self._printed = self._output_size() if attempt.number > 1 else 0
        self.child = Adopted(attempt.process, file, self._ended, self.settle)
        self._observe(self.child.pid)

    def _observe(self, pid: int) -> None:
        """Count the kernel's kills, and point the sensors at the tree of a new attempt: no training is known yet."""
        self._memory = system.MemoryKill(pid)
        self.target.root, self.target.main, self.target.trainings = pid, None, ()

    def launch(self, action: Launch) -> None:
        """Start an attempt; what fails becomes an event."""
        context, token = self._context, int.from_bytes(os.urandom(TOKEN_BYTES), "little")
        if action.attempt > 1 and not action.resume and context.directory.has_checkpoints():
            try:  # an attempt from scratch must not be mixed with the attempts before
                context.directory.set_checkpoints_aside(action.attempt)
            except OSError as error:
                text = f"the checkpoints of the attempts before stay in their place ({error})"
                context.reporter.trouble(text)
        if action.resume and context.settings.config.policy.on_nonfinite == "rollback":
            from stallguard.supervisor.conclusion import set_broken_checkpoints_aside

            set_broken_checkpoints_aside(context.directory, context.reporter)
        probe = self.probe.inject if context.settings.config.run.probe else None
        has_checkpoints = action.resume and context.directory.has_checkpoints()
        if probe is None and context.settings.config.run.probe:
            context.reporter.announce("probe.impossible", {"why": GONE})
        own = resume_words.OwnResume()
        try:
            if action.resume and probe is not None and context.settings.config.checkpoint.enabled:
                run, wanted = context.current.run, context.settings.config.policy.resume_with
                if wanted or not (has_checkpoints or (run is not None and run.own_backup)):
                    own = resume_words.of_attempt(wanted, context.directory.checkpoints)
            given = self.given(action.slices)
            given = given._replace(argv=[*given.argv, *own.words])
            child = self._start(action, token, given, probe, own.added)
        except StallguardError as error:
            self._post_failure(action, error)
            return
        except Exception:
            self._post_failure(action, StallguardError("the training cannot be started"))
            raise  # reported next, with its trace
        now, sockets = context.clock.monotonic(), str(context.sockets)
        context.mailbox.post_next(
            Launched(
                at=now, attempt=action.attempt, pid=child.pid, slices=action.slices, device=action.device,
                resumed=has_checkpoints and probe is not None,
                unresumed=UNUSABLE if has_checkpoints and probe is None else "", foreign=child.foreign,
                blind=child.blind or (child.foreign and probe is None),
                own=own.text if action.attempt > 1 or own.words else "",
            )
        )  # fmt: skip
        self._observe(child.pid)
        attempt = AttemptRecord(
            run_files.ATTEMPT_SCHEMA, action.attempt, child.identity, token, sockets, child.foreign
        )  # fmt: skip
        if child.environment is not None:
            self.environment_of_child = child.environment
        self._unkept = None if run_files.keep_attempt(context.directory, attempt) else attempt
        if given.whole is not None:
            text = f"the script is given batches of {counted(given.rows or 0, 'row')}"
            facts = {"rows": str(given.whole)}
            context.mailbox.post(ProbeNote(at=now, attempt=action.attempt, kind="batch", text=text, facts=facts))

    def given(self, slices: int) -> batch_option.BatchArguments:
        """Return what an attempt with 1/`slices` of the batch is started with.  Raises StallguardError."""
        context = self._context
        policy, most = context.settings.config.policy, self._earlier.sizes.rows
        return batch_option.given(context.request.command.argv, context.env, policy, slices, most)

    def _start(
        self, action: Launch, token: int, given: batch_option.BatchArguments, probe: Path | None, added: str
    ) -> Child:
        context, directory = self._context, self._context.directory
        self.close()
        self._beats.follow(action.attempt, token)
        context.output.copy_settings()
        settings, environment = context.settings.config, given.env
        if probe is not None:
            policy = settings.policy
            seed = self._seed()
            hashes = hash_seed(seed, given.env)
            wish = ProbeSettings(
                socket=str(self._beats.path), pages=str(directory.probe), token=token, signal=STACKS_SIGNAL,
                slices=action.slices, rows=given.rows or 0, device=action.device, resume=action.resume,
                inside=1 if settings.run.observe or self._earlier.is_trial else slices_inside(policy),
                fewer_rows=policy.scale_lr if policy.really_smaller_batch and given.rows is None else "",
                checkpoints=str(directory.checkpoints) if settings.checkpoint.enabled else "",
                trackers=str(directory.trackers) if settings.trackers.resume else "",
                seed=seed, hash_seed=hashes, key=self._key(), project=context.request.project,
                added=added, **for_probe(settings),
            )  # fmt: skip
            environment = child_environment(given.env, hashes, probe) | {VARIABLE: encode(wish)}
            with contextlib.suppress(OSError):  # a full disk: arguments alone distinguish trainings then
                keep_reference(directory.probe, environment, context.request.project)
        self.environment_of_child, self._printed = environment, self._output_size()
        self.child = self._start_process(
            given.argv, run_files.exit_file(directory, token, action.attempt), context.reporter.trouble,
            env=environment, cwd=str(context.request.cwd), stdout=context.output.stdout,
            stderr=context.output.stderr, post=self._ended, before_post=self.settle,
        )  # fmt: skip
        return self.child

    def settle(self) -> None:
        """Pass on, and search, what an attempt that has ended still wrote."""
        self._context.output.settle(LAST_OUTPUT)
        self._matching.finish()

    def _ended(self, code: int | None, memory_kill: bool | None) -> None:
        """Pass a child's end on; from its thread.  On Linux only the kernel's counters know of a kill for memory."""
        watch, self._memory, crashed = self._memory, None, ("", "")
        try:
            if watch is not None:
                memory_kill = watch.killed() if memory_kill is None else memory_kill
                watch.close()
            crashed = self._crash(code)
        except Exception as error:  # noqa: BLE001 - the end itself is what counts
            self._context.reporter.trouble(f"where the training crashed cannot be read: {error}")
        finally:
            self._beats.exited(code, memory_kill, crashed)

    def _crash(self, code: int | None) -> tuple[str, str]:
        """Return the script's line at which a process of the attempt crashed, and which; keep its stacks."""
        from stallguard.collectors import crash_stacks
        from stallguard.collectors.redact import Redactor

        context, found = self._context, None
        directory = context.directory
        if (code or (code is None and getattr(self.child, "foreign", False))) and self.child is not None:
            is_signal, printed = code is not None and (code < 0 or code > SIGNALLED), ""
            if is_signal:
                size = self._output_size()
                with contextlib.suppress(FileNotFoundError):  # it printed nothing
                    printed = crash_stacks.tail(directory.output, self._printed if self._printed <= size else 0)
            cwd = str(context.request.cwd)
            found = crash_stacks.find(directory.probe, self.child.pid, time.time(), printed, cwd)
        crash_stacks.clear(directory.probe)
        if found is None:
            return "", ""
        redactor = Redactor(self.environment_of_child, tuple(context.request.command.argv), str(Path.home()))
        crash_stacks.keep(found, directory.crash(context.current.attempt), redactor.text)
        return found.at, found.of

    def _output_size(self) -> int:
        with contextlib.suppress(OSError):
            return self._context.directory.output.stat().st_size
        return 0

    def look(self, run: Run) -> None:
        """Do now and then what the present attempt needs.

        Look whether the child is still in the control group whose kills are counted; write the file of the attempt
        if the disk was full.
        """
        if run.now - self._looked < LOOK_EVERY:
            return
        self._looked = run.now
        if self._unkept is not None and run_files.keep_attempt(self._context.directory, self._unkept):
            self._unkept = None
        if self._memory is not None:
            self._memory.look()

    def _seed(self) -> str:
        """Return the run's seed, "" if what the script leaves unseeded is drawn anew in each attempt."""
        context, checkpoint = self._context, self._context.settings.config.checkpoint
        if not checkpoint.enabled or not checkpoint.keep_randomness:
            return ""
        if not self._drawn:
            try:
                self._drawn = run_seed(context.directory.checkpoints)
            except OSError as error:
                self._drawn = drawn_seed()
                context.reporter.trouble(
                    f"the run's seed is not kept ({error}): a run that resumes this one draws another"
                )
        return self._drawn

    def _key(self) -> str:
        """Return the file of the key that signs pickles, "" if there is none: then what needs it is not kept."""
        context = self._context
        if not context.settings.config.checkpoint.enabled:
            return ""
        try:
            return signing_key(paths.home(), context.env.get(KEY_VARIABLE, ""))
        except OSError as error:
            context.reporter.trouble(
                f"there is no key to sign checkpoints with ({error}): objects that need a pickle are not kept"
            )
            return ""

    def _post_failure(self, action: Launch, error: StallguardError) -> None:
        for line in error.lines():
            self._context.terminal.say(line)
        now = self._context.clock.monotonic()
        self._context.mailbox.post_next(Failed(at=now, attempt=action.attempt, why=error.what, code=error.code))

    def close(self) -> None:
        """Let the kernel forget the child."""
        if self.child is not None:
            self.child.reap()


class EarlierRuns:
    """Reads and writes what is stored about the script."""

    def __init__(self, context: RunContext, *, is_trial: bool) -> None:
        """`is_trial`: known batch sizes do not limit this run, and nothing that it shows is stored."""
        self._context, self.is_trial = context, is_trial

    @cached_property
    def sizes(self) -> BatchSizes:
        """Which batches earlier runs survived, and `find-batch` found."""
        if self.is_trial:
            return NO_SIZES
        return learned_store.sizes(self._sizes_key(), self._context.reporter.trouble)

    def learned(self) -> Learned | None:
        """Return the usual gaps, or None."""
        return learned_store.load(self._gaps_key(), self._context.reporter.trouble)

    def remember(self, run: Run) -> None:
        """Store what this run showed."""
        from stallguard.core import trainings  # after the first attempt is started

        if self.is_trial:  # the gaps of another batch size are no measure
            return
        learned_store.save(self._gaps_key(), trainings.all_learned(run))
        if run.sizes != self.sizes:
            learned_store.keep_sizes(self._sizes_key(), run.sizes)

    def _gaps_key(self) -> learned_store.CommandKey:
        request = self._context.request
        return learned_store.key_of(request.command.argv, request.cwd)

    def _sizes_key(self) -> learned_store.CommandKey:
        request, policy = self._context.request, self._context.settings.config.policy
        return learned_store.key_of(batch_option.unsized(request.command.argv, policy), request.cwd)


def new_sockets(directory: RunDir) -> Path:
    """Make a directory for the sockets of a run."""
    return paths.socket_dir(owner=directory.path)


class RunOptions(NamedTuple):
    """What a detached run or a trial of `find-batch` or `compare` does otherwise than a plain run: the defaults."""

    announce: bool = True  # write to the terminal what is guarded
    open_sockets: Callable[[RunDir], Path] = new_sockets
    output_to_file: bool = False  # the training writes to output.log itself
    # The file that a process which stallguard did not start prints to; None: it is not known.
    follows: Path | None = None
    is_foreign: bool = False  # stallguard does not start the process: its output is that of `follows`
    start_process: StartProcess = start_child
    outcome_patience: float = 0.0  # seconds to try for, if the disk refuses the outcome
    save_core: bool = False  # save the core's value beside the journal, for a later stallguard
    take_up: TakeUp | None = None  # for a run that an earlier stallguard left
    trial: Launch | None = None  # the first launch of a trial, which ignores what earlier runs showed
    # Gets each event, and each record of the probe, from any thread.
    observe: Callable[[Event], None] | None = None
    sensor_periods: Mapping[str, float] = {}  # seconds between two readings, by sensor, in place of its own
    # Called once, before the first attempt starts.
    beside: Callable[[RunContext, Launcher], None] | None = None
    stop_when: Callable[[Run], bool] | None = None  # stop the training once this is true
