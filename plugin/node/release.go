package node

import "github.com/nri-blkio/nri-blkio/policy"

// releases reports whether the plugin may make the kernel move the inodes of removed cgroups. On a kernel that
// is not known to contain the corrections, the policy has to ask for it.
func (n *Node) releases() bool {
	return n.kernel.Corrected() || n.policy.Load().Writeback.Repair == policy.RepairOn
}

// logReleases logs that files of ended containers keep their owner, if the plugin releases none.
func (n *Node) logReleases() {
	if !n.releases() {
		n.log.WithField("kernel", n.kernel.String()).
			Info("Files of ended containers keep their owner until the kernel releases them (writeback.repair: true overrides this)")
	}
}
