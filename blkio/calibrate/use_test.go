package calibrate

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
)

// TestObstacles: a limit of this process, or of a cgroup above it, is found. A limit that cannot be
// read is an error, and does not count as none.
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

// TestNoIOCost: on a kernel without io.cost a disk can be calibrated, for instance for another node.
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
