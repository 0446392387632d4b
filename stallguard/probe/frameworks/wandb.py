"""Weights & Biases: the n-th `wandb.init` of a process goes on with the run of the n-th one of the attempt before.

A script that names its run keeps it, by an argument, a setting or a variable; so does a sweep, whose agent sets
WANDB_RUN_ID.  If it names the same id again without saying how to resume, `resume="allow"` is added: without that the
server overwrites the run.  Offline, wandb writes a second directory of the same id, and `wandb sync` joins them.
"""

from __future__ import annotations

import os

from ..libraries import Library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..patches import Function
    from ..trackers import EarlierChoices

ID_POSITION = 3  # wandb.init(entity, project, dir, id, ...)
RESUMES = ("resume", "resume_from", "fork_from")
VARIABLES = ("WANDB_RESUME", "WANDB_SWEEP_ID")


def patch(choices: EarlierChoices, module: Any) -> None:
    """Wrap `wandb.init`."""

    def make(original: Function) -> Function:
        def init(*args: Any, **kwargs: Any) -> Any:
            choice = choices.next("wandb")
            added: dict[str, Any] = {}
            try:
                added = _additions(args, kwargs, choice.earlier)
            except Exception as error:
                choices.context.surprise("before wandb.init", error)
            run = None
            if added:
                try:
                    run = original(*args, **{**kwargs, **added})
                except Exception as error:  # such as a run that was deleted meanwhile
                    choices.report("W&B does not resume the run %s (%s): a new one begins" % (choice.earlier, error))
                else:
                    choices.report("goes on in the W&B run %s" % choice.earlier)
            if run is None:  # behind the `except`: else its error would have the first one as its context
                run = original(*args, **kwargs)
            choice.keep(getattr(run, "id", None))
            return run

        return init

    choices.context.wrap(module, "init", make)


def _additions(args: tuple[Any, ...], kwargs: dict[str, Any], earlier: str) -> dict[str, Any]:
    """Return the arguments to add so that the call resumes the run `earlier`; none if the script decides itself."""
    settings = kwargs.get("settings")
    of_settings = settings if isinstance(settings, dict) else getattr(settings, "__dict__", {})
    decides = any(kwargs.get(name) is not None or of_settings.get(name) is not None for name in RESUMES)
    if not earlier or decides or len(args) > ID_POSITION or any(os.environ.get(name) for name in VARIABLES):
        return {}
    own = kwargs.get("id") or of_settings.get("run_id") or os.environ.get("WANDB_RUN_ID")
    if own:
        return {"resume": "allow"} if own == earlier else {}
    return {"id": earlier, "resume": "allow"}


LIBRARY = Library("wandb", patches={"trackers": {"wandb": patch}})
