package policy

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

var errNow = errors.New("no answer")

// TestRequestBounds verifies which values annotations may request, and how an error names the bound.
func TestRequestBounds(t *testing.T) {
	p := parsed(t, staged)
	for _, tt := range []struct{ namespace, key, value, err string }{
		{"batch-1", keyDB, "* wbps=100Mi", ""},
		{"batch-1", keyDB, "* wbps=1Mi wiops=50", ""},
		{"batch-1", keyDB, "* wiops=max rbps=max", ""},
		{"batch-1", keyDB, "* wbps=101Mi", `entry 1 "* wbps=101Mi": wbps=101Mi is above the bound (write at most 100Mi, bounds.max of rule batch)`},
		{"batch-1", keyEach, "rootfs wbps=max", `entry 1 "rootfs wbps=max": wbps=max is above the bound (write at most 100Mi, bounds.max of rule batch)`},
		{"batch-1", keyDB, "* wbps=512Ki", `entry 1 "* wbps=512Ki": wbps=512Ki is below the bound (write at least 1Mi, bounds.min of rule batch)`},
		{"batch-1", keyDB, "* wiops=49", `entry 1 "* wiops=49": wiops=49 is below the bound (write at least 50, bounds.min of rule batch)`},
		{"batch-1", keyDB, "* wbps=1", `entry 1 "* wbps=1": wbps=1 is under this node's floor (write at least 64Ki)`},
		{"batch-1", keyDB, "* riops=6k", `entry 1 "* riops=6k": riops=6k is above the bound (write at most 5k, bounds.max of the node policy)`},
		{"batch-1", keyWeight + "containers", "60", ""},
		{"batch-1", keyWeight + "containers", "61", `"61": the weight is too large (write at most 60, bounds.weight.max of rule batch)`},
		{"other", keyDB, "* wbps=300Mi", ""},
		{"other", keyDB, "* wbps=max", `entry 1 "* wbps=max": wbps=max is above the bound (write at most 300Mi, bounds.max of the node policy)`},
		{"other", keyWeight + "containers", "4", ""},
		{"other", keyWeight + "containers", "101", `"101": the weight is too large (write at most 100, bounds.weight.max of the node policy)`},
		{"unbound", keyDB, "* wbps=max; rootfs wbps=1Ti", ""},
		{"unbound", keyDB, "* riops=max", `entry 1 "* riops=max": riops=max is above the bound (write at most 5k, bounds.max of the node policy)`},
		{"unbound", keyWeight + "containers", "10000", ""},
	} {
		facts := batch()
		facts.Namespace = tt.namespace
		r := annotation.Parse(map[string]string{tt.key: tt.value})
		_, err := p.ForPod(facts, r).Container(db())
		want := ""
		if tt.err != "" {
			want = "nri-blkio: " + tt.key + ": " + tt.err
		}
		if got := fmt.Sprint(err); got != want && (err != nil || want != "") {
			t.Errorf("%s %s:\n got %s\nwant %s", tt.namespace, tt.value, got, want)
		}
		if errs := p.ForPod(facts, r).Check(); (len(errs) == 0) != (want == "") {
			t.Errorf("%s %s: without a container: %v", tt.namespace, tt.value, errs)
		}
	}
}

// TestNoAnnotationExceedsTheBounds uses random annotations. It verifies that a value that is not of the rule's
// own class is within the bounds, and that no key with a bound gets a larger limit than the bound or the class
// has. The same annotations give the same result.
func TestNoAnnotationExceedsTheBounds(t *testing.T) {
	p := parsed(t, staged)
	rnd := rand.New(rand.NewPCG(17, 1))
	pick := func(from ...string) string { return from[rnd.IntN(len(from))] }
	value := func() string {
		var out []string
		for range 1 + rnd.IntN(3) {
			entry := pick("*", "rootfs", "/data", "/data/wal", "/logs", "@pgdata", "/scratch", "/nope", "x")
			for range 1 + rnd.IntN(3) {
				entry += " " + pick("wbps", "rbps", "wiops", "riops") + "=" + pick("max", "1", "10", "49", "1Mi", "100Mi", "101Mi", "299Mi", "301Mi", "5k", "6k", "7Ei", "-1", "")
			}
			out = append(out, entry)
		}
		return strings.Join(out, ";")
	}
	for range 3000 {
		annotations := map[string]string{}
		for _, scope := range []string{"containers", "container.db", "pod-total"} {
			if rnd.IntN(2) == 0 {
				annotations["limits.blkio.noderesource.dev/"+scope] = value()
			}
			if rnd.IntN(3) == 0 {
				annotations[keyClass+scope] = pick("gold", "silver", "bronze", "light", "none", "nope", "")
			}
			if rnd.IntN(3) == 0 {
				annotations[keyWeight+scope] = pick("1", "5", "60", "61", "10000", "/data 61; rootfs 3", "x")
			}
		}
		facts := batch()
		facts.Namespace = pick("batch-1", "other", "ignored", "rejected")
		pod, again := p.ForPod(facts, annotation.Parse(annotations)), p.ForPod(facts, annotation.Parse(annotations))
		plain, _ := p.ForPod(facts, annotation.Parse(nil)).Container(db())
		d, err := pod.Container(db())
		if d2, err2 := again.Container(db()); fmt.Sprint(d, err) != fmt.Sprint(d2, err2) {
			t.Fatalf("%q: %v, then %v", annotations, d, d2)
		}
		total, _ := pod.Total([]Container{db()})
		for _, s := range append(append(Settings{}, d.Settings...), total.Settings...) {
			if s.Source.Kind != FromRule && !within(pod, s.Value) {
				t.Fatalf("%q in %s: %+v", annotations, facts.Namespace, s)
			}
		}
		for _, s := range plain.Settings {
			got, found := d.Settings.Get(s.Address)
			if most, _ := pod.maxRate(s.Key % blkio.NumLimits); s.Key.IsRate() && most != blkio.Unset && (!found || got.Amount > max(most, s.Amount)) {
				t.Fatalf("%q in %s: %+v in place of %+v", annotations, facts.Namespace, got, s)
			}
		}
		for _, e := range d.Errors {
			checkLine(t, e.Error())
		}
	}
}

