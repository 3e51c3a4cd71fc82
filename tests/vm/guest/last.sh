# Last stage, in the repository: the command, then the end. Sourced by main.sh, or by a unit where systemd is the init.
list_objects() {
    find . -name '*.bpf.o' -not -path './.venv/*' -exec sha256sum {} + | sort
}

# CO-RE objects are built once, on the host: a change in the guest is reported.
list_objects >/run/koord-vm/objects
sh "$results/command"
status=$?
list_objects | diff /run/koord-vm/objects - | sed -n 's/^[<>] [0-9a-f]* *//p' >"$results/rebuilt"
echo "$status" >"$results/status"
sync
echo o >/proc/sysrq-trigger
while :; do sleep 1; done
