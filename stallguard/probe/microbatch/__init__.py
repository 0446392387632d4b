"""Trains every batch in slices, without editing the script.

Loaded only if the attempt asks for slices.  For each framework a module patches Keras in the same way: the
framework's own `train_step` runs once for each slice with the optimizer's update deferred, and one update follows with
the mean gradient of the whole batch.  Steps, schedules and callbacks do not change.  compare.py first checks for which
models the result is the same; the others keep their batch.  Standard library only.
"""
