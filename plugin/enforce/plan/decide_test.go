package plan

import (
	"errors"
	"slices"
	"testing"

	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// TestDecide covers the errors of a container, in the order of their worth.
func TestDecide(t *testing.T) {
	pol := policy.Default()
	request := annotation.Parse(map[string]string{limits + "container.a": "rootfs wbps=1Mi", weight + "container.a": "50"})
	pod := Pod{Policy: pol.ForPod(&policy.PodFacts{Handler: "kata"}, request)}
	if d, err := Decide(&pod, facts("a"), Weights{Exist: true}); err == nil || d.Settings != nil {
		t.Errorf("under a handler that is not known: %s, %v", text(d.Settings), err)
	}
	pod.Policy = pol.ForPod(&policy.PodFacts{Handler: "runc"}, request)
	if d, err := Decide(&pod, facts("a"), Weights{}); err == nil || text(d.Settings) != "254:0 wbps=1048576" {
		t.Errorf("without io.weight: %s, %v", text(d.Settings), err)
	}
	if d, err := Decide(&pod, facts("a"), Weights{Exist: true}); err != nil || text(d.Settings) != "254:0 wbps=1048576, default 50" {
		t.Errorf("%s, %v", text(d.Settings), err)
	}
	if d, err := Decide(&pod, facts("b"), Weights{}); err != nil || d.Settings != nil {
		t.Errorf("another container: %s, %v", text(d.Settings), err)
	}
}

// TestWeightOfClass verifies that on a node without io.weight the weight of a class is left out with a warning,
// and the rest of the class holds.
func TestWeightOfClass(t *testing.T) {
	pol, err := policy.ParseFile([]byte("apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\n" +
		"classes: {a: {limits: ['* wbps=1Mi'], weight: 50}}\nrules: [{name: r, class: a}]"))
	if err != nil {
		t.Fatal(err)
	}
	pod := Pod{Policy: pol.ForPod(&policy.PodFacts{}, annotation.Parse(nil))}
	d, err := Decide(&pod, facts("a"), Weights{})
	if err != nil || text(d.Settings) != "254:0 wbps=1048576, 254:16 wbps=1048576" || !slices.Contains(d.WarningKinds, policy.NotEnforced) {
		t.Errorf("%s, %v, warnings %q", text(d.Settings), err, d.Warnings)
	}
	if d, err := Total(&pod, []policy.Container{facts("a")}, Weights{}); err != nil || d.Settings != nil {
		t.Errorf("the pod as a whole: %s, %v", text(d.Settings), err)
	}
}

// TestFirst verifies that an error that is ignored hides none that is rejected.
func TestFirst(t *testing.T) {
	pol := policy.Default()
	pol.OnError = policy.OnError{Invalid: policy.Reject, Unenforceable: policy.Ignore, Internal: policy.Ignore}
	invalid, unenforceable := &annotation.Error{Cause: "invalid"}, &annotation.Error{Cause: "unenforceable", Kind: annotation.Unenforceable}
	internal := errors.New("internal")
	for _, tt := range []struct {
		errs    []error
		want    error
		refuses bool
	}{
		{},
		{errs: []error{nil, nil}},
		{[]error{nil, invalid}, invalid, true},
		{[]error{unenforceable, invalid}, invalid, true},
		{[]error{internal, nil, unenforceable}, internal, false},
	} {
		got := First(pol.ForPod(nil, nil), tt.errs...)
		if !errors.Is(got, tt.want) {
			t.Errorf("%v: got %v, want %v", tt.errs, got, tt.want)
		}
		if refuses := Refuses(pol.ForPod(nil, nil), got); refuses != tt.refuses {
			t.Errorf("%v: refuses is %t", tt.errs, refuses)
		}
	}
	pol.Mode = policy.ModeObserve
	if Refuses(pol.ForPod(nil, nil), invalid) {
		t.Error("refuses in mode observe")
	}
}
