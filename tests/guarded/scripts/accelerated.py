"""A loop with accelerate's `save_state` that resumes itself, as accelerate's examples do.

    accelerated.py [steps=60] [every=5] [order=kept|lost] [name=folder|automatic] [unread=0] [stall=STEP]
                   [pause=SECONDS] [--resume_from_checkpoint FOLDER]

Each epoch is shuffled by its number alone; with order=lost by what was drawn before.  It prints the step that each
process begins with, and at the end a digest of the weights and the optimizer.  A file `die` in its directory has the
number of the step after which the process kills itself, `cut` that of the step whose save it is making then: that save
lacks files, and has one that is too short.
"""

import argparse
import hashlib
import json
import os
import signal
import threading
import time
from pathlib import Path

import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.utils import ProjectConfiguration

torch.set_num_threads(1)
parser = argparse.ArgumentParser()
parser.add_argument("words", nargs="*")
parser.add_argument("--resume_from_checkpoint")
arguments = parser.parse_args()
GIVEN = {
    "steps": "60", "every": "5", "order": "kept", "name": "folder", "unread": "0", "stall": "-1", "pause": "0.02",
    **dict(word.split("=") for word in arguments.words),
}  # fmt: skip
torch.manual_seed(5)
AUTOMATIC = GIVEN["name"] == "automatic"
accelerator = Accelerator(
    cpu=True, project_config=ProjectConfiguration(project_dir="out", automatic_checkpoint_naming=AUTOMATIC)
)
inputs = torch.randn(80, 8)


class Position:
    step = 0

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


def asked(name):
    path = Path(name)
    return int(path.read_text()) if path.exists() else -1


net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))
generator = torch.Generator().manual_seed(3)
rows = torch.utils.data.TensorDataset(inputs, inputs[:, :1] ** 2)
net, optimizer, whole_epoch = accelerator.prepare(
    net, torch.optim.Adam(net.parameters(), 0.01),
    torch.utils.data.DataLoader(rows, 4, shuffle=True, generator=generator),
)  # fmt: skip
position = Position()
accelerator.register_for_checkpointing(position)
EPOCH = len(whole_epoch)
if AUTOMATIC and Path("out/checkpoints").is_dir():
    accelerator.load_state()
    accelerator.project_configuration.iteration = position.step // int(GIVEN["every"])
elif arguments.resume_from_checkpoint and GIVEN["unread"] == "0":
    accelerator.load_state(arguments.resume_from_checkpoint)
print(json.dumps({"begins": position.step}), flush=True)


def save():
    folder = None if AUTOMATIC else f"out/step_{position.step}"
    if asked("cut") != position.step:
        accelerator.save_state(folder)
        return
    Path("cut").unlink()
    whole = torch.save

    def cut(value, file, *more, **named):
        whole(value, file, *more, **named)
        if "optimizer" in str(file):
            os.truncate(file, Path(file).stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    torch.save = cut
    accelerator.save_state(folder)


while position.step < int(GIVEN["steps"]):
    epoch, done = divmod(position.step, EPOCH)
    if GIVEN["order"] == "kept":
        generator.manual_seed(epoch)
    for x, y in skip_first_batches(whole_epoch, done) if done else whole_epoch:
        loss = ((net(x) - y) ** 2).mean()
        if int(GIVEN["stall"]) == position.step and not Path("stalled").exists():
            Path("stalled").touch()
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()  # stalls here
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        position.step += 1
        time.sleep(float(GIVEN["pause"]))
        if position.step % int(GIVEN["every"]) == 0:
            save()
        if asked("die") == position.step:
            Path("die").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        if position.step >= int(GIVEN["steps"]):
            break
digest = hashlib.sha256()
for state in (net.state_dict(), *optimizer.state_dict()["state"].values()):
    for one in state.values():
        digest.update(one.detach().numpy().tobytes())
print(json.dumps({"digest": digest.hexdigest(), "steps": position.step}))
