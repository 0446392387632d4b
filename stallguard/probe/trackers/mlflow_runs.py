"""MLflow: the n-th `start_run` of a process goes on with the run of the n-th one of the attempt before.

Autologging and the integrations of other libraries start their runs by the same function.  A script that names its run,
by an argument or by MLFLOW_RUN_ID, keeps it.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..patches import Function
    from .earlier_choices import EarlierChoices

resumed: set[str] = set()  # ids of the runs that this process goes on with


def patch(choices: EarlierChoices, module: Any) -> None:
    """Wrap `mlflow.start_run`; the package takes it from this module."""

    def make(original: Function) -> Function:
        def start_run(*args: Any, **kwargs: Any) -> Any:
            if args or kwargs.get("run_id") or os.environ.get("MLFLOW_RUN_ID"):
                return original(*args, **kwargs)
            choice = choices.next("mlflow")
            run = None
            if choice.earlier:
                try:
                    run = original(**{**kwargs, "run_id": choice.earlier})
                except Exception as error:  # such as a run that was deleted, or another server
                    choices.report(
                        "MLflow does not resume the run %s (%s): a new one begins" % (choice.earlier, error)
                    )
                else:
                    resumed.add(choice.earlier)
                    choices.report("goes on in the MLflow run %s" % choice.earlier)
            if run is None:
                run = original(**kwargs)
            choice.keep(getattr(getattr(run, "info", None), "run_id", None))
            return run

        return start_run

    choices.context.wrap(module, "start_run", make)
