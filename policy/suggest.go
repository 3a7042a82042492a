package policy

import "github.com/nri-blkio/nri-blkio/policy/spelling"

// suggest returns the hint "did you mean ..." with the candidate that is near to what was
// written, or "" if there is none.
func suggest(written string, candidates ...string) string {
	meant, ok := spelling.Nearest(written, candidates...)
	if !ok {
		return ""
	}
	return "did you mean " + quoted(meant) + "?"
}
