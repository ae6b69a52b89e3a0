# Process 1 of the node's own namespaces: `sh namespace.sh FOLDER`, which runs itself twice more.
# All that is mounted below is seen by the node alone, and is gone with this process.
set -eu
folder=$1

case ${2-outside} in
outside)
    # The namespace of cgroups begins where its first process is.
    while read -r own whole; do
        echo $$ > "$own/cgroup.procs"
    done < "$folder/cgroups"
    exec unshare --cgroup sh "$0" "$folder" aside
    ;;
aside)
    # In version 2 a group with processes has no groups with controllers below it.
    sh "${0%/*}/join.sh" "$folder" $$
    exec unshare --mount --propagation=private --pid --fork --kill-child --mount-proc sh "$0" "$folder" inside
    ;;
esac

# The default paths of containerd, runc, CNI and the kubelet lie here; some of them cannot be configured.
mount --bind "$folder/run" /run
mount --bind "$folder/lib" /var/lib
mount --bind "$folder/log" /var/log

# The node has its part of each cgroup hierarchy where the whole one was.
while read -r own whole; do
    mount --bind "$own" "$whole"
done < "$folder/cgroups"

# The kubelet sets what it finds different here for the whole machine, so it finds what it wants
# (setupKernelTunables in pkg/kubelet/cm/container_manager_linux.go, 1.37).
mkdir "$folder/sysctls"
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    wanted=$folder/sysctls/${setting##*/}
    echo "${setting#*=}" > "$wanted"
    mount --bind "$wanted" "/proc/sys/${setting%=*}"
done

: > "$folder/ready"
sleep infinity &
wait # reaps the orphans too
