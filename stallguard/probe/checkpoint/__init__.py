"""Checkpoint generations of every fit, and exact resume, without editing the script.

Loaded only if the supervisor names a folder for them (settings.checkpoints).  Until Keras is imported, nothing but
this module is loaded.  Standard library only, Python 3.9 grammar; numpy and the framework are those that the user's
process has imported.
"""
