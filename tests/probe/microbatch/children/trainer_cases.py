"""Trains small models with Trainer, one after the other, and writes a line of JSON for each into the file `trained`.

    trainer_cases.py CASE...        a case is a name of MODELS, and words: tokens,accumulation=2,rows=45

The words `die=STEP` and `limit=ROWS` have the process killed after a step, or a forward pass run out of memory that
gets more rows: from micro-batch FROM on (`from=FROM`), in its backward pass (`backward`).  `caught`: the error ends
only the case.  `limited`: the system gives the process only so much memory, far more than it needs.  `rise`: of the
most memory that the process had, by the training.
"""

import json
import os
import random
import resource
import signal
import sys
import time
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import transformers
from torch.nn import functional

torch.set_num_threads(1)
VOCABULARY, LENGTH = 31, 12
OUT_OF_MEMORY = (
    "MPS backend out of memory (MPS allocated: 17.55 GB, other allocations: 1.66 GB, max allowed: 18.13 GB). Tried to "
    "allocate 500.00 MB on private pool."
)


class Rows(torch.utils.data.Dataset):
    """`what` each row is: numbers with a number as its target, or tokens of which some are no targets."""

    def __init__(self, what, rows):
        self.what, self.rows = what, rows

    def __len__(self):
        return self.rows

    def __getitem__(self, index):
        random = torch.Generator().manual_seed(index)
        if self.what == "numbers":
            x = torch.randn(8, generator=random)
            return {"x": x, "y": x[:1] ** 2}
        tokens = torch.randint(0, VOCABULARY, (LENGTH,), generator=random)
        labels = tokens.clone()
        labels[: int(torch.randint(1, LENGTH - 2, (1,), generator=random))] = -100
        return {"input_ids": tokens, "labels": labels}


class Lacking(torch.autograd.Function):
    @staticmethod
    def forward(context, out, limit):
        context.limit = limit
        return out.clone()

    @staticmethod
    def backward(context, slope):
        if len(slope) > context.limit:
            raise RuntimeError(OUT_OF_MEMORY)
        return slope, None


class Numbers(torch.nn.Module):
    """Learns squares; subclasses say how the loss is computed, and what else the model has."""

    what = "numbers"
    layer = torch.nn.Identity

    def __init__(self, width=32):
        super().__init__()
        self.limit, self.backwards = 1 << 30, False
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, width), torch.nn.ReLU(), type(self).layer(), torch.nn.Linear(width, 1)
        )

    def forward(self, x, y):
        out = self.layers(x)
        if len(x) > self.limit and not self.backwards:
            raise RuntimeError(OUT_OF_MEMORY)
        return {"loss": self.loss(Lacking.apply(out, self.limit), y)}

    def loss(self, out, y):
        return ((out - y) ** 2).mean()


class Sum(Numbers):
    def loss(self, out, y):
        return ((out - y) ** 2).sum() / 8


class Pairs(Numbers):
    def loss(self, out, y):
        return torch.cdist(out, out).mean() + ((out - y) ** 2).mean()


class Normalised(Numbers):
    layer = staticmethod(lambda: torch.nn.BatchNorm1d(32))


class Dropping(Numbers):
    layer = staticmethod(lambda: torch.nn.Dropout(0.3))


class Counting(Numbers):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, y):
        self.calls += 1
        return super().forward(x, y)


class Remembering(Numbers):
    seen = 0

    def forward(self, x, y):
        self.seen += 1
        return super().forward(x, y)


class Choosing(Numbers):
    def forward(self, x, y):
        return super().forward(x * random.random(), y)


class Scaling(Numbers):
    def forward(self, x, y):
        return super().forward(x.mul_(2), y)


class Tokens(torch.nn.Module):
    """A model that knows nothing of num_items_in_batch: its loss is a mean over the targets that it has."""

    what = "tokens"

    def __init__(self):
        super().__init__()
        self.table, self.head = torch.nn.Embedding(VOCABULARY, 16), torch.nn.Linear(16, VOCABULARY)

    def forward(self, input_ids, labels):
        logits = self.head(self.table(input_ids))
        return {"loss": functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


class Shifted(Tokens):
    def forward(self, input_ids, labels):
        logits = self.head(self.table(input_ids))[:, :-1]
        return {"loss": functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten()), "logits": logits}


