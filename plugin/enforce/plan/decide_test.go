package plan

import (
	"errors"
	"testing"

	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// TestDecide: the errors of a container, in the order of their worth.
func TestDecide(t *testing.T) {
	pol := policy.Default()
	pod := Pod{Handler: "kata", Request: annotation.Parse(map[string]string{limits + "container.a": "rootfs wbps=1Mi", weight + "container.a": "50"})}
	if d, err := Decide(pol, &pod, facts("a"), Weights{Exist: true}); err == nil || d.Settings != nil {
		t.Errorf("under a handler that is not known: %s, %v", text(d.Settings), err)
	}
	pod.Handler = "runc"
	if d, err := Decide(pol, &pod, facts("a"), Weights{}); err == nil || text(d.Settings) != "254:0 wbps=1048576" {
		t.Errorf("without io.weight: %s, %v", text(d.Settings), err)
	}
	if d, err := Decide(pol, &pod, facts("a"), Weights{Exist: true}); err != nil || text(d.Settings) != "254:0 wbps=1048576, default 50" {
		t.Errorf("%s, %v", text(d.Settings), err)
	}
	if d, err := Decide(pol, &pod, facts("b"), Weights{}); err != nil || d.Settings != nil {
		t.Errorf("another container: %s, %v", text(d.Settings), err)
	}
}

// TestFirst: an error that is ignored hides none that is rejected.
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
		got := First(pol, tt.errs...)
		if !errors.Is(got, tt.want) {
			t.Errorf("%v: got %v, want %v", tt.errs, got, tt.want)
		}
		if refuses := Refuses(pol, got); refuses != tt.refuses {
			t.Errorf("%v: refuses is %t", tt.errs, refuses)
		}
	}
	pol.Mode = policy.ModeObserve
	if Refuses(pol, invalid) {
		t.Error("refuses in mode observe")
	}
}
