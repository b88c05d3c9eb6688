#!/bin/sh
# Installs the contract tools (pinned in tests/contract/package.json) and runs them on a binary.
# Debian 12's node 18 and npm 9 run them, though redocly warns that it is not tried with those.
set -eu
binary=$(realpath "$1")
cd tests/contract
[ -d node_modules/ajv ] || npm install --ignore-scripts --no-audit --no-fund --silent
node run.mjs "$binary"
