#!/bin/busybox sh
# First process of the guest: puts a tmpfs over the host's root and hands over to guest/main.sh in it.
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev

die() {
    echo "koord-vm: $*" >/dev/console
    poweroff -f
}

for module in /modules/*.ko; do
    insmod "$module" || die "cannot load $module"
done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=1048576,cache=loose,ro host /lower || die "no host root over 9p"
mount -t tmpfs -o size=75% upper /upper
mkdir /upper/data /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/data,workdir=/upper/work root /root || die "no overlay"
for place in proc sys dev; do
    mount --move "/$place" "/root/$place"
done
mkdir -p /root/run /root/mnt
# Beside the root, so that a test run can tell what was changed in it.
mount -t tmpfs -o mode=755 run /root/run
mkdir -p /root/run/koord-vm/results /root/run/koord-vm/upper
mount -t 9p -o trans=virtio,version=9p2000.L,msize=1048576,cache=none results /root/run/koord-vm/results ||
    die "no results share"
mount --bind /upper/data /root/run/koord-vm/upper
exec switch_root /root /bin/sh /run/koord-vm/results/main.sh
