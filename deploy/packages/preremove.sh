#!/bin/sh
# Before a removal, not before an update: dpkg passes "remove" or "upgrade", rpm how many versions are left.
set -e
case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0 # an image is being changed
systemctl disable --now nri-blkio.service nri-blkio-writeback.service nri-blkio-validator.service
# A limit that cannot be removed does not keep the package installed.
nri-blkio clear --all --yes || echo "nri-blkio: some limits may still be in force, until their pods are created anew" >&2
