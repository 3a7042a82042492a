package policies

import (
	"fmt"
	"strings"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// sizeTexts returns the grammar's texts about annotations that are too many, too long, or empty,
// as strings of CEL. All but that about too many annotations follow a key.
func sizeTexts() map[string]any {
	const wrong = "* wbps=x;"
	each := func(containers int, value string) map[string]string {
		annotations := map[string]string{}
		for i := range containers {
			annotations[fmt.Sprintf("limits.%s/container.c%d", annotation.Domain, i)] = value
		}
		return annotations
	}
	return map[string]any{
		"TooManyKeys": literal(errorText(each(annotation.MaxKeys+1, wrong))),
		"TooMany":     literal(": " + errorText(each(annotation.MaxTotal/annotation.MaxEntries+1, strings.Repeat(wrong, annotation.MaxEntries)))),
		"TooLong":     literal(": " + tooLong(strings.Repeat(wrong, annotation.MaxEntries+1))),
		"TooLarge":    literal(": " + text("limits", strings.Repeat("x", annotation.MaxValue+1))),
		"Doubled":     literal(": " + errorText(map[string]string{"weight." + annotation.Domain: "5", "weight." + annotation.Domain + "/containers": "6"})),
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

// classTexts returns the grammar's texts about wrong choices of a class, which follow a key. It also returns
// patterns of values: Class of valid ones and others, NoClass of the word for no class.
func classTexts() map[string]any {
	const key = "class." + annotation.Domain + "/"
	return map[string]any{
		"Class": "^" + space + label + space + "$", "NoClass": "^" + space + annotation.NoClass + space + "$",
		"ClassOfTotal": literal(": " + errorText(map[string]string{key + "pod-total": "bronze"})),
		"ClassNone":    literal(": " + errorText(map[string]string{key + "containers": annotation.NoClass})),
		"ClassName":    literal(": " + errorText(map[string]string{key + "containers": "A"})),
	}
}
