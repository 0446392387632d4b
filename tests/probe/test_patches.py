"""What a wrapped function is to those who look at it from outside."""

from __future__ import annotations

import warnings
from types import ModuleType

from stallguard.probe.patches import Patches

LIBRARY = """
import warnings
class Model:
    def save(self):
        warnings.warn("old option", stacklevel=2)
"""


def test_a_warning_blames_the_line_of_the_script_that_calls_the_wrapped_function() -> None:
    library = ModuleType("keras.saving")
    exec(LIBRARY, library.__dict__)  # noqa: S102 (a module as an import makes it)
    script = compile("\n\nmodel.save()", "script.py", "exec")

    def blamed() -> list[tuple[str, int]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            exec(script, {"model": library.Model()})  # noqa: S102 (a script with line numbers)
        return [(one.filename, one.lineno) for one in caught]

    plain = blamed()
    assert plain == [("script.py", 3)]

    def make(original):
        def save(*args, **kwargs):
            return original(*args, **kwargs)

        return save

    assert Patches().wrap(library.Model, "save", make)
    assert blamed() == plain
