package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

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

// reasons keeps the reasons of events.
type reasons struct{ got []podevent.Reason }

func (r *reasons) Note(_ podevent.Pod, reason podevent.Reason, _ podevent.Key, _ string) {
	r.got = append(r.got, reason)
}

func (*reasons) Run(context.Context, func() map[string]bool) {}

// TestEventOfRefusedStart verifies that a start that was refused is no cause of limits that are not in force.
func TestEventOfRefusedStart(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n, events := newNode(t, h), &reasons{}
	n.events = events
	sb := limited("/mem wbps=1Mi")
	n.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Annotations: sb.Annotations, Claims: policy.NewClaims(nil)}) // unknown claims would be waited for
	if err := n.start(t.Context(), sb, ctr("a", bind("/mnt/mem/x", "/mem")), true); err == nil {
		t.Fatal("not refused")
	}
	n.pass(t.Context())
	if slices.Contains(events.got, podevent.NotInForce) {
		t.Errorf("events %q", events.got)
	}
}
