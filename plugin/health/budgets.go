package health

import "strconv"

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
