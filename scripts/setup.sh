# The set-up that ./dovetail and the scripts share: a .venv with locked dependencies, in stages.
# Sourced by POSIX sh with $root set to the project's folder; call `ensure_venv STAGE`.
#
#   broker    what brokers and their clients need, and compiled kernels
#   archive   the packages that read and write Parquet files
#   spark     Spark, and a Java runtime if the machine has none
#   dev       what tests and benchmarks need
#
# Rules:
#   - A stage has all of the stages before it. Its lock has their pins, so a later stage adds
#     packages, and changes none that a running broker uses.
#   - A stage counts as made only when its stamp is there, and the stamp is written last. The stamp
#     holds checksums of the locks, so a change of one leads to an update when the stage is next
#     asked for. Kernels have a stamp of their own, with checksums of their sources.
#   - Packages are downloaded before the first one is changed: without a network everything stays
#     as it was. A package that a kill left unfinished is known as such, and installed again.
#   - A .venv that is not whole, or was moved here, is made anew if we began it ourselves; one that
#     somebody else made is moved aside.
#   - A warm start runs `cksum`, and no Python.
#   - Only one set-up at a time, whatever its stage: the second start waits for the first.

venv=$root/.venv
state=$venv/dovetail-setup
log=$state/log
lock_file=$root/.venv.lock
stages='broker archive spark dev'
progress_seconds=5
downloads=
watcher=
kernels=
work=
lock_folder=

# Sets $title, $download_mb and $disk_mb of a stage: what it adds to a broker. Building Spark's wheel
# takes most of the disk, and gives it back.
describe() {
    case $1 in
    broker) title='a broker' download_mb=90 disk_mb=700 ;;
    archive) title='the archive' download_mb=55 disk_mb=400 ;;
    spark) title=Spark download_mb=560 disk_mb=2700 ;;
    dev) title='the development tools' download_mb=650 disk_mb=3000 ;;
    java) title='a Java runtime' download_mb=40 disk_mb=300 ;;
    *) die "there is no stage named $1; the stages are: $stages." ;;
    esac
}

say() { printf '%s\n' "Setting up Dovetail ($occasion): $*" >&2; }

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

# Java 17 or later, as dovetail.pipeline.spark.java looks for it at run time.
has_java() {
    for java in "${JAVA_HOME:+$JAVA_HOME/bin/java}" java; do
        [ -n "$java" ] || continue
        major=$("$java" -version 2>&1 </dev/null | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
        [ "${major:-0}" -ge 17 ] && return
    done
    return 1
}

# Stamps --------------------------------------------------------------------------

# Prints the stages up to this one.
stages_to() {
    for each in $stages; do
        echo "$each"
        [ "$each" != "$1" ] || return 0
    done
}

# Prints this stage and those after it.
stages_from() {
    is_from=
    for each in $stages; do
        [ "$each" != "$1" ] || is_from=yes
        [ -z "$is_from" ] || echo "$each"
    done
}

# Prints what the stamp of a stage, or of the kernels, has to hold.
expected_stamp() (
    cd "$root" || exit
    case $1 in
    kernels)
        cksum requirements/broker.lock src/dovetail/compilation.py src/dovetail/warmup.py \
            src/dovetail/limits.py src/dovetail/*/limits.py src/dovetail/*/kernels/*.py
        ;;
    broker) cksum scripts/setup.sh requirements/broker.lock ;;
    archive) cksum scripts/setup.sh requirements/broker.lock requirements/archive.lock ;;
    spark)
        cksum scripts/setup.sh requirements/broker.lock requirements/archive.lock \
            requirements/spark.lock requirements/java.lock
        ;;
    dev) cksum scripts/setup.sh requirements/*.lock ;;
    esac
)

has_stamp() { [ -f "$state/$1" ] && [ "$(cat "$state/$1")" = "$(expected_stamp "$1")" ]; }

write_stamp() {
    expected_stamp "$1" >"$state/$1.new" && mv "$state/$1.new" "$state/$1" ||
        explain_failure "finishing"
}

# The folder's path is in programs of .venv/bin: a .venv that was moved here is of no use.
is_whole() {
    [ -x "$venv/bin/python" ] && [ "$(cat "$state/folder" 2>/dev/null)" = "$root" ]
}

is_made() { is_whole && has_stamp "$1" && has_stamp kernels; }

# Environment -----------------------------------------------------------------------

# Runs a step with its output in the log; on failure says what went wrong, and where to read more.
run_logged() {
    printf '\n$ %s\n' "$*" >>"$log"
    "$@" >>"$log" 2>&1 </dev/null
}

explain_failure() {
    if grep -qiE 'no space left on device|errno 28|disk quota exceeded' "$log"; then
        die "the disk is full: setting up $title needs about $disk_mb MB in $root." "Log: $log"
    fi
    if grep -qiE 'name resolution|name or service not known|nodename nor servname|newconnectionerror|connection (refused|reset|timed out)|connecttimeout|readtimeout|network is unreachable|dns error|error sending request|proxyerror|max retries exceeded|failed to fetch|sslerror|certificate verify failed' "$log"; then
        die "cannot reach the package registry, and this $occasion has to download packages ($1)." \
            "Check the network, proxy and pip settings and start again. Log: $log"
    fi
    die "set-up failed while $1." "Log: $log"
}

check_folder() {
    if ! [ -w "$root" ] || { [ -e "$venv" ] && ! [ -w "$venv" ]; }; then
        if [ -f "$state/broker" ] && ! [ -x "$venv/bin/python" ]; then
            die "$venv was made by another user, with a Python that $(id -un) cannot run." \
                "Copy the folder to a place of your own and start it there."
        fi
        die "$root is not writable by $(id -un), and packages for $title have to be installed there." \
            "Run \`scripts/setup $1\` once as the folder's owner, or copy the folder to a place of your own."
    fi
    ! [ -e "$state/$1" ] || return 0
    free_mb=$(df -Pk "$root" 2>/dev/null | awk 'NR == 2 { print int($4 / 1024) }')
    if [ "${free_mb:-$disk_mb}" -lt "$disk_mb" ]; then
        die "the disk is full: $root has $free_mb MB free, and setting up $title needs about $disk_mb MB."
    fi
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

# Sets $site, the folder of packages.
find_site() {
    for site in "$venv"/lib/python3*/site-packages; do :; done
}

