package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestEditRestart verifies that a restarted plugin decides by the edit that counted last, whatever the API server has by
// then. The annotations that the runtime reports are older.
func TestEditRestart(t *testing.T) {
	sb := sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi"))
	for name, tt := range map[string]struct {
		live *Live
		want blkio.Amount
	}{
		"the same":         {&Live{Annotations: annotationsOf(limitsKey+"containers", "rootfs wbps=4Mi")}, 4 * mi},
		"away":             {nil, 4 * mi},
		"invalid":          {&Live{Annotations: annotationsOf(limitsKey+"containers", "rootfs wpbs=9Mi")}, 4 * mi},
		"newer":            {&Live{Annotations: annotationsOf(limitsKey+"containers", "rootfs wbps=9Mi")}, 9 * mi},
		"edited back":      {&Live{Annotations: sb.Annotations}, 2 * mi},
		"of another pod":   {&Live{Name: "db-1", Annotations: annotationsOf(limitsKey+"containers", "rootfs wbps=9Mi")}, 4 * mi},
		"removed meantime": {&Live{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLiveNode(t)
			l.run(sb, "a", "b")
			l.edit(limitsKey+"containers", "rootfs wbps=4Mi")
			l.restart(policy.Default())
			if tt.live != nil {
				live := *tt.live
				live.Namespace = "prod"
				if live.Name == "" {
					live.Name = "db-0"
				}
				l.SetLive("u1", &live)
			}
			l.writes = nil
			l.list(sb, "a", "b")
			l.want("restarted", all(tt.want, tt.want))
			if got := scrape(t, l.Node)["live_changes_total{applied}"]; tt.want == 4*mi && got != 0 {
				t.Errorf("%v edits were applied, and none is new", got)
			}
			if tt.want == 4*mi && len(l.writes) > 0 {
				t.Errorf("the restart wrote %q", l.writes)
			}
		})
	}
}

// TestRemovedRestart verifies that removed annotations stay removed over a restart, and that the record of an earlier
// sandbox does not count for a later one: its annotations are newer.
func TestRemovedRestart(t *testing.T) {
	l := newLiveNode(t)
	sb := sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi"))
	l.run(sb, "a", "b")
	l.restart(policy.Default())
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Annotations: annotationsOf(limitsKey+"containers", "rootfs wbps=3Mi")})
	l.list(sb, "a", "b")
	l.want("edited while no plugin ran", all(3*mi, 3*mi))
	l.edit()
	l.restart(policy.Default())
	l.list(sb, "a", "b")
	l.want("removed", all(0, 0))
	l.restart(policy.Default())
	next := sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=6Mi"))
	next.ID = "sb2"
	var c []*Container
	for _, name := range []string{"a", "b"} {
		one := listed(name, isRunning)
		one.Sandbox = "sb2"
		c = append(c, one)
	}
	l.Synchronize([]*Sandbox{next}, c)
	l.pass(t.Context())
	l.want("next sandbox", all(6*mi, 6*mi))
}

// TestEditRecordStays verifies that a write that comes before the resolution of a restarted plugin, which may fail, keeps the
// edited annotations in the record.
func TestEditRecordStays(t *testing.T) {
	l := newLiveNode(t)
	sb := sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi"))
	l.run(sb, "a", "b")
	l.edit()
	l.restart(policy.Default())
	l.Synchronize([]*Sandbox{sb}, []*Container{listed("a", isRunning), listed("b", isRunning)})
	for _, g := range l.groups() {
		_ = l.applier().write(g, "") // nothing is decided yet
	}
	if r := recordOf(t, l.Node, podCgroup); r == nil || r.Edit == nil || len(r.Edit.Annotations) != 0 {
		t.Errorf("the record is %+v", r)
	}
	l.pass(t.Context())
	l.want("restarted", all(0, 0))
}

// TestEditedSpec verifies that a value of the OCI spec does not come back with an update of the container after an edit has
// replaced it, the plugin has restarted, and another edit has removed it.
func TestEditedSpec(t *testing.T) {
	const spec = "254:0 wbps=2097152"
	for _, between := range []string{"rootfs wbps=1Mi", "rootfs wbps=3Mi"} {
		l := newLiveNode(t)
		sb := sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi"))
		l.k.runtimeWrites(cgroupOf("a"), spec)
		l.run(sb, "a")
		l.edit(limitsKey+"containers", between)
		l.restart(policy.Default())
		c := withSpec(listed("a", isRunning), map[string]string{"io.max": spec})
		l.Synchronize([]*Sandbox{sb}, []*Container{c})
		l.pass(t.Context())
		l.edit()
		l.k.runtimeWrites(cgroupOf("a"), spec)
		l.Updated("sb1")
		l.pass(t.Context())
		l.want(between, map[string]blkio.Amount{cgroupOf("a"): 0})
	}
}

