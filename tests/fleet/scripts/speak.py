"""Prints a number ten times a second until it is ended, and trains nothing."""

import itertools
import time

for number in itertools.count():
    print(number, flush=True)
    time.sleep(0.1)  # the pace of what is read
