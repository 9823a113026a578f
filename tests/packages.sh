# What tests need of the distribution. To be sourced by bash, after deploy/guest/lib.sh.
# shellcheck shell=bash

# packages_for STEP...: install what these steps of tests/run need and what is not there.
packages_for() {
    local package packages wanted=" $* "
    packages=(cc=gcc /usr/include/stdio.h=libc6-dev tshark=tshark ip=iproute2 setpriv=util-linux curl=curl
        ping=iputils-ping /usr/include/infiniband/verbs.h=libibverbs-dev)
    if [[ $wanted == *' unit '* ]]; then
        # What Open vSwitch is linked with: a peer of link aggregation.
        packages+=(/usr/lib/x86_64-linux-gnu/libunbound.so.8=libunbound8 /usr/lib/x86_64-linux-gnu/libbpf.so.1=libbpf1
            /usr/lib/x86_64-linux-gnu/libxdp.so.1=libxdp1 /usr/lib/x86_64-linux-gnu/libnuma.so.1=libnuma1
            /usr/lib/x86_64-linux-gnu/libcap-ng.so.0=libcap-ng0)
        python3 -c 'import ensurepip' 2>/dev/null || packages+=(/usr/lib/python3.11/ensurepip=python3-venv)
    fi
    if [[ $wanted == *' e2e '* || $wanted == *' demo '* ]]; then
        packages+=(qemu-system-x86_64=qemu-system-x86 linux.uml=user-mode-linux iperf3=iperf3 ping=iputils-ping
            /etc/libibverbs.d/rxe.driver=ibverbs-providers
            ib_write_bw=perftest ibv_devices=ibverbs-utils /usr/lib/python3/dist-packages/pyverbs=python3-pyverbs
            libvirtd=libvirt-daemon virsh=libvirt-clients
            /usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so=libvirt-daemon-driver-qemu
            valgrind=valgrind dpdk-testpmd=dpdk-dev busybox=busybox-static ethtool=ethtool depmod=kmod cpio=cpio xz=xz-utils)
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
        # Python on gRPC's C core, as python3-grpcio. (The one of Debian 12 is older than 1.57, which sends another authority.)
        [[ -x $LAB_DIR/grpcio/bin/python3-grpcio ]] || packages_grpcio || lab_note "Python's grpcio could not be installed"
        PATH=$PATH:$LAB_DIR/grpcio/bin
    fi
}

packages_grpcio() {
    (
        flock 9
        [[ ! -x $LAB_DIR/grpcio/bin/python3-grpcio ]] || exit 0
        python3 -m venv --clear "$LAB_DIR/grpcio" &&
            "$LAB_DIR/grpcio/bin/pip" -q --disable-pip-version-check install \
                --only-binary=:all: grpcio==1.85.3 grpcio-reflection==1.85.1 protobuf==7.36.2 >&2 &&
            ln -s python3 "$LAB_DIR/grpcio/bin/python3-grpcio"
    ) 9>"$LAB_DIR/.grpcio.lock"
}
