"""The probe: code inside the user's process.  It is loaded by path, as `_stallguard_probe`; see inject/."""
