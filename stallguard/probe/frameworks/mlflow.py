"""MLflow: the n-th `start_run` of a process goes on with the run of the n-th one of the attempt before.

Autologging and the integrations of other libraries start their runs by the same function.  A script that names its run,
by an argument or by MLFLOW_RUN_ID, keeps it.

MLflow refuses another value of a parameter of a run: an attempt that goes on with a run must not fail by that.  A start
time, a smaller batch or a random number is another value in each attempt.  In a run that was resumed here the first
value stays, the other one is reported, and nothing is raised.  Other runs are left alone.
"""

from __future__ import annotations

import os

from ..libraries import Library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..patches import Function
    from ..trackers import EarlierChoices

# In the text of the exception: of the file store, the SQL store and the server.  Its code differs: the file store has
# INVALID_PARAMETER_VALUE for one value and INTERNAL_ERROR for several.
REFUSED = "hanging param values is not allowed"
resumed: set[str] = set()  # ids of the runs that this process goes on with


def patch_runs(choices: EarlierChoices, module: Any) -> None:
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
                    choices.report("MLflow does not resume the run %s (%s): a new one begins" % (choice.earlier, error))
                else:
                    resumed.add(choice.earlier)
                    choices.report("goes on in the MLflow run %s" % choice.earlier)
            if run is None:
                run = original(**kwargs)
            choice.keep(getattr(getattr(run, "info", None), "run_id", None))
            return run

        return start_run

    choices.context.wrap(module, "start_run", make)


def patch_parameters(choices: EarlierChoices, module: Any) -> None:
    """Wrap what logs parameters."""

    def is_other_value(run_id: Any, error: Exception) -> bool:
        return run_id in resumed and REFUSED in str(error)

    def make_one(original: Function) -> Function:
        def log_param(self: Any, run_id: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(self, run_id, key, value, *args, **kwargs)
            except Exception as error:
                if not is_other_value(run_id, error):
                    raise
            choices.report("the MLflow run %s keeps its earlier value of the parameter %s" % (run_id, key))
            return value

        return log_param

    def make_many(original: Function) -> Function:
        def log_batch(
            self: Any, run_id: Any, metrics: Any = (), params: Any = (), tags: Any = (), *args: Any, **kwargs: Any
        ) -> Any:
            try:
                return original(self, run_id, metrics, params, tags, *args, **kwargs)
            except Exception as error:
                if not params or not is_other_value(run_id, error):
                    raise
            for one in params:
                self.log_param(run_id, one.key, one.value)
            return original(self, run_id, metrics, (), tags, *args, **kwargs)

        return log_batch

    client = module.TrackingServiceClient
    choices.context.wrap(client, "log_param", make_one)
    choices.context.wrap(client, "log_batch", make_many)


LIBRARY = Library(
    "mlflow",
    patches={
        "trackers": {"mlflow.tracking.fluent": patch_runs, "mlflow.tracking._tracking_service.client": patch_parameters}
    },
)
