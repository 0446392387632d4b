# What a Mac adds to the scripts beside this file (sourced by _env.sh there, never run): which of its Pythons can have the
# plug-in for its GPU, and what would keep an installation from ending, said before anything is installed.
# POSIX sh.  Defines: machine, has_tools, major, find_python, find_uv, fetcher, fetch_python, lacks, reaches.

system=${STALLGUARD_MAC_ROOT:-}  # of the system's directories; the tests have their own
PATH=$PATH:/usr/sbin:/sbin  # sysctl is there

# The processor, whatever this shell is made for: hw.optional.arm64 is 1 under Rosetta too and absent on Intel
# (Homebrew's brew.sh asks the same).
machine=x86_64
[ "$(sysctl -n hw.optional.arm64 2>/dev/null)" != 1 ] || machine=arm64

# Under Rosetta a universal Python would run its half for Intel, for which there is no plug-in.
if [ "$(sysctl -n sysctl.proc_translated 2>/dev/null)" = 1 ]; then
    [ -z "${STALLGUARD_NATIVE:-}" ] || die "this shell runs under Rosetta (sysctl.proc_translated is 1), for which there is no plug-in for the GPU, and \`arch -arm64\` does not lead out of it: switch off 'Open using Rosetta' of your terminal (Finder, Get Info), and start this again"
    echo "$(basename -- "$0"): this shell runs under Rosetta (sysctl.proc_translated is 1): going on outside of it, with arch -arm64" >&2
    STALLGUARD_NATIVE=1 exec arch -arm64 /bin/sh "$0" "$@"
fi

# Fail if the command line tools are absent: then each program of /usr/bin that they bring, python3 too, is a stub
# that opens a dialogue.
has_tools() { xcode-select -p >/dev/null 2>&1; }

major() { sw_vers -productVersion | cut -d . -f 1; }

# Print where an interpreter of this name can be, one a line: PATH, Homebrew, python.org, MacPorts, pyenv, uv.
places() {
    case $1 in */*) echo "$1" && return ;; esac
    printf '%s\n' "$PATH" | tr ':' '\n' | sed "s|\$|/$1|"
    for place in "$system/opt/homebrew/bin" "$system/opt/homebrew/opt/python@${1#python}/bin" "$system/usr/local/bin" \
        "$system/Library/Frameworks/Python.framework/Versions/${1#python}/bin" "$system/opt/local/bin" \
        "${PYENV_ROOT:-$HOME/.pyenv}/versions/${1#python}"*/bin \
        "${UV_PYTHON_INSTALL_DIR:-${XDG_DATA_HOME:-$HOME/.local/share}/uv/python}/cpython-${1#python}"*/bin \
        "$root/.venvs/python/cpython-${1#python}"*/bin; do
        [ "$1" = python3 ] || echo "$place/$1"
    done
}

# Print "MINOR PROCESSOR PATH" of an interpreter; fail if it is none of Python 3, or if it does not run.
about() {
    [ -x "$1" ] || return 1
    real=$(readlink "$1" || echo "$1")
    case "$1 $real" in *"$system/usr/bin/"*) has_tools || return 1 ;; esac
    "$1" -c '
import platform, sys
if sys.version_info[0] != 3:
    raise SystemExit(1)
print("%d %s %s" % (sys.version_info[1], platform.machine(), getattr(sys, "_base_executable", sys.executable)))' 2>/dev/null
}

# Print the path of the first interpreter among the names $2... that runs, is 3.11 to 3.$1, and is for this processor.
find_python() {
    newest=$1
    shift
    for name in "$@"; do
        places "$name" | while read -r path; do
            about "$path" | while read -r minor arch where; do
                [ "$minor" -lt 11 ] || [ "$minor" -gt "$newest" ] || [ "$arch" != "$machine" ] || echo "$where"
            done
        done | grep -m 1 . && return 0
    done
    return 1
}

# Print what is here and why it is not taken: "PATH is 3.13, PATH is for x86_64".
seen() {
    for name in "$@"; do
        places "$name" | while read -r path; do
            about "$path" | while read -r minor arch where; do
                [ "$arch" = "$machine" ] && echo "$where is 3.$minor" || echo "$where is for $arch"
            done
        done
    done | sort -u | paste -s -d , - | sed 's/,/, /g'
}
all='python3.9 python3.10 python3.11 python3.12 python3.13 python3.14 python3'

# Print the path of the user's uv, on PATH or where its installers put it; fail if there is none.
find_uv() {
    command -v uv && return 0
    for path in "$HOME/.local/bin/uv" "$system/opt/homebrew/bin/uv" "$HOME/.cargo/bin/uv"; do
        [ ! -x "$path" ] || { echo "$path" && return 0; }
    done
    return 1
}

