# The set-up that ./dovetail and the scripts share: a .venv with locked dependencies.
# Sourced by POSIX sh with $root set to the project's folder; call `ensure_venv`.
#
# Rules:
#   - A part of .venv counts as made only when its stamp is there, and the stamp is
#     written last. The stamp holds checksums of the locks and of what is compiled, so
#     a change of either leads to an update; a moved folder is set up anew.
#   - A .venv without a valid stamp that we began ourselves is thrown away; one that
#     somebody else made is moved aside.
#   - A warm start runs `cksum`, and no Python.
#   - Only one set-up at a time: the second start waits for the first.

venv=$root/.venv
state=$venv/dovetail-setup
log=$state/log
lock_file=$root/.venv.lock
disk_needed_mb=2000

say() { printf '%s\n' "Setting up Dovetail (${occasion:-first run}): $*" >&2; }

die() {
    printf 'dovetail: error: %s\n' "$1" >&2
    shift
    for line in "$@"; do printf '  %s\n' "$line" >&2; done
    exit 2
}

# Interpreters ------------------------------------------------------------------

# The newest Python that all locked dependencies have wheels for is part of the check:
# building numba from source is not something to start by surprise.
python_is_suitable() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' \
        >/dev/null 2>&1 </dev/null
}

python_version() { "$1" -c 'import platform; print(platform.python_version())' 2>/dev/null </dev/null; }

# Sets $python.
find_python() {
    if [ -n "${DOVETAIL_PYTHON:-}" ]; then
        python=$(command -v "$DOVETAIL_PYTHON") ||
            die "DOVETAIL_PYTHON=$DOVETAIL_PYTHON is not a program."
        python_is_suitable "$python" && return
        die "Dovetail needs Python 3.11 to 3.14, and DOVETAIL_PYTHON=$DOVETAIL_PYTHON is $(python_version "$python" || echo 'not a working Python')."
    fi
    found=
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        python=$(command -v "$name") || continue
        python_is_suitable "$python" && return
        version=$(python_version "$python") && found="$found${found:+, }$version ($python)"
    done
    die "Dovetail needs Python 3.11 to 3.14; found ${found:-no Python at all}." \
        "Install one (on Debian 12 or Ubuntu 24.04: apt-get install python3 python3-venv), or set DOVETAIL_PYTHON to it."
}

has_module() { "$1" -c "import $2" >/dev/null 2>&1 </dev/null; }

has_uv() { uv --version >/dev/null 2>&1 </dev/null; }

