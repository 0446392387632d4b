"""What every shape imports: exact results for the bench, and the disturbance that the bench orders.

    harness.callback(keras)     a callback that numbers the fits, writes down each batch, and carries out the order
    harness.batch, .epoch       the same for a loop of the script's own
    harness.show(name, value)   a result; history, model, file and saved show what their names say
    harness.drawn(name, value)  a random draw that every attempt of a run must repeat

Without the bench's variables a shape is a plain script.  The order is a few words in HARNESS_ORDER:

    kill batch FIT EPOCH BATCH      SIGKILL after this batch, inside its callbacks
    stall batch FIT EPOCH BATCH     wait without end there
    kill end FIT EPOCH              SIGKILL inside the callbacks of the epoch's end
    kill begin FIT EPOCH            SIGKILL inside those of its beginning
    kill save NUMBER                SIGKILL instead of the n-th fsync, rename or replace among the run's checkpoints
    rate RATE FIT EPOCH BATCH       set this learning rate before that batch (the reference of an edited script)

An order is carried out once a folder.  With HARNESS_REWIND the process is not killed there: it keeps a copy of
checkpoints and files, trains to its end, puts them back at `finished()` and dies then.  So one run holds an undisturbed
attempt and a killed one, with the same randomness.  Standard library only; numpy comes with the script's framework.
"""

import contextlib
import hashlib
import json
import os
import signal
import sys
import threading
import time

FOLDER = os.environ.get("HARNESS_FOLDER", "")
ORDER = os.environ.get("HARNESS_ORDER", "").split()
REWIND = "HARNESS_REWIND" in os.environ
PAUSE = float(os.environ.get("HARNESS_PAUSE", "0"))  # seconds a batch
try:
    from _stallguard_probe import settings  # under stallguard
except ImportError:
    CHECKPOINTS, ATTEMPT = os.environ.get("HARNESS_SAVES", ""), ""
else:
    CHECKPOINTS, ATTEMPT = settings.of(os.environ).checkpoints, str(settings.of(os.environ).token)
# Seconds before a fit's first batch in a later attempt: what the probe says before that batch has arrived then.
SECONDS_TO_SPEAK = 0.8

_state = {"fits": 0, "role": "", "saves": 0, "rewound": False, "begun": []}


# Not in a variable of the module: another process is another value, and the start of each fit would differ.
os.environ["HARNESS_MAIN"] = str(os.getpid())


def _main():
    """Return the process that imported this; a fork of it keeps no results."""
    return int(os.environ["HARNESS_MAIN"])


def role(name):
    """Name this process, in a run of several: the order is carried out in the one that HARNESS_ROLE names."""
    _state["role"] = name


def show(name, value):
    """Keep a result, to the bit, and print it."""
    _keep("result", name=name, value=_encode(value))
    print(name, value if isinstance(value, (str, int, float)) else _digest(_encode(value)), flush=True)


def drawn(name, value):
    """Keep a random draw that every attempt of a run must repeat."""
    _keep("drawn", name=name, value=_encode(value))


def history(found, name="history"):
    show(name, {"epoch": list(found.epoch), **{key: list(values) for key, values in found.history.items()}})


def model(subject, name="model"):
    show(name + " weights", subject.get_weights())
    optimizer = getattr(subject, "optimizer", None)
    if optimizer is not None:
        variables(optimizer.variables, name + " optimizer")


def variables(found, name):
    """Show variables of any framework, or a function that returns them."""
    show(name, [_numpy(variable) for variable in (found() if callable(found) else found)])


def file(path):
    with open(path) as opened:
        show("file " + path, opened.read().splitlines())


def saved(path, keras):
    show("saved " + path, keras.models.load_model(path, compile=False).get_weights())


def callback(keras):
    """Return the callback of the next fit; it belongs at the end of the list."""
    number = _state["fits"]
    _state["fits"] += 1

    class Harness(keras.callbacks.Callback):
        at = 0

        def on_epoch_begin(self, index, logs=None):
            self.at = index
            epoch(index, number)

        def on_train_batch_begin(self, index, logs=None):
            _wait_for_words(number)
            if ORDER[:1] == ["rate"] and ORDER[2:] == _words(number, self.at, index):
                self.model.optimizer.learning_rate = float(ORDER[1])

        def on_train_batch_end(self, index, logs=None):
            batch(self.at, index, number)

        def on_epoch_end(self, index, logs=None):
            _reached("end", number, index)

    return Harness()


def epoch(index, fit=0):
    _reached("begin", fit, index)


def batch(index, number, fit=0):
    """Say that batch `number` of epoch `index` is trained."""
    _keep("batch", at=[fit, index, number])
    if PAUSE:
        time.sleep(PAUSE)
    _reached("batch", fit, index, number)


def disturbed():
    """Whether an earlier attempt was killed or stalled by order."""
    return bool(FOLDER) and os.path.exists(_mark())


