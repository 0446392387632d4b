"""What happens once in a training of the bench `gpu`, on its GPU; on a CPU, what comes closest.  Python 3.9 grammar.

The kernels are PTX text that the driver compiles: no version of a library matters to them.  A line where a training
then waits ends in a comment with the places or faults for which it is the line to name.
"""

import ctypes
import hashlib
import json
import os
import signal
import subprocess
import sys
import time

FOREVER = 1 << 61  # nanoseconds
FLAGS = {"auto": 0, "spin": 1, "yield": 2, "block": 4}  # CU_CTX_SCHED_*, how a thread waits for the GPU
THREADS = 1024  # a block; two of them fill a multiprocessor, so that no other kernel gets in
MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
LIMIT, ROW_BYTES, ROWS = 2 << 30, 48 << 20, 64  # of `oom`: a batch of ROWS rows is too large, half of it is not
STOPPED = 75  # seconds that a stopped process stays stopped
PTX = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry busy(.param .u64 nanoseconds) {
  .reg .u64 %now, %end, %lasts; .reg .pred %more;
  ld.param.u64 %lasts, [nanoseconds];
  mov.u64 %now, %globaltimer;
  add.u64 %end, %now, %lasts;
AGAIN:
  nanosleep.u32 1000;
  mov.u64 %now, %globaltimer;
  setp.lt.u64 %more, %now, %end;
  @%more bra AGAIN;
  ret;
}
.visible .entry wait_for(.param .u64 flag) {
  .reg .u64 %at; .reg .u32 %seen; .reg .pred %more;
  ld.param.u64 %at, [flag];
AGAIN:
  ld.volatile.u32 %seen, [%at];
  setp.eq.u32 %more, %seen, 0;
  @%more bra AGAIN;
  ret;
}
.visible .entry raise(.param .u64 flag) {
  .reg .u64 %at;
  ld.param.u64 %at, [flag];
  st.volatile.u32 [%at], 1;
  ret;
}
.visible .entry poke() {
  .reg .u64 %at;
  mov.u64 %at, 16;
  st.volatile.u32 [%at], 1;
  ret;
}
"""


class Cuda:
    """The driver, in the context that the library uses as well.  Each call that fails raises OSError."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.device, self.module = ctypes.c_int(), None
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(self.device), 0)

    def call(self, name, *arguments):
        code = getattr(self.driver, name)(*arguments)
        if code:
            raise OSError(code, "%s failed with error %d" % (name, code))

    def enter(self):
        """Make the library's context that of this thread; load the kernels."""
        context = ctypes.c_void_p()
        self.call("cuCtxGetCurrent", ctypes.byref(context))
        if not context:
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
            self.call("cuCtxSetCurrent", context)
        if self.module is None:
            self.module = ctypes.c_void_p()
            self.call("cuModuleLoadData", ctypes.byref(self.module), ctypes.c_char_p(PTX))

    def wait_by(self, kind):
        """Choose how threads wait, before the library makes its context; it can choose anew: see `waits_by`."""
        self.call("cuDevicePrimaryCtxSetFlags_v2", self.device, FLAGS[kind])

    def waits_by(self, kind):
        """Choose it again in the context that is there (from CUDA 12.1), and return what holds now."""
        self.enter()
        if kind != "auto" and hasattr(self.driver, "cuCtxSetFlags"):
            self.call("cuCtxSetFlags", FLAGS[kind])
        flags = ctypes.c_uint()
        self.call("cuCtxGetFlags", ctypes.byref(flags))
        return next((name for name, value in FLAGS.items() if value == flags.value & 7), str(flags.value))

    def launch(self, name, *arguments, stream=0, fill=False):
        """Queue a kernel; `fill`: on all multiprocessors, so that the kernels of other streams wait as well."""
        self.enter()
        function, count = ctypes.c_void_p(), ctypes.c_int(1)
        self.call("cuModuleGetFunction", ctypes.byref(function), self.module, name.encode())
        if fill:
            self.call("cuDeviceGetAttribute", ctypes.byref(count), MULTIPROCESSORS, self.device)
        values = [ctypes.c_uint64(value) for value in arguments]
        pointers = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(value) for value in values))
        grid = (2 * count.value if fill else 1, 1, 1, THREADS if fill else 1, 1, 1)
        sizes = [ctypes.c_uint(size) for size in grid]
        self.call("cuLaunchKernel", function, *sizes, ctypes.c_uint(0), ctypes.c_void_p(stream), pointers, None)


