package node

import (
	"fmt"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestLabelsRestart verifies that a restarted plugin decides by the labels that counted last, whether it has the document
// of the pod or not. The labels that the runtime reports are older.
func TestLabelsRestart(t *testing.T) {
	batch, web := map[string]string{"tier": "batch"}, map[string]string{"tier": "web"}
	for name, tt := range map[string]struct {
		reported, edited, later map[string]string // later is what a document has after the restart; nil for no document
		want                    blkio.Amount
	}{
		"no document":            {web, batch, nil, 20 * mi},
		"no document, no class":  {batch, web, nil, 0},
		"no document, no labels": {batch, map[string]string{}, nil, 0},
		"the same":               {web, batch, batch, 20 * mi},
		"edited back":            {web, batch, web, 0},
		"edited meanwhile":       {web, web, batch, 20 * mi},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLiveNode(t)
			pol := rules(t, inProd)
			l.policy.Store(pol)
			sb := sandbox(nil)
			sb.Labels = tt.reported
			l.run(sb, "a", "b")
			label := func(labels map[string]string) {
				l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Labels: labels})
			}
			label(tt.edited)
			l.pass(t.Context())
			l.restart(pol)
			if tt.later != nil {
				label(tt.later)
			}
			l.writes = nil
			l.list(sb, "a", "b")
			l.pass(t.Context())
			l.want("restarted", all(tt.want, tt.want))
			if tt.later == nil && len(l.writes) > 0 {
				t.Errorf("the restart wrote %q", l.writes)
			}
		})
	}
}

// TestLabelsAndAnnotationsRestart verifies that labels do not take the place of annotations in the record, nor the other
// way round.
func TestLabelsAndAnnotationsRestart(t *testing.T) {
	l := newLiveNode(t)
	sb := sandbox(annotationsOf(limitsKey+"container.a", "rootfs wbps=2Mi"))
	pol := rules(t, inProd)
	l.policy.Store(pol)
	l.run(sb, "a", "b")
	restart := func() {
		l.restart(pol)
		l.list(sb, "a", "b")
	}
	edit := func(labels, annotations map[string]string) {
		l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Labels: labels, Annotations: annotations})
		l.pass(t.Context())
	}
	edit(map[string]string{"tier": "batch"}, sb.Annotations)
	restart()
	l.want("labels", all(2*mi, 20*mi))
	edit(nil, annotationsOf(limitsKey+"container.a", "rootfs wbps=3Mi"))
	restart()
	l.want("annotations", all(3*mi, 20*mi))
	edit(nil, nil)
	restart()
	l.want("no annotations", all(20*mi, 20*mi))
}

// TestLiveCost verifies that the work for a live change of one pod does not grow with the labels and the number of the pods
// that do not concern the plugin: it has the lock that the events of all containers need.
func TestLiveCost(t *testing.T) {
	h, _ := tree(t, podCgroup)
	n := newNode(t, h)
	n.policy.Store(rules(t, inProd))
	live := map[string]*Live{}
	add := func(i int) {
		sb, db, _ := benchPod(i, "/var/lib")
		sb.Annotations, sb.Labels = nil, map[string]string{"tier": "web"}
		if n.PassBy(sb, db, Running, n.Policy()) {
			t.Fatal("the pod concerns the plugin")
		}
		labels := map[string]string{}
		for k := range 20 {
			labels[fmt.Sprint("label-", k)] = "x"
		}
		live[sb.UID] = &Live{Namespace: sb.Namespace, Name: sb.Name, Labels: labels}
		n.SetLive(sb.UID, live[sb.UID])
	}
	cost := func() float64 {
		sb, _, _ := benchPod(0, "/var/lib")
		return testing.AllocsPerRun(20, func() { n.SetLive(sb.UID, live[sb.UID]) })
	}
	add(0)
	one := cost()
	for i := range 200 {
		add(1 + i)
	}
	if many := cost(); many > one+2 { // 200 more with a copy of the labels of each pod
		t.Errorf("%v allocations beside one pod, %v beside 200", one, many)
	}
}
