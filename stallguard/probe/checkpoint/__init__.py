"""Checkpoint generations of every fit, and exact resume, without editing the script.

Loaded only if the supervisor names a folder for them (settings.checkpoints), and when Keras is imported.  Standard
library only, Python 3.9 grammar; numpy and the framework are those that the user's process has imported.
"""
