"""A small training by Trainer, as users write it: its data are shuffled, its model drops values out.

    trainer.py [accumulation=1] [workers=0] [save=no|STEPS|epoch] [steps=60] [pause=SECONDS] [rows=80]
               [eval=no|epoch|first: before the first step too]
               [stall=STEP] [out=DIRECTORY]

It prints the step that each process begins with, and at the end digests of the weights and of the optimizer.  A file
`die` in its directory has the number of the step after which the process kills itself, `cut` that of the step whose
checkpoint it is writing then.
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

torch.set_num_threads(1)
GIVEN = {
    "accumulation": "1", "workers": "0", "save": "no", "steps": "60", "pause": "0.01", "rows": "80", "eval": "no",
    "stall": "-1", "out": "out",
    **dict(word.split("=") for word in sys.argv[1:]),
}  # fmt: skip
torch.manual_seed(5)
ROWS = int(GIVEN["rows"])
inputs = torch.randn(ROWS, 8)
targets = inputs[:, :1] ** 2


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        return {"x": inputs[index], "y": targets[index]}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(32, 1)
        )

    def forward(self, x, y):
        return {"loss": ((self.layers(x) - y) ** 2).mean()}


phases = {"training": set(), "evaluation": set(), "saving": set(), "first": set()}


def probe():
    return getattr(sys.modules.get("_stallguard_probe"), "probe", None)


def seen(what):
    if probe() is not None:
        probe().beats.publish()
        phases[what].add(probe().beats.slots[8])


def dies(file, step):
    if Path(file).exists() and int(Path(file).read_text()) == step:
        Path(file).unlink()
        os.kill(os.getpid(), signal.SIGKILL)


class SeenTrainer(Trainer):
    def training_step(self, *args, **named):
        seen("training" if self.state.global_step > 1 else "first")
        return super().training_step(*args, **named)

    def prediction_step(self, *args, **named):
        seen("evaluation")
        return super().prediction_step(*args, **named)

    def _save_rng_state(self, output_dir):
        seen("saving")
        dies("cut", self.state.global_step)
        super()._save_rng_state(output_dir)


class Showing(TrainerCallback):
    steps, evaluated = 0, []

    def on_evaluate(self, args, state, control, metrics, **_):
        Showing.evaluated.append(metrics["eval_loss"])

    def on_step_end(self, args, state, control, **_):
        with Path("steps.txt").open("a") as file:
            print(state.global_step, file=file)
        dies("die", state.global_step)
        Showing.steps += 1

    def on_step_begin(self, args, state, control, **_):
        if "BEGUN" not in os.environ:  # no state of the training
            os.environ["BEGUN"] = "yes"
            print(json.dumps({"first": state.global_step}), flush=True)
        if state.global_step == int(GIVEN["stall"]) and not Path("stalled").exists():
            Path("stalled").touch()
            import threading

            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        time.sleep(float(GIVEN["pause"]))


def digest(tensors):
    return hashlib.sha256(b"".join(one.detach().cpu().numpy().tobytes() for one in tensors)).hexdigest()[:24]


arguments = TrainingArguments(
    GIVEN["out"], max_steps=int(GIVEN["steps"]), per_device_train_batch_size=4, seed=5, report_to=[],
    gradient_accumulation_steps=int(GIVEN["accumulation"]), dataloader_num_workers=int(GIVEN["workers"]),
    save_strategy=GIVEN["save"] if GIVEN["save"] in ("no", "epoch") else "steps",
    save_steps=int(GIVEN["save"]) if GIVEN["save"].isdigit() else 500,
    eval_strategy=GIVEN["eval"].replace("first", "epoch"), eval_on_start=GIVEN["eval"] == "first",
    disable_tqdm=True, logging_strategy="no", use_cpu=True, label_names=["y"], remove_unused_columns=False,
)  # fmt: skip
trainer = SeenTrainer(Model(), arguments, train_dataset=Rows(), eval_dataset=Rows(), callbacks=[Showing()])
trainer.train()
numbers = [value for state in trainer.optimizer.state_dict()["state"].values() for value in state.values()]
print(json.dumps({
    "step": trainer.state.global_step, "weights": digest(trainer.model.parameters()), "optimizer": digest(numbers),
    "random": torch.rand(1).item(), "steps": Showing.steps,
    "evaluated": Showing.evaluated,
    "written": Path("steps.txt").read_text().split(),
    "files": sorted(one.name for one in Path(GIVEN["out"]).glob("*")),
    **({"phases": {name: sorted(one) for name, one in phases.items()}} if probe() is not None else {}),
}))  # fmt: skip
