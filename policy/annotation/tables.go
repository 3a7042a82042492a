package annotation

// The tables in this file describe the grammar to generators of other forms of it, such as
// the admission policies of test/admission/policies.

// Scopes returns the scopes that are whole words. The other scopes are container.NAME.
func Scopes() []string { return []string{ScopeEach, ScopeTotal} }

// Suffixes returns the suffixes of Kubernetes quantities that a rate may have. The decimal ones come first, by
// their powers of 1000, then the binary ones, by their powers of 1024.
func Suffixes() []string {
	return []string{"k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
}

// Bounds holds the largest valid numbers and sizes.
type Bounds struct {
	Annotations  int // of the plugin on one pod
	TotalEntries int // in the annotations of one pod
	Entries      int // in one annotation
	Value        int // bytes of one annotation
	Number       int // bytes of a number without its suffix
	Decimals     int // of a number
	Exponent     int // of a number
}

// Most returns the bounds of the grammar.
func Most() Bounds {
	return Bounds{
		Annotations: maxKeys, TotalEntries: maxTotal, Entries: maxEntries, Value: maxValue,
		Number: maxNumber, Decimals: maxDecimals, Exponent: maxExponent,
	}
}
