#!/bin/sh
# Prints a C file that embeds the contract ($1) and every example ($2/*.json), in name order.
set -eu
spec=$1 folder=$2
embed() { # symbol, file
    printf '__asm__(".section .rodata\\n.balign 16\\n%s:\\n.incbin \\"%s\\"\\n%s_end:\\n.byte 0\\n.previous\\n");\n' \
        "$1" "$2" "$1"
    printf 'extern const char %s[], %s_end[];\n' "$1" "$1"
}
printf '/* Made by scripts/assets.sh from %s and %s: do not edit. */\n#include "api/api_private.h"\n\n' \
    "$spec" "$folder"
embed asset_openapi "$spec"
n=0
for file in "$folder"/*.json; do embed "asset_example_$n" "$file"; n=$((n + 1)); done
printf '\nconst struct api_asset API_OPENAPI = {"openapi.yaml", asset_openapi, asset_openapi_end};\n'
printf 'const struct api_asset API_EXAMPLES[] = {\n'
n=0
for file in "$folder"/*.json; do
    printf '    {"%s", asset_example_%d, asset_example_%d_end},\n' "$(basename "$file" .json)" "$n" "$n"
    n=$((n + 1))
done
printf '};\nconst size_t API_EXAMPLE_COUNT = %d;\n' "$n"
