# Put a process into the node's part of cgroup version 2: `sh join.sh FOLDER PID`.
# From elsewhere, it could not put a container there: processes stay on their side of a delegated group.
set -eu

while read -r own whole; do
    if [ -e "$own/cgroup.controllers" ]; then
        mkdir -p "$own/node"
        echo "$2" > "$own/node/cgroup.procs"
    fi
done < "$1/cgroups"
