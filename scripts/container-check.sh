#!/bin/sh
# Builds the image and runs it as docker/compose.yaml does, without a Docker engine (the contract suite
# compares the two).
# Usage, as root on Debian: scripts/container-check.sh [SOURCE] (default: this tree); PORT=n picks
# the port.  Start reading at the last lines.
set -eu

source_dir=$(cd "${1:-$(dirname "$0")/..}" && pwd)
port=${PORT:-18088}
image=localhost/attentiond:check
name=attentiond-check-$$
dir=$(mktemp -d)
url=http://127.0.0.1:$port

say() { printf 'container: %s\n' "$*"; }
fail() { say "FAILED: $*"; podman logs --tail 5 "$name" 2>/dev/null || true; exit 1; }

cleanup() {
    podman rm --force --time 1 "$name" >/dev/null 2>&1 || true
    podman rmi --all --force >/dev/null 2>&1 || true
    rm -rf "$dir"
}

install_tools() {
    for tool in buildah podman runc mmdebstrap curl; do
        command -v "$tool" >/dev/null && continue
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends buildah podman runc mmdebstrap curl \
            catatonit >/dev/null
        return
    done
}

# The hard limit of this process, or $2 where that is less.
hard_limit() {
    own=$(prlimit "--$1" --noheadings --raw --output HARD)
    [ "$own" = unlimited ] || [ "$own" -gt "$2" ] && own=$2
    echo "$own"
}

# Storage and runtime of this run alone: runc, because crun needs one kind of cgroup; cgroupfs,
# because there may be no systemd; limits no higher than ours, because raising them is refused.
configure() {
    files=$(hard_limit nofile 20000)
    tasks=$(hard_limit nproc 4096)
    cat > "$dir/storage.conf" <<CONF
[storage]
driver = "${DRIVER:-overlay}"
graphroot = "$dir/graph"
runroot = "$dir/run"
CONF
    cat > "$dir/containers.conf" <<CONF
[containers]
default_ulimits = ["nofile=$files:$files", "nproc=$tasks:$tasks"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "runc"
CONF
    export CONTAINERS_STORAGE_CONF="$dir/storage.conf" CONTAINERS_CONF="$dir/containers.conf"
}

# The base image that the Dockerfile names, made from Debian's packages.
make_base() {
    suite=$(sed -n 's/^FROM debian:\([a-z]*\)-slim$/\1/p' "$source_dir/docker/Dockerfile")
    [ -n "$suite" ] || fail "the Dockerfile's last FROM is no debian:SUITE-slim"
    cp -aL /etc/apt "$dir/apt"
    own=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    find "$dir/apt" -name '*.list' -o -name '*.sources' | xargs sed -i "s/$own/$suite/g"
    mmdebstrap --quiet --variant=minbase "$suite" "$dir/base.tar" \
        $(find "$dir/apt" -name '*.list' -o -name '*.sources')
    podman import --quiet "$dir/base.tar" "docker.io/library/debian:$suite-slim" >/dev/null
    rm "$dir/base.tar"
}

build_image() {
    buildah build --quiet --format docker --isolation chroot --pull-never \
        --volume "$dir/apt:/etc/apt:ro" --file "$source_dir/docker/Dockerfile" --tag "$image" \
        "$source_dir" > "$dir/build.log" 2>&1 || { tail -n 30 "$dir/build.log"; exit 1; }
    user=$(podman image inspect "$image" --format '{{.User}}')
    case ${user%%:*} in '' | 0 | *[!0-9]*) fail "USER is '$user', not a number above 0" ;; esac
    say "image of $(($(podman image inspect "$image" --format '{{.Size}}') >> 20)) MiB, user $user"
}

start() {
    podman run --quiet --detach --name "$name" --restart on-failure:3 --network host --read-only \
        --tmpfs /tmp --cap-drop all --security-opt no-new-privileges --memory 256m \
        --pids-limit 64 --env ATTENTIOND_HOST=127.0.0.1 --env ATTENTIOND_PORT="$port" "$image" \
        > "$dir/id" 2> "$dir/run.log" || { cat "$dir/run.log"; exit 1; }
}

wait_healthy() {
    for _ in $(seq 100); do
        podman healthcheck run "$name" >/dev/null 2>&1 && return
        sleep 0.1
    done
    fail "never healthy"
}

check_examples() {
    count=0
    for file in "$source_dir"/examples/*.json; do
        status=$(curl -sS -o "$dir/answer" -w '%{http_code}' -H 'Content-Type: application/json' \
            --data-binary "@$file" "$url/v1/attention")
        [ "$status" = 200 ] || fail "$file: $status $(head -c 300 "$dir/answer")"
        count=$((count + 1))
    done
    say "$count examples answered 200"
}

# Sends the file $2 times at once; prints how many answers had which status.
at_once() {
    : > "$dir/codes"
    clients=
    for _ in $(seq "$2"); do
        curl -s -o /dev/null -w '%{http_code}\n' -H 'Content-Type: application/json' -H 'Expect:' \
            --data-binary "@$1" "$url/v1/attention" >> "$dir/codes" &
        clients="$clients $!"
    done
    for client in $clients; do wait "$client" || true; done
    sort "$dir/codes" | uniq -c | awk '{printf "%s%d x %s", (NR > 1 ? ", " : ""), $1, $2}'
}

# Large bodies and large answers at once are answered or refused, and the process lives.
check_memory() {
    { head -c 8000000 /dev/zero | tr '\0' ' '; echo '{}'; } > "$dir/body"
    square='{"init":"normal","seed":1,"shape":[64,64]}'
    cat > "$dir/answer-large" <<JSON
{"shapes":{"T":400,"d_model":64,"d_k":64,"d_v":64},"inputs":{"X":{"init":"normal","seed":2}},
 "weights":{"W_Q":$square,"W_K":$square,"W_V":$square,"W_O":$square},"return":["S","M","A"]}
JSON
    say "24 bodies of 8 MB at once: $(at_once "$dir/body" 24)"
    say "24 answers of 8 MB at once: $(at_once "$dir/answer-large" 24)"
    podman exec "$name" true || fail "died of load"
    [ "$(podman inspect "$name" --format '{{.RestartCount}}')" = 0 ] || fail "restarted under load"
    peak=$(podman exec "$name" sh -c 'cat /sys/fs/cgroup/memory.peak \
        /sys/fs/cgroup/memory/memory.max_usage_in_bytes 2>/dev/null' || true)
    say "memory at most ${peak:+$((peak >> 20)) MiB of }256 MiB"
}

check_kill() {
    kill -9 "$(podman inspect "$name" --format '{{.State.Pid}}')"
    sleep 0.3
    wait_healthy
    [ "$(podman inspect "$name" --format '{{.RestartCount}}')" -ge 1 ] || fail "not restarted"
    say "restarted after kill -9"
}

check_stop() {
    podman stop --time 10 "$name" >/dev/null 2>&1
    code=$(podman inspect "$name" --format '{{.State.ExitCode}}')
    [ "$code" = 0 ] || fail "SIGTERM: exit code $code"
    say "SIGTERM: exit code 0"
}

export DEBIAN_FRONTEND=noninteractive
trap cleanup EXIT
install_tools
configure
make_base
build_image
start
wait_healthy
check_examples
check_memory
check_kill
check_stop
say OK
