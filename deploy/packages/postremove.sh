#!/bin/sh
# dpkg passes "purge" when the configuration is removed too; then the calibrations of disks go as well.
set -e
[ "$1" != purge ] || rm -rf /var/lib/nri-blkio
[ ! -d /run/systemd/system ] || systemctl daemon-reload
