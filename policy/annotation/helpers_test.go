package annotation

import (
	"slices"
	"testing"
)

const (
	keyDB    = "limits.blkio.noderesource.dev/container.db"
	keyEach  = "limits.blkio.noderesource.dev/containers"
	keyTotal = "limits.blkio.noderesource.dev/pod-total"
)

// errorsOf returns all errors that concern a container.
func errorsOf(r *Request, container string) []*Error {
	return slices.Concat(r.PodWide(), r.Named(container).Errors(), r.Each().Errors(), r.Total().Errors())
}

// first returns the first error that concerns a container.
func first(r *Request, container string) error {
	if errs := errorsOf(r, container); len(errs) > 0 {
		return errs[0]
	}
	return nil
}

// checkLine fails on an error text that could not stand in an Event.
func checkLine(t *testing.T, line string) {
	t.Helper()
	if len(line) > maxLine {
		t.Errorf("%d bytes: %s", len(line), line)
	}
	for i := range len(line) {
		if line[i] < ' ' || line[i] > '~' {
			t.Fatalf("byte %d is not printable ASCII: %q", i, line)
		}
	}
}
