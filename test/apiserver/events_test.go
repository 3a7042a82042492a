package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
)

// note writes what the limits part has noted about a pod, with a count.
func (p *part) note(pod podevent.Pod, count int, events ...podevent.Event) {
	p.Helper()
	now := podevent.Time(time.Now())
	for i := range events {
		events[i].Key = podevent.KeyOf(events[i].Note)
		events[i].Count, events[i].First, events[i].Last = count, now.Add(-time.Minute), now
	}
	data, err := podevent.Format().Encode(&podevent.Document{Version: podevent.Version, Pod: pod, Events: events})
	if err == nil {
		err = hostfs.ReplaceOffered(filepath.Join(p.notes, mailbox.FileName(pod.UID)), data)
	}
	if err != nil {
		p.Fatal(err)
	}
}

// events returns the Events of a namespace as "REASON TYPE NOTE xCOUNT", sorted.
func (p *part) events(namespace string) (out []string) {
	p.Helper()
	var list eventsv1.EventList
	if err := json.Unmarshal([]byte(p.kubectl("", "get", "events.events.k8s.io", "-n", namespace, "-o", "json")), &list); err != nil {
		p.Fatal(err)
	}
	for _, e := range list.Items {
		if e.ReportingController != "nri-blkio" || e.ReportingInstance != p.node {
			p.Errorf("an Event of %s on %s", e.ReportingController, e.ReportingInstance)
		}
		count := int32(1)
		if e.Series != nil {
			count = e.Series.Count
		}
		out = append(out, fmt.Sprintf("%s %s %s %s x%d", e.Regarding.Name, e.Reason, e.Type, e.Note, count))
	}
	slices.Sort(out)
	return out
}

// hasEvents waits for the Events of a namespace.
func (p *part) hasEvents(when, namespace string, want ...string) {
	p.Helper()
	p.eventually(when, func() error {
		if got := p.events(namespace); !slices.Equal(got, want) {
			return fmt.Errorf("Events:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return nil
	})
}

// TestClusterSendsEvents verifies that a real API server accepts Events of each reason, also with hostile notes and the longest
// names, that kubectl describe shows them, and that a restart of the part makes no second one.
func TestClusterSendsEvents(t *testing.T) {
	p := newPart(t, "worker-7")
	p.namespace("events", "")
	const spec = "{containers: [{name: a, image: x}]}"
	long := strings.Repeat("a", 253)
	db, longest := podevent.Pod{Namespace: "events", Name: "db-0"}, podevent.Pod{Namespace: "events", Name: long}
	db.UID, longest.UID = p.pod("events", "db-0", spec, ""), p.pod("events", long, spec, "")
	var all []podevent.Event
	var want []string
	for _, r := range podevent.Reasons() {
		note := podevent.Text(strings.Repeat("\x1b\u202e\xff\n\"'<&", 200))
		all, want = append(all, podevent.Event{Reason: r, Note: note}), append(want, fmt.Sprintf("%s %s %s %s x1", long, r, r.Facts().Type, note))
	}
	p.note(longest, 1, all...)
	p.note(db, 3, podevent.Event{Reason: podevent.Refused, Note: "container a is rejected: nri-blkio: x"})
	p.start()
	const refused = "db-0 BlkioRefused Warning container a is rejected: nri-blkio: x x"
	with := func(count int) []string {
		out := append([]string{fmt.Sprint(refused, count)}, want...)
		slices.Sort(out)
		return out
	}
	p.hasEvents("Events", "events", with(3)...)
	out := p.kubectl("", "describe", "pod", "-n", "events", "db-0")
	for _, text := range []string{"BlkioRefused", "(x3 over ", "nri-blkio", "container a is rejected: nri-blkio: x"} {
		if !strings.Contains(out, text) {
			t.Errorf("kubectl describe does not show %q:\n%s", text, out)
		}
	}
	p.stop()
	p.note(db, 7, podevent.Event{Reason: podevent.Refused, Note: "container a is rejected: nri-blkio: x"})
	p.start()
	p.hasEvents("counted again after a restart", "events", with(7)...)
}

// TestClusterEventsAway verifies that Events are sent once the API server is back, and that neither a namespace that is being
// deleted nor a pod that does not exist keeps others from being sent.
func TestClusterEventsAway(t *testing.T) {
	p := newPart(t, "worker-8")
	p.namespace("away", "")
	p.namespace("ending", "")
	const spec = "{containers: [{name: a, image: x}]}"
	pod, ending := podevent.Pod{Namespace: "away", Name: "db-0"}, podevent.Pod{Namespace: "ending", Name: "db-0"}
	pod.UID, ending.UID = p.pod("away", "db-0", spec, ""), p.pod("ending", "db-0", spec, "")
	p.start()
	p.state("connected")
	p.proxy.interrupt()
	p.state("disconnected")
	p.note(pod, 1, podevent.Event{Reason: podevent.Changed, Note: "a"})
	p.note(ending, 1, podevent.Event{Reason: podevent.Changed, Note: "a"})
	p.note(podevent.Pod{UID: "0f9bd3ce-7a4e-4b0c-9f52-8d1d5f1c2b3a", Namespace: "away", Name: "db-0"}, 1, podevent.Event{Reason: podevent.Changed, Note: "stray"})
	p.kubectl("", "delete", "namespace", "ending", "--wait=false") // it stays: no controller runs here
	p.proxy.restore()
	p.state("connected")
	p.hasEvents("back", "away", "db-0 BlkioChanged Normal a x1")
	p.eventually("the API server refuses the Event", func() error {
		if log := p.log.String(); !strings.Contains(log, "refuses an Event") {
			return errors.New("nothing is logged")
		}
		return nil
	})
	if names, err := os.ReadDir(p.notes); err != nil || len(names) != 3 {
		t.Errorf("the events directory has %v, %v", names, err)
	}
}
