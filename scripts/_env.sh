# Shared by the scripts beside this file (sourced, never run): where we are and which Python may be used.
# POSIX sh.  Defines: root, python (the environment's interpreter), die, find_python.

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
python=$root/.venv/bin/python

die() {
    echo "$(basename -- "$0"): $1" >&2
    exit 1
}

# Print the path of each Python from 3.11 to 3.14 on PATH and of pyenv, the oldest first, patch releases included.
list_pythons() {
    pyenv=${PYENV_ROOT:-$HOME/.pyenv}
    { printf '%s\n' "$PATH" | tr ':' '\n'; ls -d "$pyenv"/versions/*/bin 2>/dev/null; } | while read -r folder; do
        for name in "$folder"/python3 "$folder"/python3.1[1-4]; do
            [ -x "$name" ] && "$name" -c "
import sys
if not (3, 11) <= sys.version_info < (3, 15) or sys.version_info.releaselevel != 'final':
    raise SystemExit(1)
print('%03d.%03d.%03d' % sys.version_info[:3], sys.executable)" 2>/dev/null || true
        done
    done | sort -u | cut -d ' ' -f 2-
}

# Print the path of the first interpreter among the names $2... that really runs and is 3.11 to 3.$1.
find_python() {
    newest=$1
    shift
    for name in "$@"; do
        "$name" -c "
import sys
if not (3, 11) <= sys.version_info[:2] <= (3, $newest):
    raise SystemExit(1)
print(sys.executable)" 2>/dev/null && return 0
    done
    return 1
}

on_mac() { [ "$(uname -s)" = Darwin ]; }
if on_mac; then
    . "$root/scripts/_mac.sh"
fi
