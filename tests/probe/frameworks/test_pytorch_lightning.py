"""Lightning under its former name has the hooks of the new one."""

from __future__ import annotations

from types import ModuleType

from stallguard.probe import libraries
from tests.probe.test_context import context as made


def test_the_loops_of_the_former_name_are_wrapped():
    context = made()
    record = libraries.read("pytorch_lightning")
    modules = {name for hook in record.hooks for name in hook(context)}
    assert modules == {"pytorch_lightning.trainer.trainer", "pytorch_lightning.trainer.call"}
    module = ModuleType("pytorch_lightning.trainer.call")
    module._call_callback_hooks = called = lambda trainer, name: name
    for hook in record.hooks:
        for name, patch in hook(context).items():
            if name == module.__name__:
                patch(module)
    assert module._call_callback_hooks is not called
    assert module._call_callback_hooks(None, "setup") == "setup"
