"""A small training of each framework, as users write it: the child of the bench `frameworks`.

    frameworks_child.py [track-]KIND [steps=120] [pause=0.02] [lock=STEP] [idle=STEP] [slow=SECONDS] [cost=ROUNDS]

It prints a line of JSON when its process begins to train, with the step that it begins at, and one with digests of the
weights and of the optimizer at the end.  At step `lock` it waits for a lock that is never released, at `idle` for a
device that never answers; it leaves the time of that in `hangs`.  `slow`: what a file needs to be on the disk, so that
a kill meets a save.  `cost`: it prints what the probe adds to a step instead.  Python 3.9 grammar.
"""

import ctypes
import gc
import hashlib
import json
import os
import signal
import statistics
import sys
import threading
import time
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np

import stallguard

TRACKS, KIND = sys.argv[1].startswith("track-"), sys.argv[1].replace("track-", "")
GIVEN = {name: float(value) for name, value in (word.split("=") for word in sys.argv[2:])}
BATCH, WIDE, DROPPED = 4, 64, 0.2
CHUNK, SETTLE = 16, 2  # steps of a turn in which the hooks are in or out; the first of them, which are not counted
STEPS = int(GIVEN.get("steps", 120))
EPOCH = STEPS if "cost" in GIVEN else 40  # steps
random = np.random.default_rng(3)
inputs = random.normal(size=(EPOCH * BATCH, 8)).astype("float32")
targets = (inputs[:, :1] ** 2 + 0.1 * random.normal(size=(EPOCH * BATCH, 1))).astype("float32")


class Steps:
    """Follows the steps of a training: prints the first of this process, rests, and hangs when it is to."""

    def __init__(self):
        self.pid, self.number = 0, 0

    def begins(self, number):
        self.number = int(number)
        if self.pid != os.getpid():  # a resume restores `pid` too, so that of another process is no sign
            self.pid = os.getpid()
            print(json.dumps({"pid": self.pid, "first": self.number}), flush=True)
        time.sleep(GIVEN.get("pause", 0.02))
        if self.is_due("lock"):
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()

    @staticmethod
    def is_due(what):
        """Return whether it hangs now; say when."""
        if what not in GIVEN or steps.number != GIVEN[what] or Path("hangs").exists():
            return False
        Path("hangs").write_text(repr(time.time()))
        return True

    @staticmethod
    def made(make):
        """Return what `make` returns: a function that trains, which holds the hooks that are in while it is made."""
        return make()

    @staticmethod
    def loop(*objects, epochs):
        """Return the loop of a script that hands its objects over."""
        return stallguard.track(*objects, epochs=epochs)

    @staticmethod
    def end(weights, optimizer):
        digests = [hashlib.sha256(b"".join(map(as_bytes, one))).hexdigest()[:24] for one in (weights, optimizer)]
        print(json.dumps({"pid": os.getpid(), "weights": digests[0], "optimizer": digests[1]}), flush=True)


class Turns(Steps):
    """Takes the hooks out and puts them back every few steps, and compares the processor time of the training's thread.

    Turns of one kind are next to such of the other, so that a loud second falls on both.
    """

    def __init__(self):
        super().__init__()
        self.patches = sys.modules["_stallguard_probe"].probe.patches
        self.inside, self.began, self.seen, self.found = True, 0.0, 0, []

    def begins(self, number):
        self.seen += 1
        at = self.seen % CHUNK
        if at == 0:
            self.found.append((self.inside, (time.thread_time() - self.began) / (CHUNK - SETTLE) * 1e6))
            self.turn(not self.inside)
        elif at == SETTLE:
            self.began = time.thread_time()
        if self.seen == 5 * CHUNK:  # warm
            self.found.clear()
            gc.collect()
            gc.freeze()

    def turn(self, inside):
        self.inside = inside
        (self.patches.put_back if inside else self.patches.take_out)()

    def made(self, make):
        self.turn(False)
        out = make()
        self.turn(True)
        within = make()

        def either(*words):
            return (within if self.inside else out)(*words)

        return either

    def loop(self, *objects, epochs):
        # The loops differ in who gives the batches; that they are given by a second generator is the same in both.
        tracked, plain = stallguard.track(*objects), opened(objects[-1])

        def batches():
            for _ in range(STEPS // 2 - CHUNK):
                yield next(tracked if self.inside else plain)

        yield 0, batches()

    def end(self, weights, optimizer):
        pairs = list(zip(self.found[::2], self.found[1::2]))
        added = sorted((one[1] - two[1]) * (1 if one[0] else -1) for one, two in pairs)
        rest = len(added) // 4  # other work of the machine falls on single turns
        plain = statistics.median(cost for inside, cost in self.found if not inside)
        added = statistics.mean(added[rest : len(added) - rest])
        print(json.dumps({"pid": os.getpid(), "added_us": added, "plain_us": plain, "pairs": len(pairs)}), flush=True)


def opened(data):
    return enumerate(data() if callable(data) else data)


def epochs_of(*objects):
    """Return the loop over the epochs: that of `stallguard.track` in the kinds that hand their objects over."""
    epochs = STEPS // EPOCH
    return steps.loop(*objects, epochs=epochs) if TRACKS else ((epoch, opened(objects[-1])) for epoch in range(epochs))


def as_bytes(value):
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value).tobytes()


def numbers_of(optimizer):
    """Return the tensors of a torch optimizer."""
    return [value for state in optimizer.state_dict()["state"].values() for value in state.values()]


