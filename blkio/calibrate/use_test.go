package calibrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
)

// TestObstacles verifies that a limit of this process, or of a cgroup above it, is found. A limit that cannot
// be read is an error, and does not count as none.
func TestObstacles(t *testing.T) {
	const own, limit = "system.slice/ssh.service", "254:16 rbps=max wbps=max riops=max wiops=100\n"
	for name, tt := range map[string]struct {
		own     string
		cgroups map[string]string
		want    string // of the obstacles, or of the error
		isError bool
	}{
		"no limits":             {own, map[string]string{own + "/io.max": "", "system.slice/io.max": ""}, "[]", false},
		"without a controller":  {own, map[string]string{own + "/cgroup.events": ""}, "[]", false},
		"of another tree":       {"elsewhere/a", nil, "[]", false},
		"the root":              {".", map[string]string{"system.slice/io.max": limit}, "[]", false},
		"its own":               {own, map[string]string{own + "/io.max": limit}, "[this process is limited on it, by io.max of its cgroup " + own + "]", false},
		"of another disk":       {own, map[string]string{own + "/io.max": "254:32 rbps=2 wbps=2 riops=2 wiops=2\n"}, "[]", false},
		"of another cgroup":     {own, map[string]string{own + "/x": "", "system.slice/ssh.socket/io.max": limit, "system/io.max": limit}, "[]", false},
		"unreadable":            {own, map[string]string{own + "/io.max/x": ""}, "find the limits of this process: read io.max: ", true},
		"unreadable, above":     {own, map[string]string{own + "/io.max": "", "system.slice/io.max/x": ""}, "(cgroup system.slice)", true},
		"not understood":        {own, map[string]string{own + "/io.max": "254:16 wiops=-1\n"}, `parse io.max, line 1 "254:16 wiops=-1"`, true},
		"io.cost not readable":  {own, map[string]string{"io.cost.qos": "254:16 enable=2\n"}, "parse io.cost.qos, line 1", true},
		"io.cost of another":    {own, map[string]string{"io.cost.qos": "254:32 enable=1 ctrl=auto\n"}, "[]", false},
		"io.cost, not enabled":  {own, map[string]string{"io.cost.qos": "254:16 enable=0 ctrl=user\n"}, "[]", false},
		"io.cost, and two more": {own, map[string]string{"io.cost.qos": "254:16 enable=1\n", own + "/io.max": limit, "system.slice/io.max": limit}, "[io.cost is enabled on it, and would slow the calibration down this process is limited on it, by io.max of its cgroup " + own + " this process is limited on it, by io.max of its cgroup system.slice]", false},
	} {
		t.Run(name, func(t *testing.T) {
			n, _ := nodeWith(t, tt.cgroups)
			n.Own = tt.own
			synctest.Test(t, func(t *testing.T) {
				got, err := n.obstacles(t.Context(), &storage.DiskInfo{Disk: vdb})
				switch {
				case tt.isError && (err == nil || !strings.Contains(err.Error(), tt.want)):
					t.Errorf("%q, %v, want %s", got, err, tt.want)
				case !tt.isError && (err != nil || fmt.Sprint(got) != tt.want):
					t.Errorf("%v, %v, want %s", got, err, tt.want)
				}
			})
		})
	}
}

// TestNoIOCost verifies that on a kernel without io.cost a disk can be calibrated, for instance for another
// node.
func TestNoIOCost(t *testing.T) {
	n, _ := nodeWith(t, nil)
	dir := t.TempDir()
	fakenode.WriteFiles(t, dir, map[string]string{"cgroup.controllers": "io\n"})
	n.Cgroups = fakenode.OpenCgroups(t, dir)
	synctest.Test(t, func(t *testing.T) {
		if got, err := n.obstacles(t.Context(), &storage.DiskInfo{Disk: vdb}); len(got) > 0 || err != nil {
			t.Errorf("%v, %v", got, err)
		}
	})
}

// TestBusy verifies that a disk is busy by its operations, or by the time that it needs for them.
func TestBusy(t *testing.T) {
	for name, tt := range map[string]struct {
		reads, writes, activeMS int // in the second in which the disk is watched
		want                    string
	}{
		"idle":                     {0, 0, 0, ""},
		"few operations":           {30, 19, 99, ""},
		"as many as of a busy one": {30, 20, 0, "it is busy: 50 operations/s, 0 % of the time"},
		"few that take long":       {1, 0, 100, "it is busy: 1 operations/s, 10 % of the time"},
		"none has ended":           {0, 0, 2000, "it is busy: 0 operations/s, 100 % of the time"}, // counted since before
	} {
		t.Run(name, func(t *testing.T) {
			n, sys := nodeWith(t, nil)
			looks := 0
			sys.stat = func() (string, error) {
				looks++
				return fmt.Sprintf("%d 0 0 0 %d 0 0 0 0 %d 0", 1000+looks*tt.reads, 1000+looks*tt.writes, 1000+looks*tt.activeMS), nil
			}
			synctest.Test(t, func(t *testing.T) {
				got, err := n.use(t.Context(), &storage.DiskInfo{Disk: vdb})
				if err != nil || !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
					t.Errorf("%q, %v, want %q", got, err, tt.want)
				}
			})
		})
	}
}

// TestUseErrors covers events while the disk is watched: ^C, a disk that is removed, and counters that cannot
// be read.
func TestUseErrors(t *testing.T) {
	unreadable := errors.New("input/output error")
	for name, tt := range map[string]struct {
		fails  int // which read
		cancel bool
		remove bool
		want   string
	}{
		"before":  {1, false, false, "read the counters of 254:16: input/output error"},
		"after":   {2, false, false, "read the counters of 254:16: input/output error"},
		"^C":      {0, true, false, "context canceled"},
		"removed": {2, false, true, "disk vdb disappeared during the calibration: "},
	} {
		t.Run(name, func(t *testing.T) {
			n, sys := nodeWith(t, nil)
			looks := 0
			sys.stat = func() (string, error) {
				if looks++; looks != tt.fails {
					return idle, nil
				}
				if tt.remove {
					delete(sys.MapFS, "dev/block/254:16")
					return "", fs.ErrNotExist
				}
				return "", unreadable
			}
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.cancel {
					time.AfterFunc(watchTime/2, cancel)
				}
				start := time.Now()
				c, err := config(n).calibrate(ctx, slowDisk())
				if err == nil || !strings.HasPrefix(err.Error(), tt.want) || time.Since(start) > watchTime {
					t.Errorf("%+v, %v after %v, want %s", c, err, time.Since(start), tt.want)
				}
			})
		})
	}
}

func TestOwnCgroup(t *testing.T) {
	if got := OwnCgroup(); got == "" || strings.HasPrefix(got, "/") {
		t.Errorf("%q", got)
	}
	for data, want := range map[string]string{
		"0::/system.slice/ssh.service\n":          "system.slice/ssh.service",
		"1:name=systemd:/old\n0::/user.slice/a\n": "user.slice/a",
		"0::/\n":                 ".",
		"0::/../other.slice/b\n": ".", // outside of the namespace
		"4:blkio:/c\n":           ".",
		"":                       ".",
	} {
		if got := cgroupOf(data); got != want {
			t.Errorf("%q: %q, want %q", data, got, want)
		}
	}
}
