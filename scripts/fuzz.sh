#!/bin/sh
# Builds every fuzz target with clang and lets each run for $1 seconds on its corpus; what was ever
# found stands in tests/fuzz/found and is replayed first.
set -eu
seconds=$1
out=build/fuzz
mkdir -p $out/obj
flags="-g -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -D_GNU_SOURCE -I. -ffp-contract=off"
[ -e build/gen/api_assets.c ] || make --no-print-directory build/gen/api_assets.c
export out flags
compile() { # source: its object, when it is older; C++ by its ending
    printf '%s\n' "$@" | xargs -n 1 -P "$(nproc)" sh -c '
        object=$out/obj/$(echo "$0" | tr / _).o
        [ "$object" -nt "$0" ] && exit 0
        case $0 in *.cc) exec clang++ -std=c++17 $flags -c -o "$object" "$0" ;; esac
        exec clang -std=c11 $flags -c -o "$object" "$0"'
}
compile core/*.c api/*.c api/*.cc build/gen/api_assets.c
status=0
for target in tests/fuzz/fuzz_*.c; do
    name=$(basename "$target" .c)
    clang -std=c11 $flags -c -o "$out/$name.o" "$target"
    clang++ -fsanitize=fuzzer,address,undefined -o "$out/$name" "$out/$name.o" $out/obj/*.o \
        $(pkg-config --libs jansson openblas) -lm -lpthread
    mkdir -p "$out/corpus-$name" tests/fuzz/found
    echo "== $name"
    "$out/$name" -runs=0 tests/fuzz/found >/dev/null 2>&1 || { echo "$name: a known input fails again"; status=1; }
    "$out/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 \
        -artifact_prefix=tests/fuzz/found/ "$out/corpus-$name" tests/fuzz/corpus examples \
        >"$out/$name.log" 2>&1 || { tail -n 40 "$out/$name.log"; status=1; }
    grep -E 'number_of_executed_units|average_exec' "$out/$name.log" || true
done
exit $status
