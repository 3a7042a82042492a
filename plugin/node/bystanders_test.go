package node

import (
	"fmt"
	"testing"
)

// TestBystanderEnds verifies that no facts are kept of a container that was removed or that could not be created.
func TestBystanderEnds(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	kept := func(want ...string) {
		t.Helper()
		var got []string
		if p := n.peek().pods["sb1"]; p != nil {
			for _, c := range p.sorted() {
				got = append(got, c.id)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("kept %v, want %v", got, want)
		}
	}
	for _, id := range []string{"a1", "a2", "a3", "b1"} {
		c := ctr(id[:1])
		c.ID = id
		n.PassBy(batch(), c, Created, n.Policy())
	}
	kept("a3", "b1")
	again := ctr("a")
	again.ID = "a3"
	n.PassBy(batch(), again, Running, n.Policy())
	kept("a3", "b1")
	n.Stopped("sb1", "b1")
	kept("a3", "b1")
	n.Removed("sb1", "b1")
	kept("a3")
}
