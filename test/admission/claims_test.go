package admission

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/test/admission/policies"
)

const (
	ofClaims  = "nri-blkio-grammar-claims"
	ofClasses = "nri-blkio-grammar-classes"
	claimKey  = poddoc.ClaimKey
	claimHint = ` (write limits.blkio.noderesource.dev: "wbps=50Mi")`
	unset     = "\x00" // the value of no annotation
)

var (
	claimResource = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
	setResource   = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
)

// createClaim returns the request to create a claim in a namespace with one label, or none.
func createClaim(annotations map[string]string, label ...string) *request {
	r := create(nil, label...)
	r.resource, r.kind, r.object = claimResource, "PersistentVolumeClaim", claim(annotations)
	return r
}

func claim(annotations map[string]string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata(annotations), "spec": map[string]any{}}
}

// createSet returns the request to create a StatefulSet with templates of claims.
func createSet(templates ...map[string]string) *request {
	return &request{resource: setResource, kind: "StatefulSet", object: set(templates...), namespace: corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}}
}

func set(templates ...map[string]string) map[string]any {
	spec := map[string]any{"template": map[string]any{"metadata": metadata(nil)}}
	var claims []any
	for _, annotations := range templates {
		claims = append(claims, map[string]any{"metadata": metadata(annotations), "spec": map[string]any{}})
	}
	if claims != nil {
		spec["volumeClaimTemplates"] = claims
	}
	return map[string]any{"metadata": metadata(nil), "spec": spec}
}

// expect verifies the denials of a request.
func (p *validating) expect(t *testing.T, name string, r *request, want ...string) {
	t.Helper()
	denials, errs := p.decide(t, r)
	if diff := cmp.Diff(want, denials); diff != "" || len(errs) > 0 {
		t.Errorf("%s: %v, -want +got:\n%s", name, errs, diff)
	}
}

// TestClaimMessages verifies that a denial has the annotation, the text, the cause and the correction, on a claim and on
// a template of claims.
func TestClaimMessages(t *testing.T) {
	p := readValidating(t, policies.GrammarFile, ofClaims)
	const target = `the first word is a target (the limits of a claim have none; write for example "wbps=50Mi")`
	for value, want := range map[string]string{
		"rbps=200Mi wbps=50Mi":                 "",
		"# the database\nwbps=1Mi;\nriops=max": "",
		"wpbs=50Mi":                            `"wpbs=50Mi": unknown key (the keys are rbps, wbps, riops and wiops, and for both directions bps and iops)`,
		"rbps=1Mi; wbps":                       `"wbps": a word is not key=value (write for example wbps=50Mi, without blanks in it)`,
		"":                                     `the value is empty (write for example "wbps=50Mi", or remove the annotation)`,
		" ;\n# none":                           `the value is empty (write for example "wbps=50Mi", or remove the annotation)`,
		"* wbps=50Mi; rbps=1":                  `"* wbps=50Mi": ` + target,
		`rbps=1; "/a b" wbps=50Mi`:             `"\"/a b\" wbps=50Mi": ` + target,
		"bps=1; wbps=2":                        `"bps=1; wbps=2": the keys set the same limit (bps and iops set both directions; write one of the two keys)`,
		"bps=1Mi iops=max":                     "",
		"* wbps=50Mi":                          "", // of a pod
		"wbps=50MB":                            `"wbps=50MB": invalid quantity (write a whole number such as 50Mi)`,
		"riops=100+3/Gi..16k wbps=1Mi/Gi":      "",
		"riops=100+3/GB":                       `"riops=100+3/GB": invalid growth (write for example 50Mi+1Mi/Gi..200Mi)`,
		"riops=100+0/Gi":                       `"riops=100+0/Gi": a rate of 0 stops all I/O (write max for no limit)`,
		"riops=3/Gi riops=4/Gi":                `"riops=3/Gi riops=4/Gi": duplicate key (write it once)`,
		"wbps=1Mi/Gi..8Ei":                     `"wbps=1Mi/Gi..8Ei": a rate is too large (write less than 8Ei, or max for no limit)`,
		"wbps=0":                               `"wbps=0": a rate of 0 stops all I/O (write max for no limit)`,
		"rbps=1Mi wbps=1.5":                    `"rbps=1Mi wbps=1.5": a rate is not a whole number (write a whole number such as 50Mi)`,
		"wbps=1Mi;\nwbps=2Mi":                  `"wbps=1Mi;\nwbps=2Mi": duplicate key (write it once)`,
		"wiops=4Gi":                            `"wiops=4Gi": a rate is too large (write at most 4294967294, or max for no limit)`,
		"rbps=8Ei":                             `"rbps=8Ei": a rate is too large (write less than 8Ei, or max for no limit)`,
		"wbps=1 " + strings.Repeat("x", 100):   `"wbps=1 ` + strings.Repeat("x", 53) + `"...: a word is not key=value (write for example wbps=50Mi, without blanks in it)`,
		"wbps=1" + strings.Repeat(" ", poddoc.MaxText-6): "",
		"wbps=1" + strings.Repeat(" ", poddoc.MaxText-5): `the value is longer than 4 KiB (write for example "wbps=50Mi")`,
	} {
		var denials []string
		if want != "" {
			denials = []string{claimKey + ": " + want}
		}
		annotations := map[string]string{claimKey: value}
		p.expect(t, value, createClaim(annotations), denials...)
		p.expect(t, value+" of a template", createSet(nil, map[string]string{"example.com/a": "b"}, annotations), denials...)
	}
}

