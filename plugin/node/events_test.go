package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/plugin/recorder"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// noted is an Events that keeps lines.
type noted struct {
	mu      sync.Mutex // guards lines
	lines   []string
	present func() map[string]bool // set by Run
}

func (e *noted) Note(of podevent.Pod, reason podevent.Reason, _ podevent.Key, note string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lines = append(e.lines, fmt.Sprintf("%s %s/%s %s: %s", of.UID, of.Namespace, of.Name, reason, podevent.Text(note)))
}

func (e *noted) Run(ctx context.Context, present func() map[string]bool) {
	e.present = present
	<-ctx.Done()
}

// take returns what was noted since the last call.
func (e *noted) take() (out []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	out, e.lines = e.lines, nil
	return out
}

// wants compares what was noted since the last comparison, about the pod of most tests.
func (e *noted) wants(t *testing.T, when string, want ...string) {
	t.Helper()
	for i := range want {
		want[i] = "u1 prod/db-0 " + want[i]
	}
	if d := cmp.Diff(want, e.take()); d != "" {
		t.Errorf("%s: -want +got:\n%s", when, d)
	}
}

// TestEventRefused verifies that each rejection of a container has an event with its line, whatever names the container has.
func TestEventRefused(t *testing.T) {
	h, _ := tree(t, podCgroup)
	n, events := newNode(t, h), &noted{}
	n.events = events
	s := session{n, noDeadline}
	sb := sandbox(map[string]string{limitsKey + "container.db": "/data wpbs=50Mi"})
	for range 2 {
		if _, err := s.CreateContainer(t.Context(), sb, ctr("db")); err == nil {
			t.Fatal("not rejected")
		}
	}
	const line = `BlkioRefused: container db is rejected: nri-blkio: limits.blkio.noderesource.dev/container.db: entry 1 "/data wpbs=50Mi": unknown key "wpbs" (did you mean "wbps"?)`
	events.wants(t, "invalid", line, line)
	sb.Annotations = map[string]string{limitsKey + "containers": "/no\x1b[2J wpbs=1Mi"}
	hostile := ctr("h")
	hostile.Name, sb.ID = "a\n\x1b]0;b", "sb2"
	if _, err := s.CreateContainer(t.Context(), sb, hostile); err == nil {
		t.Fatal("not rejected")
	}
	got := events.take()
	if len(got) != 1 || !strings.HasPrefix(got[0], `u1 prod/db-0 BlkioRefused: container "a\n\x1b]0;b" is rejected: nri-blkio: `) || !strings.Contains(got[0], `no\x1b[2J`) {
		t.Errorf("hostile: %q", got)
	}
	pol := *policy.Default()
	pol.OnError.Internal = policy.Reject
	n.Reload(&pol)
	broken := true
	n.storage = flaky{disks{twoDisks}, &broken}
	sb.ID, sb.Annotations = "sb3", map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"}
	if _, err := s.CreateContainer(t.Context(), sb, ctr("db")); !errors.Is(err, ErrInternal) {
		t.Fatalf("got %v", err)
	}
	events.wants(t, "internal", "BlkioRefused: container db is rejected: nri-blkio: internal error; see the log of nri-blkio on this node")
}

// TestEventRefusedBudget verifies that tries of a container for which a budget has no room are one event while other pods come and
// go, with the newest amounts, and displace no other event of the pod.
func TestEventRefusedBudget(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	events := recorder.New(recorder.Config{Dir: t.TempDir(), Log: b.log})
	b.events = events
	refused := tenant("d", "* wbps=60Mi")
	refused.UID = "0f9bd3ce-7a4e-4b0c-9f52-000000000001"
	wrong := *refused
	wrong.ID, wrong.Annotations = "sb-wrong", annotationsOf(limitsKey+"containers", "* wpbs=60Mi")
	if err := b.createOf(&wrong, member(&wrong, "x")); err == nil {
		t.Fatal("not rejected")
	}
	const tries = podevent.MaxEvents + 4
	for i := range tries {
		other := tenant(fmt.Sprint("o", i), fmt.Sprintf("* wbps=%dMi", 150+i))
		b.run(other, member(other, "x"))
		if err := b.createOf(refused, member(refused, "x")); err == nil {
			t.Fatal("not rejected")
		}
		b.RemovedPod(other.ID)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	events.Run(ctx, nil) // writes the events
	d, err := podevent.Format().Read(events.Dir, refused.UID)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Events) != 2 || !strings.Contains(d.Events[0].Note, "unknown key") {
		t.Fatalf("%d events: %+v", len(d.Events), d.Events)
	}
	want := fmt.Sprintf("%dMi of 200Mi are granted to 1 pod", 150+tries-1)
	if last := d.Events[1]; last.Count != tries || !strings.Contains(last.Note, want) {
		t.Errorf("%q %d times, want %q %d times", last.Note, last.Count, want, tries)
	}
}

