package policies

import (
	"embed"
	"maps"
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
	all := map[string]any{
		"Plugins": Plugins(), "PluginName": pluginName, "PluginList": pluginList(),
		"Domain": annotation.Domain, "Kinds": annotation.Kinds(), "AllowLabel": AllowLabel, "FailClosedLabel": FailClosedLabel,
		"MaxKeys": annotation.MaxKeys, "MaxTotal": annotation.MaxTotal, "MaxEntries": annotation.MaxEntries, "MaxValue": annotation.MaxValue,
		"Readable": readable, "Comparable": comparable,
		"Ours": ours(), "ValidKey": validKey(), "BareKey": bareKey(), "Tokens": tokens, "Control": control, "Unclean": root + "|" + parent, "FirstWord": firstWord,
		"LimitsEntry": limitsEntry(), "WeightEntry": weightEntry(), "WeightOfAll": weightOfAll(),
		"Limits": limits(), "Overlapping": overlapping(), "Fractions": fractions(),
		"Rates": rates(every), "Bytes": rates(isBytes), "Operations": rates(isOperations),
		"MostBytes": mostBytes(), "MostOperations": mostOperations(),
		"KeyCauses": keyCauses(), "LimitCauses": limitCauses(), "RateCauses": rateCauses(), "WeightCauses": weightCauses(),
		"Duplicate": duplicateCauses(),
	}
	maps.Copy(all, sizeTexts())
	maps.Copy(all, classTexts())
	maps.Copy(all, claimTexts())
	return all
}
