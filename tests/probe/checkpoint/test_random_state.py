"""Random generators go on where they were, the global ones and those that are objects."""

# ruff: noqa: NPY002 - the generator that scripts use

from __future__ import annotations

import random
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from stallguard.probe.checkpoint import random_state
from tests.probe.checkpoint.test_encoding import through_json


@pytest.mark.parametrize("make", [random.Random, np.random.default_rng, np.random.RandomState])
@pytest.mark.parametrize("exists", [False, True])
def test_a_generator_draws_on_where_the_other_was(make, exists):
    one, held = make(3), make(7) if exists else None
    one.random()
    back = through_json(one, held)
    assert (back is held) == exists
    assert back.random() == one.random()


KINDS = ["PCG64", "MT19937", "Philox", "SFC64"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("spawned", [0, 2])
def test_what_a_generator_spawns_is_the_same_in_a_new_process(kind, exists, spawned):
    one, held = (np.random.Generator(getattr(np.random, kind)(3)) for _ in range(2))
    one.spawn(spawned)
    of, state = random_state.read(one)
    back = random_state.write(of, state, held if exists else None)
    assert [child.random() for child in back.spawn(2)] == [child.random() for child in one.spawn(2)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_generator_that_has_spawned_more_goes_back(kind):
    one = np.random.Generator(getattr(np.random, kind)(3))
    if not isinstance(one.bit_generator.__reduce__()[2], tuple):
        pytest.skip("numpy 1 cannot replace what an existing generator spawns from")
    of, state = random_state.read(one)
    wanted = [child.random() for child in one.spawn(2)]
    assert random_state.write(of, state, one) is one
    assert [child.random() for child in one.spawn(2)] == wanted


def test_the_generators_go_on_where_they_were():
    random.seed(1)
    np.random.seed(1)
    states = through_json(random_state.capture())
    wanted = random.random(), np.random.rand()
    random.random()
    np.random.rand(5)
    random_state.restore(states)
    assert (random.random(), np.random.rand()) == wanted


def test_a_generator_that_moved_is_distinguished_from_one_that_did_not():
    before = random_state.capture()
    np.random.rand()
    after = random_state.capture()
    assert random_state.same(before, after, "python")
    assert not random_state.same(before, after, "numpy")


class Generator:
    """The generator of a device, as torch has it: its state is a tensor in the processor's memory."""

    def __init__(self, seed):
        self.state = np.array([seed, 0, 0, 7], np.uint8)

    def draw(self):
        self.state = self.state + np.uint8(1)
        return self.state.tolist()


def tensor(array):
    return SimpleNamespace(numpy=lambda: array)


def devices_of(generators):
    """Return what torch.cuda and torch.xpu are to those who read and set their generators."""
    return SimpleNamespace(
        is_initialized=lambda: True, device_count=lambda: len(generators),
        get_rng_state_all=lambda: [tensor(one.state) for one in generators],
        set_rng_state=lambda state, number: setattr(generators[number], "state", state.numpy()),
    )  # fmt: skip


def metal_of(generator, started):
    """Return what torch.mps is; `generator` is None if asking for it would start Metal."""

    def asked():
        assert generator is not None, "Metal was started by the question"
        return tensor(generator.state)

    setting = lambda state: setattr(generator, "state", state.numpy())  # noqa: E731
    return SimpleNamespace(
        _default_mps_generator=generator if started else None, get_rng_state=asked, set_rng_state=setting
    )


@pytest.mark.parametrize("name", ["cuda", "xpu", "mps"])
def test_generators_of_devices_go_on_where_they_were(monkeypatch, name):
    """Dropout on a GPU draws from them: without their state a resumed training ends with other weights."""
    generators = [Generator(3), Generator(5)] if name != "mps" else [Generator(3)]
    backends = SimpleNamespace(mps=SimpleNamespace(is_available=lambda: True))
    torch = SimpleNamespace(from_numpy=tensor, backends=backends)
    setattr(torch, name, metal_of(generators[0], started=True) if name == "mps" else devices_of(generators))
    monkeypatch.setitem(sys.modules, "torch", torch)
    states = through_json(random_state.capture())
    wanted = [one.draw() for one in generators]
    for one in generators:
        one.draw()
    random_state.restore(states)
    assert [one.draw() for one in generators] == wanted


def test_generators_of_devices_that_were_not_used_are_not_asked_for(monkeypatch):
    """The first question for that of a Mac's GPU starts Metal, which must not be used on both sides of a fork."""
    unused = SimpleNamespace(is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(mps=metal_of(None, started=False), cuda=unused))
    assert not {"torch.cuda", "torch.mps", "torch.xpu"} & {*random_state.capture()}


def test_a_checkpoint_of_a_machine_with_more_devices_is_read(monkeypatch):
    torch = SimpleNamespace(from_numpy=tensor, cuda=devices_of([Generator(3), Generator(5)]))
    monkeypatch.setitem(sys.modules, "torch", torch)
    states = through_json(random_state.capture())
    only = Generator(9)
    torch.cuda = devices_of([only])
    random_state.restore(states)
    assert only.state.tolist() == Generator(3).state.tolist()
