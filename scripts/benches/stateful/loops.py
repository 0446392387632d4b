"""The parts of a script that trains with Hugging Face's Trainer, Lightning, or a loop of `stallguard.track`.

Each has what the script of Keras has (script.py): a class of callbacks, a network with things in it, data, a call that
trains, and the same events.  A tracked loop has no callbacks: what it hands over is in KEPT.
"""

from __future__ import annotations

from typing import NamedTuple

TRACKED = ("track-torch", "track-mlx")


class Loop(NamedTuple):
    """The text of one kind of loop.  `environment`: whose interpreter has it; `modules`: what is imported first."""

    environment: str
    modules: tuple[str, ...]
    head: str  # imports; the classes Callback and LambdaCallback
    layer: str  # {i}, {use}
    net: str  # {layers}, {held}, {calls}, {uses}
    data: str  # {items}: what a row is
    tail: str  # the training; {shuffle}, {validation}
    weights: str
    validation: str = ""  # words of the call that trains, which make it validate


_TORCH_LAYER = """
class Layer{i}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.held = make_{i}()

    def forward(self, x, n=None):
        {use}
        return x * (1.0 + FEED["{i}"])

"""
_MLX_LAYER = _TORCH_LAYER.replace("torch.nn.Module", "nn.Module").replace("def forward", "def __call__")
_TORCH_NET = """
class Net(%s):
    def __init__(self):
        super().__init__()
        {layers}
        {held}
        self.feed = FEED  # Lightning keeps what its objects have in attributes, and no globals
        self.drop = torch.nn.Dropout(0.2)
        self.out = torch.nn.Linear(2, 1)

    def loss_of(self, x, y):
        sys.audit("state.moment")
        n = row_of(x)
        {calls}
        loss = ((self.out(self.drop(x)) - y) ** 2).mean()
        {uses}
        return loss * (1.0 + sum(FEED.values()))
%s

net = Net()
"""
_TORCH_DATA = """
import torch.utils.data


class EachRow(torch.utils.data.Dataset):
    def __len__(self):
        return len(X)

    def __getitem__(self, at):
        return {{"x": torch.tensor({items}), "y": torch.tensor(Y[at])}}


VALIDATED = [{{"x": torch.tensor(x), "y": torch.tensor(y)}} for x, y in zip(X, Y)]
"""
_LOADER = "\nloader = torch.utils.data.DataLoader(EachRow(), ROWS, shuffle={shuffle})\n"
_NOTHING = """
    def on_test_batch_end_(self):
        pass

    def on_epoch_end_(self, number):
        pass
"""
_LAMBDA = """

class LambdaCallback(Callback):
    def __init__(self, on_train_batch_end):
        super().__init__()
        self.step = on_train_batch_end

    def on_train_batch_end_(self, batch):
        self.step(batch)

"""
_TRACK = """
sys.audit("state.began")
for epoch, batches in stallguard.track(net, optimizer, KEPT, FEED, {data}, epochs=EPOCHS):
    sys.audit("state.moment")
    for number, batch in batches:
        {step}
        for name, use in HANDED.items():
            KEPT[name] = use(KEPT[name], epoch * STEPS + number)
        sys.audit("state.moment")
"""
_TORCH_WEIGHTS = "[one.tolist() for one in net.parameters()]"

