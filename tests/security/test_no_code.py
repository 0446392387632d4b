"""Nothing in stallguard makes code of what it reads, and nothing passes text to a shell but a setting of the user."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import stallguard

ROOT = Path(stallguard.__file__).parent
FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))
# Modules whose files or messages can be programs.
LOADERS = frozenset(
    "pickle cPickle _pickle marshal shelve dill cloudpickle joblib jsonpickle yaml code codeop imp runpy pty commands "
    "xmlrpc multiprocessing.managers".split()
)
CALLS = frozenset(
    "eval exec compile __import__ os.system os.popen os.startfile posix.system subprocess.getoutput "
    "subprocess.getstatusoutput commands.getoutput keras.models.load_model keras.saving.load_model "
    "tf.keras.models.load_model torch.load numpy.load np.load pandas.read_pickle "
    "enable_unsafe_deserialization".split()
)
ARGUMENTS = {"shell": True, "allow_pickle": True, "safe_mode": False, "weights_only": False}
# It loads what a key of the user has signed: tests/probe/checkpoint/test_pickled.py.
SIGNED = {"probe/checkpoint/pickled.py": {"pickle"}}
OWN_PARTS = {"probe/bootstrap.py", "probe/libraries.py"}  # import modules of their own package by name
# The command of `notify.command` is a line for a shell because the user writes it as one; the texts of a notification
# reach it in variables.  A script without #! is run by /bin/sh as execvp(3) does it.  What holds a training's output
# runs a fixed text, and gets paths as arguments.
SHELLS = {"notify/channels.py": 1, "supervisor/child.py": 1, "supervisor/standby.py": 1}


def tree(name: str) -> ast.AST:
    return ast.parse((ROOT / name).read_text())


def called(node: ast.AST) -> Iterator[ast.Call]:
    return (one for one in ast.walk(node) if isinstance(one, ast.Call))


def imported(node: ast.AST) -> set[str]:
    found = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Import):
            found |= {alias.name for alias in one.names}
        elif isinstance(one, ast.ImportFrom) and not one.level:
            found |= {one.module or "", *(f"{one.module}.{alias.name}" for alias in one.names)}
    return found


@pytest.mark.costly
@pytest.mark.parametrize("name", FILES)
def test_no_module_loads_code_or_calls_a_shell(name: str) -> None:
    code = tree(name)
    assert imported(code) & LOADERS == SIGNED.get(name, set())
    for call in called(code):
        function = ast.unparse(call.func)
        if function == "__import__" and name in OWN_PARTS:
            assert ast.unparse(call.args[0]).startswith("'%s.%s' % (__"), ast.unparse(call)
            continue
        assert function not in CALLS, ast.unparse(call)
        for argument in call.keywords:
            wrong = argument.arg in ARGUMENTS and not (
                isinstance(argument.value, ast.Constant) and argument.value.value is not ARGUMENTS.get(argument.arg)
            )
            assert not wrong, ast.unparse(call)


@pytest.mark.costly
def test_a_shell_is_named_in_three_places_only() -> None:
    found = {
        name: shells
        for name in FILES
        if (shells := sum(getattr(one, "value", None) == "/bin/sh" for one in ast.walk(tree(name))))
    }
    assert found == SHELLS


@pytest.mark.parametrize(
    "line",
    [
        "import pickle", "from pickle import loads", "eval(x)", "os.system(x)", "subprocess.run(x, shell=True)",
        "subprocess.run(x, shell=y)", "numpy.load(x)", "f(x, allow_pickle=True)", "load_model(x, safe_mode=False)",
    ],
)  # fmt: skip
def test_the_test_sees_each_of_them(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "tree", lambda _name: ast.parse(line))
    with pytest.raises(AssertionError):
        test_no_module_loads_code_or_calls_a_shell("any")
