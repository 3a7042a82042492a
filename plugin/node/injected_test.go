package node

import (
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
)

const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// TestStarLimitsClaimAtTokenPath verifies that "*" is not evaded by mounting a claim where the service
// account's token is.
func TestStarLimitsClaimAtTokenPath(t *testing.T) {
	h, _ := tree(t, podCgroup)
	n := newNode(t, h)
	sb := sandbox(map[string]string{limitsKey + "containers": "* wbps=1Mi"})
	adjust, err := n.create(t.Context(), sb, ctr("db", bind("/mnt/data/claim", tokenPath)), true)
	if err != nil {
		t.Fatal(err)
	}
	if got := plan.Unified(adjust)["io.max"]; !strings.Contains(got, "254:16 wbps=1048576") {
		t.Errorf("io.max is %q, want a limit on the claim's disk", got)
	}
}