// TestClaimUpdates verifies that an update may leave a claim as it is, and not make a mistake. A pod's resource has no claims.
func TestClaimUpdates(t *testing.T) {
	p := readValidating(t, policies.GrammarFile, ofClaims)
	for name, tt := range map[string]struct{ before, after, want string }{
		"no annotation":       {unset, unset, ""},
		"an older mistake":    {"x", "x", ""},
		"the mistake is new":  {"wbps=1Mi", "wbps=0", `"wbps=0": a rate of 0 stops all I/O (write max for no limit)`},
		"the mistake is gone": {"wbps=0", "wbps=1", ""},
		"added":               {unset, "wbps=0", `"wbps=0": a rate of 0 stops all I/O (write max for no limit)`},
		"removed":             {"x", unset, ""},
	} {
		of := func(value string) map[string]string {
			annotations := map[string]string{"example.com/a": "b"}
			if value != unset {
				annotations[claimKey] = value
			}
			return annotations
		}
		var want []string
		if tt.want != "" {
			want = []string{claimKey + ": " + tt.want}
		}
		r, s := createClaim(of(tt.after)), createSet(of(tt.after), nil)
		r.old, s.old = claim(of(tt.before)), set(of(tt.before), nil)
		p.expect(t, name, r, want...)
		p.expect(t, name+" in a template", s, want...)
	}
	p.expect(t, "a set without templates", createSet())
}

// TestClaimKeys verifies that other keys of the domain are rejected on a claim, except for those of pods. For these there is
// a warning.
func TestClaimKeys(t *testing.T) {
	p, warn := readValidating(t, policies.GrammarFile, ofClaims), readValidating(t, policies.GrammarFile, ofClaims+"-warn")
	const unknown, unused = ": unknown annotation of a claim" + claimHint, ": the annotation has no effect on a claim, only on pods" + claimHint
	for key, want := range map[string]struct{ denial, warning string }{
		claimKey:        {},
		"example.com/a": {},
		limits:          {"", limits + unused},
		weight:          {"", weight + unused},
		"class.blkio.noderesource.dev/container.a": {"", "class.blkio.noderesource.dev/container.a" + unused},
		"limit.blkio.noderesource.dev":             {"limit.blkio.noderesource.dev" + unknown, ""},
		"blkio.noderesource.dev/wbps":              {"blkio.noderesource.dev/wbps" + unknown, ""},
		"weight.blkio.noderesource.dev":            {"", "weight.blkio.noderesource.dev" + unused},
		"limits.blkio.noderesource.dev/data":       {"limits.blkio.noderesource.dev/data" + unknown, ""},
	} {
		annotations := map[string]string{key: "wbps=1"}
		for _, r := range []*request{createClaim(annotations), createSet(annotations, annotations)} {
			if denials, errs := p.decide(t, r); strings.Join(denials, "") != want.denial || len(errs) > 0 {
				t.Errorf("%s on a %s: %q, %v", key, r.kind, denials, errs)
			}
			if warnings, errs := warn.decide(t, r); strings.Join(warnings, "") != want.warning || len(errs) > 0 {
				t.Errorf("%s on a %s: warnings %q, %v", key, r.kind, warnings, errs)
			}
			r.old = r.object
			p.expect(t, key+" from before the policy", r)
			warn.expect(t, key+" from before the policy", r)
		}
	}
}

