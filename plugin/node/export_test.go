package node

import "github.com/nri-blkio/nri-blkio/plugin/handover"

// Exits returns the exit watch, for scripts whose cgroups are plain files: the kernel watches none of them.
func (n *Node) Exits() *handover.Exits { return &n.exits.ends }
