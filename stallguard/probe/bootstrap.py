"""Brings the probe in: claims the process, opens page and socket, and waits for a training library.

Costs a few milliseconds at the start of every Python process of a run, so everything that can wait does: the
hooks are loaded when the first training library is imported, not before.
"""

from __future__ import annotations

import atexit
import os
import sys
from time import monotonic_ns

from . import device, page, place, stacks, wire
from .beats import Beats
from .context import Context
from .imports import Api, Finder
from .mail import Mail
from .patches import Patches
from .script import Script
from .sender import LIBRARIES, Sender

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from types import ModuleType
    from typing import Any


def enter(environment: MutableMapping[str, str], package: ModuleType) -> None:
    """Come in, if this process is nobody's worker; may raise, the caller swallows it."""
    if sys.byteorder != "little":
        return  # the record is little-endian, and so is every machine that trains
    sys.meta_path.append(Api(os.path.dirname(package.__path__[0])))
    token, pid = int(environment["STALLGUARD_TOKEN"]), os.getpid()
    if environment.get("STALLGUARD_OWNER") not in (None, "", str(pid)):
        return  # a worker of the training process, or of another tool that came first
    environment["STALLGUARD_OWNER"] = str(pid)
    probe = Probe(environment, token, pid)
    package.__dict__.update(voice=Script(probe.context), probe=probe)
    probe.start()


class Probe:
    """The parts of the probe and how they hang together."""

    def __init__(self, environment: MutableMapping[str, str], token: int, pid: int) -> None:
        run = environment["STALLGUARD_RUN"]
        self.beats = Beats(
            page.begin(page.shared(os.path.join(run, "%d.page" % pid)), token, pid, monotonic_ns())
        )
        self.mail = Mail(token, pid)
        self.patches = Patches(self.step_aside)
        self.context = Context(self.beats, self.mail, self.patches, environment)
        self.finder = Finder(self.patches.surprise)
        self.signal = _arm(self.beats, self.mail, environment, os.path.join(run, "%d.stacks" % pid))
        self.sender = Sender(self.beats, self.mail, environment.get("STALLGUARD_SOCKET", ""), self.signal)
        self.environment = environment
        self.context.place = self._place()

    def _place(self) -> str:
        try:
            return place.of(self.environment)
        except Exception as error:
            self.context.surprise("finding this process' place", error)
            return ""

    def start(self) -> None:
        """Wait for a training library, then greet."""
        if self._cpu():
            device.hide(self.environment)
        self.mail.version("python", "%d.%d.%d" % sys.version_info[:3])
        self.mail.version("machine", os.uname().machine)  # an Intel one on Apple silicon: Rosetta translates
        self.finder.first(LIBRARIES, self.equip)
        sys.meta_path.insert(0, self.finder)
        os.register_at_fork(after_in_child=self.forked)
        atexit.register(self.sender.goodbye)
        self.sender.start()

    def equip(self) -> None:
        """A training library is about to be imported: load the hooks and whatever this attempt needs."""
        from . import hooks

        for family in hooks.FAMILIES:
            self._add(family.targets)
        for wanted, part in (
            (self._cpu(), "device"),
            (self.context.factor > 1, "levers"),
            ("STALLGUARD_REALLY" in self.environment, "levers.really"),
            ("STALLGUARD_REGROW" in self.environment, "levers.regrow"),
            (self.context.backup_directory, "backup"),
        ):
            if wanted:
                self._load(part)

    def _cpu(self) -> bool:
        return self.environment.get("STALLGUARD_DEVICE") == "cpu"

    def _load(self, part: str) -> None:
        try:
            module = __import__("%s.%s" % (__package__, part), fromlist=["targets"])
        except Exception as error:
            self.context.surprise("loading " + part, error)
        else:
            self._add(module.targets)

    def _add(self, targets: Any) -> None:
        try:
            self.finder.add(targets(self.context))
        except Exception as error:
            self.context.surprise("targets of " + targets.__module__, error)

    def step_aside(self, why: str) -> None:
        """Too many surprises: take the hooks out and say so; the training goes on alone."""
        self.patches.take_out()
        self.beats.flag(wire.FLAG_STEPPED_ASIDE, True)
        self.mail.note("aside", "the probe took its hooks out: " + why, {})

    def forked(self) -> None:
        """Turn silent in a forked worker: what its hooks store from now on is nobody's business."""
        self.beats.slots = page.private()
        self.sender.abandon()


def _arm(beats: Beats, mail: Mail, environment: MutableMapping[str, str], path: str) -> int:
    """Arm the stack-dump signal; return its number, 0 where it could not be armed."""
    number = int(environment.get("STALLGUARD_SIGNAL") or stacks.DEFAULT)
    if not stacks.arm(number, path):
        return 0
    beats.flag(wire.FLAG_STACKS_ARMED, True)
    mail.arm(True)
    return number