def finished():
    """Say that the script is done: a process that is to be rewound ends here, for the first time."""
    if _state["rewound"]:
        _copy(os.path.join(FOLDER, "checkpoints"), CHECKPOINTS)
        _copy(os.path.join(FOLDER, "files"), os.getcwd())
        _die()


def _mark():
    return os.path.join(FOLDER, "disturbed")


def _words(*values):
    return [str(value) for value in values]


def _reached(*moment):
    if ORDER[1:] != _words(*moment) or ORDER[:1] == ["rate"]:
        return
    if disturbed() or _state["rewound"] or os.environ.get("HARNESS_ROLE", "") not in ("", _state["role"]):
        return
    if REWIND:
        _state["rewound"] = True
        _copy(CHECKPOINTS, os.path.join(FOLDER, "checkpoints"))
        _copy(os.getcwd(), os.path.join(FOLDER, "files"))
    elif ORDER[0] == "stall":
        open(_mark(), "w").close()
        threading.Event().wait()
    else:
        _die()


def _die():
    open(_mark(), "w").close()
    sys.stdout.flush()
    os.kill(_main(), signal.SIGKILL)
    time.sleep(60)  # a save may be made by a thread or another process: it must not come any further


def _copy(source, target):
    """Make `target` what `source` is; a file that vanishes meanwhile is none."""
    import shutil

    os.makedirs(target, exist_ok=True)
    for name in os.listdir(target):
        path = os.path.join(target, name)
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    with contextlib.suppress(shutil.Error):
        shutil.copytree(source, target, dirs_exist_ok=True)


def _wait_for_words(fit):
    """Give what is to be said before the first batch of a fit in a later attempt the time to arrive."""
    if fit not in _state["begun"]:
        _state["begun"].append(fit)
        if disturbed() and not PAUSE:
            time.sleep(SECONDS_TO_SPEAK)


def _keep(kind, **facts):
    if not FOLDER or os.getpid() != _main():
        return
    row = {"kind": kind, "attempt": ATTEMPT, "role": _state["role"], "time": time.monotonic(), **facts}
    # What a script's callbacks append to a file is cut back to the checkpoint, and this must not be.
    folder = os.open(FOLDER, os.O_RDONLY)
    opened = os.open("results.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600, dir_fd=folder)
    os.write(opened, json.dumps(row).encode() + b"\n")  # one write a line
    os.close(opened)
    os.close(folder)


def _encode(value):
    """Return JSON that holds a value to the bit; arrays are kept beside it, under their digest."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return {"float": float(value).hex()}
    if isinstance(value, dict):
        return {str(key): _encode(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return [_encode(item) for item in sorted(value)]
    if isinstance(value, (list, tuple)) or type(value).__name__ == "ListWrapper":
        return [_encode(item) for item in value]
    array = _numpy(value)
    if array.shape == () and array.dtype.kind in "fiub":
        return _encode(array.item())
    return _array(array)


def _array(array):
    numpy = sys.modules["numpy"]
    digest = hashlib.sha256(numpy.ascontiguousarray(array).tobytes()).hexdigest()[:16]
    if FOLDER and array.dtype.kind in "fiubV":
        folder = os.path.join(FOLDER, "arrays")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, digest + ".npy")
        if not os.path.exists(path):
            wide = array if array.dtype.kind in "iub" else array.astype("float64")
            with open("%s.%d" % (path, os.getpid()), "wb") as opened:
                numpy.save(opened, wide)
            os.replace(opened.name, path)
    return {"array": digest, "dtype": str(array.dtype), "shape": list(array.shape)}


def _numpy(value):
    numpy = sys.modules["numpy"]
    read = getattr(value, "numpy", None)
    if read is None or hasattr(value, "detach"):
        return numpy.asarray(value.detach() if hasattr(value, "detach") else value)
    return numpy.asarray(read())


def _digest(code):
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()[:16]


def _count_saves():
    """Have the n-th fsync, rename or replace among the run's checkpoints be the last thing that this process does."""

    def counted(original):
        def stand_in(first, *more, **named):
            if _path(first).startswith(CHECKPOINTS + os.sep):
                _state["saves"] += 1
                _reached("save", _state["saves"])
            return original(first, *more, **named)

        return stand_in

    for name in ("fsync", "rename", "replace"):
        setattr(os, name, counted(getattr(os, name)))


def _path(target):
    if not isinstance(target, int):
        return os.fsdecode(target)
    if os.path.isdir("/proc/self/fd"):
        return os.readlink("/proc/self/fd/%d" % target)
    import fcntl

    return fcntl.fcntl(target, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0").decode()


def _announce():
    """Write down that this process is one of the run's, for the program that kills it from outside."""
    with open(os.path.join(FOLDER, "processes"), "ab", buffering=0) as opened:
        opened.write(b"%d\n" % _main())


if FOLDER:
    _announce()
if ORDER[1:2] == ["save"] and CHECKPOINTS:
    _count_saves()
