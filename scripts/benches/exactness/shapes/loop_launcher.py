"""A launcher that starts each training of a sweep as a process."""

import subprocess
import sys

for seed in ("1", "2"):
    subprocess.run([sys.executable, "train_seed.py", seed], check=True)
