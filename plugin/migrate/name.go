package migrate

import (
	"regexp"
	"strings"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// maxName is the length of a name that is made from that of a blockio class, with room for a number.
const maxName = 60

var notInLabel = regexp.MustCompile(`[^a-z0-9]+`) // constant

// policyName returns the name in the node policy of a blockio class. That is its own name
// if the policy can have it. Otherwise letters are small, and - replaces other characters: LowPrio is lowprio. Two
// classes can have one name.
func policyName(name string) string {
	label := strings.ToLower(name)
	if !annotation.IsLabel(label) {
		label = strings.Trim(notInLabel.ReplaceAllString(label, "-"), "-")
		label = strings.Trim(label[:min(len(label), maxName)], "-")
	}
	switch label {
	case "":
		return "class"
	case annotation.NoClass:
		return annotation.NoClass + "-2"
	}
	return label
}
