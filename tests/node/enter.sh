# Run a program within the node: `sh enter.sh FOLDER PROCESS-1 PROGRAM ARGUMENT...`.
set -eu
folder=$1 first=$2
shift 2
sh "${0%/*}/join.sh" "$folder" $$
exec nsenter --target="$first" --mount --pid --cgroup -- "$@"
