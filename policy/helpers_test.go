package policy

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

var (
	sda = blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 0}, Name: "sda"}
	sdb = blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 16}, Name: "sdb"}
	sdc = blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 32}, Name: "sdc"}
)

const (
	keyDB    = "limits.blkio.noderesource.dev/container.db"
	keyEach  = "limits.blkio.noderesource.dev/containers"
	keyTotal = "limits.blkio.noderesource.dev/pod-total"
)

// byClasses compares classes of policies.
func byClasses() cmp.Option {
	return cmp.Comparer(func(a, b *Class) bool { return reflect.DeepEqual(a, b) })
}

func on(disks ...blkio.Disk) blkio.Backing { return blkio.Backing{FSType: "ext4", Disks: disks} }

func tmpfs() blkio.Backing {
	return blkio.Backing{FSType: "tmpfs", Reason: "tmpfs is memory, not a disk"}
}

func mount(at string, b blkio.Backing) Mount { return Mount{Destination: at, Backing: &b} }

func readOnly(m Mount) Mount { m.ReadOnly = true; return m }

func injected(m Mount) Mount { m.Injected = true; return m }

// of makes a mount one of the pod's volume with this name.
func of(volume, plugin string, m Mount) Mount {
	m.Volume, m.VolumePlugin = volume, "kubernetes.io/"+plugin
	return m
}

// db is a container with its root filesystem on sda, two volumes on sdb, one on sdc and the mounts that each
// container has.
func db() Container {
	return Container{
		Name:   "db",
		Rootfs: on(sda),
		Mounts: []Mount{
			injected(mount("/proc", blkio.Backing{FSType: "proc", Reason: "proc is not stored on a disk"})),
			injected(mount("/dev/shm", tmpfs())),
			injected(mount("/etc/hosts", on(sda))),
			of("pgdata", "csi", mount("/data", on(sdb))),
			of("wal", "csi", mount("/data/wal", on(sdc))),
			mount("/logs", on(sdb)),
			of("scratch", "empty-dir", mount("/scratch", tmpfs())),
		},
	}
}

// limits formats a Desired for comparisons: "sdb wbps=2".
func limits(d Desired) []string {
	var out []string
	for _, l := range d.Settings.In(blkio.IOMax).Lines() {
		out = append(out, strings.Replace(l.Text, l.Dev.String(), d.Disks[l.Dev], 1))
	}
	return out
}

// amount returns the amount of a key without a device, 0 for none.
func amount(d Desired, k blkio.Key) blkio.Amount {
	s, _ := d.Settings.Get(blkio.Address{Key: k})
	return s.Amount
}

func asError(t *testing.T, err error) *annotation.Error {
	t.Helper()
	if err == nil {
		return nil
	}
	var e *annotation.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is a %T, not an *annotation.Error", err, err)
	}
	return e
}

func from(annotation string, entry int, target string) Source {
	return Source{Kind: FromAnnotation, Name: annotation, Entry: entry, IsStar: target == "*", Target: target}
}

// checkLine fails on an error text that could not stand in an Event.
func checkLine(t *testing.T, line string) {
	t.Helper()
	if len(line) > 400 {
		t.Errorf("%d bytes: %s", len(line), line)
	}
	for i := range len(line) {
		if line[i] < ' ' || line[i] > '~' {
			t.Fatalf("byte %d is not printable ASCII: %q", i, line)
		}
	}
}

// of returns the policy for a pod with annotations and no other facts.
func (p *Policy) of(r *annotation.Request) *Pod { return p.ForPod(&PodFacts{}, r) }
