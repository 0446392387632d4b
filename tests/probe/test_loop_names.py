"""The lines that would have a loop resumed carry the names of the script's variables, and keep none of its values."""

from __future__ import annotations

import sys
import threading
import weakref
from types import SimpleNamespace
from typing import Self

import pytest

from stallguard.probe import loop_names, wire
from stallguard.probe.loop_names import LOOKS, LoopNames, lines_for, lines_of


def made(module: str, name: str) -> type:
    return type(name, (), {"__module__": module})


MODULE = made("torch.nn.modules.module", "Module")
LOSS = type("CrossEntropyLoss", (MODULE,), {"__module__": "torch.nn.modules.loss"})
NET = type("Net", (MODULE,), {"__module__": "__main__"})
OPTIMIZER = type("Adam", (made("torch.optim.optimizer", "Optimizer"),), {"__module__": "torch.optim.adam"})
SCHEDULE = made("torch.optim.lr_scheduler", "LRScheduler")
LOADER = made("torch.utils.data.dataloader", "DataLoader")
MLX_NET = type("Net", (made("mlx.nn.layers.base", "Module"),), {"__module__": "__main__"})
MLX_OPTIMIZER = type("Adam", (made("mlx.optimizers.optimizers", "Optimizer"),), {"__module__": "__main__"})


def lines(**variables: object) -> str:
    return lines_of((name, loop_names.kind_of(value)) for name, value in variables.items())


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"sched": SCHEDULE(), "opt": OPTIMIZER(), "net": NET(), "dl": LOADER()}, "net, opt, sched, dl"),
        ({"net": NET(), "criterion": LOSS(), "opt": OPTIMIZER(), "x": 3}, "net, opt, DATA"),
        ({"val_dl": LOADER(), "net": NET(), "opt": OPTIMIZER(), "dl": LOADER()}, "net, opt, dl"),
        ({"dl": LOADER(), "opt": OPTIMIZER(), "train_dl": LOADER()}, "opt, train_dl"),
        ({"model": MLX_NET(), "optimizer": MLX_OPTIMIZER()}, "model, optimizer, DATA"),
    ],
)
def test_the_names_are_those_of_the_script(variables, words):
    first, second = lines(**variables).split(" | ")
    assert first == f"for epoch, batches in stallguard.track({words}, epochs=EPOCHS):"
    assert second == "for step, batch in batches:"


def test_without_an_optimizer_nothing_is_said():
    assert lines(net=NET(), dl=LOADER()) == ""


class Thread:
    """A training in another thread, whose stack is looked at while it waits in a step."""

    def __init__(self, program: str) -> None:
        self.waits, self.goes = threading.Event(), threading.Event()
        self.values = {"NET": NET, "OPTIMIZER": OPTIMIZER, "wait": self.wait}
        code = compile(program, "/a/script/train.py", "exec")
        self.thread = threading.Thread(target=exec, args=(code, self.values))

    def wait(self) -> None:
        self.waits.set()
        self.goes.wait(60)

    def __enter__(self) -> Self:
        self.thread.start()
        self.waits.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self.goes.set()
        self.thread.join()

    def look(self) -> str:
        return lines_for(sys._current_frames()[self.thread.ident])


FUNCTION = """
def step(a, b):
    wait()
def main():
    net, adam = NET(), OPTIMIZER()
    %s
    step(net, adam)
main()
"""


def test_the_outermost_function_with_an_optimizer_is_the_loop():
    with Thread(FUNCTION % "pass") as there:
        assert "track(net, adam, DATA," in there.look()


def test_the_module_of_a_script_is_looked_at_as_well():
    with Thread("one, two = NET(), OPTIMIZER()\nwait()") as there:
        assert "track(one, two, DATA," in there.look()


def test_no_value_is_kept():
    # The dictionary that a look makes would hold `large` after the function has deleted it.
    kept: list[weakref.ref] = []
    first, second = threading.Event(), threading.Event()

    def training() -> None:
        large, adam = NET(), OPTIMIZER()
        kept.append(weakref.ref(large))
        first.set()
        second.wait(60)
        del large
        third.set()
        fourth.wait(60)
        del adam

    third, fourth = threading.Event(), threading.Event()
    code = training.__code__.replace(co_filename="/a/script/train.py")
    thread = threading.Thread(target=type(training)(code, globals(), "training", None, training.__closure__))
    thread.start()
    first.wait(60)
    assert "track(large, adam, DATA," in lines_for(sys._current_frames()[thread.ident])
    second.set()
    third.wait(60)
    gone = kept[0]() is None
    fourth.set()
    thread.join()
    assert gone


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="locals() is a copy of its own there")
def test_a_function_that_calls_locals_keeps_what_it_got():
    names: list[dict] = []
    there = Thread(FUNCTION % "names.append(locals())")
    there.values["names"] = names
    with there:
        there.look()
        assert {"net", "adam"} <= names[0].keys()


def beats(**fields: int) -> SimpleNamespace:
    return SimpleNamespace(slots=[fields.get(name, 0) for name in wire.FIELDS])


def test_it_looks_when_the_loop_has_begun_and_not_for_ever():
    assert LoopNames(beats(beats=2)).look(None) is None
    assert LoopNames(beats(beats=9, fits=1)).look(None) == ""
    assert LoopNames(beats(beats=9, hooks=1 << wire.HOOKS.index("checkpoint"))).look(None) == ""
    names = LoopNames(beats(beats=9))
    assert [names.look(None) for _ in range(LOOKS)] == [None] * (LOOKS - 1) + [""]
