"""Loads the probe.  Python runs this file at its start, because its folder is first on PYTHONPATH.

In every case the interpreter then continues as it would without the probe: the folder is removed from sys.path, and the
environment's own `sitecustomize`, if there is one, runs next; Python itself shows its errors.
"""

import os
import sys

try:
    here = os.path.dirname(__file__)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    sys.path_importer_cache.pop(here, None)
    if "STALLGUARD_PROBE" in os.environ:
        # By path: stallguard is not installed in the user's environment.
        package = type(sys)("_stallguard_probe")
        package.__path__ = [os.path.dirname(os.path.abspath(here))]
        sys.modules[package.__name__] = package
        from _stallguard_probe import bootstrap

        bootstrap.enter(os.environ, package)
except Exception:
    pass

if sys.modules.pop(__name__, None) is not None:
    # Python handles an error of the next one, and the absence of one, as usual.
    import sitecustomize  # noqa: F401  # type: ignore[import-not-found]
