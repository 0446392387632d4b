"""PyTorch: each step of an optimizer is a beat, and the wait for a DataLoader is input.

The tensor whose gradient a loop computes is its loss, or a multiple of it: it shows whether the loss is finite.  On the
CPU it is read; on a device only if the script itself reads it, because that waits for the device.
"""

from __future__ import annotations

import math
import sys
import time
from functools import partial

from .. import caches, patches
from ..beats import BETWEEN, STEP, TORCH
from ..caches import CACHES, COMMAND
from ..hooks import SaveHooks
from ..libraries import Library
from ..raised import RaisedErrors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from ..context import Context, Targets
    from ..patches import Function

AHEAD = ("accelerate.data_loader",)  # modules whose loaders fetch one batch more than they have yielded
SAVES = {"torch.serialization": ("", "save", "load")}
# What a loop that is trained in parts passes by.
IN_PARTS = {
    "torch.autograd": "patch_autograd",
    "torch.optim.optimizer": "patch_optimizer",
    "torch.nn.modules.module": "patch_modules",
    "torch.optim.lr_scheduler": "patch_schedules",
    "torch.optim.swa_utils": "patch_averages",
    "torch.amp.grad_scaler": "patch_scaler",
    "torch.nn.utils.clip_grad": "patch_clip",
}
_BITS = {1: "uint8", 2: "int16"}  # types of both torch and numpy, by bytes
_metal_seen: list[bool] = []  # not empty: a loss on a Mac's GPU was seen in this process
LOSS_EVERY = 0.05  # seconds between two looks at a loss; one takes microseconds


def targets(context: Context) -> Targets:
    """Return the modules that define the optimizer and the DataLoader."""
    hooks = TorchHooks(context)
    return {
        "torch": lambda module: RaisedErrors(context).watch(getattr(module, "AcceleratorError", None)),  # 2.8 and later
        "torch.optim.optimizer": hooks.patch_optimizer,
        "torch.utils.data.dataloader": hooks.patch_loader,
        "torch._tensor": hooks.patch_tensor,
        "torch._dynamo.eval_frame": hooks.pass_by,
    }


