package admission

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/nri-blkio/nri-blkio/test/admission/policies"
)

const (
	limits   = "limits.blkio.noderesource.dev/containers"
	weight   = "weight.blkio.noderesource.dev/containers"
	class    = "class.blkio.noderesource.dev/containers"
	unknown  = "nope.blkio.noderesource.dev/containers"
	total    = "limits.blkio.noderesource.dev/pod-total"
	valid    = "/data wbps=50Mi"
	wrong    = "/data wpbs=50Mi"
	wrongWhy = limits + `: entry 1 "/data wpbs=50Mi": unknown key (the keys are rbps, wbps, riops and wiops, and for both directions bps and iops)`
)

// TestMessages verifies that a denial has the annotation, the entry, the cause and the correction.
func TestMessages(t *testing.T) {
	p := readValidating(t, policies.GrammarFile)
	for _, tt := range []struct{ key, value, want string }{
		{limits, wrong, wrongWhy},
		{limits, "# first\n* wbps=1Mi; /a wbps", limits + `: entry 2 "/a wbps": a word after the target is not key=value (write for example wbps=50Mi, without blanks in it)`},
		{limits, "", limits + `: the value is empty (write for example "/data wbps=50Mi", or remove the annotation)`},
		{limits, "/data", limits + `: entry 1 "/data": no limit after the target (write for example "/data wbps=50Mi")`},
		{limits, "data wbps=1Mi", limits + `: entry 1 "data wbps=1Mi": unknown target (write "/path", @VOLUME, rootfs or *)`},
		{limits, "wbps=1Mi", limits + `: entry 1 "wbps=1Mi": no target before the limits (write "/path", @VOLUME, rootfs or * first)`},
		{limits, "./a wbps=1Mi", limits + `: entry 1 "./a wbps=1Mi": path is not absolute (write a path in the container that starts with /)`},
		{limits, "/a/../b wbps=1Mi", limits + `: entry 1 "/a/../b wbps=1Mi": path contains ".." (write the path without it)`},
		{limits, `"/" wbps=1Mi`, limits + `: entry 1 "\"/\" wbps=1Mi": the target is the root filesystem of the container (write rootfs)`},
		{limits, `"/a wbps=1Mi`, limits + `: entry 1 "\"/a wbps=1Mi": unterminated quote (write \" for a quote inside a quoted path)`},
		{limits, "@Data wbps=1Mi", limits + `: entry 1 "@Data wbps=1Mi": invalid volume name (use at most 63 of a-z, 0-9 and -, not starting or ending with -)`},
		{limits, "/data wbps=50Mi+1Mi/Gi", limits + `: entry 1 "/data wbps=50Mi+1Mi/Gi": a rate grows with the size of a claim (only a claim's own annotation and a VolumeAttributesClass can have it; write a whole number such as 50Mi)`},
		{limits, "/data wbps=50MB", limits + `: entry 1 "/data wbps=50MB": invalid quantity (write a whole number such as 50Mi)`},
		{limits, "/data wbps=-1", limits + `: entry 1 "/data wbps=-1": a rate is negative (write a whole number such as 50Mi, or max for no limit)`},
		{limits, "/data wbps=0", limits + `: entry 1 "/data wbps=0": a rate of 0 stops all I/O (write max for no limit)`},
		{limits, "/data wbps=1.5", limits + `: entry 1 "/data wbps=1.5": a rate is not a whole number (write a whole number such as 50Mi)`},
		{limits, "/data wiops=4Gi", limits + `: entry 1 "/data wiops=4Gi": a rate is too large (write at most 4294967294, or max for no limit)`},
		{limits, "/data wbps=1 wbps=1", limits + `: entry 1 "/data wbps=1 wbps=1": duplicate key (write it once)`},
		{limits, "/a wbps=1; /data/ wbps=1; /data//. wbps=1;/data/ rbps=1", limits + `: entry 2 "/data/ wbps=1": duplicate target (write all its limits into one entry)`},
		{weight, "/a 5; /a 6", weight + `: entry 1 "/a 5": duplicate target (write one weight for it)`},
		{weight, "0", weight + `: entry 1 "0": invalid weight (write a whole number from 1 to 10000; the default is 100)`},
		{weight, "/data 10001", weight + `: entry 1 "/data 10001": invalid weight (write a whole number from 1 to 10000; the default is 100)`},
		{weight, "/data 5 6", weight + `: entry 1 "/data 5 6": text after the weight (separate entries by ";")`},
		{"limits.blkio.noderesource.dev/pod", valid, "limits.blkio.noderesource.dev/pod: invalid scope (write /containers for each container, /pod-total for the pod as a whole, or /container.NAME)"},
		{"limits.blkio.noderesource.dev", wrong, strings.Replace(wrongWhy, "/containers", "", 1)},
		{"limits.blkio.noderesource.dev", valid + "; wbps=1Mi", `limits.blkio.noderesource.dev: entry 2 "wbps=1Mi": no target before the limits (write "/path", @VOLUME, rootfs or * first)`},
		{"weight.blkio.noderesource.dev", "0", `weight.blkio.noderesource.dev: entry 1 "0": invalid weight (write a whole number from 1 to 10000; the default is 100)`},
		{"class.blkio.noderesource.dev", "Gold", "class.blkio.noderesource.dev: invalid class name (use at most 63 of a-z, 0-9 and -, not starting or ending with -)"},
		{limits, "/data bps=1 rbps=1", limits + `: entry 1 "/data bps=1 rbps=1": the keys set the same limit (bps and iops set both directions; write one of the two keys)`},
		{limits, "/data iops=5Gi", limits + `: entry 1 "/data iops=5Gi": a rate is too large (write at most 4294967294, or max for no limit)`},
		{"limits.blkio.noderesource.dev/db", valid, "limits.blkio.noderesource.dev/db: unknown scope (write container.NAME, containers or pod-total)"},
		{class, " none ", class + `: "none" is not a class: only the node policy can leave a pod without one (write the name of a class of the node policy, or remove the annotation)`},
		{class, "Gold", class + `: invalid class name (use at most 63 of a-z, 0-9 and -, not starting or ending with -)`},
		{"class.blkio.noderesource.dev/pod-total", "gold", "class.blkio.noderesource.dev/pod-total: a class applies to containers (write class.blkio.noderesource.dev/containers)"},
		{unknown, valid, unknown + ": " + mistakes(map[string]string{unknown: valid})[0].Cause + " (" + mistakes(map[string]string{unknown: valid})[0].Hint + ")"},
		{"limits.blkio.noderesource.dev/container.A", valid, "limits.blkio.noderesource.dev/container.A: invalid container name (use at most 63 of a-z, 0-9 and -, not starting or ending with -)"},
	} {
		denials, errs := p.decide(t, create(map[string]string{tt.key: tt.value}))
		if diff := cmp.Diff([]string{tt.want}, denials); diff != "" || len(errs) > 0 {
			t.Errorf("%q: %v, -want +got:\n%s", tt.value, errs, diff)
		}
	}
}

