# Shell functions shared by scripts of deploy and tests. To be sourced by bash.
# shellcheck shell=bash

# Where everything that is downloaded, unpacked or built for the lab lives, so that `cargo clean` removes it.
LAB_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
LAB_DIR=${VNIC_LAB_DIR:-$LAB_ROOT/target/lab}

# ifconfig, ip, depmod and others live in sbin, which is not on the PATH of ordinary users.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

lab_die() {
    printf '%s: %s\n' "${LAB_NAME:-${0##*/}}" "$*" >&2
    exit 1
}

lab_note() {
    printf '%s: %s\n' "${LAB_NAME:-${0##*/}}" "$*" >&2
}

# lab_missing COMMAND=PACKAGE...: print the packages whose command is not there. A leading / makes it a file.
lab_missing() {
    local pair what
    for pair in "$@"; do
        what=${pair%%=*}
        if [[ $what == /* ]]; then
            [[ -e $what ]] && continue
        else
            command -v "$what" >/dev/null 2>&1 && continue
        fi
        printf '%s\n' "${pair#*=}"
    done | sort -u
}

# Run a command as root, or say why that cannot be.
lab_as_root() {
    if ((EUID == 0)); then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        lab_note "root rights are needed for: $*"
        lab_note "you are not root and sudo is not installed; run that command as root, then start again"
        return 1
    fi
}

# Package lists are there when some repository has a Packages file.
lab_have_lists() {
    compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null
}

lab_apt_update() {
    lab_as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600 update
}

# lab_install COMMAND=PACKAGE...: install the packages whose command is missing. Does not call apt if none is.
lab_install() {
    local missing
    mapfile -t missing < <(lab_missing "$@")
    ((${#missing[@]})) || return 0
    command -v apt-get >/dev/null 2>&1 ||
        lab_die "not a Debian system, and these are missing: ${missing[*]} (names of Debian packages); install them by hand"
    mkdir -p "$LAB_DIR"
    (
        flock 9
        # Somebody else may have installed them while we waited.
        mapfile -t missing < <(lab_missing "$@")
        ((${#missing[@]})) || exit 0
        lab_note "installing ${missing[*]}"
        lab_have_lists || lab_apt_update || exit 1
        local install=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=600
            install --no-install-recommends "${missing[@]}")
        # Old lists name files that the mirror no longer has: refresh them and try once more.
        # (9>&-: a service that a package starts must not inherit the lock.)
        lab_as_root "${install[@]}" 9>&- || { lab_apt_update && lab_as_root "${install[@]}" 9>&-; }
    ) 9>"$LAB_DIR/.apt.lock" >"$LAB_DIR/apt.log" 2> >(tee -a "$LAB_DIR/apt.log" >&2) || {
        [[ -s $LAB_DIR/apt.log ]] && tail -n 20 "$LAB_DIR/apt.log" >&2
        lab_die "these packages could not be installed: ${missing[*]} (log: $LAB_DIR/apt.log)"
    }
    mapfile -t missing < <(lab_missing "$@")
    ((${#missing[@]} == 0)) || lab_die "installed, but still not found: ${missing[*]}"
}

# lab_unpack PACKAGE DIR: download a package and unpack it into DIR without installing it.
lab_unpack() {
    local package=$1 dir=$2 tmp
    tmp=$(mktemp -d "$LAB_DIR/deb.XXXXXX")
    # apt downloads as the user _apt when run by root, and warns if that user cannot write here.
    if ((EUID == 0)); then chown _apt "$tmp" 2>/dev/null || true; fi
    (
        cd "$tmp" || exit 1
        apt-get -q download "$package" || { lab_apt_update && apt-get -q download "$package"; }
    ) >&2 || {
        rm -rf "$tmp"
        lab_note "could not download the package $package"
        return 1
    }
    mkdir -p "$dir"
    dpkg-deb --fsys-tarfile "$tmp"/*.deb | tar -x -C "$dir" "${@:3}"
    local rc=$?
    rm -rf "$tmp"
    return $rc
}

# lab_libraries PROGRAM ROOT: copy the libraries that a program (or library) needs below ROOT.
lab_libraries() {
    local library
    # Lines of ldd: "name => /path (addr)" and "/lib64/ld-linux... (addr)".
    ldd "$1" | grep -o '/[^ ]*' | while read -r library; do
        mkdir -p "$2${library%/*}"
        cp -n -L "$library" "$2$library"
    done
}

# lab_pyverbs_tests: print where rdma-core's tests for Python are. (Systems without documentation lack them, though they
# have the package.)
lab_pyverbs_tests() {
    local place=usr/share/doc/rdma-core/tests
    if [[ -d /$place ]]; then
        printf '/%s\n' "$place"
        return 0
    fi
    if [[ ! -d $LAB_DIR/pyverbs/$place ]]; then
        rm -rf "$LAB_DIR/pyverbs"
        lab_unpack python3-pyverbs "$LAB_DIR/pyverbs" "./$place" || return 1
    fi
    printf '%s\n' "$LAB_DIR/pyverbs/$place"
}

# lab_cargo_tool NAME VERSION [ARGUMENT...]: a program of crates.io's, on the PATH from then on. It is built once, with these
# arguments of cargo install, which takes minutes.
lab_cargo_tool() {
    local root=$LAB_DIR/tools/$1-$2
    PATH=$root/bin:$PATH
    if [[ ! -x $root/bin/$1 ]]; then
        lab_note "building $1 $2"
        cargo install --locked --root "$root" --version "=$2" "${@:3}" "$1" >"$LAB_DIR/$1.log" 2>&1 || {
            tail -n 20 "$LAB_DIR/$1.log" >&2
            lab_die "$1 could not be built (log: $LAB_DIR/$1.log)"
        }
    fi
}
