package node

import (
	"fmt"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
)

// TestLiveCost verifies that the work for a live change of one pod does not grow with the labels and the number of the pods
// that do not concern the plugin: it has the lock that the events of all containers need.
func TestLiveCost(t *testing.T) {
	h, _ := tree(t, podCgroup)
	n := newNode(t, h)
	n.policy.Store(rules(t, inProd))
	live := map[string]*podfacts.Facts{}
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
		live[sb.UID] = &podfacts.Facts{Namespace: sb.Namespace, Name: sb.Name, Annotations: map[string]string{}, Labels: labels}
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
