# Shared by the scripts beside this file (sourced, never run): where we are and which Python may be used.
# POSIX sh.  Defines: root, python (the environment's interpreter), die, find_python, have_environment.

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
python=$root/.venv/bin/python

die() {
    echo "$(basename -- "$0"): $1" >&2
    exit 1
}

# Print the path of the first interpreter that really runs and fits; $1 = newest minor version allowed.
# 3.11 comes first: tensorflow-metal, Keras 2 and everything else have wheels for it.
find_python() {
    for name in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
        "$name" -c "
import sys
if not (3, 11) <= sys.version_info[:2] <= (3, $1):
    raise SystemExit(1)
print(sys.executable)" 2>/dev/null && return 0
    done
    return 1
}
