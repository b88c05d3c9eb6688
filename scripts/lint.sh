#!/bin/sh
# House rules that no tool knows: sizes of files and lines, words that must not stand in sources.
set -eu
status=0
complain() { echo "lint: $*" >&2; status=1; }
sources=$(git ls-files '*.c' '*.h' '*.cc' '*.inc' '*.sh' '*.py' '*.mjs' Makefile | while read -r f; do [ -e "$f" ] && echo "$f"; done)
for file in $(git ls-files 'core/*' 'api/*' 'server/*'); do
    lines=$(wc -l <"$file")
    [ "$lines" -le 500 ] || complain "$file has $lines lines; 500 is the most, 400 the aim"
done
# shellcheck disable=SC2086
long=$(LC_ALL=C.UTF-8 grep -nE '^.{91,}' $(git ls-files 'core/*' 'api/*' 'server/*' 'tests/*.[ch]' 'tests/*.cc') |
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