def torch_parts():
    """Return a model, its optimizer and a shuffled loader."""
    import torch

    torch.manual_seed(5)
    torch.set_num_threads(1)
    layers = [torch.nn.Linear(8, WIDE), torch.nn.ReLU(), torch.nn.Dropout(DROPPED), torch.nn.Linear(WIDE, 1)]
    model = torch.nn.Sequential(*layers)
    rows = torch.utils.data.TensorDataset(torch.from_numpy(inputs), torch.from_numpy(targets))
    return model, torch.optim.Adam(model.parameters(), 1e-3), torch.utils.data.DataLoader(rows, BATCH, shuffle=True)


def of_torch():
    model, optimizer, loader = torch_parts()

    for epoch, batches in epochs_of(model, optimizer, loader):
        for number, (x, y) in batches:
            steps.begins(epoch * EPOCH + number)
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
    steps.end(model.parameters(), numbers_of(optimizer))


def of_accelerate():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model, optimizer, loader = accelerator.prepare(*torch_parts())
    for epoch, batches in epochs_of(model, optimizer, loader):
        for number, (x, y) in batches:
            steps.begins(epoch * EPOCH + number)
            optimizer.zero_grad()
            accelerator.backward(((model(x) - y) ** 2).mean())
            optimizer.step()
    steps.end(model.parameters(), numbers_of(optimizer))


def of_trainer():
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x, y):
            return {"loss": ((self.inner(x) - y) ** 2).mean()}

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return len(inputs)

        def __getitem__(self, index):
            return {"x": torch.from_numpy(inputs[index]), "y": torch.from_numpy(targets[index])}

    class Showing(TrainerCallback):
        def on_step_begin(self, args, state, control, **named):
            steps.begins(state.global_step)

    arguments = TrainingArguments(
        "out", max_steps=STEPS, per_device_train_batch_size=BATCH, seed=5, report_to=[], save_strategy="no",
        disable_tqdm=True, logging_strategy="no", use_cpu=True, label_names=["y"], remove_unused_columns=False,
    )  # fmt: skip
    trainer = Trainer(Model(torch_parts()[0]), arguments, train_dataset=Rows(), callbacks=[Showing()])
    trainer.train()
    steps.end(trainer.model.parameters(), numbers_of(trainer.optimizer))


def of_lightning():
    import logging
    import warnings

    import torch
    from lightning import pytorch as lightning

    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    inner, _, loader = torch_parts()

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def training_step(self, batch, index):
            steps.begins(self.global_step)
            return ((self.inner(batch[0]) - batch[1]) ** 2).mean()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), 1e-3)

    model = Model()
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=-1, max_steps=STEPS, logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(model, loader)
    steps.end(model.parameters(), numbers_of(trainer.optimizers[0]))


TASKS = Path("/proc/self/task")


def stop_the_device(others):
    """Let all threads but `others` sleep in pause(), as handler of a signal: what MLX's own compute never ends."""
    number = signal.SIGRTMIN + 5
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = ctypes.c_int, ctypes.c_void_p
    libc.signal(number, ctypes.cast(libc.pause, ctypes.c_void_p))
    for thread in set(TASKS.iterdir()) - others:
        libc.syscall(234, os.getpid(), int(thread.name), number)  # tgkill on x86-64


def of_mlx():
    from functools import partial

    import mlx.core as mx
    from mlx import nn, optimizers
    from mlx.utils import tree_flatten

    others = set(TASKS.iterdir()) if "idle" in GIVEN else set()  # before MLX computes
    mx.random.seed(5)
    drawn = np.random.default_rng(5)
    layers = [nn.Linear(8, WIDE), nn.ReLU(), nn.Dropout(DROPPED), nn.Linear(WIDE, 1)]
    model, optimizer = nn.Sequential(*layers), optimizers.Adam(1e-3)
    optimizer.init(model.trainable_parameters())
    mx.eval(model.parameters(), optimizer.state)

    def made():
        gradient = nn.value_and_grad(model, lambda model, x, y: ((model(x) - y) ** 2).mean())

        def step(x, y):
            loss, slopes = gradient(model, x, y)
            optimizer.update(model, slopes)
            return loss

        captured = [model.state, optimizer.state, mx.random.state]
        return partial(mx.compile, inputs=captured, outputs=captured)(step) if KIND == "mlx-compiled" else step

    def batches_of_an_epoch():
        order = drawn.permutation(len(inputs))
        for start in range(0, len(inputs), BATCH):
            rows = order[start : start + BATCH]
            yield mx.array(inputs[rows]), mx.array(targets[rows])

    step = steps.made(made)
    for epoch, batches in epochs_of(model, optimizer, drawn, batches_of_an_epoch):
        for number, (x, y) in batches:
            steps.begins(epoch * EPOCH + number)
            loss = step(x, y)
            if steps.is_due("idle"):
                stop_the_device(others)
            mx.eval(loss, model.parameters(), optimizer.state)
    flat = [[one for _, one in sorted(tree_flatten(tree))] for tree in (model.parameters(), optimizer.state)]
    steps.end(*flat)


KINDS = {
    "torch": of_torch, "trainer": of_trainer, "accelerate": of_accelerate, "lightning": of_lightning, "mlx": of_mlx,
    "mlx-compiled": of_mlx,
}  # fmt: skip


def delay_the_disk(seconds):
    """Have each file need so long to be on the disk."""
    whole = os.fsync

    def fsync(descriptor):
        time.sleep(seconds)
        whole(descriptor)

    os.fsync = fsync


if __name__ == "__main__":
    if "cost" in GIVEN and "_stallguard_probe" not in sys.modules:
        from overhead_child import under_probe

        sys.exit(under_probe(sys.argv[1:], __file__))
    if GIVEN.get("slow"):
        delay_the_disk(GIVEN["slow"])
    steps = Turns() if "cost" in GIVEN else Steps()
    KINDS[KIND]()
