"""What the bench `compat` runs with each CPython: a loop by hand, threads, forks, errors; no training library."""

import os
import sys
import threading
import time

try:
    import stallguard
except ImportError:  # without stallguard around it
    stallguard = None


def beat():
    if stallguard is not None:
        stallguard.beat()


class Break(Exception):
    """An error of the script's own."""


def work(number):
    if number == 2:
        raise Break("in a thread")
    time.sleep(0.01)


def main():
    threading.excepthook = lambda args: print("thread:", args.exc_type.__name__, args.exc_value)
    seen = []
    for number in range(40):
        beat()
        if number % 10 == 0:
            threads = [threading.Thread(target=work, args=(one,), name="work") for one in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if number == 20:
            # Beside a thread, as every training library has some: from 3.12 on Python warns of that.
            thread = threading.Thread(target=time.sleep, args=(0.2,))
            thread.start()
            child = os.fork()
            if child == 0:
                beat()
                os._exit(4)
            seen.append(os.waitpid(child, 0)[1] >> 8)
            thread.join()
        print("step", number, flush=True)
        time.sleep(0.02)
    # The sampler shortens the interval for 25 ms before each of its samples, twice a second.
    intervals = []
    for _ in range(4):
        intervals.append(sys.getswitchinterval())
        time.sleep(0.04)
    print(seen, sorted(thread.name for thread in threading.enumerate()), max(intervals))
    print(sorted(name for name in sys.path if "stallguard" in name and "inject" in name))
    raise Break("at the end")


if __name__ == "__main__":
    main()
