"""The guest in the user's process.  Loaded by path there, under the name `_stallguard_probe`; see inject/."""