// isUnseen reports whether the policies may accept a mistake: a fraction, and a maximum that is too small.
func isUnseen(err *annotation.Error) bool {
	return strings.Contains(err.Cause, "is not a whole number") || strings.HasPrefix(err.Cause, "maximum ")
}

// TestOfPod verifies that the limits of a pod cause a warning on a claim, and are not rejected.
func TestOfPod(t *testing.T) {
	p, warn := readValidating(t, policies.GrammarFile, ofClaims), readValidating(t, policies.GrammarFile, ofClaims+"-warn")
	const warning = claimKey + `: limits with targets are those of a pod, and have no effect on a claim (write for example "wbps=50Mi")`
	for value, want := range map[string]string{
		"* wbps=50Mi": warning, "# a\n\"/a b;c\" wbps=1;@data x\n": warning, "rootfs": warning, "wbps=1Mi": "", "": "", "# *": "",
		strings.Repeat(" ", poddoc.MaxText-len("* wbps=1")) + "* wbps=1": warning,
	} {
		annotations := map[string]string{claimKey: value}
		for _, r := range []*request{createClaim(annotations), createSet(nil, annotations)} {
			if warnings, errs := warn.decide(t, r); strings.Join(warnings, "") != want || len(errs) > 0 {
				t.Errorf("%.50q on a %s: %q, %v", value, r.kind, warnings, errs)
			}
			if want != "" {
				p.expect(t, value, r)
			}
			r.old = r.object
			warn.expect(t, value+" from before the policy", r)
		}
	}
}

// agreesOnClaim reports whether the policy rejects limits of a claim. It fails the test if the grammar accepts those, or if the
// policy accepts a mistake that isUnseen does not except.
func agreesOnClaim(t testing.TB, p *validating, value string) (isRejected bool) {
	t.Helper()
	denials, errs := p.decide(t, createClaim(map[string]string{claimKey: value}))
	if len(errs) > 0 {
		t.Errorf("%.300q: %v", value, errs)
	}
	_, err := annotation.ParseClaim("data", value, 1<<30)
	isWrong := err != nil && err.Reason != annotation.OfPod
	if len(denials) > 0 != isWrong && len(value) <= poddoc.MaxText && (!isWrong || !isUnseen(err)) {
		t.Errorf("%.300q: denied %q, by the grammar %v", value, denials, err)
	}
	return len(denials) > 0
}

// TestClaimGrammar verifies that the policy rejects the texts of the grammar's tests that are no limits of a claim, and no others.
func TestClaimGrammar(t *testing.T) {
	t.Parallel()
	p := readValidating(t, policies.GrammarFile, ofClaims)
	valid := 0
	for _, text := range literals(t) {
		for _, prefix := range []string{"", "wbps=", "wiops=", "wbps=1Mi ", "rbps=1;"} {
			if !agreesOnClaim(t, p, prefix+text) {
				valid++
			}
		}
	}
	if valid < 50 {
		t.Errorf("only %d are valid", valid)
	}
}

// FuzzClaimGrammar verifies that the policies reject exactly the wrong limits of claims and rates of classes.
func FuzzClaimGrammar(f *testing.F) {
	for _, text := range literals(f) {
		if strings.Contains(text, "bps=") && len(text) < 100 {
			f.Add(text, "1Mi")
		}
	}
	p, classes := readValidating(f, policies.GrammarFile, ofClaims), readValidating(f, policies.GrammarFile, ofClasses)
	f.Fuzz(func(t *testing.T, value, rate string) {
		if !utf8.ValidString(value) || !utf8.ValidString(rate) {
			return // the API server rejects it
		}
		agreesOnClaim(t, p, value)
		agreesOnRate(t, classes, rate)
	})
}