def language_model(dropout=0.0):
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=16, n_layer=2, n_head=2, resid_pdrop=dropout,
        attn_pdrop=dropout, embd_pdrop=dropout, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    model.what = "tokens"
    return model


MODELS = {
    "numbers": Numbers, "sum": Sum, "pairs": Pairs, "normalised": Normalised, "dropping": Dropping,
    "remembering": Remembering, "choosing": Choosing, "scaling": Scaling, "counting": Counting, "tokens": Tokens,
    "shifted": Shifted, "gpt2": language_model, "attention": lambda: language_model(0.1),
    "wide": lambda: Numbers(1 << 16),
}  # fmt: skip


class Stepping(transformers.Trainer):
    """Computes the gradients of a batch itself."""

    def training_step(self, model, inputs, num_items_in_batch=None):
        loss = self.compute_loss(model, self._prepare_inputs(inputs))
        self.accelerator.backward(loss)
        return loss.detach()


class Seen(transformers.TrainerCallback):
    def __init__(self, die, micro=0, limit=0):
        self.steps, self.die = 0, die
        self.micro, self.limit = micro, limit

    def on_substep_end(self, args, state, control, model, **_):
        self.micro -= 1
        if self.micro <= 0 < self.limit:
            model.limit = self.limit

    def on_step_begin(self, args, state, control, **_):
        if "FIRST" not in os.environ:  # no state of the training
            os.environ["FIRST"] = str(state.global_step)
            print(json.dumps({"first": state.global_step}), flush=True)

    def on_step_end(self, args, state, control, model, **_):
        self.steps += 1
        self.on_substep_end(args, state, control, model)
        if state.global_step == self.die and os.environ["FIRST"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.05 if self.die else 0.0)


def train(case):
    name, *words = case.split(",")
    given = dict(word.split("=") for word in words if "=" in word)
    if "limited" in words:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 46, resource.getrlimit(resource.RLIMIT_AS)[1]))
    torch.manual_seed(3)
    model = MODELS[name]()
    if "limit" in given:
        model.limit, model.backwards = int(given["limit"]) if "from" not in given else 1 << 30, "backward" in words
    arguments = transformers.TrainingArguments(
        "out", per_device_train_batch_size=int(given.get("batch", 8)), seed=5, report_to=[], use_cpu=True,
        num_train_epochs=float(given.get("epochs", 2)), disable_tqdm=True, save_strategy="no", logging_steps=1,
        gradient_accumulation_steps=int(given.get("accumulation", 1)), lr_scheduler_type="cosine",
        dataloader_num_workers=int(given.get("workers", 0)), dataloader_drop_last="drop" in words, learning_rate=1e-3,
        label_names=["y"], remove_unused_columns=False, label_smoothing_factor=float(given.get("smoothing", 0)),
    )  # fmt: skip
    seen = Seen(int(given.get("die", 0)), int(given.get("from", 0)), int(given.get("limit", 0)))
    kind = Stepping if "own" in words else transformers.Trainer
    trainer = kind(model, arguments, train_dataset=Rows(model.what, int(given.get("rows", 44))), callbacks=[seen])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    trainer.train()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    logged = [(one["step"], one["epoch"], one["learning_rate"], one["loss"]) for one in trainer.state.log_history[:-1]]
    weights = torch.cat([one.detach().flatten() for one in model.parameters()])
    result = {
        "case": case, "steps": trainer.state.global_step, "seen": seen.steps, "logged": logged, "rise": most,
        "weights": weights.tolist() if len(weights) < 10**5 else [], "random": torch.rand(1).item(),
    }  # fmt: skip
    with Path("trained").open("a") as results:
        print(json.dumps(result), file=results)


if __name__ == "__main__":
    for one in sys.argv[1:]:
        try:
            train(one)
        except RuntimeError:
            if "caught" not in one:
                raise
