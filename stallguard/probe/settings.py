"""The settings of the probe in one attempt: declared once, with defaults, and carried in one variable.

The supervisor builds a ProbeSettings and writes it with `encode`; each process of the training reads it with `of`.  A
setting of the user that acts here has the same name, with "_" for ".": its value is passed on, and its default is the
one declared here (config/table.py).

The variable is "name=value;name=value", without what has its default.  It is no JSON: the module `json` takes 7 ms of
every start of Python.  A process reads names that it does not know (of another version) as nothing, and a value that is
no number as the default.

Two more variables pass between the processes of a training, and are set by the probe itself: bootstrap.OWNER and
process_key.VARIABLE.

Loaded inside the user's process: standard library only, Python 3.9 grammar.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing costs milliseconds of every start; checkers take this name for True
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, dataclass_transform

    @dataclass_transform(kw_only_default=True, frozen_default=True)
    class _Declared:
        def replace(self, **changes: Any) -> ProbeSettings:
            """Return the settings with some of them changed."""

else:

    class _Declared:
        def __init__(self, **values: object) -> None:
            self.__dict__.update(values)

        def replace(self, **changes: object) -> _Declared:
            return type(self)(**{**self.__dict__, **changes})


VARIABLE = "STALLGUARD_PROBE"
_ESCAPES = (("%", "%25"), (";", "%3b"), ("\n", "%0a"))  # the first also undoes last


class ProbeSettings(_Declared):
    """What the supervisor wants of the probe."""

    socket: str = ""  # where records are sent
    pages: str = ""  # directory of the pages and stack files
    token: int = 0  # of the attempt; 0: there is no supervisor
    slices: int = 1  # of each batch, or how many times fewer rows it has; 1: the whole batch
    rows: int = 0  # the batch size that the script is started with, instead of slices; 0: none
    inside: int = 1  # slices at most in which a step that lacked memory is trained again at once; 1: it is not
    policy_min_batch: int = 1  # rows that a slice keeps at least, if a step is trained again
    fewer_rows: str = ""  # fewer rows instead of slices if fit takes a size: how the learning rate is scaled
    checkpoints: str = ""  # directory of the checkpoint generations; "": none are made
    resume: bool = False  # the attempt continues an earlier one
    device: str = "default"  # or cpu
    signal: int = 0  # number of the stack-dump signal; 0: the probe's own choice
    checkpoint_every: float = 300.0  # seconds between two checkpoints
    checkpoint_cost: float = 0.01  # largest share of the training's time for checkpoints
    checkpoint_inexact: str = "fallback"  # if a resume is not exact: fallback, continue or stop
    checkpoint_most: int = 1_000_000_000  # bytes of callbacks' own data in a checkpoint
    trackers: str = ""  # directory of what trackers chose in earlier attempts; "": they are not resumed
    project: str = ""  # root of the project, if it can have another path on another machine
    key: str = ""  # file of the key that signs pickles; "": none are kept
    seed: str = ""  # of the run, for what the script leaves unseeded; "": a new one in each attempt
    hash_seed: str = ""  # PYTHONHASHSEED that stallguard set; "": none
    added: str = ""  # words that stallguard has added at the end of the command, as a shell reads them


_KINDS: dict[str, str] = ProbeSettings.__annotations__  # as text: annotations are not evaluated here
# The text that was read last, and what it says: some hooks ask for each file.
_read: dict[str, ProbeSettings] = {}


def encode(settings: ProbeSettings) -> str:
    """Return the value of VARIABLE."""
    parts = []
    for name, kind in _KINDS.items():
        value = getattr(settings, name)
        if value != getattr(ProbeSettings, name):
            text = str(int(value)) if kind == "bool" else str(value)
            for character, escaped in _ESCAPES:
                text = text.replace(character, escaped)
            parts.append("%s=%s" % (name, text))
    return ";".join(parts)


def of(environment: Mapping[str, str]) -> ProbeSettings:
    """Return the settings in an environment; the defaults if there are none."""
    whole = environment.get(VARIABLE, "")
    known = _read.get(whole)
    if known is not None:
        return known
    values: dict[str, Any] = {}
    for part in whole.split(";"):
        name, _, text = part.partition("=")
        kind = _KINDS.get(name)
        if kind == "str":
            for character, escaped in _ESCAPES[::-1]:
                text = text.replace(escaped, character)
            values[name] = text
        elif kind == "bool":
            values[name] = text == "1"
        elif kind is not None:
            try:
                values[name] = int(text) if kind == "int" else float(text)
            except ValueError:
                pass
    settings = ProbeSettings(**values)
    _read.clear()
    _read[whole] = settings
    return settings
