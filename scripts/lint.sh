#!/bin/sh
# House rules that no tool knows: sizes of files and lines, words that must not stand in sources.
set -eu
status=0
complain() { echo "lint: $*" >&2; status=1; }
# What git knows and is there, of these patterns; to know nothing is no way to be clean.
files_of() {
    known=$(git ls-files "$@") || return 1
    there=$(echo "$known" | while read -r f; do [ ! -e "$f" ] || echo "$f"; done)
    [ -n "$there" ] || { echo "lint: git knows no file of $*" >&2; return 1; }
    echo "$there"
}
sources=$(files_of '*.c' '*.h' '*.cc' '*.inc' '*.sh' '*.py' '*.mjs' Makefile) || exit 1
folders=$(files_of 'core/*' 'api/*' 'server/*') || exit 1
narrow=$(files_of 'core/*' 'api/*' 'server/*' 'tests/*.[ch]' 'tests/*.cc') || exit 1
for file in $folders; do
    lines=$(wc -l <"$file")
    [ "$lines" -le 500 ] || complain "$file has $lines lines; 500 is the most, 400 the aim"
done
# shellcheck disable=SC2086
long=$(LC_ALL=C.UTF-8 grep -nE '^.{91,}' $narrow |
    cut -c1-60 || true)
[ -z "$long" ] || complain "lines over 90 columns: $long"
left=$(grep -nE '\b(TODO|FIXME|XXX|HACK)\b' $sources | grep -v '^scripts/lint.sh' || true)
[ -z "$left" ] || complain "left open: $left"
fast=$(grep -nE 'ffast-math|-Ofast' Makefile docker/Dockerfile || true)
[ -z "$fast" ] || complain "fast-math makes isnan and isfinite lie: $fast"
tables=$(grep -rnE '^#define API_VERSION' api/api.h | grep -o '"[^"]*"' | tr -d '"')
grep -q "^VERSION  := $tables\$" Makefile || complain "Makefile and api.h state different versions"
grep -q "^## \[\?$tables" CHANGELOG.md || complain "CHANGELOG.md does not know version $tables"
[ $status -ne 0 ] || echo "lint: clean"
exit $status
