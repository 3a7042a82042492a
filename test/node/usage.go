package node

import "github.com/prometheus/procfs"

// CPUTime returns the processor time that QEMU has used for the node, in seconds.
func (n *Node) CPUTime() (float64, error) {
	p, err := procfs.NewProc(n.qemu.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	stat, err := p.Stat()
	return stat.CPUTime(), err
}
