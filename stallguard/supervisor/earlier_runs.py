"""What earlier runs of the script showed: the usual gaps between its batches, and the batch sizes that it survived.

The first attempt needs the sizes, so this module must stay cheap to import.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from stallguard.core.learned import NO_SIZES, BatchSizes
from stallguard.launch import batch_option
from stallguard.storage import learned_store
from stallguard.supervisor.context import RunContext

if TYPE_CHECKING:
    from stallguard.core.learned import Learned
    from stallguard.core.run import Run


class EarlierRuns:
    """Reads and writes what is stored about the script."""

    def __init__(self, context: RunContext, *, is_trial: bool) -> None:
        """`is_trial`: known batch sizes do not limit this run, and nothing that it shows is stored."""
        self._context, self._is_trial = context, is_trial

    @cached_property
    def sizes(self) -> BatchSizes:
        """Which batches earlier runs survived, and `find-batch` found."""
        return (
            NO_SIZES
            if self._is_trial
            else learned_store.sizes(self._sizes_key(), self._context.reporter.trouble)
        )

    def learned(self) -> Learned | None:
        """Return the usual gaps, or None."""
        return learned_store.load(self._gaps_key(), self._context.reporter.trouble)

    def remember(self, run: Run) -> None:
        """Store what this run showed."""
        from stallguard.core import trainings  # after the first attempt is started

        if self._is_trial:  # the gaps of another batch size are no measure
            return
        learned_store.save(self._gaps_key(), trainings.taught(run))
        if run.sizes != self.sizes:
            learned_store.keep_sizes(self._sizes_key(), run.sizes)

    def _gaps_key(self) -> learned_store.CommandKey:
        request = self._context.request
        return learned_store.key_of(request.command.argv, request.cwd)

    def _sizes_key(self) -> learned_store.CommandKey:
        request, policy = self._context.request, self._context.settings.config.policy
        return learned_store.key_of(batch_option.unsized(request.command.argv, policy), request.cwd)
