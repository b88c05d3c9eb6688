#!/bin/sh
# Runs every suite of tests/http on a binary ($1); $2 = random problems, $3 = seed.  Goes on after a
# failure, so that one run shows all of them; prints the time and the sum.
set -u
binary=$1 count=$2 seed=$3
passed=0 failed=0 status=0
log=$(mktemp)
python=${PYTHON:-/usr/bin/python3}

suite() { # script, arguments
    echo "== $*"
    begin=$(date +%s)
    script=$1
    shift
    if ! "$python" "tests/http/$script" "$@" >"$log" 2>&1; then
        status=1
        grep -E '^FAIL|Error|error' "$log" | head -n 20
    fi
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
    if [ -z "$line" ]; then tail -n 20 "$log"; status=1 line="0 passed, 1 failed"; fi
    echo "   $line, $(($(date +%s) - begin)) s"
    passed=$((passed + ${line%% passed*}))
    rest=${line#*passed, }
    failed=$((failed + ${rest%% failed*}))
}

suite run_server.py "$binary"
suite run_reference.py
suite run_cases.py "$binary"
suite run_worked.py "$binary"
suite run_random.py "$binary" --level 1 --count "$count" --seed "$seed"
suite run_random.py "$binary" --level 2 --count $((2 * count)) --seed "$seed"
suite run_generated.py "$binary" --seed "$seed"
suite run_large.py "$binary" --seed "$seed"
suite run_numbers.py "$binary" --seed "$seed"
suite run_invariance.py "$binary"
suite run_cache.py "$binary" --seed "$seed"
suite run_ablations.py "$binary" --seed "$seed"
suite run_faults.py "$binary" --seed "$seed"
suite run_audit.py "$binary"
suite run_probe.py "$binary"
suite run_contributing.py "$binary"
suite run_position_kind.py "$binary"
suite run_scripts.py "$binary"
suite run_coding.py "$binary"
suite run_lockstep.py "$binary"
# Sanitizers bring an allocator and memory of their own.
[ -n "${ASAN_OPTIONS:-}" ] || suite run_allocations.py "$binary"
[ -n "${ASAN_OPTIONS:-}" ] || suite run_memory.py "$binary"
rm -f "$log"
echo "$passed passed, $failed failed"
exit $status
