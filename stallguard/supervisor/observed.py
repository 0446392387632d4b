"""A process that stallguard did not start: it is watched, and never signalled, ended or started again.

The kernel of a notebook, or a process that the user names by its number.  Its identity has the time of its start, so a
later process with the same number is another one.  Nothing that the core orders reaches it: there is no code here that
could send a signal.  Linux says how a process ended to its parent alone, macOS to all.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stallguard.errors import NO_SUCH_RUN, StallguardError
from stallguard.storage import run_files
from stallguard.storage.run_files import Identity
from stallguard.supervisor.adopted import Adopted, wait
from stallguard.supervisor.child import Post
from stallguard.supervisor.notices import persistently


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment of a process, whose secrets are removed from evidence; empty if the system hides it."""
    import psutil  # 10 ms, for which a child of ours does not wait

    from stallguard.host.psutil_errors import ERRORS

    try:
        return dict(psutil.Process(pid).environ())
    except ERRORS:
        return {}


class Observed(Adopted):
    """As Child; what would act on the process does nothing."""

    foreign = True

    def __init__(
        self, who: Identity, post: Post, before_post: Callable[[], None] = lambda: None, *, blind: bool = False
    ) -> None:
        """Watch the process `who`; `post` gets its exit code, None if the system does not say it.

        `blind`: its batches so far were not counted.

        Raises StallguardError (exit code 3) if it is over already.
        """
        if not run_files.lives(who):
            raise StallguardError(f"there is no process {who.pid} any more", code=NO_SUCH_RUN)
        self._is_over, self.blind = False, blind
        self.environment = environment_of(who.pid)
        super().__init__(who, Path(), post, before_post)

    def signal(self, _name: str) -> bool:
        """Do nothing."""
        return False

    def pass_on(self, _number: int) -> None:
        """Do nothing."""

    def reap(self) -> None:
        """End the watch: the end of the process is not posted any more."""
        self._is_over = True

    def _watch(self) -> None:
        end = None
        try:
            end = persistently(lambda: wait(self.identity))
            if not self._is_over:
                self._before_post()
        finally:
            if not self._is_over:
                persistently(lambda: self._post(end.code if end else None, end.memory_kill if end else None))