class OfTorch:
    """What torch can do to its device."""

    def __init__(self, cuda):
        import torch

        self.torch, self.cuda, self.device = torch, cuda, "cuda" if cuda else "cpu"

    def limit(self):
        if self.cuda:
            total = self.torch.cuda.get_device_properties(0).total_memory
            self.torch.cuda.set_per_process_memory_fraction(LIMIT / total)

    def synchronize(self):
        if self.cuda:
            self.torch.cuda.synchronize()  # waits: callback

    def launch(self, name, *arguments):
        self.cuda.launch(name, *arguments, stream=self.torch.cuda.current_stream().cuda_stream)

    def endless(self):
        self.torch.cuda._sleep(10**15)  # noqa: SLF001
        return "torch.cuda._sleep"

    def busy(self, seconds):
        try:
            self.launch("busy", int(seconds * 1e9))
        except OSError:  # the driver takes no kernel of ours
            self.torch.cuda._sleep(int(seconds * 1.7e9))  # noqa: SLF001 - at the clock of an H100

    def streams(self):
        """Have two streams wait for each other: each would set the flag of the other after its own wait."""
        torch = self.torch
        flags = torch.zeros(2, dtype=torch.int32, device="cuda")
        torch.cuda.synchronize()
        here = torch.cuda.current_stream()
        for mine, other in ((0, 1), (1, 0)):
            stream = torch.cuda.Stream()
            for name, index in (("wait_for", mine), ("raise", other)):
                self.cuda.launch(name, flags.data_ptr() + 4 * index, stream=stream.cuda_stream)
            here.wait_stream(stream)
        self.kept = flags

    def host(self):
        """Have a thread of the driver take a lock that this one holds."""
        self.kept = locked()
        lock = ctypes.cast(ctypes.CDLL(None).pthread_mutex_lock, ctypes.c_void_p)
        stream = ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)
        self.cuda.enter()
        self.cuda.call("cuLaunchHostFunc", stream, lock, self.kept)

    def copy(self):
        self.endless()
        self.torch.ones(8, device="cuda").cpu()  # waits: copy

    def out_of_memory(self, rows):
        if self.cuda:
            self.torch.empty(rows * ROW_BYTES, dtype=self.torch.uint8, device="cuda")
        elif rows > ROWS // 2:
            raise self.torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total")

    def assertion(self):
        self.torch.zeros(1, device="cuda")[self.torch.tensor([10**6], device="cuda")]

    def compile_one(self, number):
        self.torch._dynamo.reset()  # noqa: SLF001
        self.torch.compile(_function(number, self.torch.sin), backend="aot_eager")(
            self.torch.ones(8, device=self.device)
        )

    def matmul(self, size):
        one = self.torch.ones(size, size, device=self.device) / size
        return lambda: float((one @ one)[0, 0])

    def autotune(self, number):
        """Have cuDNN try its algorithms on one more shape."""
        self.torch.backends.cudnn.benchmark = True
        shape = (8, 16 + number % 64, 32 + number // 64, 32)
        x = self.torch.ones(shape, device=self.device)
        self.torch.nn.functional.conv2d(x, self.torch.ones(16, shape[1], 3, 3, device=self.device))

    def hold(self):
        if self.cuda:
            free, _ = self.torch.cuda.mem_get_info()
            self.kept = self.torch.empty(int(free * 0.85), dtype=self.torch.uint8, device="cuda")


class OfJax:
    """What JAX can do to its device."""

    def __init__(self, cuda):
        import jax

        self.jax, self.cuda = jax, cuda

    def limit(self):
        """Do nothing: the part of the memory is a variable of its environment."""

    def synchronize(self):
        self.jax.block_until_ready(self.jax.numpy.zeros(8) + 1)  # waits: callback

    def launch(self, name, *arguments):
        self.cuda.launch(name, *arguments, fill=name == "busy")

    def endless(self):
        try:
            self.launch("busy", FOREVER)
        except OSError as error:  # the driver takes no kernel of ours
            self.loop()
            return "a loop of XLA after: %s" % error
        return "a kernel on all multiprocessors"

    def busy(self, seconds):
        self.launch("busy", int(seconds * 1e9))

    def loop(self):
        """Run a loop of XLA whose condition stays true, which the compiler cannot know."""
        numpy, lax = self.jax.numpy, self.jax.lax
        loop = self.jax.jit(lambda x: lax.while_loop(lambda v: v[0] > -1.5, numpy.cos, x))
        self.kept = loop(numpy.ones(8))  # waits: loop kernel
        self.jax.block_until_ready(self.kept)  # waits: loop kernel

    def host(self):
        def never(x):
            pause()
            return x

        shape = self.jax.ShapeDtypeStruct((8,), "float32")
        called = self.jax.jit(lambda x: self.jax.pure_callback(never, shape, x))
        self.kept = called(self.jax.numpy.ones(8))  # waits: host
        self.jax.block_until_ready(self.kept)  # waits: host

    def out_of_memory(self, _rows):
        if not self.cuda:
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 268435456 bytes.")
        self.kept = []
        while True:
            self.kept.append(self.jax.block_until_ready(self.jax.numpy.ones(1 << 26)))

    def compile_one(self, number):
        self.jax.jit(_function(number, self.jax.numpy.sin))(self.jax.numpy.ones(8))

    def matmul(self, size):
        one = self.jax.numpy.ones((size, size)) / size
        product = self.jax.jit(lambda x: (x @ x)[0, 0])
        return lambda: float(product(one))


def locked():
    """Return a lock of the C library that is taken; unlike other waits no signal ends one for it."""
    mutex = ctypes.create_string_buffer(256)
    ctypes.CDLL(None).pthread_mutex_init(mutex, None)
    ctypes.CDLL(None).pthread_mutex_lock(mutex)
    return mutex


def pause():
    ctypes.CDLL(None).pthread_mutex_lock(locked())  # waits: kernel host


def burn(seconds):
    """Compute in C, without the interpreter's lock."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        hashlib.pbkdf2_hmac("sha256", b"", b"", 200_000)  # waits: kernel


def decompose(seconds):
    """Call LAPACK once for about so long, on one thread (OMP_NUM_THREADS)."""
    import numpy as np

    matrix = np.random.default_rng(0).random((600, 600))
    began = time.monotonic()
    np.linalg.svd(matrix)
    size = int(600 * (seconds / (time.monotonic() - began)) ** (1 / 3))
    np.linalg.svd(np.random.default_rng(0).random((size, size)))


def _function(number, sin):
    """Return a function that no earlier one equals, long enough that compiling it takes a while."""

    def function(x):
        for index in range(40):
            x = sin(x) * (1.0 + number * 1e-6) + index
        return x

    return function


class Fault:
    """What happens, where and when.  It happens once: `fault.json` in the working directory says when, and how."""

    def __init__(self, plan):
        self.plan, self.name, self.place, self.wait = plan, plan["fault"], plan["place"], plan["wait"]
        self.is_poisoned, self.worker = False, False
        self.cuda = Cuda() if plan["gpu"] else None
        if self.cuda and self.wait != "auto":
            self.cuda.wait_by(self.wait)

    def use(self, accelerator):
        """Take the library, once it is imported."""
        self.accelerator = accelerator
        if self.name == "oom":
            accelerator.limit()

    def at(self, place, number=0, rows=ROWS):
        """Come to a place.  `number`: of the step or the epoch; `rows`: of the batch."""
        if self.is_poisoned:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        if place != self.place or number < self.plan["at"]:
            return
        if os.path.exists("fault.json"):
            if self.name == "oom" and isinstance(self.accelerator, OfTorch):
                self.accelerator.out_of_memory(rows)
            return
        self.happens()
        how = getattr(self, self.name)(rows)
        self.note(how=how or self.name)

    def happens(self):
        self.facts = {"clock": time.monotonic(), "pid": os.getpid(), "how": self.name}
        self.note()
        if self.cuda:
            try:
                self.note(waits=self.cuda.waits_by(self.wait))
            except OSError as error:
                self.note(waits=str(error))

    def note(self, **more):
        self.facts.update(more)
        with open("fault.json.new", "w") as file:
            json.dump(self.facts, file)
        os.replace("fault.json.new", "fault.json")

    # ---- sick

    def kernel(self, _rows):
        if self.cuda:
            return self.accelerator.endless()
        if isinstance(self.accelerator, OfJax):
            self.accelerator.loop()
        return pause() if self.wait == "block" else burn(FOREVER)

    def loop(self, _rows):
        self.accelerator.loop()

    def streams(self, _rows):
        try:
            self.accelerator.streams()
        except OSError as error:  # the driver takes none of our kernels: one that never ends comes closest
            return "%s after: %s" % (self.accelerator.endless(), error)

    def host(self, _rows):
        if self.cuda or isinstance(self.accelerator, OfJax):
            self.accelerator.host()
        else:
            pause()

    def copy(self, _rows):
        self.accelerator.copy()

    def oom(self, rows):
        self.accelerator.out_of_memory(rows)

    def illegal(self, _rows):
        if not self.cuda:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.accelerator.launch("poke")

    def assertion(self, _rows):
        if not self.cuda:
            raise RuntimeError("CUDA error: device-side assert triggered")
        self.accelerator.assertion()

    def sticky(self, rows):
        self.is_poisoned = not self.cuda
        self.illegal(rows)

    def stopped(self, _rows):
        if self.cuda:
            self.accelerator.busy(5.0)
        subprocess.Popen(["/bin/sh", "-c", "sleep %d; kill -CONT %d" % (STOPPED, os.getpid())])
        os.kill(os.getpid(), signal.SIGSTOP)

    # ---- healthy

    def long(self, _rows):
        if self.cuda:
            self.accelerator.busy(self.plan["seconds"])
        else:
            burn(self.plan["seconds"])

    def compile(self, _rows):
        self.during(self.accelerator.compile_one)

    def autotune(self, _rows):
        self.during(self.accelerator.autotune)

    def evaluation(self, _rows):
        multiply = self.accelerator.matmul(512)
        self.during(lambda _: multiply())

    def svd(self, _rows):
        decompose(self.plan["seconds"])

    def shared(self, _rows):
        """Have work for some seconds in a step, while other programs, which begin now, take the GPU."""
        multiply = self.accelerator.matmul(8192 if self.cuda else 1024)
        for _ in range(200):
            multiply()

    def holds(self, _rows):
        """Do nothing: another program takes the memory now."""

    def loader(self, _rows):
        """Do nothing here: see `starve`."""

    def during(self, what):
        end, number = time.monotonic() + self.plan["seconds"], 0
        while time.monotonic() < end:
            what(number)
            number += 1

    def starve(self, number):
        """Be the input: keep a batch back, in two steps of each epoch."""
        if self.name == "loader" and number in (60, 110):
            time.sleep(self.plan["seconds"] * (1.0 if number == 60 else 0.6))


def surround(plan):
    """Be another program that takes the GPU, or its memory, for so many seconds from the fault on."""
    cuda = Cuda() if plan["gpu"] else None
    other = OfTorch(cuda) if plan["library"] == "torch" else OfJax(cuda)
    multiply = other.matmul(8192 if cuda else 1024)
    multiply()
    while not os.path.exists("fault.json"):
        time.sleep(0.1)
    end = time.monotonic() + plan["seconds"]
    if plan["fault"] == "holds":
        other.hold()
    while time.monotonic() < end:
        time.sleep(1.0) if plan["fault"] == "holds" else multiply()


def fail(error):
    """Say that a step failed, as scripts do that catch every error and try again."""
    print("step failed: %s" % error, file=sys.stderr, flush=True)
    time.sleep(0.2)
