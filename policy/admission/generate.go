package admission

import (
	"embed"
	"fmt"
	"strings"
	"text/template"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

//go:embed templates
var templates embed.FS

// Names of the generated files.
const (
	GrammarFile    = "grammar.yaml"
	TenantsFile    = "tenants.yaml"
	FailClosedFile = "fail-closed.yaml"
)

// Labels of namespaces that the policies read.
const (
	AllowLabel      = annotation.Domain + "/allow"
	FailClosedLabel = annotation.Domain + "/fail-closed"
)

const (
	// readable is the number of characters of annotations that the policy for the grammar
	// reads in one request. With more, the expressions could exceed the API server's bounds on the cost
	// of one expression (1,000,000) and of one policy (10,000,000).
	readable = 32 << 10
	// comparable is the number of entries in which each target is searched.
	comparable = 128
)

// Files returns the generated files by name. An error names the template.
func Files() (map[string]string, error) {
	funcs := template.FuncMap{"arr": func(values ...string) []string { return values }, "join": strings.Join}
	t, err := template.New("").Funcs(funcs).ParseFS(templates, "templates/*.tmpl")
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, name := range []string{GrammarFile, TenantsFile, FailClosedFile} {
		var b strings.Builder
		if err := t.ExecuteTemplate(&b, name+".tmpl", values()); err != nil {
			return nil, err
		}
		files[name] = b.String()
	}
	return files, nil
}

// values returns the values of the templates, by name.
func values() map[string]any {
	most := annotation.Most()
	manyKeys := map[string]string{}
	for i := range most.Annotations + 1 {
		manyKeys[fmt.Sprintf("limits.%s/container.c%d", annotation.Domain, i)] = "* wbps=1Mi"
	}
	manyEntries := map[string]string{}
	for i := range most.TotalEntries/most.Entries + 1 {
		manyEntries[fmt.Sprintf("limits.%s/container.c%d", annotation.Domain, i)] = strings.Repeat("* wbps=x;", most.Entries)
	}
	tooLong := annotation.Parse(map[string]string{"limits." + annotation.Domain + "/containers": strings.Repeat("* wbps=x;", most.Entries+1)}).Each().Errors()
	last := tooLong[len(tooLong)-1]
	noClass, class := classes()
	const place = `"/data", first in entry 1` // of a duplicate
	after := func(s string) string { return literal(": " + s) }
	return map[string]any{
		"Plugins": Plugins(), "PluginName": pluginName, "PluginList": pluginList(),
		"Domain": annotation.Domain, "Kinds": annotation.Kinds(), "AllowLabel": AllowLabel, "FailClosedLabel": FailClosedLabel,
		"Most": most, "Readable": readable, "Comparable": comparable,
		"Ours": ours(), "ValidKey": validKey(), "Tokens": tokens, "Control": control, "Unclean": root + "|" + parent, "FirstWord": firstWord,
		"LimitsEntry": limitsEntry(), "WeightEntry": weightEntry(), "WeightOfAll": weightOfAll(), "Class": class,
		"Limits": limits(), "Repeated": repeated(), "Fractions": fractions(),
		"Rates": rates(every), "Bytes": rates(isBytes), "Operations": rates(isOperations),
		"MostBytes": mostBytes(), "MostOperations": mostOperations(),
		"KeyCauses": keyCauses(), "LimitCauses": limitCauses(), "RateCauses": rateCauses(), "WeightCauses": weightCauses(),
		"TooManyKeys": literal(errorText(manyKeys)), "TooMany": after(errorText(manyEntries)),
		"TooLarge": after(text("limits", strings.Repeat("x", most.Value+1))), "Empty": after(text("limits", "")),
		"TooLong": after((&annotation.Problem{Cause: last.Cause, Hint: last.Hint}).String()), "NoClass": after(noClass),
		"Duplicate": `list.key[0].startsWith('weight.') ? ` + chain("weight", []cause{{"", "/data 5; /data 6", place, ""}}) +
			` : ` + chain("limits", []cause{{"", "/data wbps=1; /data rbps=1", place, ""}}),
	}
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