// TestEventNotInForce verifies that a problem that lasts has an event, again every ten minutes, and that its text has nothing
// of the node.
func TestEventNotInForce(t *testing.T) {
	n, events := &Node{}, &noted{}
	n.log, _ = test.NewNullLogger()
	n.events, n.state = events, newState(newSignal())
	pod, cgroup := newPod(sandbox(nil), policy.Default())
	_ = cgroup
	g := n.enter(pod, podCgroup, true).group
	synctest.Test(t, func(t *testing.T) {
		broken := fmt.Errorf("limit container a: %w", &fs.PathError{Op: "open", Path: "/var/lib/kubelet/pods/secret", Err: fs.ErrPermission})
		const line = "BlkioNotInForce: some limits are not in force, retrying: "
		for _, step := range []struct {
			after time.Duration
			err   error
			want  []string
		}{
			{0, broken, nil},
			{patience - 1, broken, nil},
			{1, broken, []string{line + "internal error; see the log of nri-blkio on this node"}},
			{time.Minute, broken, nil},
			{reminder.Interval, broken, []string{line + "internal error; see the log of nri-blkio on this node"}},
			{1, errNoAnswer, []string{line + "one of its disks does not answer"}},
			{1, nil, nil},
			{1, errNoAnswer, nil},
			{patience, errNoAnswer, []string{line + "one of its disks does not answer"}},
		} {
			time.Sleep(step.after)
			n.noteProblem(t.Context(), g, step.err)
			n.tell(g)
			events.wants(t, fmt.Sprint(step.err), step.want...)
		}
	})
}

// TestCauseOf verifies that no text of the node is in the cause that a tenant sees.
func TestCauseOf(t *testing.T) {
	path := &fs.PathError{Op: "openat", Path: "secret/io.max", Err: fs.ErrPermission}
	write := func(data string, err error) error {
		return &cgroupfs.CgroupError{Op: "write", Name: "io.max", Data: data, Cgroup: "kubepods/secret", Err: err}
	}
	const internal = "internal error; see the log of nri-blkio on this node"
	for _, tt := range []struct {
		err  error
		want string
	}{
		{path, internal},
		{errors.New("read mounts: /secret"), internal},
		{write("", path), internal},
		{fmt.Errorf("limit container a: %w", write("8:16 wbps=1", path)), `write io.max "8:16 wbps=1": permission denied`},
		{write("8:16 wbps=1", fmt.Errorf("%w: %w", blkio.ErrNoDevice, path)), `write io.max "8:16 wbps=1": no such disk`},
		{write("8:16 wbps=1", os.ErrInvalid), `write io.max "8:16 wbps=1": invalid argument`},
		{errors.Join(path, errWriteHangs), "a write to the pod's cgroups hangs in the kernel"},
		{fmt.Errorf("secret: %w", bounded.ErrBusy), "too many calls hang in the kernel: a disk does not answer"},
		{fmt.Errorf("secret: %w", context.DeadlineExceeded), "a disk or a cgroup does not answer in time"},
		{errors.Join(path, annotation.New(annotation.Identity{From: annotation.Origin{Annotation: "a"}}, &annotation.Problem{Cause: "c"})), "nri-blkio: a: c"},
	} {
		if got := causeOf(tt.err).text; got != tt.want || strings.Contains(got, "secret") {
			t.Errorf("%v: %q, want %q", tt.err, got, tt.want)
		}
	}
}

// TestEventPods verifies that the pods of the node are known with the bystanders, and not before the runtime has listed them.
func TestEventPods(t *testing.T) {
	h, _ := tree(t, podCgroup)
	n, events := newNode(t, h), &noted{}
	n.events = events
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); n.Run(ctx) }()
	if n.present() != nil {
		t.Error("pods are known before the runtime has listed them")
	}
	bystanding := &Sandbox{ID: "sb2", Name: "web-0", Namespace: "prod", UID: "u2", Cgroup: "/kubepods.slice/kubepods-pod2.slice"}
	n.Synchronize([]*Sandbox{sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=1Mi")), bystanding}, nil)
	cancel()
	<-done
	if d := cmp.Diff(map[string]bool{"u1": true, "u2": true}, events.present()); d != "" {
		t.Error(d)
	}
	want := map[string]podevent.Pod{
		podCgroup: {UID: "u1", Namespace: "prod", Name: "db-0"}, strings.TrimPrefix(bystanding.Cgroup, "/"): {UID: "u2", Namespace: "prod", Name: "web-0"},
	}
	if d := cmp.Diff(want, n.PodsByCgroup()); d != "" {
		t.Error(d)
	}
}

// TestEventsNameNoOtherTenant verifies that the events of a pod beside pods of other namespaces, in all cases of this file's
// events, have no name of these.
func TestEventsNameNoOtherTenant(t *testing.T) {
	b, events := newBudgetNode(t, tenantBudget), &noted{}
	b.events = events
	secret := tenant("1", "* wbps=150Mi")
	secret.Namespace, secret.Name, secret.UID = "tenant-secret", "secret-0", "usecret"
	neighbour := tenant("2", "* wbps=150Mi")
	neighbour.Name = "neighbour-0"
	for _, sb := range []*Sandbox{secret, neighbour} {
		if err := b.createOf(sb, member(sb, "secret")); err != nil {
			t.Fatal(err)
		}
	}
	sb := tenant("3", "* wbps=100Mi")
	if err := b.createOf(sb, member(sb, "db")); err == nil {
		t.Fatal("the budget has room")
	}
	if err := os.RemoveAll(filepath.Join(b.dir, "kubepods.slice")); err != nil {
		t.Fatal(err)
	}
	b.pass(t.Context())
	var of []string
	for _, line := range events.take() {
		uid, note, _ := strings.Cut(line, " ")
		of = append(of, uid)
		if uid != "usecret" && (strings.Contains(note, "secret") || strings.Contains(note, "neighbour") && uid != "u2") {
			t.Errorf("the event of %s names another pod: %s", uid, note)
		}
	}
	if !slices.Contains(of, "u3") {
		t.Errorf("events of %q only", of)
	}
}
