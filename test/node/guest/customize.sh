#!/bin/sh
# Makes an unpacked Debian into the node's root; $1 is its directory.
set -eu
root=$1

engine=containerd
if [ -e "$root/usr/local/bin/crio" ]; then
	engine=crio
	chroot "$root" systemctl --quiet disable containerd.service # which Debian's package enables
fi
chroot "$root" systemctl --quiet enable nri-node-setup.service nri-node-disks.service \
	"$engine.service" nri-node-images.service ssh.service
if [ -e "$root/usr/lib/postgresql" ]; then # not on a small node
	# To make one takes an emulated CPU half a minute.
	chroot --userspec=postgres:postgres "$root" sh -c '/usr/lib/postgresql/*/bin/initdb --pgdata=/var/lib/postgresql/data \
		--data-checksums --locale=C --wal-segsize=1 --auth=trust --no-sync --no-instructions' >/dev/null
fi
# Whatever takes time to start, writes to a disk of its own accord, or would act on
# the disks that a test makes.
chroot "$root" systemctl --quiet mask \
	apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer \
	e2scrub_all.timer e2scrub_reap.service xfs_scrub_all.timer system-xfs_scrub.slice \
	systemd-tmpfiles-clean.timer systemd-pstore.service sshd-keygen.service \
	systemd-timesyncd.service systemd-networkd-wait-online.service \
	systemd-logind.service systemd-update-utmp.service systemd-random-seed.service \
	systemd-remount-fs.service systemd-machine-id-commit.service \
	systemd-journal-flush.service systemd-journal-catalog-update.service \
	systemd-hwdb-update.service systemd-update-done.service systemd-user-sessions.service \
	systemd-firstboot.service systemd-sysusers.service systemd-modules-load.service \
	systemd-binfmt.service proc-sys-fs-binfmt_misc.automount \
	systemd-udev-load-credentials.service systemd-creds.socket systemd-hostnamed.socket \
	systemd-sysext.socket systemd-initctl.socket systemd-tmpfiles-setup-dev-early.service \
	ldconfig.service getty.target lvm2-monitor.service blk-availability.service \
	dev-hugepages.mount dev-mqueue.mount postgresql.service \
	mdmonitor.service mdmonitor-oneshot.timer mdcheck_start.timer mdcheck_continue.timer \
	rpcbind.service rpcbind.socket nfs-client.target nfs-server.service nfs-mountd.service \
	nfs-idmapd.service nfs-blkmap.service nfsdcld.service rpc-statd.service rpc-statd-notify.service \
	fsidd.service var-lib-nfs-rpc_pipefs.mount proc-fs-nfsd.mount
chroot "$root" systemctl --quiet set-default multi-user.target
# Generators make units from what this node has none of (fstab, getty, GPT names,
# System V scripts); running them takes 3 s on an emulated CPU.
mkdir -p "$root/etc/systemd/system-generators"
for generator in "$root"/usr/lib/systemd/system-generators/*; do
	ln -s /dev/null "$root/etc/systemd/system-generators/${generator##*/}"
done

# For kubectl, where there is a control plane.
mkdir -p "$root/root/.kube"
ln -s /etc/kubernetes/admin.conf "$root/root/.kube/config"

echo node >"$root/etc/hostname"
echo '127.0.0.1 localhost node' >"$root/etc/hosts"
: >"$root/etc/fstab"
chroot "$root" systemd-machine-id-setup
rm -f "$root"/etc/ssh/ssh_host_*
ssh_key=$root/etc/ssh/ssh_host_ed25519_key
chroot "$root" ssh-keygen -q -t ed25519 -N '' -f "${ssh_key#"$root"}"
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/doc "$root"/usr/share/man
# Of the network plugins these are used. Most pods here share the host's network.
find "$root/usr/lib/cni" -type f ! -name loopback ! -name ptp ! -name host-local -delete
for kernel in "$root"/usr/lib/modules/*; do
	depmod -b "$root" "${kernel##*/}"
done
