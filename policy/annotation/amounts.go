package annotation

import (
	"regexp"
	"strings"
)

// amounts matches what is granted of a budget in the errors of policy.Claim, and the advice by that.
var amounts = regexp.MustCompile(`[0-9]+[A-Za-z]* of [0-9]+[A-Za-z]* are granted to [0-9]+ pods?|,? ?(or )?write at most [0-9]+[A-Za-z]*( in an annotation)?`)

// WithoutAmounts returns the text of an error without the amounts that depend on other pods, which the errors of a budget have.
// They change with each pod of the namespace, although the reason stays the same.
func WithoutAmounts(text string) string {
	if !strings.Contains(text, "exceeds the budget of") { // most texts, at the cost of no match
		return text
	}
	return amounts.ReplaceAllString(text, "")
}
