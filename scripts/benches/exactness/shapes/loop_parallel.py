"""A launcher that runs two trainings side by side."""

import subprocess
import sys

running = [subprocess.Popen([sys.executable, "train_seed.py", seed]) for seed in ("1", "2")]
if any([process.wait() for process in running]):
    sys.exit("a training failed")
