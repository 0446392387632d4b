"""Samples of stacks to report on: written as the probe writes them, made by hand or by hypothesis."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import msgspec
from hypothesis import strategies as st

from stallguard.core.profile import FEEDER, TRAINING
from stallguard.probe import wire
from stallguard.storage import stack_samples
from stallguard.storage.paths import RunDir
from stallguard.storage.stack_samples import CodeLine, FunctionTime, StackSamples, StackTime

SITE = "/venv/lib/python3.11/site-packages"
# A stack of Keras as it is sampled, the outermost frame first.
FIT = [
    CodeLine("/home/me/train.py", 17, "<module>"),
    CodeLine("/home/me/train.py", 16, "main"),
    CodeLine(f"{SITE}/keras/src/utils/traceback_utils.py", 117, "error_handler"),
    CodeLine(f"{SITE}/keras/src/backend/tensorflow/trainer.py", 399, "fit"),
    CodeLine(f"{SITE}/keras/src/backend/tensorflow/trainer.py", 241, "function"),
    CodeLine(f"{SITE}/tensorflow/python/util/traceback_utils.py", 164, "error_handler"),
    CodeLine(f"{SITE}/tensorflow/python/eager/polymorphic_function/polymorphic_function.py", 833, "__call__"),
    CodeLine(f"{SITE}/tensorflow/python/eager/polymorphic_function/tracing_compilation.py", 139, "call_function"),
    CodeLine(f"{SITE}/tensorflow/python/eager/context.py", 1688, "call_function"),
    CodeLine(f"{SITE}/tensorflow/python/eager/execute.py", 53, "quick_execute"),
]
GENERATOR = [
    CodeLine("/usr/lib/python3.11/threading.py", 1002, "_bootstrap"),
    CodeLine(f"{SITE}/tensorflow/python/data/ops/from_generator_op.py", 198, "generator_py_func"),
    CodeLine("/home/me/train.py", 7, "rows"),
]


def samples(*stacks: tuple[str, str, list[CodeLine], int], functions: Sequence[FunctionTime] = ()) -> StackSamples:
    """Return samples of (role, phase, lines, milliseconds), and measured functions."""
    lines: dict[CodeLine, int] = {}
    times = [
        StackTime(role, phase, tuple(lines.setdefault(line, len(lines)) for line in stack), passed)
        for role, phase, stack, passed in stacks
    ]
    covered = sum(one.milliseconds for one in times if one.role == TRAINING)
    return StackSamples(1, len(times), covered, list(lines), times, list(functions))


def of_keras() -> StackSamples:
    """Return what a training with a slow generator looks like."""
    return samples(
        (TRAINING, "step", FIT, 40_000),
        (TRAINING, "tracing", FIT[:-2], 6_000),
        (TRAINING, "epoch end", [*FIT[:1], CodeLine("/home/me/train.py", 30, "on_epoch_end")], 4_000),
        (FEEDER, "step", GENERATOR, 39_000),
        functions=[FunctionTime("input", "/home/me/train.py", 40, "prepare", 1200, 70_000)],
    )


def write(run: RunDir, pid: int, value: StackSamples) -> Path:
    """Write the file of a process as its probe does."""
    text = msgspec.json.encode(value)
    run.probe.mkdir(parents=True, exist_ok=True)
    file = stack_samples.path(run.probe, pid)
    file.write_bytes(struct.pack("<2q", 2, len(text)) + text + bytes(wire.PROFILE_SIZE - 16 - len(text)))
    return file


# Text that is markup, that steers a terminal, or that is no character of XML; a probe can send no single surrogate.
NAMES = st.text(max_size=12) | st.sampled_from(
    [
        "<module>",
        "</svg><script>x</script>",
        "\"&'<>",
        "{{ 7 * 7 }}",
        "]]>",
        "\x1b[2J",
        "\u202egnp",
        "\x00",
        "\ufffe",
        "",
    ]
)
FILES = st.sampled_from(
    ["/home/me/train.py", "/home/me/a/b.py", f"{SITE}/keras/src/a.py", f"{SITE}/tensorflow/python/b.py",
     f"{SITE}/tensorflow/python/util/traceback_utils.py", "/usr/lib/python3.11/threading.py", "<string>", "?", ""]
)  # fmt: skip
LINES = st.builds(CodeLine, FILES | NAMES, st.integers(0, 9), NAMES)


TIMES = st.sampled_from([0, 1, 500]) | st.integers(0, 10_000)  # milliseconds; equal ones are frequent


@st.composite
def any_samples(draw: st.DrawFn) -> StackSamples:
    """Draw any table that a probe can have written, and some that none would."""
    lines = draw(st.lists(LINES, min_size=1, max_size=12))
    stack = st.lists(st.integers(0, len(lines) - 1), max_size=30).map(tuple)
    phase = st.sampled_from(wire.PHASES)
    one = st.builds(StackTime, st.sampled_from([TRAINING, FEEDER]), phase, stack, TIMES)
    stacks = draw(st.lists(one, min_size=1, max_size=40))
    covered = sum(each.milliseconds for each in stacks if each.role == TRAINING)
    return StackSamples(1, len(stacks), covered, lines, stacks)
