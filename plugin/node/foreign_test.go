package node

import (
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// another is a program that writes io.max of the pod's cgroup, and what follows from it.
func (l *liveNode) another(line string) {
	l.t.Helper()
	l.k.runtimeWrites(podCgroup, line)
	l.pass(l.t.Context())
}

// wantForeign compares wbps of the pod on the root disk, the warnings about other programs in its record, and the metric.
func (l *liveNode) wantForeign(when string, wbps blkio.Amount, warnings ...string) {
	l.t.Helper()
	l.want(when, map[string]blkio.Amount{podCgroup: wbps})
	var got []string
	if r := recordOf(l.t.(*testing.T), l.Node, podCgroup); r != nil {
		for _, w := range r.Warnings {
			if strings.HasPrefix(w, "io.max of the pod has ") {
				got = append(got, w)
			}
		}
	}
	if strings.Join(got, "\n") != strings.Join(warnings, "\n") {
		l.t.Errorf("%s: the record has %q, want %q", when, got, warnings)
	}
	if pods := scrape(l.t.(*testing.T), l.Node)["pods_with_foreign_limits"]; pods != float64(min(len(warnings), 1)) {
		l.t.Errorf("%s: %v pods are counted", when, pods)
	}
}

// foreignLogs returns how often limits of other programs were logged.
func (l *liveNode) foreignLogs() (n int) {
	for _, e := range l.logged.AllEntries() {
		if strings.Contains(e.Message, "ther program") {
			n++
		}
	}
	return n
}

const (
	staysLow   = "io.max of the pod has wbps=1Mi on disk vda 254:0 of another program, which stays"
	staysOther = "io.max of the pod has riops=70 on disk 254:16 of another program, which stays"
)

// TestForeignFirst verifies that a lower limit that another program set on a pod's cgroup before the plugin stays, that it is
// reported once, and that the plugin's own counts when it is gone.
func TestForeignFirst(t *testing.T) {
	l := newLiveNode(t)
	sb := sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi"))
	l.another("254:0 wbps=1048576")
	l.another("254:16 riops=70")
	l.run(sb, "a", "b")
	for range 3 {
		l.pass(t.Context())
		l.pass(t.Context())
		l.wantForeign("lower", mi, staysLow, staysOther)
	}
	if n := l.foreignLogs(); n > 2 { // while only one of the containers runs, the backstop is another
		t.Errorf("%d lines are logged", n)
	}
	l.writes = nil
	l.restart(policy.Default())
	l.list(sb, "a", "b")
	l.pass(t.Context())
	l.wantForeign("restarted", mi, staysLow, staysOther)
	for _, w := range l.writes {
		if strings.HasPrefix(w, "kubepods-pod1.slice 254:") {
			t.Errorf("the pod's limits were written: %q", w)
		}
	}
	l.another("254:0 wbps=max")
	l.wantForeign("gone", 4*mi, staysOther)
	l.edit()
	l.wantForeign("without limits of the pod", 0)
	if got := l.k.has(podCgroup)[dataDisk.Dev][blkio.Riops]; got != 70 {
		t.Errorf("the other program's limit became %v", got)
	}
}

// TestForeignHigher verifies that a higher limit of another program is replaced, as it would not hold anyway: once in each
// pass, however often it is set.
func TestForeignHigher(t *testing.T) {
	l := newLiveNode(t)
	l.another("254:0 wbps=9437184")
	l.run(sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi")), "a", "b")
	l.wantForeign("at first", 4*mi)
	for range 5 {
		l.writes = nil
		for range 3 {
			l.k.runtimeWrites(podCgroup, "254:0 wbps=9437184")
		}
		l.pass(t.Context())
		l.wantForeign("again", 4*mi)
		if len(l.writes) != 1 {
			t.Errorf("wrote %q", l.writes)
		}
	}
}

// TestForeignContainer verifies that limits of another program on a container's cgroup are replaced each time.
func TestForeignContainer(t *testing.T) {
	l := newLiveNode(t)
	l.run(sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi")), "a", "b")
	for range 5 {
		l.k.runtimeWrites(cgroupOf("a"), "254:0 wbps=1048576")
		l.pass(t.Context())
		l.want("container", map[string]blkio.Amount{cgroupOf("a"): 2 * mi})
	}
}