// TestLargeClaims verifies that limits of claims of all sizes can be evaluated within the bounds of the API server.
func TestLargeClaims(t *testing.T) {
	t.Parallel()
	p, tenants := readValidating(t, policies.GrammarFile, ofClaims), readValidating(t, policies.TenantsFile)
	warn := readValidating(t, policies.GrammarFile, ofClaims+"-warn")
	fill := func(text string) string { return strings.Repeat(text, poddoc.MaxText/len(text)) }
	for name, tt := range map[string]struct {
		value    string
		isDenied bool
	}{
		"comments":      {fill("#\n")[:poddoc.MaxText-20] + "\nwbps=1Mi", false},
		"separators":    {fill(";")[:poddoc.MaxText-20] + "wbps=1Mi", false},
		"blanks":        {fill(" ")[:poddoc.MaxText-20] + "wbps=1Mi", false},
		"entries":       {fill("a;"), true},
		"words":         {fill("a "), true},
		"duplicates":    {fill("wbps=1Mi "), true},
		"growth":        {fill("wbps=1+1/Gi..2 "), true},
		"growth, 2":     {fill("wbps=1/Gi;"), true},
		"a growth":      {"wbps=1" + fill("0")[:poddoc.MaxText-20] + "/Gi", true},
		"duplicates, 2": {fill("wbps=1Mi;"), true},
		"a rate":        {"wbps=1" + fill("0")[:poddoc.MaxText-20], true},
		"an exponent":   {"wbps=1e" + fill("0")[:poddoc.MaxText-20], false},
		"quotes":        {fill(`"`), false},
		"a quoted path": {`"/` + fill(`\"`)[:poddoc.MaxText-20] + `" wbps=1`, false},
		"targets":       {fill(`*;`), false},
		"64 KiB":        {strings.Repeat("wbps=1Mi ", 7000), true},
		"200 KiB":       {strings.Repeat("wbps=1Mi;", 23000), true},
	} {
		for _, n := range []int{1, 2, 64} {
			if n*len(tt.value) > 3<<20 {
				continue // more than a request to the API server
			}
			var templates []map[string]string
			for range n {
				templates = append(templates, map[string]string{claimKey: tt.value})
			}
			isRead := n*len(tt.value) <= 2*poddoc.MaxText
			for _, p := range []*validating{p, tenants, warn} {
				p.largest = 0
				r := createSet(templates...)
				r.old = set(slices.Repeat([]map[string]string{{claimKey: "x"}}, n)...)
				denials, errs := p.decide(t, r)
				want := tt.isDenied && isRead || p == tenants || len(tt.value) > poddoc.MaxText
				if len(errs) > 0 || p != warn && len(denials) > 0 != want {
					t.Errorf("%s in %d templates: %q, %v", name, n, denials, errs)
				}
				if p.largest > celconfig.RuntimeCELCostBudget/2 {
					t.Errorf("%s in %d templates: cost %d of %d", name, n, p.largest, celconfig.RuntimeCELCostBudget)
				}
			}
		}
	}
}

// TestClaimTenants verifies that a namespace that may not use limits may not set those of claims.
func TestClaimTenants(t *testing.T) {
	p := readValidating(t, policies.TenantsFile)
	for label, want := range map[string]string{
		"all": "", "limits": "", "weight.limits": "",
		"none":   claimKey + `: claims of namespace tenant may not have this annotation (remove it, or ask an administrator; the label blkio.noderesource.dev/allow of the namespace is "none")`,
		"weight": claimKey + `: claims of namespace tenant may not have this annotation (remove it, or ask an administrator; the label blkio.noderesource.dev/allow of the namespace is "weight")`,
		"limit":  `namespace tenant has the label blkio.noderesource.dev/allow with the invalid value "limit" (an administrator must set it to all, none, or limits, weight, class, separated by dots)`,
	} {
		annotations := map[string]string{claimKey: "wbps=1Mi", limits: "* wbps=1", "example.com/a": "b"}
		inSet := createSet(nil, annotations)
		inSet.namespace.Labels = map[string]string{policies.AllowLabel: label}
		for _, r := range []*request{createClaim(annotations, policies.AllowLabel, label), inSet} {
			if denials, errs := p.decide(t, r); strings.Join(denials, "") != want || len(errs) > 0 {
				t.Errorf("%s with %q: %q, %v", r.kind, label, denials, errs)
			}
			r.old = r.object
			p.expect(t, label+" from before the policy", r)
		}
		p.expect(t, label+" without the annotation", createClaim(map[string]string{limits: "x"}, policies.AllowLabel, label))
	}
	r := createClaim(map[string]string{claimKey: "wbps=2Mi"}, policies.AllowLabel, "none")
	r.old = claim(map[string]string{claimKey: "wbps=1Mi"})
	if denials, errs := p.decide(t, r); len(denials) != 1 || len(errs) > 0 {
		t.Errorf("a changed annotation: %q, %v", denials, errs)
	}
	// A pod can have the key of a claim.
	if denials, _ := p.decide(t, create(map[string]string{claimKey: "x"}, policies.AllowLabel, "none")); len(denials) != 1 || !strings.Contains(denials[0], ": pods of namespace") {
		t.Errorf("on a pod: %q", denials)
	}
}
