"""Which runtimes of OpenMP a process has loaded: of its own libraries, not of what is installed."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from stallguard.probe import openmp

TORCH, CONDA = "/env/site-packages/torch/lib/libomp.dylib", "/opt/conda/lib/libomp.dylib"


@pytest.mark.parametrize(
    ("loaded", "words"),
    [
        ([TORCH, CONDA, "/usr/lib/libSystem.B.dylib"], "conda/lib/libomp.dylib and torch/lib/libomp.dylib"),
        (["/a/mkl/lib/libiomp5.so", "/a/torch/lib/libgomp-0a.so.1"],
         "mkl/lib/libiomp5.so and torch/lib/libgomp-0a.so.1"),
        ([TORCH, TORCH], ""),
        (["/a/torch/lib/libgomp-0a.so.1", "/a/sklearn/lib/libgomp.so.1"], ""),
        (["/a/lib/libompl.so", CONDA], ""),
        ([], ""),
    ],
)  # fmt: skip
def test_several_of_which_one_is_llvms_are_named(monkeypatch, loaded, words):
    monkeypatch.setattr(openmp, "images", lambda: loaded)
    assert openmp.clash() == words


def test_what_cannot_be_read_is_not_known(monkeypatch):
    monkeypatch.setattr(openmp, "images", lambda: 1 / 0)
    assert openmp.clash() == ""


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_the_libraries_of_this_process_are_listed():
    assert any("/libc.so" in path or "/libc-" in path or "/ld-musl" in path for path in openmp.images())


def test_on_a_mac_the_loader_is_asked_and_nothing_is_imported(monkeypatch):
    names = [b"/usr/lib/dyld", TORCH.encode(), None]

    class Name:
        restype = None

        def __call__(self, number):
            return names[number]

    libc = SimpleNamespace(_dyld_image_count=lambda: len(names), _dyld_get_image_name=Name())
    monkeypatch.setattr(openmp.sys, "platform", "darwin")
    monkeypatch.setitem(sys.modules, "ctypes", SimpleNamespace(CDLL=lambda _: libc, c_char_p=bytes))
    assert openmp.images() == ["/usr/lib/dyld", TORCH]
    monkeypatch.delitem(sys.modules, "ctypes")
    assert openmp.images() == []
