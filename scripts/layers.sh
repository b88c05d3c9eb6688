#!/bin/sh
# Proves the dependency law server -> api -> core, from includes and from the symbols that each
# folder's objects leave undefined.  $1 = build folder.
set -eu
build=$1
status=0
complain() { echo "layers: $*" >&2; status=1; }

# --- includes: folder, what it may include (extended regular expression) --------------------
includes() { # folder, allowed
    grep -nE '^[[:space:]]*#[[:space:]]*include' "$1"/*.[ch] "$1"/*.inc "$1"/*.cc 2>/dev/null |
        sed -E 's/^([^:]+:[0-9]+):[[:space:]]*#[[:space:]]*include[[:space:]]*["<]([^">]+)[">].*/\1 \2/' |
        grep -vE " ($2)\$" | while read -r line; do echo "$line"; done
}
libc='(assert|stdatomic|complex|ctype|errno|float|inttypes|limits|locale|math|stdarg|stdbool|stddef|stdint|string|strings)\.h'
bad=$(includes core "$libc|core/attn[a-z_]*\.(h|inc)|immintrin\.h" | grep -vE '^core/attn_blas\.c:[0-9]+ cblas\.h$' || true)
[ -z "$bad" ] || complain "core/ includes what it must not:
$bad"
bad=$(includes api "$libc|(stdio|stdlib|time|unistd|sys/mman|sys/types)\.h|charconv|cstddef|cstdint|cstring|cmath|limits|system_error|type_traits|jansson\.h|(cpuid|emmintrin|immintrin)\.h|core/attn\.h|api/api[a-z_0-9]*\.h")
[ -z "$bad" ] || complain "api/ includes what it must not:
$bad"
bad=$(includes server '[a-z_/0-9]+\.h' | cat; grep -nE '#[[:space:]]*include.*(jansson|cblas|core/|api_private)' server/*.[ch] || true)
[ -z "$bad" ] || complain "server/ includes what it must not:
$bad"

# --- symbols ---------------------------------------------------------------------------------
undefined() { # folder: what its objects together need from outside
    objects=$(find "$build/obj/$1" "$build/obj/gen" -name '*.o' 2>/dev/null | grep -E "/$1/|api_assets" |
        { [ "$1" = api ] && cat || grep -v api_assets; })
    # shellcheck disable=SC2086
    nm -u --format=posix $objects | awk '$2 == "U" {print $1}' | sort -u > "$build/layers.need"
    # shellcheck disable=SC2086
    nm --defined-only --format=posix $objects | awk 'NF > 2 {print $1}' | sort -u > "$build/layers.have"
    comm -23 "$build/layers.need" "$build/layers.have"
}
compiler='_GLOBAL_OFFSET_TABLE_|__stack_chk_fail|__assert_fail|__cpu_model|__cpu_indicator_init|__tls_get_addr|__(ubsan|asan|tsan|sanitizer)[a-z0-9_]*'
libm='(exp|exp2|expm1|log|log2|log1p|pow|sqrt|tanh|atanh|atan2|sin|cos|sincos|fabs|floor|ceil|rint|nearbyint|round|trunc|fmax|fmin|ldexp|frexp|scalbn|isnan|isinf|hypot|erf|nextafter|fma|copysign)[fl]?'
strings='mem(cpy|move|set|cmp|chr|rchr)|str(len|cmp|ncmp|chr|rchr|spn|cspn|str)'
bad=$(undefined core | grep -vE "^($compiler|$libm|$strings|cblas_[a-z]+|openblas_[a-z_0-9]+)\$" || true)
[ -z "$bad" ] || complain "core/ needs symbols that it must not: $(echo $bad)"
for object in "$build"/obj/core/*.o; do
    case $object in */attn_blas.o) continue ;; esac
    ! nm -u --format=posix "$object" | grep -qE '^(cblas|openblas)_' ||
        complain "$object calls BLAS: attn_blas.c alone may"
done
bad=$(undefined api | grep -E '^(MHD_|pthread_|socket|bind|listen|accept|epoll_|send|recv|cblas_|openblas_|srv_|thrd_|mtx_)' || true)
[ -z "$bad" ] || complain "api/ needs symbols that it must not: $(echo $bad)"
for symbol in $(undefined api | grep -iE '^attn_' || true); do
    grep -qw "$symbol" core/attn_problem.h core/attn_layer.h core/attn_findings.h ||
        complain "api/ uses $symbol, which no public header of core/ declares"
done
bad=$(undefined server | grep -iE '^(json_|cblas_|openblas_|attn_)' || true)
[ -z "$bad" ] || complain "server/ needs symbols that it must not: $(echo $bad)"
for symbol in $(undefined server | grep -iE '^api_' || true); do
    grep -qw "$symbol" api/api.h || complain "server/ uses $symbol, which api/api.h does not declare"
done
[ $status -ne 0 ] || echo "layers: server -> api -> core holds"
exit $status
