package node

import (
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// withTotal returns pod 1 of the namespace tenant-a with a pod-total, and with a limit of each container unless that is "".
func withTotal(total, each string) *Sandbox {
	sb := tenant("1", "")
	sb.Annotations = annotationsOf(limitsKey+"pod-total", total)
	if each != "" {
		sb.Annotations[limitsKey+"containers"] = each
	}
	return sb
}

// TestBudgetOfGrowingTotal verifies that a container with the mount that an entry of pod-total names is rejected if the entry is
// above the budget, although the pod has had a smaller limit before. /big is on the disk of the root filesystem.
func TestBudgetOfGrowingTotal(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	one := withTotal("* wbps=10Mi; /big wbps=150Mi", "")
	plain, big := member(one, "plain"), member(one, "big", bind("/var/lib/x", "/big"))
	b.run(one, plain)
	b.wantGranted("plain", "tenant-a vda wbps 10Mi of 200Mi, 1 pods")
	other := tenant("2", "rootfs wbps=60Mi")
	b.run(other, member(other, "a"))
	const exceeds = " on disk vda exceeds the budget of namespace tenant-a: "
	b.wantRefusal(one, big, "pod-total: wbps=150Mi"+exceeds+"70Mi of 200Mi are granted to 2 pods (wait for room, or write at most 140Mi)")
	b.pass(t.Context())
	b.wantGranted("rejected", "tenant-a vda wbps 70Mi of 200Mi, 2 pods")
	if got := limit(t, b.Node, sliceOf("1"))[blkio.Wbps]; got != 10*mi {
		t.Errorf("the pod's cgroup has wbps=%d after a rejection", got)
	}
	b.Stopped("sb-2", "sb-2-a")
	b.RemovedPod("sb-2")
	b.run(one, big)
	b.wantGranted("big", "tenant-a vda wbps 150Mi of 200Mi, 1 pods")
	third := tenant("3", "rootfs wbps=60Mi")
	b.wantRefusal(third, member(third, "a"), "containers: wbps=60Mi"+exceeds+"150Mi of 200Mi are granted to 1 pod (wait for room, or write at most 50Mi)")
	// The limit of the pod stays when the container ends.
	b.Stopped("sb-1", "sb-1-big")
	b.Removed("sb-1", "sb-1-big")
	b.wantGranted("big has ended", "tenant-a vda wbps 150Mi of 200Mi, 1 pods")
}

// TestBudgetOfTotalAtStart verifies that a container whose creation no plugin has checked is rejected at its start in the same way,
// and that it does not raise the limit of its pod then.
func TestBudgetOfTotalAtStart(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	one, other := withTotal("* wbps=10Mi; /big wbps=150Mi", ""), tenant("2", "rootfs wbps=60Mi")
	b.run(one, member(one, "plain"))
	b.run(other, member(other, "a"))
	big := func(try string) *Container {
		c := member(one, "big", bind("/var/lib/x", "/big"))
		c.ID, c.Cgroup = c.ID+try, c.Cgroup+try
		return c
	}
	for _, try := range []string{"1", "2"} {
		c := big(try)
		if err := b.startOf(one, c); err == nil || !strings.Contains(err.Error(), "pod-total: wbps=150Mi on disk vda exceeds the budget") {
			t.Errorf("start: %v", err)
		}
		b.pass(t.Context())
		b.pass(t.Context())
		if got := limit(t, b.Node, sliceOf("1"))[blkio.Wbps]; got != 10*mi {
			t.Errorf("the pod's cgroup has wbps=%d after a rejection", got)
		}
		b.wantGranted("rejected", "tenant-a vda wbps 70Mi of 200Mi, 2 pods")
		b.Stopped(one.ID, c.ID)
		b.Removed(one.ID, c.ID)
	}
	b.Stopped("sb-2", "sb-2-a")
	b.RemovedPod("sb-2")
	if err := b.startOf(one, big("3")); err != nil {
		t.Error(err)
	}
	b.wantGranted("started", "tenant-a vda wbps 150Mi of 200Mi, 1 pods")
}

// TestBudgetOfReadTotal verifies that an entry of pod-total for a mount that a container only reads counts, because others write to
// its disk.
func TestBudgetOfReadTotal(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	one, other := withTotal("* wbps=10Mi; /big wbps=150Mi", ""), tenant("2", "* wbps=60Mi")
	b.run(one, member(one, "plain", bind("/mnt/data/x", "/data")))
	b.run(other, member(other, "a", bind("/mnt/data/y", "/data")))
	reader := member(one, "reader", bind("/mnt/data/x", "/big", "ro"))
	b.wantRefusal(one, reader, "pod-total: wbps=150Mi on disk 254:16 exceeds the budget of namespace tenant-a: 70Mi of 200Mi are granted to 2 pods (wait for room, or write at most 140Mi)")
}

// TestTotalOfRejectedRestart verifies that a pod keeps the limit that a container has brought, while that is rejected when it
// restarts.
func TestTotalOfRejectedRestart(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	one := withTotal("/data wbps=10Mi", "rootfs wbps=1Mi")
	one.Annotations[limitsKey+"container.app"] = "rootfs wbps=100Mi"
	app, again := member(one, "app", bind("/mnt/data/x", "/data")), member(one, "app", bind("/mnt/data/x", "/data"))
	again.ID, again.Cgroup = again.ID+"2", again.Cgroup+"2"
	b.run(one, app)
	b.run(one, member(one, "sidecar", bind("/mnt/data/x", "/other")))
	b.Stopped(one.ID, app.ID)
	other := tenant("2", "rootfs wbps=150Mi")
	b.run(other, member(other, "a"))
	if err := b.createOf(one, again); err == nil {
		t.Error("the restart is not rejected")
	}
	for range 2 {
		b.Reload(rules(t, tenantBudget))
		b.pass(t.Context())
		b.wantGranted("rejected", "tenant-a vda wbps 151Mi of 200Mi, 2 pods; tenant-a vdb wbps 10Mi of 200Mi, 1 pods")
	}
}

// TestEditOfTotal verifies that an edit cannot raise what a pod with several containers is granted above the budget: neither the
// limit of the pod, nor the limits of its containers where these together were below it.
func TestEditOfTotal(t *testing.T) {
	const byLabel = "rules: [{name: large, match: {podSelector: {matchLabels: {size: large}}}, class: silver}, {name: small, class: bronze}]\n"
	total := func(value string) map[string]string { return annotationsOf(limitsKey+"pod-total", value) }
	for name, tt := range map[string]struct {
		policy, total, each string
		live                Live
	}{
		"pod-total":         {tenantBudget, "* wbps=1Mi", "", Live{Annotations: total("* wbps=250Mi")}},
		"more than is left": {tenantBudget, "* wbps=1Mi", "", Live{Annotations: total("* wbps=160Mi")}},
		"each container": {tenantBudget, "* wbps=250Mi", "* wbps=5Mi", Live{
			Annotations: annotationsOf(limitsKey+"pod-total", "* wbps=250Mi", limitsKey+"containers", "* wbps=250Mi"),
		}},
		"pod-total is removed": {tenantBudget, "* wbps=60Mi", "", Live{Annotations: annotationsOf(limitsKey+"containers", "* wbps=100Mi")}},
		"labels": {strings.Replace(tenantBudget, "200Mi", "120Mi", 1) + byLabel, "* wbps=75Mi", "", Live{
			Annotations: total("* wbps=75Mi"), Labels: map[string]string{"size": "large"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBudgetNode(t, tt.policy)
			one, other := withTotal(tt.total, tt.each), tenant("2", "rootfs wbps=50Mi")
			b.run(one, member(one, "a"))
			b.run(one, member(one, "b"))
			b.run(other, member(other, "a"))
			before, written := b.granted(), limit(t, b.Node, sliceOf("1"))[blkio.Wbps]
			tt.live.Namespace, tt.live.Name = "tenant-a", "1"
			b.SetLive("u1", &tt.live)
			for range 2 {
				b.pass(t.Context())
				b.wantGranted("edited", before)
			}
			if got := limit(t, b.Node, sliceOf("1"))[blkio.Wbps]; got != written {
				t.Errorf("the pod's cgroup has wbps=%d, want %d", got, written)
			}
		})
	}
}

// TestLowerEditOverBudget verifies that an edit counts while more is granted than the budget, if it grants the pod no more on a
// disk that has no room. What a limit of the pod and those of its containers grant together counts.
func TestLowerEditOverBudget(t *testing.T) {
	const total, each = limitsKey + "pod-total", limitsKey + "containers"
	for name, tt := range map[string]struct {
		edited map[string]string
		want   string // "" for a rejection
	}{
		"a lower pod-total":            {annotationsOf(total, "* wbps=10Mi"), "10Mi of 100Mi, 1 pods; tenant-a vdb wbps 10Mi"},
		"containers for pod-total":     {annotationsOf(each, "* wbps=10Mi"), "20Mi of 100Mi, 1 pods; tenant-a vdb wbps 20Mi"},
		"both":                         {annotationsOf(each, "* wbps=30Mi", total, "* wbps=40Mi"), "40Mi of 100Mi, 1 pods; tenant-a vdb wbps 40Mi"},
		"less on vda, and more on vdb": {annotationsOf(each, "rootfs wbps=10Mi; /data wbps=45Mi"), "20Mi of 100Mi, 1 pods; tenant-a vdb wbps 90Mi"},
		"the same":                     {annotationsOf(each, "* wbps=30Mi"), "60Mi of 100Mi, 1 pods; tenant-a vdb wbps 60Mi"},
		"more on vda":                  {annotationsOf(each, "rootfs wbps=31Mi; /data wbps=1Mi"), ""},
		"too much on vdb":              {annotationsOf(each, "rootfs wbps=1Mi; /data wbps=51Mi"), ""},
		"no limit on vdb":              {annotationsOf(each, "rootfs wbps=1Mi"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBudgetNode(t, tenantBudget)
			one, other := withTotal("* wbps=60Mi", ""), tenant("2", "rootfs wbps=140Mi")
			b.run(one, member(one, "a", bind("/mnt/data/x", "/data")))
			b.run(one, member(one, "b", bind("/mnt/data/x", "/data")))
			b.run(other, member(other, "a"))
			b.Reload(rules(t, strings.Replace(tenantBudget, "200Mi", "100Mi", 1)))
			b.pass(t.Context())
			b.SetLive("u1", &Live{Namespace: "tenant-a", Name: "1", Annotations: tt.edited})
			b.pass(t.Context())
			p := b.peek().pods["sb-1"]
			if isRejected := p.edit.next != nil; isRejected != (tt.want == "") {
				t.Errorf("rejected: %v", p.edit.err)
			}
			b.Stopped("sb-2", "sb-2-a")
			want := "tenant-a vda wbps " + tt.want + " of 100Mi, 1 pods"
			if tt.want == "" {
				want = "tenant-a vda wbps 60Mi of 100Mi, 1 pods; tenant-a vdb wbps 60Mi of 100Mi, 1 pods"
			}
			b.wantGranted("edited", want)
		})
	}
}
