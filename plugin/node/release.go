package node

import "github.com/nri-blkio/nri-blkio/policy"

// releases reports whether the kernel may be made to move the inodes of removed cgroups:
// the policy can ask for that on a kernel that is not known to contain the corrections.
func (n *Node) releases() bool {
	return n.kernel.Corrected() || n.policy.Load().Writeback.Repair == policy.RepairOn
}

// sayReleases logs what ended containers keep on such a kernel.
func (n *Node) sayReleases() {
	if !n.releases() {
		n.log.WithField("kernel", n.kernel.String()).
			Info("Files of ended containers keep their owner until the kernel releases them (writeback.repair: true overrides this)")
	}
}
