#!/bin/sh
# Runs a command with sanitizer reports sent to files, and fails when any report exists: Criterion
# does not fail a test for a leak, and a server under test prints where nobody looks.
set -eu
logs=$(mktemp -d)
export ASAN_OPTIONS="log_path=$logs/asan:detect_leaks=1:allocator_may_return_null=1"
export UBSAN_OPTIONS="log_path=$logs/ubsan:print_stacktrace=1"
status=0
"$@" || status=$?
for report in "$logs"/*; do
    [ -e "$report" ] || continue
    echo "sanitizer report:"; head -n 60 "$report"; status=1
done
rm -rf "$logs"
exit $status
