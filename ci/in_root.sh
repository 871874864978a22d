#!/usr/bin/env bash
# Runs a command in a root made by ci/aarch64_root.sh: ci/in_root.sh ROOT COMMAND...
# This project is /src there (nothing of it can be changed), the directory that KAFKALOG_SHARED names is /shared, and
# pip's settings from here (index, certificates) hold there. The mounts go with the command.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
ROOT="$(realpath "$1")"
shift
mkdir -p "$ROOT/src" "$ROOT/shared"
export HERE ROOT KAFKALOG_SHARED="${KAFKALOG_SHARED:-$ROOT/shared}"
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root TMPDIR=/tmp
# an emulated processor that signs return addresses takes ten times as long over programs that ask for it
export QEMU_CPU="${QEMU_CPU:-neoverse-n1}"
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV JAVA_HOME PIP_FIND_LINKS
# certificates that this system trusts beyond those that Debian brings
cp -L /etc/ssl/certs/ca-certificates.crt "$ROOT/etc/ssl/certs/ca-certificates.crt"
if [ -f /etc/ssl/certs/java/cacerts ] && [ -d "$ROOT/etc/ssl/certs/java" ]; then
    cp -L /etc/ssl/certs/java/cacerts "$ROOT/etc/ssl/certs/java/cacerts"  # Java, and so Maven, has its own
fi
cp -L /etc/resolv.conf /etc/hosts "$ROOT/etc/"
if [ -f /etc/pip.conf ]; then cp /etc/pip.conf "$ROOT/etc/pip.conf"; fi
# shellcheck disable=SC2016
exec unshare --mount sh -c '
    set -e
    mount --bind "$HERE" "$ROOT/src" && mount -o remount,bind,ro "$ROOT/src"
    mount --bind "$KAFKALOG_SHARED" "$ROOT/shared"
    mount -t proc proc "$ROOT/proc"
    mount --rbind /dev "$ROOT/dev"
    mount -t tmpfs tmpfs "$ROOT/run"
    exec chroot "$ROOT" "$@"' sh "$@"