// TestBareKeys verifies that a key without a scope is an error beside another value with the scope containers, if one of them is new, and
// that the annotation of a claim is not rejected on a pod, but causes a warning.
func TestBareKeys(t *testing.T) {
	p, warn := readValidating(t, policies.GrammarFile), readValidating(t, policies.GrammarFile, "nri-blkio-grammar-warn")
	const bare, bareWeight = "limits.blkio.noderesource.dev", "weight.blkio.noderesource.dev"
	const conflict = ": the key without a scope means /containers, and both have different values (remove one of them)"
	const ofClaim = bare + `: limits without a target are those of a claim, and have no effect on a pod (write "* wbps=50Mi" to limit each container)`
	for name, tt := range map[string]struct {
		before, after   map[string]string
		denial, warning string
	}{
		"bare":                   {nil, map[string]string{bare: valid, bareWeight: "5", "class.blkio.noderesource.dev": "a"}, "", ""},
		"equal":                  {nil, map[string]string{bare: valid, limits: valid}, "", ""},
		"two values":             {nil, map[string]string{bare: valid, limits: valid + ";"}, bare + conflict, ""},
		"two weights":            {nil, map[string]string{bareWeight: "5", weight: "6"}, bareWeight + conflict, ""},
		"one is new":             {map[string]string{bareWeight: "5"}, map[string]string{bareWeight: "5", weight: "6"}, bareWeight + conflict, ""},
		"the bare one is new":    {map[string]string{weight: "6"}, map[string]string{bareWeight: "5", weight: "6"}, bareWeight + conflict, ""},
		"both are old":           {map[string]string{bareWeight: "5", weight: "6"}, map[string]string{bareWeight: "5", weight: "6", limits: valid}, "", ""},
		"another scope":          {nil, map[string]string{bare: valid, total: "* wbps=1"}, "", ""},
		"a wrong one is ignored": {nil, map[string]string{bare: wrong, limits: wrong}, wrongWhy, ""},
		"of a claim":             {nil, map[string]string{bare: "wbps=50Mi riops=100+3/Gi"}, "", ofClaim},
		"of a claim, and scopes": {nil, map[string]string{bare: "# a\n wbps=50Mi", limits: valid, weight: "6"}, "", ofClaim},
		"of a claim, old":        {map[string]string{bare: "wbps=1"}, map[string]string{bare: "wbps=1", limits: valid}, "", ""},
	} {
		for _, w := range workloads() {
			r := &request{resource: w.resource, kind: w.kind, object: w.of(tt.after), namespace: corev1.Namespace{}}
			if tt.before != nil {
				r.old = w.of(tt.before)
			}
			if denials, errs := p.decide(t, r); strings.Join(denials, "") != tt.denial || len(errs) > 0 {
				t.Errorf("%s, %s: %q, %v", w.kind, name, denials, errs)
			}
			if warnings, errs := warn.decide(t, r); strings.Join(warnings, "") != tt.warning || len(errs) > 0 {
				t.Errorf("%s, %s: warnings %q, %v", w.kind, name, warnings, errs)
			}
		}
		if isWrong := len(mistakes(tt.after)) > 0; isWrong != (tt.denial != "") && tt.before == nil {
			t.Errorf("%s: by the grammar %v", name, mistakes(tt.after))
		}
	}
}

