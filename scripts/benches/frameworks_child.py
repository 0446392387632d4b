"""A small training of each framework, as users write it: the child of the bench `frameworks`.

    frameworks_child.py [track-]KIND [device=cpu] [steps=120] [pause=0.02] [lock=STEP] [early=SECONDS] [idle=STEP]
                        [slow=SECONDS] [cost=ROUNDS] [smaller=ORDER] [optimizer=adam|sgd] [rate=0.001] [eps=1e-8]
                        [batch=4] [wide=64] [dropped=0.2]

It prints a line of JSON when its process begins to train, with the step that it begins at, and one with digests of the
weights and of the optimizer at the end.  At step `lock`, or `early` seconds after its first one, it waits for a lock
that is never released, at `idle` for a device that never answers; it leaves the time of that in `hangs`.  `slow`: what
a file needs to be on the disk, so that a kill meets a save.  `cost`: it prints what the probe adds to a step instead.
`smaller`: it prints the memory that its steps need, and leaves its weights in `weights.npy`; the rows of each batch are
in the order with that number, 0 for their own.  Python 3.9 grammar.
"""

import ctypes
import gc
import hashlib
import json
import os
import resource
import signal
import statistics
import sys
import threading
import time
from pathlib import Path

import numpy as np

import stallguard

TRACKS, KIND = sys.argv[1].startswith("track-"), sys.argv[1].replace("track-", "")
WORDS = dict(word.split("=") for word in sys.argv[2:] if not word.startswith("--"))
DEVICE, OPTIMIZER = WORDS.pop("device", "cpu"), WORDS.pop("optimizer", "adam")
GIVEN = {name: float(value) for name, value in WORDS.items()}
BATCH, WIDE = int(GIVEN.get("batch", 4)), int(GIVEN.get("wide", 64))
DROPPED, RATE, EPS = GIVEN.get("dropped", 0.2), GIVEN.get("rate", 1e-3), GIVEN.get("eps", 1e-8)
PROBE = "_stallguard_probe"
CHUNK, SETTLE = 16, 2  # steps of a turn in which the hooks are in or out; the first of them, which are not counted
SHOWS_BAR = not {"lock", "early"}.isdisjoint(GIVEN)  # as users have it: its thread must not delay a judgement
STEPS = int(GIVEN.get("steps", 120))
EPOCH = STEPS if "cost" in GIVEN else min(STEPS, 40)  # steps
random = np.random.default_rng(3)
inputs = random.normal(size=(EPOCH * BATCH, 8)).astype("float32")
targets = (inputs[:, :1] ** 2 + 0.1 * random.normal(size=(EPOCH * BATCH, 1))).astype("float32")


class Steps:
    """Follows the steps of a training: prints the first of this process, rests, and hangs when it is to."""

    def __init__(self):
        self.pid, self.number, self.began = 0, 0, 0.0

    def begins(self, number):
        self.number = int(number)
        if self.pid != os.getpid():  # a resume restores `pid` too, so that of another process is no sign
            self.pid, self.began = os.getpid(), 0.0
            print(json.dumps({"pid": self.pid, "first": self.number}), flush=True)
        elif not self.began:
            self.began = time.monotonic()  # after the first step, which can compile for seconds
        time.sleep(GIVEN.get("pause", 0.02))
        if self.is_due("lock") or self.is_due("early"):
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()

    def is_due(self, what):
        """Return whether it hangs now, early ones not in the first step of an epoch; say when."""
        if what not in GIVEN or Path("hangs").exists():
            return False
        is_over = self.began and time.monotonic() - self.began >= GIVEN[what]
        if not (is_over and self.number % EPOCH if what == "early" else self.number == GIVEN[what]):
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
        return stallguard.track(*objects, epochs=epochs, loss="mean")

    @staticmethod
    def end(weights, optimizer):
        digests = [hashlib.sha256(b"".join(map(as_bytes, one))).hexdigest()[:24] for one in (weights, optimizer)]
        print(json.dumps({"pid": os.getpid(), "weights": digests[0], "optimizer": digests[1]}), flush=True)


