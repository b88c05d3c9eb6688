#!/bin/sh
# Runs one suite with its name above it; keeps its exit status.  $1 = name, rest = command.
name=$1
shift
echo "== $name"
exec "$@"
