package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// orphaned is an orphaned volume, as `devices` lists it.
type orphaned struct {
	UID, Namespace, Pod, Volume, Plugin, Mountpoint, State string
	Disks                                                  []string
}

// listOrphans returns the orphaned volumes, without the grace period for new pods.
func listOrphans(t *testing.T) []orphaned {
	t.Helper()
	out, err := lab.Command(t, "devices", "-o", "json", "--orphan-grace", "0s")
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Orphans []orphaned }
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Orphans
}

// areOrphaned ends a pod while the kubelet does not run, as during an upgrade of the kubelet.
// The pod's volumes stay mounted, and are listed until the kubelet runs again and has
// unmounted them. It never unmounts one of them (docs/reference/quirks.md).
func (c cluster) areOrphaned(kinds []volumeKind) {
	c.Helper()
	const stays = "subpathexpr-of-a-hostpath"
	uid := c.kubectl("", "get", "pod", "volumes", "-o", "jsonpath={.metadata.uid}")
	c.Cleanup(func() {
		if c.Failed() { // they may still be mounted
			_ = lab.Runs("sh", "-c", "findmnt -rno TARGET | grep '^/var/lib/kubelet/pods/"+uid+"/' | xargs -r umount")
		}
	})
	lab.Administer(c.T, "systemctl", "stop", "cluster-kubelet")
	c.kubectl("", "delete", "pod", "volumes", "--force", "--grace-period=0", "--timeout=2m")
	ctx, cancel := context.WithTimeout(c.Context(), 2*lab.Deadline)
	defer cancel()
	if err := lab.Node.CRI.RemovePods(ctx); err != nil {
		c.Fatal(err)
	}
	state := "noCgroup"
	if lab.Node.Driver == "cgroupfs" { // only the kubelet removes a pod's cgroup, and it does not run
		state = "noProcess"
	}
	found := listOrphans(c.T)
	for _, v := range kinds {
		if v.orphan == "" {
			continue
		}
		want := orphaned{
			UID: uid, Namespace: "default", Pod: "volumes", Volume: v.directory(), Plugin: v.orphan, State: state, Disks: v.Disks,
		}
		if !slices.ContainsFunc(found, want.is) {
			c.Errorf("the orphaned volume %+v is not listed in %+v", want, found)
		}
	}
	lab.Administer(c.T, "systemctl", "start", "cluster-kubelet")
	var left []orphaned
	lab.Within(c.T, clusterDeadline, "the kubelet unmounts the volumes of the removed pod", func() error {
		left = slices.DeleteFunc(listOrphans(c.T), func(o orphaned) bool { return o.UID != uid })
		for _, o := range left {
			if o.Volume != stays {
				return fmt.Errorf("still mounted: %+v", o)
			}
		}
		return nil
	})
	if len(left) != 1 {
		c.Fatalf("the orphaned volumes are %+v, want only %s", left, stays)
	}
	lab.Administer(c.T, "umount", left[0].Mountpoint)
	if left = listOrphans(c.T); slices.ContainsFunc(left, func(o orphaned) bool { return o.UID == uid }) {
		c.Errorf("after the unmount of the last orphaned volume %+v are listed", left)
	}
}

// is compares but for the mountpoint.
func (o *orphaned) is(other orphaned) bool {
	other.Mountpoint = ""
	return reflect.DeepEqual(*o, other)
}
