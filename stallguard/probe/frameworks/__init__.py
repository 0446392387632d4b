"""One module for each library, with its name: all that the probe knows of it, in its record LIBRARY (libraries.py).

Hooks wrap functions of a library and record the training's progress (hooks.py).  The other parts of the probe have
patches, by module of the library: seeds, trackers, slices, checkpoints.  Large code of one part lies in the part
(checkpoint/keras_hooks.py, microbatch/slices_tf.py), and the record names it.

To add a library: one module here, and an environment for its tests (scripts/setup).
"""
