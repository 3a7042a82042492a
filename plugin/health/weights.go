package health

import "strconv"

// Weights is the state of weights on the node.
type Weights struct {
	Disks []CostDisk `json:"disks"` // all disks, sorted by number
	// Shares are those of the running containers and pods with a weight. Weights without an
	// effect that the operator has not chosen come first.
	Shares []Share `json:"shares"`
	// SharesLeftOut counts the rows that Shares would have if their number were not bounded.
	SharesLeftOut int `json:"sharesLeftOut,omitempty"`
	// Budgets has the sums of the weights of the pods of namespaces with such a budget, those first that are scaled most. Report.Budgets
	// has them as well.
	Budgets []BudgetSum `json:"-"`
	// Promised says how much of each disk is promised to namespaces and classes; "" without guarantees.
	Promised string `json:"promised,omitempty"`
	// Skipped are the cgroups that could not be read, with the causes. Their weights stay as they are.
	Skipped []string `json:"skipped,omitempty"`
}

// CostDisk is the state of io.cost on a disk, or of bfq.
type CostDisk struct {
	Disk    string `json:"disk"`
	Dev     string `json:"dev"`
	By      string `json:"by,omitempty"`     // "bfq" if the operator has chosen it, "" for io.cost
	Enabled bool   `json:"enabled"`          // by this program or another one
	Reason  string `json:"reason,omitempty"` // why this program has not enabled it
	// Model and QOS are the origins of the values in force: "policy", "calibration", "udev", "kernel", "fixed"
	// for a QOS that follows from the model, or "foreign" for values that another program has set.
	Model string `json:"model,omitempty"`
	QOS   string `json:"qos,omitempty"`
	// Vrate is the rate at which io.cost gives out cost, in percent of the model; 0 if it is not
	// enabled.
	Vrate float64 `json:"vrate,omitempty"`
	Error string  `json:"error,omitempty"` // why io.cost is not as desired
	// Kept is why io.cost stays enabled although no weight that is known needs it: there may be others.
	Kept string `json:"kept,omitempty"`
	// Follow is about a model that comes from a calibration; otherwise it is nil.
	Follow *Follow `json:"follow,omitempty"`
}

// Follow is how the model of a disk with two limits follows the mix of I/O.
type Follow struct {
	// State is "safe", "probing" shortly after a change, "moved", or "pinned" if the model does not follow.
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	Model  string `json:"model,omitempty"` // in force, in the form of io.cost.model, unless it is the safe one
}

// ModelPinned is the State of a model that does not follow.
const ModelPinned = "pinned"

// Share is the effect of a weight on one disk.
type Share struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container,omitempty"` // "" for the pod as a whole
	Disk      string `json:"disk"`                // "" if it uses no local disk
	Weight    uint32 `json:"weight"`
	// Scaled is the weight that counts beside other pods in place of Weight, because of the budget of the namespace. It
	// is 0 if the budget does not scale the weight.
	Scaled float64 `json:"scaled,omitempty"`
	// Share is the part of the disk, from 0 to 1, that it can use at least while all current users of the disk
	// ask for more than they get. It is 0 if the weight has no effect.
	Share  float64 `json:"share,omitempty"`
	Reason string  `json:"reason,omitempty"` // why the weight has no effect
	Chosen bool    `json:"chosen,omitempty"` // the operator has decided that it has none
}

// Budgets has the sums that the pods of namespaces with a budget are granted.
type Budgets struct {
	// Sums are those of each namespace, disk and key. Those of limits above the budget come first, and those of weights last.
	Sums []BudgetSum `json:"sums"`
	// LeftOut counts the rows that Sums would have if their number were not bounded.
	LeftOut int `json:"leftOut,omitempty"`
}

// BudgetSum is the sum of the amounts that the pods of a namespace are granted of one key on one physical disk. Amounts are as in an annotation.
type BudgetSum struct {
	Namespace string `json:"namespace"` // "" for a guarantee of a class
	Class     string `json:"class,omitempty"`
	Disk      string `json:"disk"`
	Dev       string `json:"dev"`
	Key       string `json:"key"`
	Granted   string `json:"granted"` // "max" if a pod uses the disk without a limit
	Budget    string `json:"budget"`
	Pods      int    `json:"pods"` // that are granted something
	Over      bool   `json:"over,omitempty"`
	// Factor is the factor by which weights are scaled to the budget: above 1 only for a guarantee, and 0 for limits. Granted is the sum
	// before that, of the pods that use the disk now. For a guarantee it is the least part of the disk that they have.
	Factor float64 `json:"factor,omitempty"`
	Reason string  `json:"reason,omitempty"` // why a guarantee is not kept
	Chosen bool    `json:"chosen,omitempty"` // the operator has decided that it is not
	// Undecided counts the pods of the namespace of which it is not known yet what they are granted.
	Undecided int `json:"undecided,omitempty"`
}

// Group names the pods of the sum.
func (s *BudgetSum) Group() string {
	if s.Class != "" {
		return "class " + s.Class
	}
	return "namespace " + s.Namespace
}

// KeyGuarantee is the Key of a guarantee.
const KeyGuarantee = "guarantee"

// WeightText returns a weight with three digits at least.
func WeightText(weight float64) string {
	if weight >= 100 {
		return strconv.FormatFloat(weight, 'f', 0, 64)
	}
	return strconv.FormatFloat(weight, 'g', 3, 64)
}
