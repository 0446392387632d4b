# ruff: noqa: NPY002  the trainer shuffles with the global generator
"""A small language model that mlx-lm's trainer tunes: with dropout, a schedule, and rows of different lengths.

    language.py [tune=lora|full] [accumulation=1] [iters=60] [report=7] [eval=13] [save=10] [pause=SECONDS]
                [die=ITERATION] [validation=ITERATION] [saving=ITERATION] [cut=ITERATION] [calls=1]
                [stall=ITERATION] [idle=ITERATION] [watchdog=ITERATION]

More such words can be in a file `also`: they are no part of the command.
It prints the iteration that each process begins with, each report, and at the end digests of the parameters, of the
optimizer and of the generators.  It kills itself once: in an iteration, in a validation, in a save of adapters, in a
checkpoint of stallguard's; or after an iteration it locks itself up
once, its device computes nothing more (if MLX does not compile), or it ends as by the watchdog of a Mac's display.
"""

import ctypes
import hashlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx import optimizers
from mlx.utils import tree_flatten
from mlx_lm.models import llama
from mlx_lm.tuner import trainer
from mlx_lm.tuner.utils import linear_to_lora_layers

ALSO = Path("also").read_text().split() if Path("also").exists() else []
GIVEN = {
    "tune": "lora", "accumulation": "1", "iters": "60", "report": "7", "eval": "13", "save": "10", "pause": "0.01",
    "calls": "1", **dict(word.split("=") for word in (*sys.argv[1:], *ALSO)),
}  # fmt: skip
WATCHDOG = (
    "libc++abi: terminating due to uncaught exception of type std::runtime_error: [METAL] Command buffer execution "
    "failed: Impacting Interactivity (0000000e:kIOGPUCommandBufferCallbackErrorImpactingInteractivity)"
)
drawn = [0]  # batches of the training, so far


def dies(event):
    """End this process if that is asked for, and was not done."""
    if GIVEN.get(event) == str(drawn[0]) and not Path(event).exists():
        Path(event).touch()
        os.kill(os.getpid(), signal.SIGKILL)


def stop_the_device():
    """Let the threads of MLX's own sleep in pause(), as handler of a signal: what they compute never ends."""
    number = signal.SIGRTMIN + 5
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = ctypes.c_int, ctypes.c_void_p
    libc.signal(number, ctypes.cast(libc.pause, ctypes.c_void_p))
    for thread in computing:
        libc.syscall(234, os.getpid(), int(thread.name), number)  # tgkill on x86-64


def batches(*args, **named):
    """Yield what mlx-lm's own iterator does."""
    for batch in trainer.iterate_batches(*args, **named):
        if named.get("loop"):
            drawn[0] += 1
        yield batch


def loss(model, *batch):
    """Return the loss; validation calls this for each batch, training too, unless MLX compiles its step."""
    if not model.training:
        dies("validation")
    elif GIVEN.get("idle") == str(drawn[0]) and not Path("idle").exists():
        Path("idle").touch()
        stop_the_device()
    return trainer.default_loss(model, *batch)


shown = []
advance, save, rename = trainer.TrainUI.advance, mx.save_safetensors, os.rename


def advances(ui):
    advance(ui)
    if drawn[0] and not shown:
        shown.append(drawn[0])
        print(json.dumps({"first": drawn[0]}), flush=True)
    dies("die")
    if GIVEN.get("stall") == str(drawn[0]) and not Path("stall").exists():
        Path("stall").touch()
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()  # named: stall
    if GIVEN.get("watchdog") == str(drawn[0]) and not Path("watchdog").exists():
        Path("watchdog").touch()
        print(WATCHDOG, file=sys.stderr, flush=True)
        os.abort()
    time.sleep(float(GIVEN["pause"]) if drawn[0] else 0)


def saves(path, *args, **named):
    if GIVEN.get("saving") == str(drawn[0]):
        Path(path).write_bytes(b"half")
    dies("saving")
    save(path, *args, **named)


def renames(old, new, **named):
    if "tmp-g" in str(old):
        dies("cut")
    rename(old, new, **named)


trainer.TrainUI.advance, mx.save_safetensors, os.rename = advances, saves, renames


class Shown:
    """The script's callback."""

    reports = 0

    def on_train_loss_report(self, report):
        with Path("reports.txt").open("a") as file:
            print(report["iteration"], file=file)
        Shown.reports += 1
        shows = {"loss": report["train_loss"].hex(), "tokens": report["trained_tokens"]}
        print(json.dumps({"trained": report["iteration"], **shows, "rate": report["learning_rate"]}), flush=True)

    def on_val_loss_report(self, report):
        print(json.dumps({"validated": report["iteration"], "loss": report["val_loss"].hex()}), flush=True)


def digest(tree):
    return hashlib.sha256(
        b"".join(name.encode() + np.array(one).tobytes() for name, one in sorted(tree_flatten(tree)))
    ).hexdigest()[:24]


mx.random.seed(3)
np.random.seed(4)
sizes = {"hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 32, "num_attention_heads": 2}
more = {"rms_norm_eps": 1e-5, "vocab_size": 64, "num_key_value_heads": 2, "tie_word_embeddings": True}
model = llama.Model(llama.ModelArgs(model_type="llama", **sizes, **more))
if GIVEN["tune"] == "lora":
    model.freeze()
    linear_to_lora_layers(model, 2, {"rank": 4, "scale": 10.0, "dropout": 0.2})
TASKS = Path("/proc/self/task")
before = set(TASKS.glob("*"))
mx.eval(model.parameters())
computing = set(TASKS.glob("*")) - before
rows = [([(3 * row + at) % 64 for at in range(8 + row % 40)], 0) for row in range(44)]
for _ in range(int(GIVEN["calls"])):
    drawn[0] = 0
    optimizer = optimizers.AdamW(optimizers.cosine_decay(1e-2, 100))
    settings = trainer.TrainingArgs(
        batch_size=4, iters=int(GIVEN["iters"]), val_batches=2, steps_per_report=int(GIVEN["report"]),
        steps_per_eval=int(GIVEN["eval"]), steps_per_save=int(GIVEN["save"]), adapter_file="adapters.safetensors",
        grad_accumulation_steps=int(GIVEN["accumulation"]),
    )  # fmt: skip
    trainer.train(model, optimizer, rows, rows[:12], settings, loss, batches, Shown())
print(json.dumps({
    "parameters": digest(model.parameters()), "optimizer": digest(optimizer.state), "key": mx.random.uniform().item(),
    "numpy": np.random.rand(), "reports": Shown.reports,
    "written": Path("reports.txt").read_text().split(),
    "adapters": hashlib.sha256(Path("adapters.safetensors").read_bytes()).hexdigest()[:24],
}))  # fmt: skip
