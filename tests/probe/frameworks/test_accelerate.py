"""Accelerate: a step of the optimizer is a batch, and the micro-batches before it are counted too."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from stallguard.probe import wire
from tests.probe.receiver import Receiver

LOOP = """
import hashlib, json, sys
import torch
from accelerate import Accelerator
torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3)
rows = torch.utils.data.TensorDataset(torch.randn(160, 8), torch.randn(160, 1))
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))
net, optimizer, loader = accelerator.prepare(
    net, torch.optim.Adam(net.parameters()), torch.utils.data.DataLoader(rows, 16, shuffle=True)
)
PROBE = getattr(sys.modules.get("_stallguard_probe"), "probe", None)
phases, steps = [], []
class Seen:
    def state_dict(self):
        phases.append(PROBE.beats.slots[8] if PROBE else 11)
        return {}
    def load_state_dict(self, state):
        phases.append(PROBE.beats.slots[8] if PROBE else 11)
accelerator.register_for_checkpointing(Seen())
losses = []
for epoch in range(2):
    for x, y in loader:
        steps.append(PROBE.beats._phase if PROBE else 4)
        with accelerator.accumulate(net):
            loss = ((net(x) - y) ** 2).mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    accelerator.save_state("state")
accelerator.load_state("state")
weights = b"".join(one.detach().numpy().tobytes() for one in net.parameters())
print(json.dumps({"losses": losses, "weights": hashlib.sha256(weights).hexdigest(), "phases": phases, "steps": steps}))
"""


@pytest.fixture(scope="module")
def trained(other_python, tmp_path_factory):
    """Return what one training said, and what it printed."""
    with Receiver() as receiver:
        heard = receiver.run([other_python("hf"), "-c", LOOP], 120, cwd=tmp_path_factory.mktemp("accelerate"))
    assert heard.code == 0, heard.err[-3000:]
    assert not [note for note in heard.notes if note["kind"] in ("aside", "trouble", "hooks")]
    return heard, json.loads(heard.out.splitlines()[-1])


def test_steps_and_micro_batches_are_counted(trained):
    last = trained[0].last()
    # 10 batches of 16 an epoch; the last one of an epoch ends a step too.
    assert (last["beats"], last["micro"], last["saves"]) == (8, 20, 2)
    assert wire.SOURCES[last["source"]] == "torch"


def test_saving_and_loading_are_checkpoints(trained):
    assert {wire.PHASES[one] for one in trained[1]["phases"]} == {"checkpoint"}


def test_the_last_batch_of_an_epoch_is_trained_in_a_step_too(trained):
    # accelerate has asked for the batch after it, so that the end of the data is known before.
    assert {wire.PHASES[one] for one in trained[1]["steps"]} == {"step"}


def test_the_loss_is_the_scripts_own(trained):
    assert wire.bits_float(trained[0].last()["loss_bits"]) in trained[1]["losses"]


def test_the_training_is_the_same(trained, other_python, tmp_path):
    quiet = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    command = [other_python("hf"), "-c", LOOP]
    plain = subprocess.run(command, cwd=tmp_path, env=quiet, capture_output=True, check=True)
    assert json.loads(plain.stdout.splitlines()[-1]) == trained[1]


NAMED = """
import time, torch
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
net = torch.nn.Linear(8, 1)
optimizer = torch.optim.Adam(net.parameters())
schedule = torch.optim.lr_scheduler.LinearLR(optimizer)
rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(80, 8)), 4, shuffle=True)
net, optimizer, schedule, rows = accelerator.prepare(net, optimizer, schedule, rows)
for (x,) in rows:
    accelerator.backward(net(x).mean())
    optimizer.step()
    schedule.step()
    time.sleep(0.1)
"""


def test_the_lines_that_resume_its_loop_have_the_names_of_what_it_prepared(other_python, tmp_path):
    with Receiver() as receiver:
        heard = receiver.run([other_python("hf"), "-c", NAMED], 120, cwd=tmp_path)
    assert heard.code == 0, heard.err[-3000:]
    (lines,) = [note["facts"]["lines"] for note in heard.notes if note["kind"] == "loop"]
    assert "stallguard.track(net, optimizer, schedule, rows, epochs=EPOCHS)" in lines
