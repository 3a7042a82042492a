package admission

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/test/admission/policies"
)

// createClass returns the request to create a VolumeAttributesClass.
func createClass(parameters map[string]string) *request {
	object := map[string]any{"metadata": map[string]any{"name": "fast"}, "driverName": "csi.example.com"}
	if parameters != nil {
		values := map[string]any{}
		for key, value := range parameters {
			values[key] = value
		}
		object["parameters"] = values
	}
	return &request{resource: schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "volumeattributesclasses"}, kind: "VolumeAttributesClass", object: object}
}

// TestClassMessages verifies which parameters of a class are rejected: those of the plugin's domain, but no
// parameters of other drivers.
func TestClassMessages(t *testing.T) {
	p := readValidating(t, policies.GrammarFile, ofClasses)
	const own = annotation.OwnPrefix
	const unknown = `unknown key (the keys are rbps, wbps, riops and wiops, and for both directions bps and iops)`
	for _, tt := range []struct {
		parameters map[string]string
		want       string
	}{
		{nil, ""},
		{map[string]string{own + "wbps": "50Mi", own + "riops": "max", "wbps": "50MB", "type": "gp3"}, ""},
		{map[string]string{"rbps": "x", "wpbs": "1", "qos.linbit.com/wbps": "x", "example.com/wbps": "x", "xblkio.noderesource.dev/wbps": "x"}, ""},
		{map[string]string{own + "bps": "50Mi", own + "iops": "max", own + "a": "1"}, `parameters: "blkio.noderesource.dev/a=1": ` + unknown},
		{map[string]string{own + "bps": "50Mi", own + "iops": "9", "bps": "x", "iops": "3000"}, ""},
		{map[string]string{own + "bps": "50Mi", own + "wbps": "9"}, "parameters: the keys set the same limit (bps and iops set both directions; write one of the two keys)"},
		{map[string]string{own + "riops": "50", own + "iops": "9"}, "parameters: the keys set the same limit (bps and iops set both directions; write one of the two keys)"},
		{map[string]string{own + "wpbs": "50Mi"}, `parameters: "blkio.noderesource.dev/wpbs=50Mi": ` + unknown},
		{map[string]string{claimKey: "wbps=50Mi"}, `parameters: "limits.blkio.noderesource.dev=wbps=50Mi": ` + unknown},
		{map[string]string{own + "wbps": "50MB"}, `parameters: "blkio.noderesource.dev/wbps=50MB": invalid quantity (write a whole number such as 50Mi)`},
		{map[string]string{own + "wbps": ""}, `parameters: "blkio.noderesource.dev/wbps=": key has no value (write for example wbps=50Mi)`},
		{map[string]string{own + "wbps": " 1Mi\n", own + "riops": "1\u0085"}, ""},
		{map[string]string{own + "wbps": "1 rbps=2"}, `parameters: "blkio.noderesource.dev/wbps=1 rbps=2": invalid quantity (write a whole number such as 50Mi)`},
		{map[string]string{own + "wbps": "-1"}, `parameters: "blkio.noderesource.dev/wbps=-1": a rate is negative (write a whole number such as 50Mi, or max for no limit)`},
		{map[string]string{own + "wbps": "None"}, `parameters: "blkio.noderesource.dev/wbps=None": invalid rate (write max for no limit)`},
		{map[string]string{own + "wbps": "1Mi+1Ki/Gi..5Mi", own + "riops": "3/Gi"}, ""},
		{map[string]string{own + "riops": "100+0/Gi"}, `parameters: "blkio.noderesource.dev/riops=100+0/Gi": a rate of 0 stops all I/O (write max for no limit)`},
		{map[string]string{own + "riops": "3/Gi..4Gi"}, `parameters: "blkio.noderesource.dev/riops=3/Gi..4Gi": a rate is too large (write at most 4294967294, or max for no limit)`},
		{map[string]string{own + "wbps": "0"}, `parameters: "blkio.noderesource.dev/wbps=0": a rate of 0 stops all I/O (write max for no limit)`},
		{map[string]string{own + "wbps": "1.5"}, `parameters: "blkio.noderesource.dev/wbps=1.5": a rate is not a whole number (write a whole number such as 50Mi)`},
		{map[string]string{own + "riops": "4Gi"}, `parameters: "blkio.noderesource.dev/riops=4Gi": a rate is too large (write at most 4294967294, or max for no limit)`},
		{map[string]string{own + "rbps": "8Ei"}, `parameters: "blkio.noderesource.dev/rbps=8Ei": a rate is too large (write less than 8Ei, or max for no limit)`},
		{map[string]string{own + "rbps": "1e" + strings.Repeat("0", poddoc.MaxRate-2)}, ""},
		{map[string]string{own + "rbps": "1e" + strings.Repeat("0", poddoc.MaxRate-1)}, `parameters: blkio.noderesource.dev/rbps: the rate is longer than 64 bytes (write a whole number such as 50Mi)`},
	} {
		if denials, errs := p.decide(t, createClass(tt.parameters)); strings.Join(denials, "") != tt.want || len(errs) > 0 {
			t.Errorf("%q: %v\n got %q\nwant %q", tt.parameters, errs, denials, tt.want)
		}
	}
	many := map[string]string{}
	for i := range 512 { // the API server accepts no more
		many[fmt.Sprintf("%s%s%d", own, strings.Repeat("x", 300), i)] = strings.Repeat("x", 200)
	}
	many[own+"wbps"] = "1Mi"
	p.largest = 0
	if denials, errs := p.decide(t, createClass(many)); len(denials) != 1 || len(errs) > 0 || p.largest > celconfig.RuntimeCELCostBudget/2 {
		t.Errorf("many parameters: %q, %v, cost %d", denials, errs, p.largest)
	}
}

// agreesOnRate fails the test if the policy rejects a rate of a class that the plugin accepts, or accepts a mistake other than a
// fraction.
func agreesOnRate(t testing.TB, p *validating, value string) {
	t.Helper()
	for _, key := range annotation.OwnParameters() {
		denials, errs := p.decide(t, createClass(map[string]string{key: value}))
		if len(errs) > 0 {
			t.Errorf("%.300q: %v", value, errs)
		}
		_, err := annotation.ParseRates("data", "", map[string]string{key: value}, 1<<30)
		if len(denials) > 0 != (err != nil) && len(value) <= poddoc.MaxRate && (err == nil || !isUnseen(err)) {
			t.Errorf("%s %.300q: denied %q, by the grammar %v", key, value, denials, err)
		}
	}
}

// TestClassGrammar verifies that the policy rejects the texts of the grammar's tests that are no rates, and no others.
func TestClassGrammar(t *testing.T) {
	t.Parallel()
	p := readValidating(t, policies.GrammarFile, ofClasses)
	for _, text := range literals(t) {
		agreesOnRate(t, p, text)
	}
}