class Measured(Steps):
    """Measures the most memory that the training takes beyond what there was at its first step, in bytes."""

    def __init__(self):
        super().__init__()
        self.base = None
        if sys.platform == "linux":  # else malloc keeps what a slice frees, and a process's memory is not its steps'
            ctypes.CDLL(None).mallopt(-3, 1 << 20)  # M_MMAP_THRESHOLD, bytes

    def begins(self, number):
        if self.base is None:
            self.base = self.memory("reset_peak_memory", "get_active_memory", "reset_peak_memory_stats")
        super().begins(number)

    @staticmethod
    def memory(mlx, mlx_more, cuda):
        if "mlx.core" in sys.modules:
            of_mlx = sys.modules["mlx.core"]
            return [getattr(of_mlx, name)() for name in (mlx, mlx_more)][-1]
        if DEVICE != "cpu":
            of_cuda = sys.modules["torch"].cuda
            return getattr(of_cuda, cuda)() or of_cuda.memory_allocated()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

    def end(self, weights, optimizer):
        peak = self.memory("get_peak_memory", "get_peak_memory", "max_memory_allocated")
        np.save("weights.npy", np.concatenate([np.frombuffer(as_bytes(one), "float32") for one in weights]))
        print(json.dumps({"pid": os.getpid(), "bytes": peak - self.base}), flush=True)


class Turns(Steps):
    """Takes the hooks out and puts them back every few steps, and compares the processor time of the training's thread.

    Turns of one kind are next to such of the other, so that a loud second falls on both.
    """

    def __init__(self):
        super().__init__()
        self.patches = sys.modules[PROBE].probe.patches
        self.inside, self.began, self.seen, self.found = True, 0.0, 0, []
        self.finders = []  # of imports: some libraries look for a package in each step

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
        if inside:
            sys.meta_path[:] = self.finders
        else:
            self.finders = list(sys.meta_path)
            sys.meta_path[:] = [one for one in self.finders if not type(one).__module__.startswith(PROBE)]

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


def turned(rows):
    """Return the rows of a batch in the order that is asked for."""
    order = int(GIVEN.get("smaller", 0))
    return [rows[at] for at in np.random.default_rng(order).permutation(len(rows))] if order else rows


def numbers_of(optimizer):
    """Return the tensors of a torch optimizer."""
    return [value for state in optimizer.state_dict()["state"].values() for value in state.values()]


def torch_parts():
    """Return a model, its optimizer and a shuffled loader."""
    import torch

    torch.manual_seed(5)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    layers = [torch.nn.Linear(8, WIDE), torch.nn.ReLU(), torch.nn.Dropout(DROPPED), torch.nn.Linear(WIDE, 1)]
    model = torch.nn.Sequential(*layers).to(DEVICE)
    rows = torch.utils.data.TensorDataset(torch.from_numpy(inputs), torch.from_numpy(targets))
    loader = torch.utils.data.DataLoader(rows, BATCH, shuffle=True, collate_fn=collated if "smaller" in GIVEN else None)
    return model, torch_optimizer(model), loader


def torch_optimizer(model):
    import torch

    if OPTIMIZER == "sgd":
        return torch.optim.SGD(model.parameters(), RATE)
    return torch.optim.Adam(model.parameters(), RATE, eps=EPS)


def collated(rows):
    import torch

    return torch.utils.data.default_collate(turned(rows))


def of_torch():
    model, optimizer, loader = torch_parts()

    for epoch, batches in epochs_of(model, optimizer, loader):
        for number, (x, y) in batches:
            steps.begins(epoch * EPOCH + number)
            optimizer.zero_grad()
            loss = ((model(x.to(DEVICE)) - y.to(DEVICE)) ** 2).mean()
            loss.backward()
            optimizer.step()
    steps.end(model.parameters(), numbers_of(optimizer))


def of_accelerate():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=DEVICE == "cpu")
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
        disable_tqdm=not SHOWS_BAR, logging_strategy="no", use_cpu=DEVICE == "cpu", label_names=["y"],
        remove_unused_columns=False, optim="sgd" if OPTIMIZER == "sgd" else "adamw_torch", adam_epsilon=EPS,
        learning_rate=RATE,
    )  # fmt: skip
    collator = collated if "smaller" in GIVEN else None
    model = Model(torch_parts()[0])
    trainer = Trainer(model, arguments, data_collator=collator, train_dataset=Rows(), callbacks=[Showing()])
    trainer.train()
    steps.end(trainer.model.parameters(), numbers_of(trainer.optimizer))


