package cause

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// TestOf verifies that no text of the node is in the cause that a tenant sees.
func TestOf(t *testing.T) {
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
		{errors.Join(path, ErrWriteHangs), "a write to the pod's cgroups hangs in the kernel"},
		{fmt.Errorf("secret: %w", bounded.ErrBusy), "too many calls hang in the kernel: a disk does not answer"},
		{fmt.Errorf("secret: %w", context.DeadlineExceeded), "a disk or a cgroup does not answer in time"},
		{errors.Join(path, annotation.New(annotation.Identity{From: annotation.Origin{Annotation: "a"}}, &annotation.Problem{Cause: "c"})), "nri-blkio: a: c"},
	} {
		if got := Of(tt.err).Text; got != tt.want || strings.Contains(got, "secret") {
			t.Errorf("%v: %q, want %q", tt.err, got, tt.want)
		}
	}
}
