package podfacts

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/policy"
)

const key = "limits.blkio.noderesource.dev/containers"

// volumes returns the claim "data" with this annotation, "" for none.
func volumes(limits string) []policy.Volume {
	v := policy.Volume{Name: "v", Claim: "data", Places: []policy.Place{{Container: "db", Path: "/data"}}}
	if limits != "" {
		v.Limits = &limits
	}
	return []policy.Volume{v}
}

// asked returns what is requested by an annotation, a label and the limits of a claim.
func asked(text, tier, limits string) *Request {
	f := Facts{Namespace: "prod", Annotations: map[string]string{key: text, "other": "x"}, Labels: map[string]string{"tier": tier}, Volumes: volumes(limits)}
	return f.Request("", "")
}

// TestFits verifies that annotations fit by their length as JSON, which can be six times that of their text.
func TestFits(t *testing.T) {
	for _, s := range []string{"x", "<&>", "\x00\x1f\x7f", "\b\f\n\r\t\"\\", "é\u2028\u2029\U0001F600", "\xff\xc3x", "\ufffd"} {
		for n := MaxAnnotationBytes / 7 / len(s); ; n++ {
			of := map[string]string{"": strings.Repeat(s, n)}
			want := size(of) <= MaxAnnotationBytes
			if got := fits(of); got != want {
				t.Errorf("%d of %q: %t, want %t", n, s, got, want)
			}
			if !want {
				break
			}
			n += (MaxAnnotationBytes - size(of)) / 6 / len(s) // not each length
		}
	}
}

// TestRequest verifies that a part of the facts that is nil is unknown, and that annotations that are too long are not kept, but count.
func TestRequest(t *testing.T) {
	long := strings.Repeat(" ", MaxAnnotationBytes-len(`{"":""}`+"\n")-len(key))
	many := map[string]string{}
	for i := range MaxAnnotations + 1 {
		many[key+strings.Repeat("x", i)] = "x"
	}
	for name, tt := range map[string]struct {
		facts       Facts
		annotations int // -1 if they are unknown
		volumes     bool
	}{
		"unknown":       {Facts{}, -1, false},
		"none":          {Facts{Annotations: map[string]string{}, Volumes: []policy.Volume{}}, 0, true},
		"all":           {Facts{Annotations: map[string]string{key: "x", "other": "y"}, Volumes: volumes("")}, 1, true},
		"omitted":       {Facts{Omitted: map[string]string{PartVolumes: "129 of them"}}, -1, false},
		"the longest":   {Facts{Annotations: map[string]string{key: long}}, 1, false},
		"too long":      {Facts{Annotations: map[string]string{key: long + " "}}, -1, false},
		"too many":      {Facts{Annotations: many}, -1, false},
		"of others too": {Facts{Annotations: map[string]string{"other": long + " "}}, 0, false},
	} {
		r := tt.facts.Request(policy.Burstable, "kata")
		if n := len(r.Annotations); r.Annotations == nil != (tt.annotations < 0) || n != max(0, tt.annotations) {
			t.Errorf("%s: %d annotations, nil: %t", name, n, r.Annotations == nil)
		}
		if r.Volumes.Known() != tt.volumes || r.QOS != policy.Burstable || r.Handler != "kata" {
			t.Errorf("%s: %+v", name, r.PodFacts)
		}
	}
	f := Facts{Annotations: map[string]string{key: "* wbps=1Mi" + long}}
	r, pol := f.Request("", ""), policy.Default()
	if first := r.Under(pol); first.Request().Empty() || r.Under(pol) != first {
		t.Error("annotations that are too long do not count, or are parsed again")
	}
}

// TestWith verifies that a request takes over the parts of another one that are known there and differ.
func TestWith(t *testing.T) {
	now := asked("a", "x", "wbps=1Mi")
	now.Labels["io.kubernetes.pod.name"] = "db-0"
	next := asked("b", "y", "wbps=2Mi").InNamespace(map[string]string{"plan": "gold", "other": ""}, []string{"plan", "team"})
	const all = Annotations | Labels | Volumes | Namespace
	for _, part := range []Parts{Annotations, Labels, Volumes, Namespace, Labels | Volumes, all} {
		got := now.With(next, part)
		if d := got.Differences(now); d != part || got.edited != part {
			t.Errorf("%s: differs in %s, edited %s", part, d, got.edited)
		}
		if d := got.Differences(next); d&^Labels != (all&^part)&^Labels { // next does not have those of the runtime
			t.Errorf("%s: differs from the other one in %s", part, d)
		}
		if got.Labels["io.kubernetes.pod.name"] != "db-0" || got.With(next, part) != got {
			t.Errorf("%s: %v, or not the same again", part, got.Labels)
		}
	}
	if got := now.With((&Facts{}).Request("", ""), all); got != now {
		t.Errorf("unknown facts: %+v", got)
	}
	gold := "gold"
	if d := cmp.Diff(policy.NamespaceLabels{"plan": &gold, "team": nil}, next.NamespaceLabels); d != "" {
		t.Error(d)
	}
	if next.InNamespace(nil, []string{"plan"}) != next || next.InNamespace(map[string]string{"plan": "tin"}, nil) != next {
		t.Error("unknown labels of the namespace were taken over")
	}
	if parsed := now.With(next, Annotations).parsed; parsed != next.parsed {
		t.Error("the annotations would be parsed again")
	}
}

// TestDifferences verifies that an error names what was edited.
func TestDifferences(t *testing.T) {
	former, other := asked("x", "a", "wbps=1Mi"), asked("y", "b", "wbps=2Mi")
	f := Facts{Annotations: map[string]string{key: strings.Repeat("x", 40<<10)}}
	long := former.With(f.Request("", ""), 0)
	long.Annotations, long.parsed = nil, f.Request("", "").parsed
	for _, tt := range []struct {
		former *Request
		some   Parts
		want   string
	}{
		{former, Annotations, "annotations"},
		{former, Labels, "labels"},
		{former, Annotations | Labels, "annotations and labels"},
		{former, Volumes, "limits of a claim"},
		{former, Labels | Volumes, "labels and limits of a claim"},
		{former, Annotations | Volumes, "annotations and limits of a claim"},
		{long, Labels, "labels"},
		{long, Volumes, "limits of a claim"},
		{long, Annotations, "annotations"},
	} {
		if got := tt.former.With(other, tt.some).Differences(tt.former).String(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// TestChangedClaims verifies that an event names the claims whose limits have changed.
func TestChangedClaims(t *testing.T) {
	unknown, none, some := asked("x", "a", ""), asked("x", "a", ""), asked("x", "a", "wbps=1Mi")
	unknown.Volumes = nil
	for name, tt := range map[string]struct {
		before, next *Request
		changed      int
	}{
		"known":     {unknown, none, 0},
		"same":      {none, asked("x", "a", ""), 0},
		"limits":    {none, some, 1},
		"no limits": {some, none, 1},
		"at first":  {unknown, some, 0},
	} {
		if got := tt.next.ChangedClaims(tt.before); len(got) != tt.changed {
			t.Errorf("%s: changed %q", name, got)
		}
	}
}