// within reports whether a value is within the bounds for a pod.
func within(p *Pod, v blkio.Value) bool {
	if v.Key == blkio.Weight || v.Key == blkio.DiskWeight {
		return p.checkWeight(int(v.Amount)) == nil
	}
	var one blkio.Limits
	if v.Key < blkio.NumLimits {
		one[v.Key] = v.Amount
	}
	return p.checkRates(&one) == nil
}

// TestCarryBelowClass verifies that a granted value stays under stricter bounds, unless the container now
// has a class with a lower value.
func TestCarryBelowClass(t *testing.T) {
	r := annotation.Parse(map[string]string{keyDB: "rootfs wbps=200Mi rbps=1Mi"})
	former, err := parsed(t, "").of(r).Container(db())
	if err != nil {
		t.Fatal(err)
	}
	p := parsed(t, "classes: {a: {limits: ['* wbps=3Mi rbps=9Mi wiops=9']}}\nrules: [{name: r, class: a, bounds: {max: ['* wbps=100Mi']}}]")
	now := p.of(r)
	d, err := now.Container(db())
	if err == nil || len(limits(d)) != 3 {
		t.Fatalf("%v, %v", limits(d), err)
	}
	now.Carry(&d, &former, "db")
	if got := limits(d)[0]; got != "sda rbps=1048576 wbps=3145728 wiops=9" {
		t.Errorf("kept %s", got)
	}
}

