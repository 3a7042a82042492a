package node

import (
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestDocumentRejectsNoPod verifies that annotations of the API server, which are not trusted, do not keep a pod from starting that
// starts with those of the runtime. They are a rejected edit.
func TestDocumentRejectsNoPod(t *testing.T) {
	for name, value := range map[string]string{"invalid": "x", "floor": "rootfs wbps=1Ki", "no mount": "/nowhere wbps=5Mi", "budget": "rootfs wbps=900Mi"} {
		for _, reported := range []string{"", "rootfs wbps=2Mi; /data wbps=3Mi"} {
			l := newLiveNode(t)
			want := map[string]blkio.Amount{cgroupOf("a"): 0, cgroupOf("b"): 0}
			sb := sandbox(nil)
			if reported != "" {
				l.policy.Store(rules(t, "budgets: [{namespaces: [prod], limits: ['* wbps=200Mi']}]\n"))
				sb = sandbox(annotationsOf(limitsKey+"containers", reported))
				want = map[string]blkio.Amount{cgroupOf("a"): 2 * mi, cgroupOf("b"): 2 * mi}
			} else if name == "budget" {
				continue
			}
			l.Synchronize(nil, nil)
			l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Annotations: annotationsOf(limitsKey+"container.a", value, limitsKey+"containers", "rootfs wbps=4Mi; /data wbps=4Mi")})
			l.run(sb, "a", "b")
			l.pass(t.Context())
			l.want(name, want)
			if r := recordOf(t, l.Node, podCgroup); r == nil || !strings.HasPrefix(r.Error, "the annotations were edited, and those before stay in force: ") {
				t.Errorf("%s, %q: the record has %+v", name, reported, r)
			}
			if got := scrape(t, l.Node); got["live_changes_total{rejected}"] != 1 || got["live_changes_total{applied}"] != 0 {
				t.Errorf("%s: %v applied, %v rejected", name, got["live_changes_total{applied}"], got["live_changes_total{rejected}"])
			}
			l.edit(limitsKey+"containers", "rootfs wbps=5Mi; /data wbps=4Mi")
			l.want("corrected", map[string]blkio.Amount{cgroupOf("a"): 5 * mi, cgroupOf("b"): 5 * mi})
		}
	}
}

// TestDocumentOfInvalidPod verifies that a container is rejected if the annotations of the API server and those of the runtime
// are both invalid, and that it is created once the annotations are corrected.
func TestDocumentOfInvalidPod(t *testing.T) {
	l := newLiveNode(t)
	l.Synchronize(nil, nil)
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Annotations: annotationsOf(limitsKey+"containers", "rootfs newer=1")})
	sb := sandbox(annotationsOf(limitsKey+"containers", "rootfs older=1"))
	for range 2 {
		if _, err := l.create(t.Context(), sb, ctr("a"), false); err == nil || !strings.Contains(err.Error(), "older") {
			t.Errorf("got %v", err)
		}
	}
	l.edit(limitsKey+"containers", "rootfs wbps=3Mi")
	l.run(sb, "a", "b")
	l.want("corrected", all(3*mi, 3*mi))
}
