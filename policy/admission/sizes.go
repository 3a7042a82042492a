package admission

import (
	"fmt"
	"strings"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// sizeTexts returns the grammar's texts about annotations that are too many, too long, or empty,
// as strings of CEL. All but that about too many annotations follow a key.
func sizeTexts() map[string]any {
	most := annotation.Most()
	const wrong = "* wbps=x;"
	each := func(containers int, value string) map[string]string {
		annotations := map[string]string{}
		for i := range containers {
			annotations[fmt.Sprintf("limits.%s/container.c%d", annotation.Domain, i)] = value
		}
		return annotations
	}
	return map[string]any{
		"TooManyKeys": literal(errorText(each(most.Annotations+1, wrong))),
		"TooMany":     literal(": " + errorText(each(most.TotalEntries/most.Entries+1, strings.Repeat(wrong, most.Entries)))),
		"TooLong":     literal(": " + tooLong(strings.Repeat(wrong, most.Entries+1))),
		"TooLarge":    literal(": " + text("limits", strings.Repeat("x", most.Value+1))),
		"Empty":       literal(": " + text("limits", "")),
	}
}

// tooLong returns the grammar's text about the length of a list, which follows the errors of
// its entries.
func tooLong(value string) string {
	errs := annotation.Parse(map[string]string{"limits." + annotation.Domain + "/containers": value}).Each().Errors()
	last := errs[len(errs)-1]
	p := annotation.Problem{Cause: last.Cause, Hint: last.Hint}
	return p.String()
}

// classes returns the grammar's text about a wrong class, and a pattern of valid ones. The
// pattern is "" if the grammar accepts none.
func classes() (text, pattern string) {
	const kind = "class." + annotation.Domain + "/containers"
	if errs := annotation.Parse(map[string]string{kind: "bronze"}).Each().Errors(); len(errs) > 0 {
		return errs[0].Cause + " (write limits." + annotation.Domain + ")", ""
	}
	return errorText(map[string]string{kind: "A"}), "^" + space + label + space + "$"
}
