# What tests need of the distribution. To be sourced by bash, after deploy/guest/lib.sh.
# shellcheck shell=bash

# packages_for STEP...: install what these steps of tests/run need and what is not there.
packages_for() {
    local package packages wanted=" $* "
    packages=(cc=gcc /usr/include/stdio.h=libc6-dev tshark=tshark ip=iproute2 setpriv=util-linux curl=curl
        ping=iputils-ping /usr/include/infiniband/verbs.h=libibverbs-dev
        /usr/include/rdma/rdma_cma.h=librdmacm-dev)
    if [[ $wanted == *' unit '* || $wanted == *' e2e '* ]]; then
        python3 -c 'import ensurepip' 2>/dev/null || packages+=(/usr/lib/python3.11/ensurepip=python3-venv)
        packages+=(/usr/lib/python3/dist-packages/pytest=python3-pytest)
    fi
    if [[ $wanted == *' unit '* ]]; then
        # What Open vSwitch is linked with: a peer of link aggregation.
        packages+=(/usr/lib/x86_64-linux-gnu/libunbound.so.8=libunbound8 /usr/lib/x86_64-linux-gnu/libbpf.so.1=libbpf1
            /usr/lib/x86_64-linux-gnu/libxdp.so.1=libxdp1 /usr/lib/x86_64-linux-gnu/libnuma.so.1=libnuma1
            /usr/lib/x86_64-linux-gnu/libcap-ng.so.0=libcap-ng0)
    fi
    if [[ $wanted == *' e2e '* || $wanted == *' demo '* ]]; then
        packages+=(qemu-system-x86_64=qemu-system-x86 linux.uml=user-mode-linux iperf3=iperf3 ping=iputils-ping
            /etc/libibverbs.d/rxe.driver=ibverbs-providers
            ib_write_bw=perftest rping=rdmacm-utils qperf=qperf fio=fio ibv_devices=ibverbs-utils ibstat=infiniband-diags ucx_info=ucx-utils
            lstopo-no-graphics=hwloc-nox fi_info=libfabric-bin /usr/lib/python3/dist-packages/pyverbs=python3-pyverbs
            mpirun=openmpi-bin /usr/lib/python3/dist-packages/mpi4py=python3-mpi4py
            libvirtd=libvirt-daemon virsh=libvirt-clients openssl=openssl
            /usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so=libvirt-daemon-driver-qemu
            jq=jq valgrind=valgrind dpdk-testpmd=dpdk-dev busybox=busybox-static ethtool=ethtool depmod=kmod cpio=cpio xz=xz-utils)
    fi
    lab_install "${packages[@]}"
    if ! command -v promtool >/dev/null; then
        # The package would also start a Prometheus server here: take the one program out of it.
        [[ -x $LAB_DIR/prometheus/usr/bin/promtool ]] || lab_unpack prometheus "$LAB_DIR/prometheus" ./usr/bin/promtool
        PATH=$PATH:$LAB_DIR/prometheus/usr/bin
    fi
    if [[ $wanted == *' unit '* ]] && ! command -v ovs-vswitchd >/dev/null; then
        # The package would also start services here.
        for package in openvswitch-common openvswitch-switch; do
            [[ -e $LAB_DIR/ovs/$package ]] || { lab_unpack "$package" "$LAB_DIR/ovs" && : >"$LAB_DIR/ovs/$package"; }
        done
        PATH=$PATH:$LAB_DIR/ovs/usr/bin:$LAB_DIR/ovs/usr/sbin:$LAB_DIR/ovs/usr/lib/openvswitch-switch
    fi
    if [[ $wanted == *' unit '* ]]; then
        # A peer of link layer discovery.
        packages_lldpad || lab_note "lldpad of Debian 13 could not be had"
        PATH=$LAB_DIR/lldpad13/bin:$PATH
    fi
    if [[ $wanted == *' unit '* ]] && ! command -v lldpd >/dev/null; then
        # Another one, which would also start a service here. (Its tests look for libraries beside its programs.)
        for package in libwrap0 libsensors5 libevent-2.1-7 libsnmp40 lldpd; do
            [[ -e $LAB_DIR/lldpd/$package ]] || { lab_unpack "$package" "$LAB_DIR/lldpd" && : >"$LAB_DIR/lldpd/$package"; }
        done
        PATH=$PATH:$LAB_DIR/lldpd/usr/sbin
    fi
    if [[ $wanted == *' unit '* || $wanted == *' e2e '* ]]; then
        # Python on gRPC's C core, as python3-grpcio. (The one of Debian 12 is older than 1.57, which sends another authority.)
        packages_grpcio || lab_note "Python's grpcio could not be installed"
        PATH=$PATH:$LAB_DIR/grpcio/bin
    fi
    if [[ $wanted == *' e2e '* ]]; then
        packages_go || lab_note "Go with gRPC could not be had"
    fi
}