// TestEditBudget verifies that an edit cannot take more than the budget of its namespace has room for, over all containers
// of the pod, and that limits can always be lowered.
func TestEditBudget(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	one, two := tenant("1", "rootfs wbps=50Mi"), tenant("2", "rootfs wbps=50Mi")
	b.run(one, member(one, "a"))
	b.run(one, member(one, "b"))
	b.run(two, member(two, "a"))
	edit := func(value string) blkio.Amount {
		b.SetLive("u1", &Live{Namespace: "tenant-a", Name: "1", Annotations: annotationsOf(limitsKey+"containers", value)})
		b.pass(t.Context())
		d := b.peek().pods["sb-1"].containers["sb-1-a"].decision.desired
		return d.Settings.DevLimits()[rootDisk.Dev][blkio.Wbps]
	}
	for _, tt := range []struct {
		value string
		want  blkio.Amount
	}{
		{"rootfs wbps=90Mi", 50}, // each one would fit alone
		{"rootfs wbps=75Mi", 75},
		{"rbps=1Mi", 75},
		{"rootfs rbps=1Mi", 75}, // without a limit
		{"rootfs wbps=60Mi", 60},
	} {
		if got := edit(tt.value); got != tt.want*mi {
			t.Errorf("%s: %v, want %d Mi", tt.value, got, tt.want)
		}
	}
	b.policy.Store(rules(t, strings.Replace(tenantBudget, "200Mi", "20Mi", 1)))
	b.pass(t.Context())
	if got := edit("rootfs wbps=40Mi"); got != 40*mi {
		t.Errorf("lowered while too much is granted: %v", got)
	}
	if got := edit("rootfs wbps=41Mi"); got != 40*mi {
		t.Errorf("raised while too much is granted: %v", got)
	}
	b.policy.Store(rules(t, tenantBudget))
	b.pass(t.Context())
	if got := edit("rootfs wbps=99Mi"); got != 41*mi {
		t.Errorf("no room: %v", got)
	}
	b.Stopped("sb-2", "sb-2-a")
	b.RemovedPod("sb-2")
	b.pass(t.Context())
	if got := b.peek().pods["sb-1"].containers["sb-1-a"].decision.desired.Settings.DevLimits()[rootDisk.Dev][blkio.Wbps]; got != 99*mi {
		t.Errorf("there is room now, and the container has %v", got)
	}
}

// TestEditAfterContainers verifies that containers that were rejected or removed do not reject an edit whose targets are new:
// their disks are not known by these targets.
func TestEditAfterContainers(t *testing.T) {
	total := annotationsOf(limitsKey+"pod-total", "/data wbps=5Mi")
	data := func(l *liveNode) blkio.Amount { return l.k.has(podCgroup)[dataDisk.Dev][blkio.Wbps] }
	mounts := []inventory.Mount{bind("/mnt/data/x", "/data"), bind("/mnt/mem/x", "/mem")}
	l := newLiveNode(t)
	sb := sandbox(annotationsOf(limitsKey+"containers", "rootfs wpbs=2Mi"))
	for _, name := range []string{"a", "b"} {
		if _, err := l.create(t.Context(), sb, ctr(name, mounts...), false); err == nil {
			t.Fatal("not rejected")
		}
	}
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Annotations: total})
	l.pass(t.Context())
	l.run(sb, "a", "b")
	if got := data(l); got != 5*mi {
		t.Errorf("after rejected containers the pod has %v", got)
	}

	l = newLiveNode(t)
	sb = sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi"))
	l.run(sb, "a", "b")
	l.Stopped("sb1", "id-b")
	l.Removed("sb1", "id-b")
	l.edit(limitsKey+"pod-total", "/data wbps=5Mi")
	if got := data(l); got != 5*mi {
		t.Errorf("after a removed container the pod has %v, record %+v", got, recordOf(t, l.Node, podCgroup))
	}
}

