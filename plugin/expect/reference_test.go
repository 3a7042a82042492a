package expect

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nri-blkio/nri-blkio/internal/reference"
	"github.com/nri-blkio/nri-blkio/policy/strict"
)

// TestReference verifies that the tables of the page are those of the types, and of the errors about fields that are missing.
func TestReference(t *testing.T) {
	page := reference.Page{File: "../../docs/reference/policy-tests.md", Packages: []string{".", "../../policy"}}
	var v validator
	for _, d := range []*fileDocument{{}, {Cases: []caseDocument{{}}}, exampleDocument().(*fileDocument)} {
		v.cases(d, &strict.Lines{})
	}
	for _, err := range v.errs {
		if err.Type == field.ErrorTypeRequired {
			page.Required = append(page.Required, err.Field)
		}
	}
	page.Check(t)
}