# Without pip, which takes ensurepip longer than all the rest. Dovetail itself is where it is.
make_environment() {
    say "making .venv with Python $(python_version "$python") ($python)"
    # The marker comes first, so that an interrupted .venv is known as ours.
    mkdir -p "$state" && : >"$log" || die "cannot write to $venv."
    run_logged "$python" -m venv --without-pip "$venv" || explain_failure "making .venv"
    find_site
    printf '%s\n' "$root/src" >"$site/dovetail.pth" &&
        ln -s ../../dovetail "$venv/bin/dovetail" &&
        printf '%s\n' "$root" >"$state/folder" || explain_failure "making .venv"
}

# Packages --------------------------------------------------------------------------

# pip knows the option --python from 22.3 on.
has_pip() {
    "$1" -c 'import sys, pip; sys.exit(tuple(map(int, pip.__version__.split(".")[:2])) < (22, 3))' \
        >/dev/null 2>&1 </dev/null
}

apt_install() {
    run_logged env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends --no-remove "$1"
}

# Sets $pip_python, a Python that has pip: the one that .venv was made with, or that of .venv.
find_pip() {
    pip_python=$(sed -n 's/^executable *= *//p' "$venv/pyvenv.cfg")
    has_pip "$pip_python" && return
    pip_python=$venv/bin/python
    has_pip "$pip_python" && return
    run_logged "$pip_python" -m ensurepip && return
    # Debian ships ensurepip apart, in python3-venv.
    if command -v virtualenv >/dev/null; then
        run_logged virtualenv --python "$pip_python" "$venv" && return
    fi
    package=$("$pip_python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    # Only as root, and said aloud: apt-get may bring Python itself to its newest patch release.
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing Debian's $package with apt-get"
        { apt_install "$package" || { run_logged apt-get update && apt_install "$package"; }; } &&
            run_logged "$pip_python" -m ensurepip && return
        explain_failure "installing $package"
    fi
    die "$pip_python has no pip, and Python comes without ensurepip here." \
        "Install it (on Debian and Ubuntu: sudo apt-get install $package), or install uv, and start again."
}

# Prints the entries of a lock whose packages are not installed whole.
missing_from() {
    printf '%s\n' "$site"/*.dist-info/INSTALLER | awk '
        function normal(name) { name = tolower(name); gsub(/[-_.]+/, "_", name); return name }
        NR == FNR {
            count = split($0, path, "/")
            folder = path[count - 1]
            sub(/\.dist-info$/, "", folder)
            dash = index(folder, "-")
            installed[normal(substr(folder, 1, dash - 1)), substr(folder, dash + 1)]
            next
        }
        /^[A-Za-z0-9]/ {
            split($1, pin, "==")
            is_missing = !((normal(pin[1]), pin[2]) in installed)
        }
        is_missing
    ' - "$1"
}

# Forgets packages that a kill left unfinished, which pip would take for installed. pip and uv write
# INSTALLER when all files of a package are there.
remove_halves() {
    for folder in "$site"/*.dist-info; do
        [ -f "$folder/INSTALLER" ] || rm -rf "$folder"
    done
}

# Begins a program whose output `progress` reads.
begin_download() {
    printf '\n$ %s\n' "$*" >>"$work/$((count += 1)).log"
    "$@" >>"$work/$count.log" 2>&1 </dev/null &
    downloads="$downloads $!"
}

finish_downloads() {
    show_progress &
    watcher=$!
    status=0
    for job in $downloads; do wait "$job" || status=1; done
    downloads=
    stop_watcher
    ! is_terminal || printf '\r\033[K' >&2
    cat "$work"/*.log >>"$log"
    return $status
}

# pip takes most of its time for reading the registry's pages, on one core: two of them share that.
# A package with many hashes has a long page.
# Building a wheel of Spark's sources takes half as long without compression.
download_wheels() {
    mkdir "$work/wheels" && printf '[bdist_wheel]\ncompression = stored\n' >"$work/build.cfg" || return
    (cd "$work" && awk '/^[A-Za-z0-9]/ { half = lines[0] > lines[1] } { lines[half]++; print >(half ".txt") }' missing) || return
    for half in "$work"/[01].txt; do
        begin_download env TMPDIR="$work" DIST_EXTRA_CONFIG="$work/build.cfg" PIP_REQUIRE_VIRTUALENV=0 \
            "$pip_python" -m pip wheel --disable-pip-version-check --no-input --progress-bar off \
            --no-deps --require-hashes --wheel-dir "$work/wheels" -r "$half"
    done
    finish_downloads
}

# Installs what is missing of a lock, for a stage. uv is several times faster than pip, but knows
# nothing of its configuration. Neither compiles to bytecode: that is done for all at once.
install_lock() {
    rm -rf "$work"/*
    count=0
    remove_halves
    missing_from "$root/requirements/$1.lock" >"$work/missing" || return
    [ -s "$work/missing" ] || return 0
    if has_uv; then
        remove_stamps "$2"
        begin_download uv pip install --python "$venv/bin/python" --no-deps --require-hashes -r "$work/missing"
        finish_downloads && return
        rm -f "$work"/*.log
    fi
    find_pip
    download_wheels || return
    set -- "$2" "$work/wheels"/*.whl
    [ -e "$2" ] || return 0 # what was missing is for other systems
    remove_stamps "$1"
    (cd "$work/wheels" && run_logged "$pip_python" -m pip --python "$venv/bin/python" install \
        --disable-pip-version-check --no-input --no-compile --no-deps --no-index ./*.whl)
}

# Progress --------------------------------------------------------------------------

is_terminal() { [ -t 2 ] && [ "${TERM:-dumb}" != dumb ]; }

stop_watcher() {
    [ -n "$watcher" ] || return 0
    { kill "$watcher" && wait "$watcher"; } 2>/dev/null
    watcher=
}

# Says how far downloads are: every second in one line of a terminal, less often in a log. When it
# is told to stop, it first finishes its line: a part of it that went on alone would look for files
# that are removed.
show_progress() {
    pause=
    trap 'kill "$pause" 2>/dev/null; exit' TERM
    seconds=0
    while :; do
        sleep 1 2>/dev/null 9>&- &
        pause=$!
        wait "$pause" || return
        seconds=$((seconds + 1))
        if is_terminal; then
            printf '\r\033[K  %s' "$(progress | cut -c 1-75)" >&2
        elif [ $((seconds % progress_seconds)) = 0 ]; then
            say "$(progress)"
        fi
    done
}

# Prints the packages and megabytes that are there, and the files that were begun last.
progress() {
    files=
    for file in "$work"/*.log; do
        ! grep -q '^Saved ' "$file" || continue # this pip is done
        begun=$(sed -n -e 's/^ *Downloading \([^ -]*-[^ -]*\).*/\1/p' -e 's/^ *Downloading \([^-]*\)$/\1/p' \
            -e 's/^ *Installing build dependencies: started$/unpacking/p' \
            -e 's/^ *Building wheel for \([^ ]*\).*/building \1/p' \
            -e 's/^ *Building \([^ ]*==.*\)/building \1/p' "$file" | tail -n 1)
        files="$files${files:+${begun:+, }}$begun"
    done
    packages=$(cat "$work"/*.log | grep -cE '^(Collecting|Processing) ')
    ignored=$(cat "$work"/*.log | grep -c '^Ignoring ')
    asked=$(grep -c '^[A-Za-z0-9]' "$work/missing")
    mb=$(du -sk "$work/wheels" "$work"/pip-unpack-* 2>/dev/null | awk '{ kb += $1 } END { print int(kb * 1024 / 1000000) }')
    # While pip moves what it has downloaded, files are there twice.
    [ "$mb" -le "$download_mb" ] || mb=$download_mb
    # uv does not tell these.
    [ "$packages" = 0 ] || printf '%s' "package $packages of $((asked - ignored)), $mb of about $download_mb MB, "
    printf '%s\n' "$seconds s${files:+: $files}"
}

# Set-up ------------------------------------------------------------------------------

# Sets $occasion, which every line of a set-up names.
name_occasion() {
    describe "$1"
    if [ -f "$state/$1" ]; then
        occasion=update
    elif [ -f "$state/broker" ]; then
        occasion="first use of $title"
    else
        occasion='first run'
    fi
}

# From here on the stage and those after it are in neither the old nor the new state.
remove_stamps() {
    for each in $(stages_from "$1"); do rm -f "$state/$each"; done
}

install_stage() {
    describe "$1"
    say "installing packages for $title (up to $download_mb MB to download)"
    install_lock "$1" "$1" || explain_failure "installing requirements/$1.lock"
    # The tests run Spark on both kinds of Java.
    if [ "$1" = dev ] || { [ "$1" = spark ] && ! has_java; }; then
        describe java
        say "installing $title for Spark (up to $download_mb MB to download)"
        install_lock java "$1" ||
            say "no Java runtime could be installed; Spark commands need Java 17 or later ($log)"
        describe "$1"
    fi
    # Here rather than at run time, because later users may not write to .venv, and many an
    # environment has PYTHONDONTWRITEBYTECODE: every start would compile all it imports. What
    # packages bring along for their own tests is left as it is.
    run_logged "$venv/bin/python" -m compileall -q -j 0 -x '/tests/' "$venv/lib" "$root/src" || :
    case $1 in spark | dev)
        run_logged "$venv/bin/python" -c 'from dovetail.pipeline.spark import java; java.find_java_home()' || :
        ;;
    esac
    for each in $(stages_to "$1"); do write_stamp "$each"; done
}

compile_kernels() {
    run_logged "$venv/bin/python" -m dovetail.warmup ||
        say "kernels could not be compiled now and will be on first use ($log)"
}

# Waits for its turn. `flock` lets go when its process dies; where it is missing (macOS)
# a folder is the lock, and one whose owner is dead is broken.
take_lock() {
    if command -v flock >/dev/null; then
        exec 9>"$lock_file"
        flock -n 9 && return
        say "another start is setting up; waiting for it"
        flock 9
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
    lock_folder=$lock_file.d
}

# Ends what was begun and is not done, and lets the next one in.
tidy_up() {
    trap - EXIT HUP INT TERM
    kill $downloads $kernels 2>/dev/null
    stop_watcher
    [ -z "$work" ] || rm -rf "$work"
    [ -z "$lock_folder" ] || rm -rf "$lock_folder"
    exec 9>&-
}

set_up() {
    started=$(date +%s)
    name_occasion "$1"
    check_folder "$1"
    if is_whole && python_is_suitable "$venv/bin/python"; then
        : >"$log"
        find_site
    else
        occasion='first run'
        find_python
        clear_the_place
        make_environment
    fi
    rm -rf "$state"/work.*
    work=$(mktemp -d "$state/work.XXXXXX") || explain_failure "making a folder for downloads"
    has_stamp broker || install_stage broker
    if ! has_stamp kernels; then
        say "compiling kernels"
        compile_kernels &
        kernels=$!
    fi
    has_stamp "$1" || install_stage "$1"
    if [ -n "$kernels" ]; then
        wait "$kernels"
        kernels=
        write_stamp kernels
    fi
    say "done in $(($(date +%s) - started)) s"
}

# ensure_venv STAGE
ensure_venv() {
    is_made "$1" && return
    name_occasion "$1"
    check_folder "$1"
    trap tidy_up EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    take_lock
    is_made "$1" || set_up "$1"
    tidy_up
}
