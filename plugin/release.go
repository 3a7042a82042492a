package plugin

import "github.com/nri-blkio/nri-blkio/policy"

// releases reports whether the kernel may be made to move the inodes of removed cgroups:
// the policy can ask for that on a kernel that is not known to contain the corrections.
func (p *Plugin) releases() bool {
	return p.kernel.Corrected() || p.policy.Load().Writeback.Repair == policy.RepairOn
}

// sayReleases logs what ended containers keep on such a kernel.
func (p *Plugin) sayReleases() {
	if !p.releases() {
		p.log.WithField("kernel", p.kernel.String()).
			Info("Files of ended containers keep their owner until the kernel releases them (writeback.repair: true overrides this)")
	}
}
