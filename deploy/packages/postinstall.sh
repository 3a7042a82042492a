#!/bin/sh
# After an installation the units wait to be enabled. After an update those that run start the new version. Limits stay in force meanwhile.
set -e
[ -d /run/systemd/system ] || exit 0 # an image is being built
for f in /usr/local/bin/nri-blkio /etc/systemd/system/nri-blkio*.service; do
  # systemd and the shell prefer those of an installation by hand.
  [ ! -e "$f" ] || echo "nri-blkio: $f is in use instead of the file of this package: remove it" >&2
done
systemctl daemon-reload
systemctl try-restart nri-blkio.service nri-blkio-writeback.service nri-blkio-validator.service || true # it prints the error
