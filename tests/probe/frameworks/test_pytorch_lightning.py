"""Lightning under its former name has the hooks of the new one."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

from stallguard.probe import libraries
from tests.probe.test_context import context as made

ROOT = "pytorch_lightning"


class _AutomaticOptimization:
    def __init__(self, trainer):
        self.trainer = trainer

    def run(self, optimizer, batch_idx, kwargs):
        return {"optimizer": optimizer, **kwargs}


def patched(context, monkeypatch, **owners):
    """Have the hooks of Lightning patch a Trainer's module; `owners`: classes by the module of a loop."""
    record = libraries.read(ROOT)
    for name, kind in owners.items():
        module = ModuleType(ROOT + ".loops." + name.replace("__", "."))
        setattr(module, kind.__name__, kind)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    module = ModuleType(ROOT + ".trainer.trainer")
    module.Trainer = type("Trainer", (), {"fit": lambda self: self})
    for hook in record.hooks:
        for name, patch in hook(context).items():
            assert name == module.__name__
            patch(module)


def test_the_loops_of_the_former_name_are_wrapped(monkeypatch):
    context = made()
    patched(context, monkeypatch, optimization__automatic=_AutomaticOptimization)
    trainer = SimpleNamespace(accumulate_grad_batches=1)
    context.beats.cold = True
    result = _AutomaticOptimization(trainer).run("sgd", 0, {"batch": 1})
    assert result == {"optimizer": "sgd", "batch": 1}
    assert context.get("beats") == 1


def test_what_a_version_lacks_is_named(monkeypatch):
    context = made()
    patched(context, monkeypatch, optimization__automatic=type("_AutomaticOptimization", (), {}))
    (note,) = [one for one in context.mail.waiting() if b'"hooks"' in one]
    assert b"Lightning has no" in note
    assert b"_AutomaticOptimization.run" in note
