package admission

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// sample is one annotation.
type sample struct{ key, value string }

func (s sample) annotations() map[string]string { return map[string]string{s.key: s.value} }

// literals returns the strings in the tests of the grammar: values, entries, rates, keys and
// names, valid and invalid. The request with them is JSON, so they have no invalid UTF-8.
func literals(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("../../policy/annotation/*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests of the grammar: %v", err)
	}
	var texts []string
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil && utf8.ValidString(text) {
					texts = append(texts, text)
				}
			}
			return true
		})
	}
	return texts
}

// samples returns annotations with the strings of the grammar's tests at each place where they
// may belong. The API server rejects a key that is not a qualified name before it asks policies.
func samples(t testing.TB) []sample {
	t.Helper()
	const limits, weight, class = "limits." + annotation.Domain + "/", "weight." + annotation.Domain + "/", "class." + annotation.Domain + "/"
	seen := map[sample]bool{}
	var all []sample
	add := func(key, value string) {
		if s := (sample{key, value}); !seen[s] && len(validation.IsQualifiedName(strings.ToLower(key))) == 0 {
			seen[s] = true
			all = append(all, s)
		}
	}
	for _, text := range literals(t) {
		for _, prefix := range []string{"", "/data ", "/data wbps=", "/data wiops="} {
			add(limits+"container.db", prefix+text)
		}
		add(strings.TrimSuffix(limits, "/"), text)
		add(strings.TrimSuffix(class, "/"), text)
		add(limits+"pod-total", text+" wbps=1Mi")
		add(weight+"containers", text)
		add(weight+"containers", "/data "+text)
		add(weight+"containers", text+" 5")
		add(class+"containers", text)
		add(class+"pod-total", text)
		add(limits+text, "* wbps=1Mi")
		add(limits+"container."+text, "* wbps=1Mi")
		if strings.Contains(text, annotation.Domain) {
			add(text, "* wbps=1Mi")
		}
	}
	for _, text := range []string{
		`/a wbps=1Mi; "/a" rbps=1Mi`, // one path in two spellings
		"/data wbps=" + strings.Repeat("0", 40) + "1",
		strings.Repeat("/data wbps=1Mi;", 129),
		"/data wbps=1Mi; /data/" + strings.Repeat("x", 32<<10) + " x",
	} {
		add(limits+"container.db", text)
	}
	return all
}

// mistakes returns the errors of the grammar about annotations.
func mistakes(annotations map[string]string) []*annotation.Error {
	r := annotation.Parse(annotations)
	errs := append([]*annotation.Error{}, r.PodWide()...)
	errs = append(append(errs, r.Each().Errors()...), r.Total().Errors()...)
	for _, name := range r.ContainerNames() {
		errs = append(errs, r.Named(name).Errors()...)
	}
	return errs
}
