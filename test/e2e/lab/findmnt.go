package lab

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio/storage"
)

// block is a block device in the output of lsblk.
type block struct {
	KName, PKName, Type, Path string
	MajMin                    string `json:"maj:min"`
}

// Agrees compares, for every mount of the node, the disks that the program finds with
// those of util-linux: so many at least have any.
func Agrees(t *testing.T, atLeast int) {
	t.Helper()
	var listed struct{ BlockDevices []block }
	fromJSON(t, &listed, "lsblk", "--json", "--list", "--all", "--output", "KNAME,PKNAME,TYPE,PATH,MAJ:MIN")
	var found struct {
		Filesystems []struct {
			Target, Source, FSType, Options string
			MajMin                          string `json:"maj:min"`
		}
	}
	fromJSON(t, &found, "findmnt", "--json", "--list", "--nofsroot", "--output", "TARGET,SOURCE,FSTYPE,OPTIONS,MAJ:MIN")
	storage, err := storage.Open(storage.Config{Sys: os.DirFS("/sys"), Mountinfo: "/proc/self/mountinfo", HostRoot: "/"})
	if err != nil {
		t.Fatal(err)
	}
	defer storage.Close()
	compared := 0
	covered := func(i int) bool { // by a mount at the same place, which comes later
		for _, m := range found.Filesystems[i+1:] {
			if m.Target == found.Filesystems[i].Target {
				return true
			}
		}
		return false
	}
	for i, m := range found.Filesystems {
		var want []string
		switch {
		case m.FSType == "btrfs":
			want = btrfsDisks(t, m.Target, listed.BlockDevices)
		case strings.HasPrefix(m.MajMin, "0:"):
			continue // no block device; TestStorageWithout, and overlays
		default:
			options := strings.Split(m.Options, ",")
			want = wholeDisks(listed.BlockDevices, func(b *block) bool { // XFS has data on its realtime device as well
				return b.MajMin == m.MajMin || m.FSType == "xfs" && slices.Contains(options, "rtdev="+b.Path)
			})
		}
		got := storage.Resolve(t.Context(), m.Target)
		if covered(i) {
			continue
		}
		if got.FSType != m.FSType {
			t.Errorf("%s is %s, want %s", m.Target, got.FSType, m.FSType)
		}
		var names []string
		for _, d := range got.Disks {
			names = append(names, d.Name)
		}
		slices.Sort(names)
		if !slices.Equal(names, want) {
			t.Errorf("%s on %s (%s): got %v %s, want %v", m.FSType, m.Target, m.MajMin, names, got.Reason, want)
		}
		compared++
	}
	t.Logf("%d mounts compared", compared)
	if compared < atLeast {
		t.Errorf("only %d of %d mounts were compared", compared, len(found.Filesystems))
	}
}

// wholeDisks are the disks, or those of the partitions, that are meant, sorted.
func wholeDisks(all []block, meant func(*block) bool) []string {
	var out []string
	for i := range all {
		if b := &all[i]; meant(b) {
			name := b.KName
			if b.Type == "part" {
				name = b.PKName
			}
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out) // a device with two below it is listed twice
}

// btrfsDisks are those that its own tool names.
func btrfsDisks(t *testing.T, dir string, all []block) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "btrfs", "filesystem", "show", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	return wholeDisks(all, func(b *block) bool { return strings.Contains(string(out)+"\n", " path "+b.Path+"\n") })
}

func fromJSON(t *testing.T, to any, command ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).Output()
	if err == nil {
		err = json.Unmarshal(out, to)
	}
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(command, " "), err)
	}
}
