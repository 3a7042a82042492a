package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
)

// storageRow begins a line of TestStorage that is a row of docs/reference/storage.md.
const storageRow = "storage-row "

// Store is storage of one kind, ready to be written to.
type Store struct {
	Label   string
	Mount   cri.Mount         // of the container
	Devices map[string]string // the same for a raw block volume
	Target  string            // "/data" if empty
	Single  bool              // the mount is of one file
	// ReadOnly is true if the volume cannot be written to, so that its limit is on reads.
	ReadOnly bool
	FS       string   // "" for none
	Disks    []string // the disks that have to be limited; writes are measured on the last one
	// Alike is true if another store that is limited in the same way is measured: the container has its limits, and
	// only a proof, such as `make table T=storage`, measures the writes.
	Alike bool
	// Escapes is why limits do not hold for buffered writes; "": they do.
	Escapes string
	// Mirrored is true if buffered writes are charged on one of the disks only, which also bounds the
	// other one (docs/reference/quirks.md).
	Mirrored bool
}

// Container returns the name of the container that uses the storage.
func (s *Store) Container() string {
	return strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(s.Label)), "-")
}

// Path returns the path in the container that the limit is for.
func (s *Store) Path() string {
	if s.Target != "" {
		return s.Target
	}
	return "/data"
}

// file returns the path in the container that the test writes to.
func (s *Store) file() string {
	if s.Devices != nil || s.Single {
		return s.Path()
	}
	return s.Path() + "/storage-" + s.Container()
}

// Obeys measures direct writes and then buffered ones.
func (s *Store) Obeys(t *testing.T, pod PodOf) {
	cfg := cri.ContainerConfig{Name: s.Container(), Args: []string{"sleep"}, Memory: MemoryLimit, Devices: s.Devices}
	if s.Devices == nil {
		cfg.Mounts = []cri.Mount{s.Mount}
		t.Cleanup(func() { os.Remove(filepath.Join(s.Mount.Host, strings.TrimPrefix(s.file(), s.Mount.Path))) })
	}
	k := pod.By(t).MustRun(cfg)
	s.Measure(t, k)
	if err := k.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// Measure prints the row of a container that does nothing yet.
func (s *Store) Measure(t *testing.T, k *cri.Container) {
	t.Helper()
	WantIOMax(t, k.Cgroup, s.limits())
	if s.Alike && !*Proof {
		return
	}
	writes := "read-only"
	if !s.ReadOnly {
		writes = s.writes(t, k)
	}
	if t.Failed() {
		return
	}
	PrintRow(s.Label, s.FS, strings.Join(s.Disks, ", "), writes)
}

// limits are those that its disks are to have.
func (s *Store) limits() Disks {
	want := Disks{}
	for _, disk := range s.Disks {
		want[disk] = s.Key() + "=1048576"
	}
	return want
}

// PrintRow prints a row of docs/reference/storage.md.
func PrintRow(cells ...string) { fmt.Println(storageRow + "| " + strings.Join(cells, " | ") + " |") }

// Key returns the key that is limited: the rate of reads for a read-only volume.
func (s *Store) Key() string {
	if s.ReadOnly {
		return "rbps"
	}
	return "wbps"
}

// writes measures direct and buffered writes, in percent of the limit.
func (s *Store) writes(t *testing.T, k *cri.Container) string {
	t.Helper()
	write := []string{"write", "--path", s.file(), "--block", "64Ki", "--span", "64Mi"}
	direct := percent(s.Rate(t, k, append(write, "--direct")))
	switch {
	case s.Mirrored:
		return direct + ", " + percent(s.Rate(t, k, write)) + " (charged on one disk)"
	case s.Escapes != "":
		return direct + ", " + s.Escapes
	}
	return direct + ", " + percent(s.Rate(t, k, write))
}

// measured returns the disk on which the present writes are charged.
func (s *Store) measured(t *testing.T, k *cri.Container) string {
	t.Helper()
	last := s.Disks[len(s.Disks)-1]
	if !s.Mirrored {
		return last
	}
	charged := func(disk string) int64 {
		n, err := cgroup.Dir(k.Cgroup).Counter(Node.Disks[disk], "wbytes")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := s.Disks[0]
	a, b := charged(first), charged(last)
	// The page cache takes the first ones, and metadata goes to both.
	for end := time.Now().Add(Deadline); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		switch onFirst, onLast := charged(first)-a, charged(last)-b; {
		case max(onFirst, onLast) < 2*MiB:
		case onFirst > onLast:
			return first
		default:
			return last
		}
	}
	t.Fatal("writes of the container are charged on neither of the two disks")
	return ""
}

func percent(f float64) string { return fmt.Sprintf("%.0f", 100*f) }

// Rate runs iotool in the container for as long as it takes to measure it.
func (s *Store) Rate(t *testing.T, k *cri.Container, args []string) float64 {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := k.Exec(t.Context(), 4*Deadline, append([]string{"/bin/iotool"}, append(args, "--seconds", "300")...)...)
		ended <- err
	}()
	over := WantRate(t, k.Cgroup, s.measured(t, k), "wbytes", MiB)
	// It ends at this, and the container's own process, which sleeps, does not.
	Administer(t, "pkill", "--signal", "INT", "--full", "iotool write --path "+regexp.QuoteMeta(s.file())+" ")
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return over
}