# Java 17 or later, as dovetail.pipeline.java looks for it at run time.
has_java() {
    for java in "${JAVA_HOME:+$JAVA_HOME/bin/java}" java; do
        [ -n "$java" ] || continue
        major=$("$java" -version 2>&1 </dev/null | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
        [ "${major:-0}" -ge 17 ] && return
    done
    return 1
}

# Stamps --------------------------------------------------------------------------

# What the stamp of a part ("runtime" or "dev") has to hold.
expected_stamp() {
    cksum "$root/pyproject.toml" "$root/requirements/$1.lock" "$root/requirements/java.lock" \
        "$root/scripts/setup.sh" "$root/src/dovetail/config.py" "$root/src/dovetail/compiling.py" \
        "$root/src/dovetail"/*/kernels/*.py
}

is_made() {
    [ -f "$state/$1" ] && [ -x "$venv/bin/python" ] || return 1
    stamp=$(cat "$state/$1")
    [ "$stamp" = "$(expected_stamp "$1")" ]
}

# Steps -----------------------------------------------------------------------------

# Runs a step with its output in the log; on failure says what went wrong, and where to read more.
run_logged() {
    printf '\n$ %s\n' "$*" >>"$log"
    "$@" >>"$log" 2>&1 </dev/null
}

explain_failure() {
    if grep -qiE 'no space left on device|errno 28|disk quota exceeded' "$log"; then
        die "the disk is full: Dovetail's set-up needs about $disk_needed_mb MB in $root and room in ${TMPDIR:-/tmp}." \
            "Log: $log"
    fi
    if grep -qiE 'name resolution|name or service not known|nodename nor servname|newconnectionerror|connection (refused|reset|timed out)|connecttimeout|readtimeout|network is unreachable|dns error|error sending request|proxyerror|max retries exceeded|failed to fetch|sslerror|certificate verify failed' "$log"; then
        die "cannot reach the package registry, and this $occasion has to download packages ($1)." \
            "Check the network, proxy and pip settings and start again. Log: $log"
    fi
    die "set-up failed while $1." "Log: $log"
}

check_folder() {
    if ! [ -w "$root" ] || { [ -e "$venv" ] && ! [ -w "$venv" ]; }; then
        if [ -f "$state/runtime" ] && ! [ -x "$venv/bin/python" ]; then
            die "$venv was made by another user, with a Python that $(id -un) cannot run." \
                "Copy the folder to a place of your own and start it there."
        fi
        die "$root is not writable by $(id -un), and the first run has to make a .venv there." \
            "Run it once as the folder's owner, or copy the folder to a place of your own."
    fi
    free_mb=$(df -Pk "$root" 2>/dev/null | awk 'NR == 2 { print int($4 / 1024) }')
    if ! [ -e "$venv" ] && [ "${free_mb:-$disk_needed_mb}" -lt "$disk_needed_mb" ]; then
        die "the disk is full: $root has $free_mb MB free, and Dovetail's set-up needs about $disk_needed_mb MB."
    fi
}

apt_install() {
    run_logged env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends --no-remove "$1"
}

# An environment, with pip in it unless uv is there to do pip's work.
make_environment() {
    say "making .venv with Python $(python_version "$python") ($python)"
    # The marker comes first, so that an interrupted .venv is known as ours.
    mkdir -p "$state" && : >"$log" || die "cannot write to $venv."
    if has_module "$python" ensurepip; then
        run_logged "$python" -m venv "$venv" && return
        explain_failure "making .venv"
    fi
    # Debian ships ensurepip apart, in python3-venv.
    if has_uv; then
        run_logged uv venv --allow-existing --python "$python" "$venv" && return
    fi
    if has_module "$python" virtualenv; then
        run_logged "$python" -m virtualenv "$venv" && return
    elif command -v virtualenv >/dev/null; then
        run_logged virtualenv --python "$python" "$venv" && return
    fi
    if has_module "$python" pip; then
        run_logged "$python" -m venv --without-pip "$venv" &&
            run_logged "$python" -m pip --python "$venv/bin/python" install pip && return
    fi
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    # Only as root, and said aloud: apt-get may bring Python itself to its newest patch release.
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing Debian's $package with apt-get"
        { apt_install "$package" || { run_logged apt-get update && apt_install "$package"; }; } &&
            run_logged "$python" -m venv "$venv" && return
        explain_failure "installing $package"
    fi
    die "$python cannot make a virtual environment: it comes without ensurepip." \
        "Install it (on Debian and Ubuntu: sudo apt-get install $package), or install uv, and start again."
}

# Takes pip's arguments. uv is several times faster, but knows nothing of pip's configuration.
# Neither compiles to bytecode: that is done for all at once, on all cores.
install() {
    if has_uv && run_logged uv pip install --python "$venv/bin/python" "$@"; then return; fi
    has_module "$venv/bin/python" pip &&
        run_logged "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --no-compile "$@"
}

clear_the_place() {
    if [ -d "$state" ]; then
        rm -rf "$venv" || die "cannot remove the unfinished $venv."
    elif [ -e "$venv" ] || [ -L "$venv" ]; then
        kept=$venv.$started
        mv "$venv" "$kept" || die "cannot move $venv aside."
        say "kept the .venv that was here as $kept"
    fi
}

set_up() {
    part=$1
    started=$(date +%s)
    occasion='first run'
    check_folder
    if [ -f "$state/runtime" ] && [ -x "$venv/bin/python" ] && python_is_suitable "$venv/bin/python" &&
        [ "$(cat "$state/folder" 2>/dev/null)" = "$root" ]; then
        occasion=update
        : >"$log"
    else
        find_python
        clear_the_place
        make_environment
    fi
    # From here to the last line the .venv is in neither the old nor the new state.
    rm -f "$state/runtime" "$state/dev"

    if [ "$occasion" = update ]; then
        say "installing locked dependencies"
    else
        say "installing locked dependencies (up to 700 MB to download, a few minutes)"
    fi
    install --require-hashes -r "$root/requirements/$part.lock" ||
        explain_failure "installing requirements/$part.lock"
    install --no-deps --no-build-isolation --editable "$root" ||
        explain_failure "installing Dovetail itself"
    # The tests run Spark on both kinds of Java.
    if [ "$part" = dev ] || ! has_java; then
        say "installing a Java runtime for Spark"
        install --require-hashes -r "$root/requirements/java.lock" ||
            say "no Java runtime could be installed; Spark commands need Java 17 or later ($log)"
    fi
    # Here rather than at run time, because later users may not write to .venv, and many an
    # environment has PYTHONDONTWRITEBYTECODE: every start would compile all it imports. What
    # packages bring along for their own tests is left as it is.
    run_logged "$venv/bin/python" -m compileall -q -j 0 -x '/tests/' "$venv/lib" "$root/src" || :
    run_logged "$venv/bin/python" -c 'from dovetail.pipeline import java; java.find_java_home()' || :
    if has_module "$venv/bin/python" dovetail.warm; then
        say "compiling kernels"
        run_logged "$venv/bin/python" -m dovetail.warm ||
            say "kernels could not be compiled now and will be on first use ($log)"
    fi

    printf '%s\n' "$root" >"$state/folder"
    # dev.lock holds all of runtime.lock, so the larger part makes the smaller one too.
    for made in runtime "$part"; do
        expected_stamp "$made" >"$state/$made.new" && mv "$state/$made.new" "$state/$made" ||
            explain_failure "finishing"
    done
    say "done in $(($(date +%s) - started)) s"
}

# Waits for its turn. `flock` lets go when its process dies; where it is missing (macOS)
# a folder is the lock, and one whose owner is dead is broken.
set_up_alone() {
    part=$1
    if command -v flock >/dev/null; then
        (
            exec 9>"$lock_file"
            flock -n 9 || {
                say "another start is setting up; waiting for it"
                flock 9
            }
            is_made "$part" || set_up "$part"
        )
        return
    fi
    waited=0
    until mkdir "$lock_file.d" 2>/dev/null; do
        [ $waited -ne 2 ] || say "another start is setting up; waiting for it"
        owner=$(cat "$lock_file.d/pid" 2>/dev/null) || owner=
        # An owner writes its number at once: none after ten seconds means that it died before.
        if [ -n "$owner" ] && ! kill -0 "$owner" 2>/dev/null || [ -z "$owner" ] && [ $waited -gt 10 ]; then
            # Renamed first, so that of two that wait only one breaks it.
            mv "$lock_file.d" "$lock_file.broken.$$" 2>/dev/null && rm -rf "$lock_file.broken.$$"
        fi
        waited=$((waited + 1))
        sleep 1
    done
    echo $$ >"$lock_file.d/pid"
    trap 'rm -rf "$lock_file.d"' EXIT
    (is_made "$part" || set_up "$part")
    status=$?
    rm -rf "$lock_file.d"
    trap - EXIT
    return $status
}

# ensure_venv runtime|dev
ensure_venv() {
    is_made "$1" && return
    check_folder
    set_up_alone "$1" || exit
}
