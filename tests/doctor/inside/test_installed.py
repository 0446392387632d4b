"""What the training's interpreter says of its environment."""

from __future__ import annotations

import subprocess
import sys

import pytest

from stallguard.doctor.interrogate import INSIDE, environment
from stallguard.launch.command import InterpreterChoice


@pytest.mark.costly
def test_keras_backend_is_the_one_that_keras_itself_would_choose(tmp_path, monkeypatch):
    (tmp_path / "keras.json").write_text('{"backend": "torch"}')
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    assert environment(InterpreterChoice(sys.executable, ""), deep=False).installed.backend == (
        "torch", str(tmp_path / "keras.json"),
    )  # fmt: skip
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    assert environment(InterpreterChoice(sys.executable, ""), deep=False).installed.backend == ("jax", "KERAS_BACKEND")


def test_the_plug_ins_that_tensorflow_would_load_are_seen_without_importing_it(tmp_path):
    folder = tmp_path / "site/tensorflow-plugins"
    folder.mkdir(parents=True)
    (folder / "libmetal_plugin.dylib").write_bytes(b"")
    code = (
        f"import runpy, site; site.getsitepackages = lambda: [{str(tmp_path / 'site')!r}]\n"
        f"facts = runpy.run_path({str(INSIDE / 'installed.py')!r})['facts']()\n"
        "import sys; print(facts['plugins'], 'tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "['libmetal_plugin.dylib'] False"


def test_two_runtimes_of_openmp_are_seen_and_a_link_to_one_is_none(tmp_path):
    for name in ("torch/lib/libomp.dylib", "sklearn/.dylibs/libomp.dylib", "torch/lib/libtorch_cpu.dylib"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "functorch/.dylibs").mkdir(parents=True)
    (tmp_path / "functorch/.dylibs/libiomp5.dylib").symlink_to(tmp_path / "torch/lib/libomp.dylib")
    code = (
        f"import runpy, site, sys; site.getsitepackages = lambda: [{str(tmp_path)!r}]\n"
        f"sys.prefix = {str(tmp_path / 'torch')!r}\n"
        f"print(*runpy.run_path({str(INSIDE / 'installed.py')!r})['facts']()['openmp'])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == [
        str(tmp_path / "sklearn/.dylibs/libomp.dylib"), str(tmp_path / "torch/lib/libomp.dylib"),
    ]  # fmt: skip
