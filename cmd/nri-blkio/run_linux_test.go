package main

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/policy"
)

// TestDeployedPolicies verifies that the policy that users start from must be the default.
func TestDeployedPolicies(t *testing.T) {
	for _, file := range []string{"policy.yaml", "kubernetes/policy.yaml"} {
		o := options{policy: filepath.Join("../../deploy", file)}
		got, err := o.loadPolicy()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(policy.Default(), got); d != "" {
			t.Errorf("%s differs from the default (-want +got):\n%s", file, d)
		}
	}
}

// TestValidatorNeedsNoNode verifies that the validator opens neither cgroupfs nor the node's storage.
func TestValidatorNeedsNoNode(t *testing.T) {
	log, _ := test.NewNullLogger()
	a := &app{opts: options{hostRoot: "/absent", policy: "/absent"}}
	r := runner{app: a, runOptions: runOptions{only: onlyValidator}, log: log}
	got, err := r.parts(t.Context())
	if err != nil || len(got) != 1 {
		t.Errorf("%d parts, %v", len(got), err)
	}
}
