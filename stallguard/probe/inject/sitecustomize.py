"""Found by Python at start because its folder is first on PYTHONPATH: lets the probe in, then steps out of the way.

Whatever happens here, the interpreter goes on exactly as it would have without us: the folder leaves sys.path,
and the next `sitecustomize` there may be runs as the only one, its errors shown by Python itself.
"""

import os
import sys


def _enter() -> None:
    here = os.path.dirname(__file__)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    sys.path_importer_cache.pop(here, None)
    if "STALLGUARD_TOKEN" not in os.environ:
        return
    package = type(sys)("_stallguard_probe")  # by path: the user's environment has no package of ours
    package.__path__ = [os.path.dirname(os.path.abspath(here))]
    sys.modules[package.__name__] = package
    from _stallguard_probe import bootstrap

    bootstrap.enter(os.environ, package)


try:
    _enter()
except Exception:
    pass

if sys.modules.pop(__name__, None) is not None:
    # Python shows what the next one raises, and takes the absence of one as it always does.
    import sitecustomize  # noqa: F401  # type: ignore[import-not-found]