LOOPS = {
    "trainer": Loop(
        "hf", ("transformers", "transformers.trainer", "accelerate"),
        """import torch
from transformers import Trainer, TrainerCallback, TrainingArguments


class Callback(TrainerCallback):
    def on_step_end(self, args, state, control, **more):
        self.epoch, batch = divmod(state.global_step - 1, STEPS)
        self.on_train_batch_end_(batch)

    def on_prediction_step(self, args, state, control, **more):
        self.on_test_batch_end_()

    def on_evaluate(self, args, state, control, **more):
        self.on_epoch_end_(state.global_step)
""" + _NOTHING + _LAMBDA,
        _TORCH_LAYER,
        _TORCH_NET % ("torch.nn.Module", """
    def forward(self, x, y):
        return {{"loss": self.loss_of(x, y)}}
"""),
        _TORCH_DATA,
        """

class Moments(TrainerCallback):
    def on_train_begin(self, args, state, control, **more):
        sys.audit("state.began")

    def on_step_end(self, args, state, control, **more):
        sys.audit("state.moment")

    on_epoch_end = on_step_end


class Ordered(Trainer):
    def _get_train_sampler(self, *words):
        whole = super()._get_train_sampler(*words)
        return whole if {shuffle} else torch.utils.data.SequentialSampler(self.train_dataset)


arguments = TrainingArguments(
    "out", num_train_epochs=EPOCHS, per_device_train_batch_size=ROWS, report_to=[], save_strategy="no", seed=SEED,
    disable_tqdm=True, logging_strategy="no", use_cpu=True, remove_unused_columns=False, learning_rate=0.05,
    per_device_eval_batch_size=ROWS, prediction_loss_only=True, label_names=["y"]{validation},
)
trainer = Ordered(net, arguments, train_dataset=EachRow(), eval_dataset=VALIDATED, callbacks=[*CALLBACKS, Moments()])
trainer.train()
validations = [(one["step"], one["eval_loss"]) for one in trainer.state.log_history if "eval_loss" in one]
sys.audit("state.result", "validations", validations)
""",
        _TORCH_WEIGHTS, ", eval_strategy=('steps', 'epoch')[SEED % 2], eval_steps=2, eval_on_start=SEED % 3 > 0",
    ),
    "lightning": Loop(
        "hf", ("lightning.pytorch",),
        """import torch
from lightning import pytorch as lightning


class Callback(lightning.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        self.epoch = trainer.current_epoch
        self.on_train_batch_end_(index)

    def on_validation_batch_end(self, *words):
        self.on_test_batch_end_()

    def on_train_epoch_end(self, trainer, module):
        self.on_epoch_end_(trainer.current_epoch)
""" + _NOTHING + _LAMBDA,
        _TORCH_LAYER,
        _TORCH_NET % ("lightning.LightningModule", """
    def training_step(self, batch, index):
        return self.loss_of(batch["x"], batch["y"])

    validation_step = training_step

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), 0.05)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]
"""),
        _TORCH_DATA + _LOADER,
        """

class Moments(lightning.Callback):
    def on_train_start(self, trainer, module):
        sys.audit("state.began")

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        sys.audit("state.moment")

    def on_train_epoch_end(self, trainer, module):
        sys.audit("state.moment")


lightning.Trainer(
    accelerator="cpu", devices=1, max_epochs=EPOCHS, logger=False, enable_progress_bar=False,
    enable_model_summary=False, enable_checkpointing=False, callbacks=[*CALLBACKS, Moments()],
    val_check_interval=(0.5, 1.0)[SEED % 2],
).fit(net, loader{validation})
""",
        _TORCH_WEIGHTS, ", torch.utils.data.DataLoader(VALIDATED, ROWS)",
    ),
    "track-torch": Loop(
        "hf", ("torch.utils.data", "stallguard"), "import torch\nimport stallguard\n", _TORCH_LAYER,
        _TORCH_NET % ("torch.nn.Module", "\n\n") + "optimizer = torch.optim.Adam(net.parameters(), 0.05)\n",
        _TORCH_DATA + _LOADER,
        _TRACK.format(data="loader", step="""optimizer.zero_grad()
        net.loss_of(batch["x"], batch["y"]).backward()
        optimizer.step()"""),
        _TORCH_WEIGHTS,
    ),
    "track-mlx": Loop(
        "mlx", ("mlx.nn", "mlx.optimizers", "stallguard"),
        """import mlx.core as mx
from mlx import nn, optimizers
from mlx.utils import tree_flatten
import stallguard
""",
        _MLX_LAYER,
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        {layers}
        {held}
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(2, 1)

    def __call__(self, x, n=None):
        {calls}
        {uses}
        return self.out(self.drop(x))


net, optimizer = Net(), optimizers.Adam(0.05)


def loss_of(net, x, y, n):
    return ((net(x, n) - y) ** 2).mean() * (1.0 + sum(FEED.values()))


gradient = nn.value_and_grad(net, loss_of)
""",
        """

def batches_of_an_epoch():
    order = np.random.permutation(STEPS) if {shuffle} else range(STEPS)
    for number in order:
        rows = range(number * ROWS, number * ROWS + ROWS)
        yield mx.array(np.stack([{items} for at in rows])), mx.array(np.stack([Y[at] for at in rows]))
""",
        _TRACK.format(data="batches_of_an_epoch", step="""sys.audit("state.moment")
        loss, slopes = gradient(net, *batch, row_of(batch[0]))
        optimizer.update(net, slopes)
        mx.eval(loss, net.parameters(), optimizer.state)"""),
        "[[name, one.tolist()] for name, one in tree_flatten(net.trainable_parameters())]",
    ),
}  # fmt: skip
