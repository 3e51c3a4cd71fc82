#!/bin/sh
# Second stage, in the host's own user space: a plain host with cgroups, BPF and tracing mounted, then the command.
# /run/koord-vm/results holds this file, `environment` (sourced) and `command`; `status` is written beside them.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
results=/run/koord-vm/results
export KOORD_TEST_DISK=/dev/vda CHURN_SECONDS=15 PYTHONUNBUFFERED=1
exec </dev/null >/dev/ttyS1 2>&1
stty -F /dev/ttyS1 -opost 2>/dev/null
. "$results/environment"

power_off() {
    sync
    echo o >/proc/sysrq-trigger
    while :; do sleep 1; done
}

mkdir -p /dev/pts /dev/shm /run/koord-vm/empty
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
ln -sfn /proc/self/fd /dev/fd
mount -t bpf bpf /sys/fs/bpf
mount -t tracefs tracefs /sys/kernel/tracing
mount -t debugfs debugfs /sys/kernel/debug

# The host's /lib/modules knows nothing of this kernel.
mkdir -p "/run/koord-vm/modules/$KOORD_VM_RELEASE" /lib/modules
mount --bind "$KOORD_VM_MODULES" "/run/koord-vm/modules/$KOORD_VM_RELEASE"
mount --rbind /run/koord-vm/modules /lib/modules
# As linux-headers does; an image may stand in for /usr/src.
ln -sfn "/usr/src/linux-headers-$KOORD_VM_RELEASE" "/lib/modules/$KOORD_VM_RELEASE/build"
ln -sfn "/usr/src/linux-headers-${KOORD_VM_RELEASE%-*}-common" "/lib/modules/$KOORD_VM_RELEASE/source"
for module in $KOORD_VM_LOAD_MODULES; do
    modprobe -q "$module" || echo "koord-vm: module $module is built in or absent"
done

# /dev/vda is the tests' disk; from /dev/vdb on, images stand in for directories.
disks=bcdefgh
for directory in $KOORD_VM_IMAGES; do
    disk=/dev/vd${disks%"${disks#?}"}
    disks=${disks#?}
    mkdir -p "$directory"
    mount -t ext4 -o noatime "$disk" "$directory" || echo "koord-vm: no image for $directory"
done

mount_v1() {
    mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
    for controllers in cpu,cpuacct cpuset memory devices freezer blkio pids perf_event net_cls,net_prio; do
        mkdir "/sys/fs/cgroup/$controllers"
        mount -t cgroup -o "$controllers" cgroup "/sys/fs/cgroup/$controllers" ||
            rmdir "/sys/fs/cgroup/$controllers"
    done
    for link in cpu cpuacct; do
        ln -s cpu,cpuacct "/sys/fs/cgroup/$link"
    done
}

case "$KOORD_VM_CGROUP" in
v1) mount_v1 ;;
hybrid)
    mount_v1
    mkdir /sys/fs/cgroup/unified
    mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified
    ;;
*)
    mount -t cgroup2 -o memory_recursiveprot cgroup2 /sys/fs/cgroup
    echo "+cpu +cpuset +io +memory +pids" >/sys/fs/cgroup/cgroup.subtree_control
    # As on a real host, processes live in leaves and not in the root.
    mkdir -p /sys/fs/cgroup/init.scope
    echo $$ >/sys/fs/cgroup/init.scope/cgroup.procs
    ;;
esac

chmod 1777 /tmp
# Tests press the whole machine for memory; a refused allocation would spare it.
echo 1 >/proc/sys/vm/overcommit_memory
ip link set lo up
if [ -n "$KOORD_VM_NETWORK" ]; then
    ip address add "$KOORD_VM_NETWORK" dev eth0
    ip link set eth0 up
    ip route add default via 10.0.2.2
fi
echo koord-vm >/proc/sys/kernel/hostname
echo 2 >/proc/sys/kernel/panic_on_oops 2>/dev/null
cd "$KOORD_VM_REPOSITORY" || power_off

if [ "$KOORD_VM_INIT" = systemd ]; then
    export -p >/run/koord-vm/exported
    mkdir -p /run/systemd/system
    cp "$results/koord-vm.service" /run/systemd/system
    exec /lib/systemd/systemd --unit=koord-vm.service
fi
. "$results/last.sh"
