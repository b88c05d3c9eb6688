#!/bin/sh
# Installs the contract tools (pinned in tests/contract/package.json) and runs them on a binary.
set -eu
binary=$(realpath "$1")
cd tests/contract
[ -d node_modules/ajv ] || npm install --ignore-scripts --no-audit --no-fund --silent
node run.mjs "$binary"
