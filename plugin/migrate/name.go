package migrate

import (
	"regexp"
	"strings"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// maxLabel is the length of a DNS label.
const maxLabel = 63

var notInLabel = regexp.MustCompile(`[^a-z0-9-]+`) // constant

// policyName returns the name in the node policy of a blockio class. That is its own name
// if the policy can have it. Otherwise letters are small, and - replaces other characters: LowPrio is lowprio. Two
// classes can have one name.
func policyName(name string) string {
	label := strings.Trim(notInLabel.ReplaceAllString(strings.ToLower(name), "-"), "-")
	label = strings.TrimRight(label[:min(len(label), maxLabel)], "-")
	switch label {
	case "":
		return "class"
	case annotation.NoClass:
		return annotation.NoClass + "-2"
	}
	return label
}
