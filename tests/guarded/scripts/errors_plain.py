"""Errors in functions of Python itself that the probe wraps, and in the script's own."""

import faulthandler
import logging
import random
import sys
import threading
import traceback


class Own(random.Random):
    """Fails while it is seeded, with another error as the context."""

    def seed(self, a=None, version=2):
        try:
            {}[a]
        except KeyError:
            super().seed({} if a == 5 else a)


class Lost:
    """Fails where Python cannot raise it."""

    def __del__(self):
        Own(5)


def numbers():
    yield 1
    random.seed([])


def chained():
    try:
        list(numbers())
    except TypeError as error:
        raise ValueError("outer") from error


for function in (
    lambda: Own(5),
    lambda: random.seed([]),
    lambda: random.Random({}),
    lambda: faulthandler.enable(file="x"),
    lambda: faulthandler.register(1.5),
    lambda: compile("def f(:", "made", "exec"),
    chained,
):
    print("==", function.__code__.co_firstlineno, file=sys.stderr)
    try:
        function()
    except Exception:
        print(traceback.format_exc(), file=sys.stderr)
        logging.getLogger().exception("logged")
thread = threading.Thread(target=Own, args=(5,))
thread.start()
thread.join()
Lost()
if "hook" in sys.argv:
    sys.excepthook = traceback.print_exception
chained()