# Open-LLDP 1.1.1 of Debian 13 with its loader and its libraries. (That of Debian 12 forgets a port when it first sends DCBX of CEE.)
packages_lldpad() {
    mkdir -p "$LAB_DIR/logs"
    (
        flock 9
        [[ ! -x $LAB_DIR/lldpad13/bin/lldpad ]] || exit 0
        # shellcheck source=deploy/guest/suites.sh
        source "$LAB_ROOT/deploy/guest/suites.sh"
        work=$(mktemp -d "$LAB_DIR/lldpad.XXXXXX")
        trap 'rm -rf "$work"' EXIT
        SUITES_LOG=$LAB_DIR/logs/lldpad.log
        : >"$SUITES_LOG"
        suites_apt "$work" lldpad trixie && suites_unpack "$work" "$work/home" lldpad libconfig11 libnl-3-200 libc6 || exit 1
        mkdir "$work/home/bin"
        cat >"$work/home/bin/lldpad" <<'END'
#!/bin/sh
# A program of Open-LLDP with the loader and the libraries that were unpacked beside it. Made by tests/packages.sh.
home=${0%/*}/..
libraries=$home/usr/lib/x86_64-linux-gnu
exec "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" "$home/usr/sbin/${0##*/}" "$@"
END
        chmod 755 "$work/home/bin/lldpad"
        ln -s lldpad "$work/home/bin/lldptool"
        ln -s lldpad "$work/home/bin/dcbtool"
        "$work/home/bin/lldpad" -v >>"$SUITES_LOG" && rm -rf "$LAB_DIR/lldpad13" && mv "$work/home" "$LAB_DIR/lldpad13"
    ) 9>"$LAB_DIR/.lldpad.lock"
}

# grpcio, and what clients/python is built with.
packages_grpcio() {
    local pins=(grpcio==1.85.3 grpcio-reflection==1.85.1 grpcio-status==1.85.1 grpcio-tools==1.85.1 protobuf==7.36.2 setuptools==84.2.1
        wheel==0.48.0)
    (
        flock 9
        [[ ! -x $LAB_DIR/grpcio/bin/python3-grpcio || $(cat "$LAB_DIR/grpcio/pins" 2>/dev/null) != "${pins[*]}" ]] || exit 0
        python3 -m venv --clear "$LAB_DIR/grpcio" &&
            "$LAB_DIR/grpcio/bin/pip" -q --disable-pip-version-check install --only-binary=:all: "${pins[@]}" >&2 &&
            echo "${pins[*]}" >"$LAB_DIR/grpcio/pins" &&
            ln -s python3 "$LAB_DIR/grpcio/bin/python3-grpcio"
    ) 9>"$LAB_DIR/.grpcio.lock"
}

# Go, gRPC's generators, and the modules that clients/go names, all of them Debian's and unpacked: gRPC there is installed beside another
# protobuf. `replace` in the folder has lines of a go.work by which go takes these modules, without a proxy.
packages_go() {
    (
        flock 9
        go=$LAB_DIR/go
        [[ ! -e $go/replace ]] || exit 0
        rm -rf "$go"
        for package in golang-1.19-go golang-1.19-src protoc-gen-go protoc-gen-go-grpc golang-google-grpc-dev golang-google-genproto-dev \
            golang-google-protobuf-dev golang-github-golang-protobuf-1-5-dev golang-golang-x-{net,sys,text}-dev; do
            lab_unpack "$package" "$go" --exclude='*_test.go' --exclude=./usr/share/doc --exclude='./usr/share/go-*/'{api,misc,test,src/cmd} || exit 1
        done
        mkdir -p "$go/bin" "$go/warm"
        ln -s ../usr/bin/protoc-gen-go{,-grpc} "$go/bin"
        cat >"$go/bin/go" <<'END'
#!/usr/bin/env bash
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
export GOROOT=$root/usr/lib/go-1.19 GOCACHE=$root/cache GOPATH=$root/path GOENV=off GOFLAGS='' GOPROXY=off GOSUMDB=off
exec "$GOROOT/bin/go" "$@"
END
        chmod +x "$go/bin/go"
        sources=$go/usr/share/gocode/src
        for module in google.golang.org/{grpc,genproto,protobuf} github.com/golang/protobuf golang.org/x/{net,sys,text}; do
            # Only some of the packages have one, which names others that no program here needs.
            printf 'module %s\n\ngo 1.19\n' "$module" >"$sources/$module/go.mod"
            echo "replace $module => $sources/$module"
        done >"$go/replaced"
        # Translated once, for all runs.
        { printf 'go 1.19\nuse %s/clients/go\n' "$LAB_ROOT" && cat "$go/replaced"; } >"$go/warm/go.work"
        (cd "$go/warm" && "$go/bin/go" build google.golang.org/grpc google.golang.org/genproto/googleapis/rpc/errdetails \
            google.golang.org/protobuf/types/known/{duration,fieldmask,timestamp}pb) >&2 || exit 1
        mv "$go/replaced" "$go/replace"
    ) 9>"$LAB_DIR/.go.lock"
}
