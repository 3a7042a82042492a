package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// volumeAt returns a volume that is no claim, and that containers have at CONTAINER:PATH.
func volumeAt(name string, places ...string) Volume {
	v := claimOf(name, places...)
	v.Claim = ""
	return v
}

// TestPodVolume verifies that @VOLUME means the mounts and devices of a volume whose name only the pod has, and what it is where there
// are none, or while the volumes are unknown.
func TestPodVolume(t *testing.T) {
	known := NewVolumes([]Volume{volumeAt("pg", "db:/data", "db:/logs", "web:/data/wal"), volumeAt("other", "db:/gone", "db:/scratch/sub"), {Name: "pgdata", Claim: "x", Places: []Place{{"db", "/data/wal"}}}})
	const retry = " (the cluster part of nri-blkio reports them; on a node without it, write the path of the mount)"
	for name, tt := range map[string]struct {
		key, text string
		volumes   *Volumes
		want      []string
		err       string
		kind      annotation.Kind
	}{
		"all its mounts": {keyDB, "@pg wbps=1Mi", known, []string{"sdb wbps=1048576"}, "", 0},
		"beats star":     {keyDB, "* wbps=2Mi; @pg wbps=1Mi", known, []string{"sda wbps=2097152", "sdb wbps=1048576", "sdc wbps=2097152"}, "", 0},
		"as a path":      {keyDB, "@pg wbps=1Mi; /data wbps=1Mi rbps=1Mi", known, []string{"sdb rbps=1048576 wbps=1048576"}, "", 0},
		"conflict":       {keyDB, "@pg wbps=1Mi; /data wbps=2Mi", known, []string{"sdb wbps=1048576"}, `conflicting wbps on disk sdb 8:16: "/data" has 2Mi, "@pg" in entry 1 has 1Mi (write one value for both)`, annotation.Invalid},

		// The path of the mount at /data has the name pgdata, that of a PersistentVolume.
		"the pod's name":     {keyDB, "@pgdata wbps=1Mi", known, []string{"sdc wbps=1048576"}, "", 0},
		"by the path":        {keyDB, "@pgdata wbps=1Mi", nil, []string{"sdb wbps=1048576"}, "", 0},
		"of no known volume": {keyDB, "@pgdata wbps=1Mi", NewVolumes([]Volume{volumeAt("pg", "db:/data")}), nil, `volume "pgdata" is on no mount of the container (` + hintVolume + `)`, annotation.Invalid},
		"no mount":           {keyDB, "@other wbps=1Mi", known, nil, `volume "other" is on no mount of the container (mount it, or remove the entry)`, annotation.Invalid},
		"similar":            {keyDB, "@othr wbps=1Mi", known, nil, `volume "othr" is on no mount of the container (did you mean "other"?)`, annotation.Invalid},
		"unknown name":       {keyDB, "@x wbps=1Mi", known, nil, `volume "x" is on no mount of the container (` + hintVolume + `)`, annotation.Invalid},
		"skipped":            {keyEach, "@x wbps=1Mi", known, nil, "", 0},
		"no document":        {keyDB, "@pg wbps=1Mi", nil, nil, "the volumes of the pod are not known yet" + retry, annotation.Unenforceable},
		"containers":         {keyEach, "@pg wbps=1Mi", nil, nil, "the volumes of the pod are not known yet" + retry, annotation.Unenforceable},
		"omitted":            {keyDB, "@pg wbps=1Mi", UnknownVolumes("129 of them (maximum 128)"), nil, "the volumes of the pod are unknown: 129 of them (maximum 128)" + retry, annotation.Unenforceable},
		"no limit, unknown":  {keyDB, "@pg wbps=max", nil, nil, "", 0},
	} {
		d, err := decideClaims(t, "", map[string]string{tt.key: tt.text}, tt.volumes)
		if diff := cmp.Diff(tt.want, limits(d)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
		switch e := asError(t, err); {
		case tt.err == "" && err == nil:
		case err == nil || tt.err == "" || !strings.HasSuffix(err.Error(), ": "+tt.err) || e.Kind() != tt.kind:
			t.Errorf("%s:\n got %v\nwant %s", name, err, tt.err)
		default:
			checkLine(t, err.Error())
		}
	}
}

// TestPodVolumeTotal verifies that @VOLUME in pod-total is the volume of all containers, and an error while it can be one whose name is
// unknown.
func TestPodVolumeTotal(t *testing.T) {
	request, volumes := annotation.Parse(map[string]string{keyTotal: "@more wbps=1Mi"}), NewVolumes([]Volume{volumeAt("more", "db:/data/wal")})
	pod := Default().ForPod(&PodFacts{Volumes: volumes}, request)
	if d, err := pod.Total([]Container{db()}); err != nil || !slices.Equal(limits(d), []string{"sdc wbps=1048576"}) {
		t.Errorf("%v, %v", limits(d), err)
	}
	if got := pod.Targets().Paths; !slices.Equal(got, []string{"/data/wal"}) {
		t.Errorf("the disks of %q are searched for", got)
	}
	unknown := Default().ForPod(&PodFacts{}, request)
	if _, err := unknown.Total([]Container{db()}); err == nil || asError(t, err).Kind() != annotation.Unenforceable {
		t.Errorf("unknown volumes: %v", err)
	}
	// The names of its volumes are in the paths of its mounts.
	named := Container{Name: "db", Rootfs: on(sda), Mounts: []Mount{of("x", "empty-dir", mount("/x", on(sdb))), injected(mount("/etc/hosts", on(sda)))}}
	if d, err := unknown.Total([]Container{named}); err != nil || len(d.Settings) > 0 {
		t.Errorf("named volumes: %v, %v", limits(d), err)
	}
	want := []string{keyTotal + `: entry 1: no container of the pod has a mount of volume "more"`}
	gone := Default().ForPod(&PodFacts{Volumes: NewVolumes(nil)}, request)
	for pod, of := range map[*Pod]Container{gone: db(), unknown: named} {
		if got := pod.Unmatched([]Container{of}); !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	}
	for _, pod := range []*Pod{pod, unknown} {
		if got := pod.Unmatched([]Container{db()}); got != nil {
			t.Errorf("%q", got)
		}
	}
}

// TestVolumeOfClassEdited verifies that another value in a class counts for a volume by name while the volumes of the pod are unknown, if
// the entry decides.
func TestVolumeOfClassEdited(t *testing.T) {
	const class = "classes: {shared: {limits: [%]}}\nrules: [{name: r, class: shared}]\n"
	d := Desired{}
	for _, tt := range []struct{ limits, want string }{
		{"'@pgdata wbps=4Mi'", "sdb wbps=4Mi"}, {"'@pgdata wbps=8Mi'", "sdb wbps=8Mi"}, {"'@x wbps=1Mi', '@pgdata wbps=9Mi'", "sdb wbps=9Mi"},
	} {
		d, _ = decideAfter(t, d, strings.Replace(class, "%", tt.limits, 1), nil, UnknownVolumes("too many"))
		if want := []string{tt.want + " from rule r, class shared"}; !slices.Equal(sources(d), want) {
			t.Errorf("%q, want %q", sources(d), want)
		}
	}
}