// TestPolicyErrors verifies that each error of classes, rules and bounds names its field.
func TestPolicyErrors(t *testing.T) {
	rule := func(text string) string {
		return fileHead + "classes: {bronze: {weight: 50}}\nrules:\n- {" + text + "}"
	}
	checkFileErrors(t, []struct{ text, want string }{
		{fileHead + "classes: []", `classes: Invalid value: expected an object with fields, found array`},
		{fileHead + "classes: {a: {}}", `line 3: classes.a: Required value: a class has limits, a weight, or a guarantee`},
		{fileHead + "classes: {none: {weight: 5}}", `classes.none: Invalid value: "none": a class needs a name`},
		{fileHead + "classes: {A: {weight: 5}}", `classes.A: Invalid value: "A": a class needs a name`},
		{fileHead + "classes: {a: {weight: 0}}", `classes.a.weight: Invalid value: 0: must be between 1 and 10000, inclusive`},
		{fileHead + "classes: {a: {weight: x}}", `classes.a.weight: Invalid value: expected a whole number, found string`},
		{fileHead + "classes: {a: {limits: ['* wbps=1Mi', '* wbps=20MB']}}", `classes.a.limits[1]: Invalid value: "* wbps=20MB": invalid quantity "20MB" (write 20M or 20Mi)`},
		{fileHead + "classes: {a: {limits: ['* wbps=1Mi; rootfs wbps=1Mi']}}", `classes.a.limits[0]: Invalid value: "* wbps=1Mi; rootfs wbps=1Mi": 2 entries in one element (write one element of the list for each)`},
		{fileHead + "classes: {a: {limits: ['* wbps=1Ki']}}", `classes.a.limits[0]: Invalid value: "* wbps=1Ki": wbps=1Ki is under this node's floor (write at least 64Ki)`},
		{fileHead + "classes: {a: {limit: ['* wbps=1Mi']}}", `classes.a.limit: Forbidden: unknown field (did you mean "classes.a.limits"?)`},
		{rule("class: bronze"), `rules[0].name: Required value`},
		{rule("name: a b"), `rules[0].name: Invalid value: "a b": must be at most 63 of a-z, 0-9 and -, not starting or ending with -`},
		{rule("name: a}\n- {name: a"), `line 6: rules[1].name: Duplicate value: "a"`},
		{rule("name: a, class: bronce"), `rules[0].class: Invalid value: "bronce": unknown class (did you mean "bronze"?)`},
		{rule("name: a, clas: bronze"), `rules[0].clas: Forbidden: unknown field (did you mean "rules[0].class"?)`},
		{rule("name: a, mode: off"), `rules[0].mode: Invalid value: expected a string, found bool`},
		{rule("name: a, mode: audit"), `rules[0].mode: Unsupported value: "audit": supported values: "enforce", "observe"`},
		{rule("name: a, annotations: drop"), `rules[0].annotations: Unsupported value: "drop": supported values: "allow", "ignore", "reject"`},
		{rule("name: a, match: {namespaces: ['[']}"), `rules[0].match.namespaces[0]: Invalid value: "[": invalid pattern: write * for any characters, ? for one`},
		{rule("name: a, match: {qos: [besteffort]}"), `rules[0].match.qos[0]: Unsupported value: "besteffort": supported values: "Guaranteed", "Burstable", "BestEffort"`},
		{rule("name: a, match: {podSelector: {matchLabels: {'a b': c}}}"), `rules[0].match.podSelector.matchLabels`},
		{rule("name: a, match: {podSelector: {matchLabels: {a: 1}}}"), `rules[0].match.podSelector.matchLabels.a: Invalid value: expected a string, found number`},
		{rule("name: a, match: {podSelector: {matchExpressions: [{key: a, operator: Is}]}}"), `rules[0].match.podSelector.matchExpressions[0].operator: Unsupported value: "Is": supported values: "In", "NotIn", "Exists", "DoesNotExist"`},
		{rule("name: a, match: {podSelector: {matchExpressions: [{key: a, operator: In}]}}"), `rules[0].match.podSelector.matchExpressions[0].values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty`},
		{rule("name: none"), `rules[0].name: Invalid value: "none": must be at most 63 of a-z, 0-9 and -, not starting or ending with -, other than none`},
		{rule("name: a, class: ''"), `rules[0].class: Invalid value: "": unknown class`},
		{rule("name: a, mode: ''"), `rules[0].mode: Unsupported value: ""`},
		{rule("name: a, annotations: ''"), `rules[0].annotations: Unsupported value: ""`},
		{rule("name: a, match: {namespaces: [b, '']}"), `rules[0].match.namespaces[1]: Required value: write * for any namespace`},
		{rule("name: a, match: {namespaces: ['Batch-*']}"), `rules[0].match.namespaces[0]: Invalid value: "Batch-*": no namespace matches: names have a-z, 0-9 and - (write * for any characters, ? for one)`},
		{rule("name: a, match: {namespaces: ['!web']}"), `rules[0].match.namespaces[0]: Invalid value: "!web": no namespace matches: names have`},
		{rule("name: a, match: {namespaces: ['{web,db}-*']}"), `rules[0].match.namespaces[0]: Invalid value: "{web,db}-*": no namespace matches (write one element of the list for each pattern)`},
		{rule("name: a, match: {namespaces: ['web, db']}"), `rules[0].match.namespaces[0]: Invalid value: "web, db": no namespace matches (write one element`},
		{rule("name: a, match: {labels: {a: b}}"), `rules[0].match.labels: Forbidden: unknown field (the fields are namespaceSelector, namespaces, podSelector, qos)`},
		{rule("name: a, match: {podSelector: {tier: b}}"), `rules[0].match.podSelector.tier: Forbidden: unknown field (the fields are matchExpressions, matchLabels)`},
		{rule("name: a, x: b"), `rules[0].x: Forbidden: unknown field (the fields are annotations, bounds, class, match, mode, name)`},
		{rule("name: a, match: {namespaces: []}"), `rules[0].match.namespaces: Required value: leave it out to match all pods`},
		{rule("name: a, match: {qos: []}"), `rules[0].match.qos: Required value: leave it out to match all pods`},
		{rule("name: a, match: {namespace: [a]}"), `rules[0].match.namespace: Forbidden: unknown field (did you mean "rules[0].match.namespaces"?)`},
		{rule("name: a, bounds: {max: ['rootfs wbps=1Mi']}"), `rules[0].bounds.max[0]: Invalid value: "rootfs wbps=1Mi": invalid target: a bound holds for each disk (write *)`},
		{rule("name: a, bounds: {max: ['* wbps=1Ki']}"), `wbps must be at least 64Ki, its floor`},
		{rule("name: a, bounds: {min: ['* wbps=max']}"), `rules[0].bounds.min: Invalid value: ["* wbps=max"]: wbps: a limit is required`},
		{rule("name: a, bounds: {min: ['* wbps=2Mi'], max: ['* wbps=1Mi']}"), `rules[0].bounds: Invalid value: "wbps": the smallest value 2Mi is above the largest 1Mi`},
		{rule("name: a, bounds: {weight: {max: 0}}"), `rules[0].bounds.weight.max: Invalid value: 0: must be between 1 and 10000, inclusive`},
		{fileHead + "bounds: {max: ['* wbps=1Mi'], min: ['* wbps=2Mi']}", `bounds: Invalid value: "wbps": the smallest value 2Mi is above the largest 1Mi`},
	})
}
