package health

// Budgets has the sums that the pods of namespaces with a budget are granted.
type Budgets struct {
	// Sums are those of each namespace, disk and key. Those above the budget come first.
	Sums []BudgetSum `json:"sums"`
	// LeftOut counts the rows that Sums would have if their number were not bounded.
	LeftOut int `json:"leftOut,omitempty"`
}

// BudgetSum is the sum of the amounts that the pods of a namespace are granted of one key on one physical disk. Amounts are as in an annotation.
type BudgetSum struct {
	Namespace string `json:"namespace"`
	Disk      string `json:"disk"`
	Dev       string `json:"dev"`
	Key       string `json:"key"`
	Granted   string `json:"granted"` // "max" if a pod uses the disk without a limit
	Budget    string `json:"budget"`
	Pods      int    `json:"pods"` // that are granted something
	Over      bool   `json:"over,omitempty"`
	// Undecided counts the pods of the namespace of which it is not known yet what they are granted.
	Undecided int `json:"undecided,omitempty"`
}
