package inspect

import (
	"fmt"
	"slices"

	"github.com/nri-blkio/nri-blkio/plugin/iocost"
	"github.com/nri-blkio/nri-blkio/plugin/weights"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Cost describes io.cost on a physical disk, or bfq.
type Cost struct {
	Disk   string    `json:"disk"`
	Dev    string    `json:"dev"`
	By     string    `json:"by,omitempty"` // iocost.BFQ if the operator has chosen it, "" for io.cost
	State  CostState `json:"state"`
	Reason string    `json:"reason,omitempty"` // why run does not enable it
	// Model and QOS are those in force, or those that would be. Their values are "" if only the
	// kernel has some, and shows them once io.cost was enabled on the disk.
	Model   CostValues `json:"model,omitzero"`
	QOS     CostValues `json:"qos,omitzero"`
	Warning string     `json:"warning,omitempty"` // about the model
}

// CostState is whether io.cost is enabled on a disk.
type CostState string

// The states of io.cost on a disk.
const (
	CostOn       CostState = "on"        // enabled now, by this program or another one
	CostOnDemand CostState = "on demand" // run enables it when a container with a weight uses the disk
	CostNo       CostState = "no"        // run does not enable it
	CostUnknown  CostState = "unknown"
)

// CostValues has a model or a QOS.
type CostValues struct {
	Origin iocost.Origin `json:"origin"`
	Values string        `json:"values,omitempty"` // in the form of io.cost.model and io.cost.qos
}

// AddCosts adds io.cost of the physical disks to the report, as run would decide with a policy.
func (h *Host) AddCosts(r *DevicesReport, p *policy.Policy, known weights.Disks) {
	r.Promised = p.Promised()
	states, err := weights.Preview(h.Cgroups, p, known)
	if err != nil {
		r.Lost = append(r.Lost, err.Error())
	}
	for i := range states {
		dev := states[i].Disk.Dev.String()
		if slices.ContainsFunc(r.Devices, func(n *Node) bool { return n.Dev == dev && n.Max != nil }) {
			r.Costs = append(r.Costs, newCost(&states[i], r.Kernel.Namespaced))
		}
	}
}

// newCost describes one disk. hidden is true if the files of io.cost are not visible here.
func newCost(s *iocost.State, hidden bool) Cost {
	c := Cost{Disk: s.Disk.Name, Dev: s.Disk.Dev.String(), By: s.By, Reason: s.Reason}
	switch {
	case hidden && s.By == "":
		c.State, c.Reason = CostUnknown, hiddenCost
	case s.Works:
		c.State = CostOn
	case s.Enabled:
		c.State = CostOnDemand
	default:
		c.State = CostNo
	}
	if c.State != CostOn && c.State != CostOnDemand {
		return c
	}
	if s.By != "" {
		return c
	}
	model, from := s.CostModel()
	c.Model.Origin = from
	if model != nil {
		c.Model.Values = model.String()
	}
	qos, qosFrom := s.CostQOS()
	if c.QOS.Origin = qosFrom; qos != nil {
		c.QOS.Values = qos.String()
	}
	switch {
	case from == iocost.FromKernel:
		c.Warning = GuessedModel
	case qos != nil && s.HasShortPeriod():
		c.Warning = fmt.Sprintf("io.cost's period of %v is short for this disk, so weights may have no effect: raise rlat and wlat in the qos of %s", qos.Period(), c.QOS.Origin)
	}
	return c
}

// GuessedModel is the warning for a model that nothing but the kernel knows.
const GuessedModel = "the model is the kernel's guess: calibrate the disk, or give its model in the node policy"