// TestLargeOfClaim verifies that the annotation of a claim on a pod can be evaluated at each size, and is never rejected.
func TestLargeOfClaim(t *testing.T) {
	p, warn := readValidating(t, policies.GrammarFile), readValidating(t, policies.GrammarFile, "nri-blkio-grammar-warn")
	for name, value := range map[string]string{
		"entries":  "wbps=1" + strings.Repeat(";bps=", 6<<10),
		"letters":  "wbps=" + strings.Repeat("x", 32<<10-5),
		"comments": strings.Repeat("#\n", 16<<10-10) + "wbps=1",
		"64 KiB":   "wbps=" + strings.Repeat("1", 64<<10-5),
	} {
		for _, p := range []*validating{p, warn} {
			p.largest = 0
			denials, errs := p.decide(t, create(map[string]string{claimKey: value, limits: valid, "class.blkio.noderesource.dev": "a"}))
			if isWarned := p == warn && len(value) <= 32<<10; len(errs) > 0 || len(denials) > 0 != isWarned || p.largest > celconfig.RuntimeCELCostBudget/2 {
				t.Errorf("%s: %q, %v, cost %d", name, denials, errs, p.largest)
			}
		}
	}
}

// TestClasses verifies that the policy accepts exactly the classes that the grammar accepts.
func TestClasses(t *testing.T) {
	p := readValidating(t, policies.GrammarFile)
	for _, value := range []string{"bronze", " bronze\n", "a b", "A", "", "none", " none\n"} {
		annotations := map[string]string{class: value}
		if isRejected := agrees(t, p, annotations); isRejected != (len(mistakes(annotations)) > 0) {
			t.Errorf("%q: rejected %t, by the grammar %v", value, isRejected, mistakes(annotations))
		}
	}
}

// TestWorkloads verifies that the templates of workloads are checked, and that an update is accepted if it does
// not change the annotations.
func TestWorkloads(t *testing.T) {
	p := readValidating(t, policies.GrammarFile)
	for _, w := range workloads() {
		for name, tt := range map[string]struct {
			before, after map[string]string
			want          []string
		}{
			"a mistake":           {nil, map[string]string{limits: wrong}, []string{wrongWhy}},
			"none":                {nil, map[string]string{limits: valid}, nil},
			"no annotation":       {nil, nil, nil},
			"an older mistake":    {map[string]string{limits: wrong}, map[string]string{limits: wrong, total: valid}, nil},
			"the mistake is new":  {map[string]string{limits: valid}, map[string]string{limits: wrong}, []string{wrongWhy}},
			"the mistake is gone": {map[string]string{limits: wrong}, map[string]string{}, nil},
		} {
			r := &request{resource: w.resource, kind: w.kind, object: w.of(tt.after), namespace: corev1.Namespace{}}
			if tt.before != nil {
				r.old = w.of(tt.before)
			}
			denials, errs := p.decide(t, r)
			if diff := cmp.Diff(tt.want, denials); diff != "" || len(errs) > 0 {
				t.Errorf("%s, %s: %v, -want +got:\n%s", w.kind, name, errs, diff)
			}
		}
	}
}

