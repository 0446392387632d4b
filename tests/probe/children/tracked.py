"""A loop that logs to the tracker that WHAT names, and crashes once after its third step.

WHAT: wandb, wandb-own-id, mlflow, mlflow-own-id, mlflow-two, mlflow-parameter.
"""

import os
import signal
import sys
import time
from pathlib import Path

import stallguard


def steps(log):
    """Train; crash once."""
    for number in range(6):
        time.sleep(0.02)
        log(number)
        stallguard.beat()
        if number == 2 and not Path("crashed").exists():
            Path("crashed").touch()
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGSEGV)


def with_wandb(**named):
    import wandb

    with wandb.init(project="p", **named) as run:
        print("run", run.id, run.resumed, flush=True)
        steps(lambda number: run.log({"loss": 1.0 / (number + 1)}))


def with_mlflow(count=1, parameter="0.1", **named):
    import mlflow

    for number in range(count):
        with mlflow.start_run(**named) as run:
            print("run", run.info.run_id, flush=True)
            mlflow.log_param("rate", parameter)
            mlflow.log_params({"rate": parameter, "second": "2", "number": number})
            if number == count - 1:
                steps(lambda step: mlflow.log_metric("loss", 1.0 / (step + 1), step=step))


what = sys.argv[1]
if what == "wandb":
    with_wandb()
elif what == "wandb-own-id":
    with_wandb(id=f"own-{os.getpid()}")
elif what == "mlflow":
    with_mlflow()
elif what == "mlflow-own-id":
    import mlflow

    with_mlflow(run_id=mlflow.MlflowClient().create_run("0").info.run_id)
elif what == "mlflow-two":
    with_mlflow(count=2)
elif what == "mlflow-parameter":
    with_mlflow(parameter=str(os.getpid()))
