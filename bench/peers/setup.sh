#!/bin/sh
# Installs the peers into $1: a virtual environment (PyPI) and, as root with mmdebstrap, a
# Debian 13 tree for PyTorch (PyPI's wheel brings CUDA: several gigabytes).  TORCH=0 skips that.
set -eu
into=$1
here=$(dirname "$0")
mkdir -p "$into"
if [ ! -x "$into/venv/bin/uvicorn" ]; then
    /usr/bin/python3 -m venv "$into/venv"
    "$into/venv/bin/pip" install --quiet -r "$here/requirements.txt"
fi
if [ "${TORCH:-1}" = 0 ] || [ -e "$into/trixie/done" ]; then
    exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v mmdebstrap >/dev/null; then
    echo "PyTorch is left out: it needs root and mmdebstrap" >&2
    exit 0
fi
rm -rf --one-file-system "$into/trixie"
# OpenBLAS too: python3-torch alone would use the reference BLAS.
if mmdebstrap --quiet --variant=essential --aptopt='APT::Install-Recommends "false"' \
    --include=python3-torch,python3-numpy,libopenblas0-pthread trixie "$into/trixie" \
    "${DEBIAN_MIRROR:-http://deb.debian.org/debian}"; then
    touch "$into/trixie/done"
else
    echo "PyTorch is left out: its packages could not be installed" >&2
fi
