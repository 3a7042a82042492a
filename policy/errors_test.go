package policy

import (
	"testing"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// entryErrors are errors of one annotation of container db, without the head that all have.
var entryErrors = []struct{ value, want string }{
	{"/data wbps=65535", `entry 1 "/data wbps=65535": wbps=65535 is under this node's floor (write at least 64Ki)`},
	{"/data wiops=7", `entry 1 "/data wiops=7": wiops=7 is under this node's floor (write at least 8)`},
	{"/nope wbps=1Mi", `entry 1 "/nope wbps=1Mi": "/nope" is on no mount of the container (write rootfs for the container's own filesystem)`},
	{"/dta wbps=1Mi", `entry 1 "/dta wbps=1Mi": "/dta" is on no mount of the container (did you mean "/data"?)`},
	{"/database wbps=1Mi", `entry 1 "/database wbps=1Mi": "/database" is on no mount of the container (write rootfs for the container's own filesystem)`},
	{"/scratch/x wbps=1Mi", `entry 1 "/scratch/x wbps=1Mi": "/scratch/x" cannot be limited: tmpfs is memory, not a disk (remove the entry, or use a volume on a local disk)`},
	{"/dev/shm wbps=1Mi", `entry 1 "/dev/shm wbps=1Mi": "/dev/shm" cannot be limited: tmpfs is memory, not a disk (remove the entry, or use a volume on a local disk)`},
	{"@nope wbps=1Mi", `entry 1 "@nope wbps=1Mi": volume "nope" is on no mount of the container (` + hintVolume + `)`},
	{"@pgdta wbps=1Mi", `entry 1 "@pgdta wbps=1Mi": volume "pgdta" is on no mount of the container (did you mean "pgdata"?)`},
	{"@scratch wbps=1Mi", `entry 1 "@scratch wbps=1Mi": "@scratch" cannot be limited: tmpfs is memory, not a disk (remove the entry, or use a volume on a local disk)`},
	{
		"/logs wbps=1Mi; @pgdata wbps=2Mi",
		`entry 2 "@pgdata wbps=2Mi": conflicting wbps on disk sdb 8:16: "@pgdata" has 2Mi, "/logs" in entry 1 has 1Mi (write one value for both)`,
	},
	{
		"/data wbps=1Mi; /logs wbps=2Mi",
		`entry 2 "/logs wbps=2Mi": conflicting wbps on disk sdb 8:16: "/logs" has 2Mi, "/data" in entry 1 has 1Mi (write one value for both)`,
	},
	{
		"/data riops=max; rootfs wbps=1Mi; /logs riops=2k",
		`entry 3 "/logs riops=2k": conflicting riops on disk sdb 8:16: "/logs" has 2k, "/data" in entry 1 has max (write one value for both)`,
	},
}

// hintVolume is the hint for a volume without a known mount.
const hintVolume = "write the name of a volume of the pod that the container mounts"

func TestEntryErrors(t *testing.T) {
	for _, tt := range entryErrors {
		r := annotation.Parse(map[string]string{keyDB: tt.value})
		_, err := Default().ForPod(&PodFacts{Volumes: NewVolumes(nil)}, r).Container(db())
		if err == nil {
			t.Errorf("%.80q: no error", tt.value)
			continue
		}
		if want := "nri-blkio: " + keyDB + ": " + tt.want; err.Error() != want {
			t.Errorf("%.80q:\n got %s\nwant %s", tt.value, err, want)
		}
		checkLine(t, err.Error())
		// Another container does not suffer.
		if _, err := Default().of(r).Container(Container{Name: "web", Rootfs: on(sda)}); err != nil {
			t.Errorf("%.80q: of another container: %v", tt.value, err)
		}
	}
}