// TestEditMeetsCreate verifies that a container that was created while an edit was tried can still reject the edit.
func TestEditMeetsCreate(t *testing.T) {
	l := newLiveNode(t)
	sb := sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi"))
	l.run(sb, "a")
	once := true
	l.storage = disks{func(path string) blkio.Backing {
		if once {
			once = false
			l.run(sb, "b")
		}
		return twoDisks(path)
	}}
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Annotations: annotationsOf(limitsKey+"containers", "/data wbps=4Mi; rootfs wbps=5Mi", limitsKey+"container.b", "/nowhere wbps=1Mi")})
	l.pass(t.Context())
	if once {
		t.Fatal("no container was created meanwhile")
	}
	l.pass(t.Context())
	l.want("rejected by the new one", all(2*mi, 2*mi))
	l.edit(limitsKey+"containers", "/data wbps=4Mi; rootfs wbps=5Mi")
	l.want("both", all(5*mi, 5*mi))
}

// TestLongEdit verifies that annotations that are longer than annotationRoom count as an invalid edit, and do not keep
// the reconciler busy.
func TestLongEdit(t *testing.T) {
	l := newLiveNode(t)
	l.run(sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi")), "a", "b")
	live := annotationsOf(limitsKey+"containers", "rootfs wbps=4Mi")
	for i := range 60 {
		live[fmt.Sprintf("%scontainer.x%d", limitsKey, i)] = "/data wbps=1Mi" + strings.Repeat(" ", 700)
	}
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Annotations: live})
	rounds := 0
	for ; rounds < 100; rounds++ {
		next, ok := l.pods.nextTurn(t.Context())
		if !ok {
			break
		}
		l.reconcileTurn(t.Context(), next)
	}
	l.want("too long", all(2*mi, 2*mi))
	if r := recordOf(t, l.Node, podCgroup); !strings.Contains(r.Error, "longer than 32768 bytes") {
		t.Errorf("the record has %q", r.Error)
	}
	if got := scrape(t, l.Node)["live_changes_total{applied}"]; got != 0 || rounds > 5 {
		t.Errorf("one edit was applied %v times, in %d rounds of the reconciler, with %d lines in the log", got, rounds, len(l.logged.AllEntries()))
	}
}

// TestEditOrder verifies that an edit raises values of a container before it lowers others.
func TestEditOrder(t *testing.T) {
	l := newLiveNode(t)
	l.run(sandbox(annotationsOf(limitsKey+"container.a", "rootfs wbps=8Mi rbps=2Mi")), "a", "b")
	l.writes = nil
	l.edit(limitsKey+"container.a", "rootfs wbps=2Mi rbps=8Mi")
	at := func(text string) int {
		return slices.IndexFunc(l.writes, func(w string) bool { return strings.Contains(w, text) })
	}
	if lowered, raised := at("wbps=2097152"), at("rbps=8388608"); raised < 0 || lowered <= raised {
		t.Errorf("wbps is lowered before rbps is raised: %q", l.writes)
	}
}

// TestRejectionIsReportedOnce verifies that an edit that stays rejected while other pods come and go has one line in the log and one
// event, and that another edit has its own.
func TestRejectionIsReportedOnce(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	events := &noted{}
	b.events = events
	logs := logtest.NewLocal(b.log.(*logrus.Logger))
	one := tenant("1", "rootfs wbps=50Mi")
	b.run(one, member(one, "a"))
	edit := func(value string) {
		b.SetLive("u1", &Live{Namespace: "tenant-a", Name: "1", Annotations: annotationsOf(limitsKey+"containers", value)})
	}
	reported := func(when string, want int) {
		t.Helper()
		b.pass(t.Context())
		got := 0
		for _, note := range events.take() {
			if strings.Contains(note, "BlkioChangeRejected") {
				got++
			}
		}
		if n := countLogged(logs, "Rejected an edit of a running pod"); got != want || n != want {
			t.Errorf("%s: %d events and %d lines, want %d", when, got, n, want)
		}
		logs.Reset()
	}
	two := tenant("2", "rootfs wbps=150Mi")
	b.run(two, member(two, "a"))
	edit("rootfs wbps=60Mi")
	reported("no room", 1)
	b.Stopped("sb-2", "sb-2-a")
	b.RemovedPod("sb-2")
	for i, value := range []string{"145Mi", "149Mi", "150Mi"} {
		other := tenant(fmt.Sprint(3+i), "rootfs wbps="+value)
		b.run(other, member(other, "a"))
		reported(value, 0)
		b.Stopped(other.ID, other.ID+"-a")
		b.RemovedPod(other.ID)
	}
	last := tenant("9", "rootfs wbps=150Mi")
	b.run(last, member(last, "a"))
	edit("rootfs wbps=70Mi")
	reported("another edit", 1)
}