class TorchHooks:
    """The wrappers of a torch loop."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.beats = context.beats
        self._loss_due = 0.0  # when a loss is read next
        self._on_device: Any = None  # a loss on a device whose value is not known yet, without its graph
        self._tensor: Any = None  # the class of all tensors
        self._item_wrapped = False
        self._loader = False  # a DataLoader was used: its wait is then distinct from what precedes it
        context.after_batch.append(self.keras_stepped)  # Keras' optimizers are its own

    def patch_optimizer(self, module: Any) -> None:
        """Register torch's own hook that runs after every step of every optimizer (2.0 and later)."""
        register = module.register_optimizer_step_post_hook
        handles: list[Any] = []

        def off() -> None:
            while handles:
                handles.pop().remove()

        if self.context.patches.also(off, lambda: handles.append(register(self.stepped))):
            self.context.hook_installed("torch_step")

    def stepped(self, *args: Any) -> None:
        """Count a step of an optimizer; in the loop of a library it is progress alone."""
        beats = self.beats
        try:
            if beats.fitting:  # as `step_ends`: a call less in each step of Trainer and Lightning
                beats.calls += 1
                beats.stirred = True
                beats._changes += 1
            else:
                beats.step_ends(TORCH, BETWEEN if self._loader else STEP)
            if beats.attention and beats.slots[COMMAND] == CACHES:
                caches.give_back(self.context)
        except Exception as error:
            self.context.surprise("torch step", error)

    def keras_stepped(self, *_: Any) -> None:
        """Give back what is only kept, after a batch of Keras, if that is ordered."""
        if self.context.get("command") == caches.CACHES:
            caches.give_back(self.context)

    def pass_by(self, module: Any) -> None:
        """Have torch.compile run the probe's functions as they are: it would trace and compile them, and warn."""
        skip = getattr(module, "skip_code", None) or sys.modules["torch"]._C._dynamo.eval_frame.skip_code
        package = __name__.partition(".frameworks")[0]
        for name, part in list(sys.modules.items()):
            if name.startswith(package):
                for code in _codes(list(vars(part).values())):
                    skip(code)

    def patch_tensor(self, module: Any) -> None:
        """Wrap the method that computes the gradients of a loss."""
        self._tensor = module.Tensor
        self.context.wrap(module.Tensor, "backward", self.backward)
        self.context.patches.may_rest(module.Tensor, "backward")  # Keras has logs, and scales its losses

    def backward(self, original: Function) -> Function:
        """Return the wrapper for Tensor.backward."""
        beats, clock = self.beats, time.monotonic

        @patches.removes_its_own
        def backward(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                result = original(tensor, *args, **kwargs)
            except BaseException as error:
                patches.remove(error)
                raise
            if clock() >= self._loss_due and not beats.fitting:
                try:
                    self.keep_loss(tensor)
                except Exception as error:
                    self.context.surprise("torch loss", error)
            return result

        return backward

    def keep_loss(self, tensor: Any) -> None:
        """Look whether a loss is finite, if that waits for nothing."""
        if type(tensor) is not self._tensor or tensor.dim() or not tensor.is_floating_point():
            return
        if tensor.is_cpu:
            self.take_loss(tensor, float(tensor.detach()))
            return
        if not self._item_wrapped:
            self._item_wrapped = True
            self._tensor.item = self._tensor.item  # the class inherits it
            self.context.wrap(self._tensor, "item", self.item)
            if tensor.device.type == "mps":
                _metal_seen.append(True)
        self._on_device = tensor.detach()  # not due again before its value is taken: a script can read one of many

    def take_loss(self, tensor: Any, value: float) -> None:
        """Take a loss.  One of 16 bits can overflow because it was scaled for its gradients."""
        if str(tensor.dtype) != "torch.float16" or abs(value) != math.inf:
            self.context.losses.of_gradient(value)
        self._loss_due = time.monotonic() + (0 if self.context.losses.broken else LOSS_EVERY)

    def item(self, original: Function) -> Function:
        """Return the wrapper for Tensor.item: it waits for the device, and then the newest loss is known."""

        @patches.removes_its_own
        def item(tensor: Any) -> Any:
            try:
                value = original(tensor)
            except BaseException as error:
                patches.remove(error)
                raise
            if self._on_device is not None:
                try:
                    if type(value) is float and tensor.data_ptr() == self._on_device.data_ptr():
                        self._on_device = None
                        self.take_loss(tensor, value)
                except Exception as error:
                    self.context.surprise("torch loss", error)
            return value

        return item

    def patch_loader(self, module: Any) -> None:
        """Wrap the iterator of a DataLoader."""
        beats, feeding = self.beats, self.begin_feeding
        if self.context.wrap(
            module._BaseDataLoaderIter, "__next__", lambda original: beats.around_next(original, feeding, AHEAD)
        ):
            self.context.hook_installed("torch_loader")

    def begin_feeding(self) -> None:
        """Note the first use of a DataLoader."""
        self._loader = True
        if not self.beats.fitting:
            self.context.note("feed", "a DataLoader of PyTorch feeds the loop", feed="loader")


def _codes(found: list[Any]) -> list[Any]:
    """Return the code of functions, of the methods of classes, and of what they define inside."""
    codes: list[Any] = []
    for one in found:
        if isinstance(one, type):
            found += [getattr(member, "__func__", getattr(member, "fget", member)) for member in vars(one).values()]
        code: Any = one if hasattr(one, "co_consts") else getattr(one, "__code__", None)
        if hasattr(code, "co_consts") and not any(code is known for known in codes):
            codes.append(code)
            found += [inner for inner in code.co_consts if hasattr(inner, "co_consts")]
    return codes


def seed_generators(context: Context, module: Any) -> None:
    """Seed the default generators: the CPU's now, a GPU's when it is created."""

    def make(original: Any) -> Any:
        def seed() -> Any:
            drawn = context.draw("torch", 63)
            if drawn is None:
                return original()
            module.manual_seed(drawn)
            return drawn

        return seed

    def seed_cuda() -> None:
        for number in range(module.cuda.device_count()):
            drawn = context.draw("torch.cuda.%d" % number, 63)
            if drawn is not None:
                module.cuda.default_generators[number].manual_seed(drawn)

    drawn = context.draw("torch", 63)
    if drawn is None:  # imported in a forked process
        return
    module.default_generator.manual_seed(drawn)
    for owner in (module.random, module):
        context.wrap(owner, "seed", make)
    if hasattr(module.cuda, "_lazy_seed_tracker"):
        # Called when CUDA starts; seeds that the script set before are applied later.
        module.cuda._lazy_call(seed_cuda, seed_all=True)
    if getattr(module._C, "_has_mps", False) and hasattr(module, "mps"):
        _seed_metal(context, module)


def _seed_metal(context: Context, module: Any) -> None:
    """Seed the generator of a Mac's GPU after the first module is moved there, if it was not used before.

    Not earlier: its first use starts Metal, which must not be used on both sides of a fork.
    """
    waiting = [True]

    def make(original: Any) -> Any:
        def to(self: Any, *args: Any, **named: Any) -> Any:
            moved = original(self, *args, **named)
            if waiting and any(one.device.type == "mps" for one in self.parameters()):
                waiting.clear()
                try:
                    drawn = context.draw("torch.mps", 63)
                    if drawn is not None and module.mps._default_mps_generator is None:
                        module.mps.manual_seed(drawn)
                except Exception as error:
                    context.surprise("seeding the GPU of a Mac", error)
            return moved

        return to

    context.wrap(module.nn.Module, "to", make)


def array_of(tensor: Any) -> Any:
    """Return a tensor of torch as an array; of bfloat16 and similar types, which numpy lacks, as one of ml_dtypes."""
    name = str(tensor.dtype).rpartition(".")[2]
    kind = getattr(sys.modules.get("ml_dtypes"), name, None)
    if kind is None:
        return tensor.resolve_conj().resolve_neg().numpy()
    bits: Any = getattr(sys.modules["torch"], _BITS[tensor.element_size()])
    return tensor.contiguous().view(bits).numpy().view(kind)


def tensor_of(array: Any) -> Any:
    """Return a tensor of torch with the values of an array; the inverse of `array_of`."""
    torch = sys.modules["torch"]
    array, kind = array.copy(), None
    if array.dtype.type.__module__.startswith("ml_dtypes"):
        array, kind = array.view(_BITS[array.itemsize]), getattr(torch, array.dtype.name)
    made = torch.from_numpy(array)
    return made if kind is None else made.view(kind)


def _is_tensor(value: Any) -> bool:
    # Of others numpy has no form: they are kept as pickles.  Those that are nested raise if their shape is asked for.
    if not hasattr(type(value), "__array__"):
        return False
    is_dense = str(value.layout) == "torch.strided" and value.device.type != "meta" and not value.is_nested
    return is_dense and not value.is_quantized and str(value.dtype) != "torch.complex32"


def _restored(array: Any, existing: Any) -> Any:
    if hasattr(existing, "copy_") and tuple(existing.shape) == array.shape:
        with sys.modules["torch"].no_grad():
            existing.copy_(tensor_of(array))
        return existing
    return tensor_of(array)


def _state() -> Any:
    torch = sys.modules["torch"]
    return torch.get_rng_state().numpy() if hasattr(torch, "get_rng_state") else None


def _set_state(state: Any) -> None:
    torch = sys.modules["torch"]
    if hasattr(torch, "set_rng_state"):
        torch.set_rng_state(torch.from_numpy(state.copy()))


def _generators_of(name: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """Return what reads and what sets the generators of all devices of a kind: what dropout on a GPU draws from.

    Their states are in the memory of the processor (for CUDA a seed and an offset): neither waits for the device.
    """

    def read() -> Any:
        devices = getattr(sys.modules["torch"], name, None)
        if devices is None or not devices.is_initialized():
            return None
        return [one.numpy() for one in devices.get_rng_state_all()]

    def write(states: Any) -> None:
        torch = sys.modules["torch"]
        devices: Any = getattr(torch, name, None)
        if devices is None:
            return
        for number, state in enumerate(states[: devices.device_count()]):  # applied when the device starts, if not yet
            devices.set_rng_state(torch.from_numpy(state.copy()), number)

    return read, write


def _uses_metal(torch: Any) -> bool:
    """Return whether this process computes on a Mac's GPU; the question itself must not start Metal.

    The generator exists in Python if it was asked for.  Dropout draws from it in C++: then only the device of Keras
    shows, or that of a tensor whose gradient a loop computed.
    """
    keras = sys.modules.get("keras.src.backend.torch.core")
    used = getattr(getattr(torch, "mps", None), "_default_mps_generator", None)
    return used is not None or bool(_metal_seen) or getattr(keras, "DEFAULT_DEVICE", None) == "mps"


def _metal_state() -> Any:
    torch = sys.modules["torch"]
    return torch.mps.get_rng_state().numpy() if _uses_metal(torch) else None


def _set_metal_state(state: Any) -> None:
    torch = sys.modules["torch"]
    if getattr(torch, "mps", None) is not None and torch.backends.mps.is_available():
        torch.mps.set_rng_state(torch.from_numpy(state.copy()))


def _metal_cache() -> Optional[tuple[int, int]]:
    torch = sys.modules["torch"]
    mps: Any = getattr(torch, "mps", None)
    if not _uses_metal(torch) or not hasattr(mps, "driver_allocated_memory"):
        return None
    return mps.driver_allocated_memory(), mps.current_allocated_memory()


def _empty(device: str) -> None:
    getattr(sys.modules["torch"], device).empty_cache()


def _cuda_cache() -> Optional[tuple[int, int]]:
    """Return what is held of GPUs that share the machine's memory: that of others does not ease it."""
    cuda = sys.modules["torch"].cuda
    if not cuda.is_initialized() or cuda.is_current_stream_capturing():  # a capture must not see an allocator change
        return None
    count = range(cuda.device_count())
    shared = [one for one in count if getattr(cuda.get_device_properties(one), "is_integrated", False)]
    held, used = sum(map(cuda.memory_reserved, shared)), sum(map(cuda.memory_allocated, shared))
    return (held, used) if shared else None


def _state_of(value: Any) -> Any:
    is_generator = type(value).__name__ == "Generator" and type(value).__module__ == "torch._C"
    return value.get_state().numpy() if is_generator else None


def _with_state(kind: str, state: Any, existing: Any) -> Any:
    if existing is None:
        raise LookupError("no generator of torch is made")
    existing.set_state(sys.modules["torch"].from_numpy(state))
    return existing


def is_optimizer(value: Any) -> bool:
    """Return whether a value is an optimizer: its state is in a dictionary whose keys are tensors."""
    return hasattr(value, "load_state_dict") and any(
        one.__name__ == "Optimizer" and one.__module__ == "torch.optim.optimizer" for one in type(value).__mro__
    )


def with_arrays(tree: Any) -> Any:
    """Return nested dictionaries and lists with a pair ("tensor", array) in place of each tensor."""
    if isinstance(tree, dict):
        return {key: with_arrays(one) for key, one in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(with_arrays(one) for one in tree)
    return ("tensor", array_of(tree.detach().cpu())) if hasattr(tree, "detach") else tree


def with_tensors(tree: Any) -> Any:
    """Return what `with_arrays` converted."""
    if isinstance(tree, dict):
        return {key: with_tensors(one) for key, one in tree.items()}
    if isinstance(tree, tuple) and tree[:1] == ("tensor",):
        return tensor_of(tree[1])
    return type(tree)(with_tensors(one) for one in tree) if isinstance(tree, (list, tuple)) else tree


def _has_peers() -> bool:
    torch = sys.modules.get("torch.distributed")
    return torch is not None and torch.is_available() and torch.is_initialized() and bool(torch.get_world_size() > 1)


LIBRARY = Library(
    "torch",
    trains=True,
    hooks=(targets, lambda context: SaveHooks(context, SAVES).targets()),
    patches={
        "seeds": {"torch": seed_generators},
        "slices": {module: ("microbatch.loop_torch", patch) for module, patch in IN_PARTS.items()},
    },
    array_waits=(
        "cpu",
        "item",
        "numpy",
        "synchronize",
        "tolist",
        "_cuda_synchronize",
        "_xpu_synchronize",
        "_mps_deviceSynchronize",
        "_mps_synchronizeEvent",
        "_accelerator_synchronizeDevice",
    ),
    has_peers=_has_peers,
    stateless=("dtype",),
    is_tensor=_is_tensor,
    tensor_of=_restored,
    distributions=("torch",),
    runs_keras=True,
    generators={
        "torch": (_state, _set_state),
        "torch.cuda": _generators_of("cuda"),
        "torch.xpu": _generators_of("xpu"),
        "torch.mps": (_metal_state, _set_metal_state),
    },
    own_generators=(_state_of, _with_state),
    caches={
        "PyTorch (MPS)": (_metal_cache, partial(_empty, "mps")),
        "PyTorch (CUDA)": (_cuda_cache, partial(_empty, "cuda")),
    },
)
