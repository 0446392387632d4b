"""Run by the training environment's interpreter: imports the framework named as argument and computes on its devices.

Prints one JSON object after a mark.  Python 3.9 grammar; errors are part of the answer.
"""

import json
import sys
import time

MARK = "stallguard-doctor:"


def tensorflow():
    """Return ([versions], {device: seconds of a first product there})."""
    import tensorflow as tf

    def product(name):
        with tf.device(name):
            square = tf.random.uniform((512, 512))
            return float(tf.reduce_sum(square @ square).numpy())

    devices = [device.name.replace("/physical_device:", "/") for device in tf.config.list_physical_devices()]
    return tf.__version__, {name: timed(product, name) for name in devices if name.startswith(("/CPU", "/GPU"))}


def torch():
    """As `tensorflow`."""
    import torch

    def product(name):
        square = torch.rand((512, 512), device=name)
        return float((square @ square).sum())

    devices = ["cpu"]
    devices += ["cuda"] if torch.cuda.is_available() else []
    devices += ["mps"] if getattr(torch.backends, "mps", None) and torch.backends.mps.is_available() else []
    return torch.__version__, {name: timed(product, name) for name in devices}


def jax():
    """As `tensorflow`."""
    import jax

    def product(device):
        with jax.default_device(device):
            square = jax.numpy.ones((512, 512))
            return float((square @ square).sum())

    return jax.__version__, {str(device): timed(product, device) for device in jax.devices()}


def mlx():
    """As `tensorflow`."""
    import mlx.core as mx  # type: ignore[import-not-found]  # only the environment of the training has it

    def product(device):
        with mx.stream(device):
            square = mx.ones((512, 512))
            return float((square @ square).sum().item())

    devices = {str(device): device for device in (mx.Device(mx.cpu, 0), mx.default_device())}
    return mx.__version__, {name: timed(product, device) for name, device in devices.items()}


def timed(work, argument):
    """Return the seconds that `work` takes."""
    began = time.perf_counter()
    work(argument)
    return round(time.perf_counter() - began, 3)


if __name__ == "__main__":
    began = time.perf_counter()
    version, devices = {"tensorflow": tensorflow, "torch": torch, "jax": jax, "mlx": mlx}[sys.argv[1]]()
    seconds = round(time.perf_counter() - began, 1)
    print(MARK + json.dumps({"version": version, "devices": devices, "seconds": seconds}))
