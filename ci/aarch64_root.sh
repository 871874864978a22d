#!/usr/bin/env bash
# A Debian root of another architecture with its own Python, run by emulation where this machine cannot run it itself:
#   ci/aarch64_root.sh DIRECTORY [SUITE [ARCHITECTURE]]      default: bookworm (Python 3.11) arm64; trixie has 3.13
# Needs root, mmdebstrap and qemu-user-static (it says which are missing) and leaves the emulator registered with the
# kernel (binfmt_misc), so that a process in the root can start others. An existing root is left as it is. Then:
#   ci/in_root.sh DIRECTORY COMMAND...
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
exec </dev/null
TARGET="$1" SUITE="${2:-bookworm}" ARCHITECTURE="${3:-arm64}"
case "$SUITE" in bookworm) PYTHON=python3.11 ;; trixie) PYTHON=python3.13 ;; sid) PYTHON=python3.14 ;; *) PYTHON=python3 ;; esac

say() { printf 'aarch64_root: %s\n' "$*" >&2; }

if [ -e "$TARGET/usr/bin/$PYTHON" ]; then say "$TARGET is there"; exit 0; fi
[ "$(id -u)" -eq 0 ] || { say "has to be run as root"; exit 1; }
missing=()
command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
if [ "$ARCHITECTURE" != "$(dpkg --print-architecture)" ]; then
    command -v qemu-aarch64-static >/dev/null || missing+=(qemu-user-static)
    command -v update-binfmts >/dev/null || missing+=(binfmt-support)
fi
if [ "${#missing[@]}" -gt 0 ]; then
    say "installing ${missing[*]}"
    apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
fi
if [ "$ARCHITECTURE" = arm64 ] && [ "$(uname -m)" != aarch64 ]; then
    [ -e /proc/sys/fs/binfmt_misc/register ] || mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
    [ -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ] || update-binfmts --enable qemu-aarch64
fi
# packages are unpacked, not configured: hundreds of emulated maintainer scripts would take half an hour
packages="$PYTHON,$PYTHON-venv,python3-venv,base-files,base-passwd,bash,coreutils,diffutils,findutils,grep,gzip,libc-bin"
packages+=,dash,libstdc++6,mawk,mount,procps,sed,util-linux  # wheels of others ask for the C++ library
# a suite that is no longer renewed has an old date, and is what it was
mmdebstrap --quiet --aptopt='Acquire::Check-Valid-Until "false"' --variant=extract --architectures="$ARCHITECTURE" \
    --include="$packages" "$SUITE" "$TARGET"
ln -sf mawk "$TARGET/usr/bin/awk"    # mawk's maintainer script would have done it
say "$TARGET: $(bash "$(dirname "$0")/in_root.sh" "$TARGET" "/usr/bin/$PYTHON" -VV)"