# Print the command that can fetch a Python: uv, or a Python whose pip can fetch uv.
fetcher() {
    for path in "$uv" "$root/.venvs/uv/bin/uv"; do
        [ ! -x "$path" ] || { echo "$path" && return 0; }
    done
    for name in $all; do
        places "$name" | while read -r path; do
            about "$path" >/dev/null && "$path" -m pip --version >/dev/null 2>&1 && echo "$path" || true
        done | grep -m 1 . && return 0
    done
    return 1
}

# Have uv fetch a Python 3.11 into this clone, and fetch uv first where only a pip is here; print the interpreter's path.
fetch_python() {
    tool=$(fetcher) || return 1
    case $tool in
    */uv) ;;
    *)
        PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 "$tool" -m pip install --quiet --disable-pip-version-check --no-cache-dir \
            --timeout 10 --retries 1 --no-deps --target "$root/.venvs/uv" 'uv>=0.8' >&2 || return 1
        tool=$root/.venvs/uv/bin/uv
        ;;
    esac
    made=$machine
    [ "$machine" != arm64 ] || made=aarch64
    # Newer releases of uv also put a link into ~/.local/bin, if they are not told otherwise.
    UV_PYTHON_INSTALL_DIR=$root/.venvs/python UV_PYTHON_BIN_DIR=$root/.venvs/python/bin UV_PYTHON_INSTALL_BIN=0 \
        UV_HTTP_TIMEOUT=30 "$tool" python install --quiet "cpython-3.11-macos-$made-none" >&2 || return 1
    find_python 11 "$root"/.venvs/python/cpython-3.11*/bin/python3.11
}

# Print, in sentences, what is missing for an installation of $1 MB; nothing if it can begin.  $2 = newest minor version,
# $3 = interpreters to choose from.
lacks() {
    if ! find_python "$2" $3 >/dev/null; then
        found=$(seen $all)
        if [ -n "${PYTHON:-}" ]; then
            echo "PYTHON=$PYTHON cannot be used: a Python from 3.11 to 3.$2 for $machine is needed (here: $(seen "$PYTHON"; seen $all)): name one of those, or leave PYTHON out"
        elif ! fetcher >/dev/null; then
            echo "no Python from 3.11 to 3.$2 for this Mac's processor was found (seen: ${found:-none at all}), and no uv or pip that could fetch one: install uv, or Python 3.12 (brew install python@3.12, or the installer of python.org), and start this again"
        fi
    fi
    # A name of a file system can have spaces: the figure is the one before the percentage.  Unknown is no refusal.
    room=$(df -Pk "$root" 2>/dev/null | awk 'NR == 2 { for (i = 3; i <= NF; i++) if ($i ~ /^[0-9]+%$/) { print int($(i - 1) / 1024); exit } }')
    [ "${room:-$1}" -ge "$1" ] ||
        echo "the disk of $root has $room MB free (df), and the installation takes $1 MB: make room, or clone to another disk, and start this again"
}

# Run a command for at most $1 seconds; 124 if it did not end.
bounded() {
    left=$(($1 * 5))
    shift
    "$@" &
    job=$!
    while kill -0 "$job" 2>/dev/null; do
        [ "$left" -gt 0 ] || { kill "$job" && return 124; }
        left=$((left - 1))
        sleep 0.2
    done
    wait "$job"
}

# Fail, with the tool's words, if packages cannot be fetched: uv, or the pip of $1, asks for one of 11 kB where it is
# configured to ask.
reaches() {
    scratch=$(mktemp -d)
    echo six > "$scratch/one.txt"
    code=0
    if [ -n "$uv" ]; then
        UV_HTTP_TIMEOUT=10 UV_HTTP_RETRIES=1 bounded 40 "$uv" pip compile --quiet --no-cache --no-deps --python "$1" \
            "$scratch/one.txt" > "$scratch/said" 2>&1 || code=$?
    else
        pip=$1
        if ! "$1" -m pip --version >/dev/null 2>&1; then  # as MacPorts' Python
            "$1" -m venv "$scratch/venv" && pip=$scratch/venv/bin/python
        fi
        bounded 40 "$pip" -m pip download --quiet --disable-pip-version-check --no-cache-dir --timeout 10 --retries 1 \
            --no-deps --dest "$scratch" --requirement "$scratch/one.txt" > "$scratch/said" 2>&1 || code=$?
    fi
    # pip says first what broke, uv last.
    [ "$code" = 0 ] || { grep -m 1 'broken by' "$scratch/said" || sed '/^ *$/d; /^hint/d' "$scratch/said" | tail -n 1; }
    [ "$code" != 124 ] || echo "no answer within 40 s"
    rm -rf "$scratch"
    return "$code"
}