def of_lightning():
    import logging
    import warnings

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
            return torch_optimizer(self)

    model = Model()
    trainer = lightning.Trainer(
        accelerator=DEVICE, devices=1, max_epochs=-1, max_steps=STEPS, logger=False, enable_progress_bar=SHOWS_BAR,
        enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(model, loader)
    steps.end(model.parameters(), numbers_of(trainer.optimizers[0]))


def of_jax():
    import jax
    import jax.numpy as jnp

    def loss_of(weights, x, y, key):
        hidden = jax.nn.relu(x @ weights[0])
        hidden = jnp.where(jax.random.bernoulli(key, 1 - DROPPED, hidden.shape), hidden / (1 - DROPPED), 0)
        return ((hidden @ weights[1] - y) ** 2).mean()

    @jax.jit
    def train(weights, averages, squares, x, y, number):
        slopes = jax.grad(loss_of)(weights, x, y, jax.random.fold_in(jax.random.key(7), number))
        averages = [0.9 * old + 0.1 * new for old, new in zip(averages, slopes)]
        squares = [0.999 * old + 0.001 * new**2 for old, new in zip(squares, slopes)]
        moves = [one / (1e-8 + jnp.sqrt(two)) for one, two in zip(averages, squares)]
        return [one - 1e-3 * move for one, move in zip(weights, moves)], averages, squares

    weights = [jnp.asarray(random.normal(0, 0.1, shape), "float32") for shape in ((8, WIDE), (WIDE, 1))]
    kept = {"number": 0, "state": (weights, *([jnp.zeros_like(one) for one in weights] for _ in range(2)))}

    def save(path):
        with open(path, "wb") as file:
            np.savez(file, *jax.tree.leaves(kept["state"]), number=kept["number"])
            os.fsync(file.fileno())

    def load(path):
        with np.load(path) as file:
            leaves = [jnp.asarray(file[f"arr_{at}"]) for at in range(3 * len(weights))]
            kept.update(number=int(file["number"]), state=jax.tree.unflatten(jax.tree.structure(kept["state"]), leaves))

    train(*kept["state"], inputs[:BATCH], targets[:BATCH], 0)  # compiles it: else the first step takes as long as many
    if TRACKS:
        tracked_jax(train, dict(zip(("weights", "averages", "squares"), kept["state"])))
        return
    stallguard.checkpoint(save, load)
    while kept["number"] < STEPS:
        steps.begins(kept["number"])
        epoch, number = divmod(kept["number"], EPOCH)
        rows = np.random.default_rng(epoch).permutation(len(inputs))[number * BATCH : (number + 1) * BATCH]
        kept["state"] = train(*kept["state"], inputs[rows], targets[rows], kept["number"])
        kept["number"] += 1
        stallguard.beat()
    steps.end(kept["state"][0], kept["state"][1] + kept["state"][2])


def tracked_jax(train, state):
    drawn = np.random.default_rng(5)

    def batches_of_an_epoch():
        order = drawn.permutation(len(inputs))
        for start in range(0, len(inputs), BATCH):
            rows = turned(order[start : start + BATCH])
            yield inputs[rows], targets[rows]

    for epoch, batches in epochs_of(state, drawn, batches_of_an_epoch):
        for number, (x, y) in batches:
            at = epoch * EPOCH + number
            steps.begins(at)
            state.update(zip(state, train(*state.values(), x, y, at)))
    steps.end(state["weights"], state["averages"] + state["squares"])


def of_optax():
    import jax
    import jax.numpy as jnp
    import optax

    def loss_of(weights, x, y, key):
        hidden = jax.nn.relu(x @ weights[0])
        hidden = jnp.where(jax.random.bernoulli(key, 1 - DROPPED, hidden.shape), hidden / (1 - DROPPED), 0)
        return ((hidden @ weights[1] - y) ** 2).mean()

    optimizer = optax.sgd(RATE) if OPTIMIZER == "sgd" else optax.adam(RATE, eps=EPS)

    @jax.jit
    def train(weights, state, x, y, number):
        slopes = jax.grad(loss_of)(weights, x, y, jax.random.fold_in(jax.random.key(7), number))
        moves, state = optimizer.update(slopes, state)
        return optax.apply_updates(weights, moves), state

    weights = [jnp.asarray(random.normal(0, 0.1, shape), "float32") for shape in ((8, WIDE), (WIDE, 1))]
    state = optimizer.init(weights)
    for epoch in range(STEPS // EPOCH):
        order = np.random.default_rng(epoch).permutation(len(inputs))
        for number in range(epoch * EPOCH, (epoch + 1) * EPOCH):
            rows = order[number % EPOCH * BATCH :][:BATCH]
            steps.begins(number)
            weights, state = train(weights, state, inputs[rows], targets[rows], number)
    steps.end(weights, jax.tree.leaves(state))


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
    model = nn.Sequential(*layers)
    optimizer = optimizers.SGD(RATE) if OPTIMIZER == "sgd" else optimizers.Adam(RATE, eps=EPS)
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
            rows = turned(order[start : start + BATCH])
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


def of_mlx_lm():
    import mlx.core as mx
    from mlx import optimizers
    from mlx.utils import tree_flatten
    from mlx_lm.models import llama
    from mlx_lm.tuner import trainer
    from mlx_lm.tuner.utils import linear_to_lora_layers

    class Shown(trainer.TrainingCallback):
        def on_train_loss_report(self, report):
            steps.begins(report["iteration"] - 1)

    mx.random.seed(5)
    np.random.seed(5)  # noqa: NPY002  the trainer shuffles with the global generator
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 32, "num_attention_heads": 2}
    more = {"rms_norm_eps": 1e-5, "vocab_size": 64, "num_key_value_heads": 2, "tie_word_embeddings": True}
    model = llama.Model(llama.ModelArgs(model_type="llama", **sizes, **more))
    model.freeze()
    linear_to_lora_layers(model, 2, {"rank": 4, "scale": 10.0, "dropout": DROPPED})
    mx.eval(model.parameters())
    rows = [([(3 * row + at) % 64 for at in range(8 + row % 24)], 0) for row in range(EPOCH * BATCH)]
    rate = optimizers.cosine_decay(10 * RATE, 300)
    optimizer = optimizers.SGD(rate) if OPTIMIZER == "sgd" else optimizers.AdamW(rate, eps=EPS)
    settings = trainer.TrainingArgs(
        batch_size=BATCH, iters=STEPS, val_batches=1, steps_per_report=1, steps_per_eval=EPOCH, steps_per_save=EPOCH,
        adapter_file="adapters.safetensors",
    )  # fmt: skip

    def batches(*args, **named):
        for tokens, lengths in trainer.iterate_batches(*args, **named):
            order = mx.array(turned(list(range(len(tokens)))))
            yield tokens[order], lengths[order]

    drawn = {"iterate_batches": batches} if "smaller" in GIVEN else {}
    trainer.train(model, optimizer, rows, rows[:BATCH], settings, training_callback=Shown(), **drawn)
    flat = [[one for _, one in sorted(tree_flatten(tree))] for tree in (model.parameters(), optimizer.state)]
    steps.end(*flat)


KINDS = {
    "torch": of_torch, "trainer": of_trainer, "accelerate": of_accelerate, "lightning": of_lightning, "jax": of_jax,
    "optax": of_optax, "mlx": of_mlx, "mlx-compiled": of_mlx, "mlx-lm": of_mlx_lm,
}  # fmt: skip


def delay_the_disk(seconds):
    """Have each file need so long to be on the disk."""
    whole = os.fsync

    def fsync(descriptor):
        time.sleep(seconds)
        whole(descriptor)

    os.fsync = fsync


def same_bytes_on_a_gpu():
    """Have libraries that are not imported yet choose kernels that end with the same bytes each time."""
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")  # Trainer divides its batches among all
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    os.environ["XLA_FLAGS"] = "--xla_gpu_deterministic_ops=true"
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # else the first process takes three quarters of the memory


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["JAX_PLATFORMS"] = DEVICE if DEVICE == "cpu" else f"{DEVICE},cpu"
    if DEVICE != "cpu":
        same_bytes_on_a_gpu()
    if "cost" in GIVEN and PROBE not in sys.modules:
        from overhead_child import under_probe

        sys.exit(under_probe([*sys.argv[1:], "--checkpoints"], __file__))
    if GIVEN.get("slow"):
        delay_the_disk(GIVEN["slow"])
    steps = Turns() if "cost" in GIVEN else Measured() if "smaller" in GIVEN else Steps()
    KINDS[KIND]()
