# Packages of other suites of Debian, which are unpacked and not installed. To be sourced by bash, after deploy/guest/lib.sh.
# shellcheck shell=bash

# suites_apt WORK PACKAGE SUITE...: make apt read these suites alone, the last of which has PACKAGE: an apt of our own below the empty
# directory WORK, by APT_CONFIG. Its words go to the file SUITES_LOG. VNIC_DEBIAN_MIRROR names another mirror.
suites_apt() {
    local work=$1 keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    # (As root, apt downloads as the user _apt.)
    chmod 755 "$work"
    if [[ ! -e $keyring ]] || ! suites_lists "$keyring" "$@"; then
        # The keyring may be older than the suites; this machine's apt vouches for a newer one.
        unset APT_CONFIG
        lab_unpack debian-archive-keyring "$work/keyring" >>"$SUITES_LOG" 2>&1 || return 1
        suites_lists "$work/keyring$keyring" "$@" || return 1
    fi
    if ((EUID == 0)); then chown _apt "$work/apt/debs" 2>/dev/null || true; fi
}

# suites_mirror URI KEYRING WORK SUITE...: its lists, its idea of what is installed (nothing), its sources. Of this machine's settings
# only those for downloading count (proxies and the like), none of its hooks.
suites_mirror() {
    local suite work=$3
    rm -rf "$work/apt"
    mkdir -p "$work/apt"/{state/lists/partial,cache/archives/partial,debs}
    : >"$work/apt/status"
    for suite in "${@:4}"; do echo "deb [arch=amd64 signed-by=$2] $1 $suite main"; done >"$work/apt/sources.list"
    {
        # (As this machine's apt sees it: without our APT_CONFIG.)
        env -u APT_CONFIG apt-config dump 2>/dev/null | grep -iE '^Acquire::(https?|Check-|Retries|ForceIPv)' || true
        cat <<END
Dir::Etc::main "/dev/null";
Dir::Etc::parts "/dev/null";
Dir::Etc::sourcelist "$work/apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "$work/apt/state";
Dir::State::status "$work/apt/status";
Dir::Cache "$work/apt/cache";
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Install-Recommends "false";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::Languages "none";
Debug::NoLocking "true";
END
    } >"$work/apt.conf"
    export APT_CONFIG=$work/apt.conf
}

# suites_lists KEYRING WORK PACKAGE SUITE...: from the first mirror that has what we want, signed by a key of KEYRING.
suites_lists() {
    local keyring=$1 work=$2 package=$3 suites=("${@:4}") mirror mirrors=() offers
    if [[ -n ${VNIC_DEBIAN_MIRROR:-} ]]; then
        mirrors=("$VNIC_DEBIAN_MIRROR")
    else
        # Where this machine gets Debian from; then where everybody does.
        # shellcheck disable=SC2016 # apt's own words
        mapfile -t mirrors < <(env -u APT_CONFIG apt-get indextargets --format '$(ORIGIN)/$(LABEL) $(REPO_URI)' 2>/dev/null |
            sed -n 's|^Debian/Debian ||p' | sort -u)
        mirrors+=(http://deb.debian.org/debian)
    fi
    for mirror in "${mirrors[@]}"; do
        suites_mirror "${mirror%/}" "$keyring" "$work" "${suites[@]}"
        # (A repository that cannot be had or trusted is only a warning for apt where old lists would do. No `| grep -q`:
        # it leaves at the first match, and who still writes dies of it, which pipefail takes for an answer.)
        if apt-get -q update -o APT::Update::Error-Mode=any >>"$SUITES_LOG" 2>&1 &&
            offers=$(apt-cache madison "$package" 2>>"$SUITES_LOG") && [[ $offers == *" ${suites[-1]}/main "* ]]; then
            return 0
        fi
        lab_note "$mirror does not give us ${suites[-1]}"
    done
    return 1
}

# suites_unpack WORK DIR PACKAGE[=VERSION]...: download these packages and unpack them into DIR, without what no program needs.
# SUITES_WITHOUT: more paths to leave out.
suites_unpack() {
    local work=$1 dir=$2 deb path leave=()
    for path in ./usr/share/{doc,man,locale,applications,icons} ./usr/lib/systemd ./var ./etc "${SUITES_WITHOUT[@]}"; do
        leave+=(--exclude "$path")
    done
    (cd "$work/apt/debs" && apt-get -q download "${@:3}") >>"$SUITES_LOG" 2>&1 || return 1
    mkdir -p "$dir"
    for deb in "$work"/apt/debs/*.deb; do
        dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$dir" "${leave[@]}" 2>>"$SUITES_LOG" || return 1
    done
}
