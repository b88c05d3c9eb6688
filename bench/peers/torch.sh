#!/bin/sh
# Runs attention_torch.py in the tree $1, with /proc there (PyTorch asks it what the processor can
# do) in a mount namespace of its own, so that nothing stays mounted.
set -eu
tree=$1
shift
cp "$(dirname "$0")/attention_torch.py" "$tree/attention_torch.py"
# PyTorch's own threads share the work: more of OpenBLAS would fight with them.
export OPENBLAS_NUM_THREADS=1
exec unshare --mount sh -c 'for d in proc sys dev; do mount --rbind "/$d" "$0/$d"; done
    exec chroot "$0" python3 /attention_torch.py "$@"' "$tree" "$@" 2>/dev/null
