# Installs the servers that only tests and benchmarks use, from the system's packages.
# Sourced by POSIX sh; call `ensure_servers`.
#
# Rules:
#   - An installed program costs one look-up, and no process.
#   - As root on Debian or Ubuntu it installs missing programs, and says so. It starts no service,
#     now or at the next boot: tests run servers of their own, on free ports.
#   - Otherwise it says loudly what will be skipped, and how to install it. In continuous
#     integration ($CI is set) nothing may be skipped: a missing program is an error.

# program:package:what is skipped without it
servers='mosquitto:mosquitto:tests_against_Mosquitto
mosquitto_sub:mosquitto-clients:tests_with_its_clients'
policy=/usr/sbin/policy-rc.d

# Servers are often in folders that only root searches.
has_program() {
    command -v "$1" >/dev/null 2>&1 && return
    for folder in /usr/sbin /usr/local/sbin /opt/homebrew/sbin; do
        [ -x "$folder/$1" ] && return
    done
    return 1
}

# Sets $missing_packages, $missing_programs and $skipped.
find_missing() {
    missing_packages=
    missing_programs=
    skipped=
    for server in $servers; do
        program=${server%%:*}
        has_program "$program" && continue
        rest=${server#*:}
        missing_programs="$missing_programs $program"
        missing_packages="$missing_packages ${rest%%:*}"
        skipped="$skipped${skipped:+, }$(printf %s "${rest#*:}" | tr _ ' ')"
    done
    [ -n "$missing_programs" ]
}

# Debian starts the services that it installs, unless this policy forbids it. An existing policy is
# somebody's decision and stays; ours is removed at the end. The subshell limits the traps.
install_missing() (
    if ! [ -e "$policy" ] || grep -q 'scripts/servers.sh' "$policy"; then
        trap 'rm -f "$policy"' EXIT
        trap 'exit 130' INT
        trap 'exit 143' TERM HUP
        cat >"$policy" <<'POLICY' && chmod 755 "$policy" || exit
#!/bin/sh
# Made by Dovetail's scripts/servers.sh for as long as it installs packages; may be removed.
exit 101
POLICY
    fi
    DEBIAN_FRONTEND=noninteractive
    export DEBIAN_FRONTEND
    # Package names are our own, so splitting into words is safe.
    set -- apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends $missing_packages
    "$@" || { apt-get -q update && "$@"; } || exit
    for package in $missing_packages; do
        [ -e "/etc/init.d/$package" ] && update-rc.d "$package" disable
    done
    :
) >&2 </dev/null

ensure_servers() {
    find_missing || return 0
    who=$(basename "$0")
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        echo "$who: installing what only tests and benchmarks need:$missing_packages" >&2
        install_missing
        status=$?
        [ $status -ne 130 ] || exit $status
        find_missing || return 0
    fi
    how="apt-get install$missing_packages, as root"
    ! command -v brew >/dev/null || how="brew install mosquitto"
    if [ -n "${CI:-}" ]; then
        echo "$who: error: not installed:$missing_programs. With CI set nothing is skipped ($how)." >&2
        exit 2
    fi
    {
        echo "$who: WARNING: not installed:$missing_programs"
        echo "$who: WARNING: WILL BE SKIPPED: $skipped. To have them: $how"
    } >&2
}