// workload is a kind of object with annotations of pods.
type workload struct {
	resource schema.GroupVersionResource
	kind     string
	of       func(annotations map[string]string) map[string]any
}

func workloads() []workload {
	all := []workload{{pods, "Pod", pod}}
	inTemplate := func(annotations map[string]string) map[string]any {
		return map[string]any{"metadata": metadata(nil), "spec": map[string]any{"template": map[string]any{"metadata": metadata(annotations)}}}
	}
	for kind, resource := range map[string]schema.GroupVersionResource{
		"ReplicationController": {Version: "v1", Resource: "replicationcontrollers"},
		"DaemonSet":             {Group: "apps", Version: "v1", Resource: "daemonsets"},
		"Deployment":            {Group: "apps", Version: "v1", Resource: "deployments"},
		"ReplicaSet":            {Group: "apps", Version: "v1", Resource: "replicasets"},
		"StatefulSet":           {Group: "apps", Version: "v1", Resource: "statefulsets"},
		"Job":                   {Group: "batch", Version: "v1", Resource: "jobs"},
	} {
		all = append(all, workload{resource, kind, inTemplate})
	}
	cronjobs := schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"}
	return append(all, workload{cronjobs, "CronJob", func(annotations map[string]string) map[string]any {
		return map[string]any{"metadata": metadata(nil), "spec": map[string]any{"jobTemplate": inTemplate(annotations)}}
	}})
}

// TestTenants verifies that a namespace may use what its label names, and nothing if the label is invalid.
func TestTenants(t *testing.T) {
	p := readValidating(t, policies.TenantsFile)
	for label, denied := range map[string]string{
		"all":                 "",
		"none":                "limits weight class unknown",
		"limits":              "weight class unknown",
		"weight":              "limits class unknown",
		"limits.weight":       "class unknown",
		"limits.weight.class": "unknown",
		"limit":               "invalid",
		"limits.wieght":       "invalid",
		"":                    "invalid",
	} {
		of := map[string]string{limits: "limits", weight: "weight", class: "class", unknown: "unknown", claimKey: "limits", "class.blkio.noderesource.dev": "class"}
		for key, kind := range of {
			var want []string
			switch {
			case denied == "invalid":
				want = []string{`namespace tenant has the label blkio.noderesource.dev/allow with the invalid value "` + label +
					`" (an administrator must set it to all, none, or limits, weight, class, separated by dots)`}
			case slices.Contains(strings.Fields(denied), kind):
				want = []string{key + `: pods of namespace tenant may not have this annotation (remove it, or ask an administrator; ` +
					`the label blkio.noderesource.dev/allow of the namespace is "` + label + `")`}
			}
			denials, errs := p.decide(t, create(map[string]string{key: "x", "example.com/a": "b"}, policies.AllowLabel, label))
			if diff := cmp.Diff(want, denials); diff != "" || len(errs) > 0 {
				t.Errorf("%s with %q: %v, -want +got:\n%s", kind, label, errs, diff)
			}
		}
		if denials, errs := p.decide(t, create(nil, policies.AllowLabel, label)); len(denials)+len(errs) > 0 {
			t.Errorf("no annotation with %q: %v, %v", label, denials, errs)
		}
	}
	r := create(map[string]string{weight: "5"})
	if denials, errs := p.decide(t, r); len(denials) != 1 || len(errs) > 0 {
		t.Errorf("without a label: %q, %v", denials, errs)
	}
	r.old = pod(map[string]string{weight: "5"})
	if denials, errs := p.decide(t, r); len(denials)+len(errs) > 0 {
		t.Errorf("an annotation from before the policy: %q, %v", denials, errs)
	}
	r.old = pod(map[string]string{weight: "4"})
	if denials, errs := p.decide(t, r); len(denials) != 1 || len(errs) > 0 {
		t.Errorf("a changed annotation: %q, %v", denials, errs)
	}
}
