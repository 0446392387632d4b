"""Counts its beginnings, saves once, and ends with a code of its own."""

import sys
import time
from pathlib import Path

import stallguard

stallguard.checkpoint(lambda path: Path(path).write_text("x"), lambda path: None)
with Path(sys.argv[3]).open("a") as file:
    file.write("begun\n")
for _ in range(int(sys.argv[1])):
    time.sleep(0.05)  # a batch
    stallguard.beat()
sys.exit(int(sys.argv[2]))
