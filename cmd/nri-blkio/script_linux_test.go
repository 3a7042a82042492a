package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/why"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestMain makes the test binary the command nri-blkio of the scripts. It is
// the real one but for cgroups, which are plain files here.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"nri-blkio": func() {
			a := fakeApp()
			os.Exit(int(statusOf(a.run(context.Background(), os.Args[1:]))))
		},
		// As another user, to see what is not permitted. Only root can become one.
		"nri-blkio-nobody": func() {
			const nobody = 65534
			if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(100)
			}
			a := fakeApp()
			os.Exit(int(statusOf(a.run(context.Background(), os.Args[1:]))))
		},
		// The program as it is shipped, to see it refuse a tree that is no cgroupfs.
		"nri-blkio-real": func() {
			os.Exit(int(statusOf(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))))
		},
	})
}

// fakeApp is the program but for cgroups, which are plain files, and without BPF.
func fakeApp() *app {
	a := newApp()
	a.stdin, a.stdout, a.stderr, a.getenv, a.openCgroups = os.Stdin, os.Stdout, os.Stderr, os.Getenv, cgroupfs.OpenTree
	a.sample = time.Millisecond
	a.attach = func() (why.Observer, error) { return nil, errors.New("no BPF on a fake host\x1b") }
	return a
}

func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "record": rawRecord},
		Setup: func(env *testscript.Env) error {
			// For scripts that use nri-blkio-nobody.
			if err := errors.Join(os.Chmod(filepath.Dir(env.WorkDir), 0o755), os.Chmod(env.WorkDir, 0o755)); err != nil {
				return err
			}
			return fakeHost(filepath.Join(env.WorkDir, "host"))
		},
		Condition: func(condition string) (bool, error) {
			if condition == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", condition)
		},
	})
}

// exits runs a command, as exec does: "exits N COMMAND..." fails unless N is its exit status.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS COMMAND [ARG]...")
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit status %d, want %s", got, args[0])
	}
}

// rawRecord replaces the record of a pod: "record CGROUP TEXT".
func rawRecord(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: record CGROUP TEXT")
	}
	tree, err := cgroupfs.OpenTree(ts.MkAbs("host/sys/fs/cgroup"))
	ts.Check(err)
	defer tree.Close()
	ts.Check(record.WriteRaw(tree.Cgroup(args[0]), record.KindPod, []byte(args[1])))
}

// The disks of the fake host. vda has one partition, dm-0 is made of vdb.
var (
	vda = blkio.Disk{Dev: blkio.Dev{Major: 254}, Name: "vda"}
	dm0 = blkio.Disk{Dev: blkio.Dev{Major: 253}, Name: "dm-0"}
)

const mountinfo = `22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
23 22 0:21 / /proc rw,nosuid - proc proc rw
24 22 0:22 / /sys rw,nosuid - sysfs sysfs rw
25 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate
30 22 253:0 / /mnt/data rw,relatime shared:2 - xfs /dev/mapper/vg-data rw
31 22 0:40 / /mnt/mem rw - tmpfs tmpfs rw
32 22 0:41 / /mnt/share rw - nfs4 server:/share rw
33 30 253:0 /sub /mnt/sub rw,relatime shared:2 - xfs /dev/mapper/vg-data rw
`

const podCgroup = "kubepods.slice/kubepods-pod1.slice"

// deadID and the IDs after it belong to no existing cgroup.
const deadID = 1 << 52

// layersDir is where containerd keeps writable layers by default.
const layersDir = "var/lib/containerd/io.containerd.snapshotter.v1.overlayfs"

// fakeHost makes the files of a node that the commands read, and two containers of a pod with records: db with
// all values in force but one, and log, cleared.
func fakeHost(dir string) error {
	for name, data := range hostFiles() {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(data), 0o644); err != nil {
			return err
		}
	}
	for name, target := range hostLinks() {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(target, name); err != nil {
			return err
		}
	}
	return fakeRecords(filepath.Join(dir, "sys/fs/cgroup"))
}

// hostFiles returns the files of the host, by name.
func hostFiles() map[string]string {
	files := map[string]string{
		"proc/1/mountinfo":                                mountinfo,
		"sys/devices/vda/block/vda/dev":                   "254:0\n",
		"sys/devices/vda/block/vda/size":                  "41943040\n",
		"sys/devices/vda/block/vda/device/model":          "Disk \x1b[31m\n",
		"sys/devices/vda/block/vda/queue/scheduler":       "none [mq-deadline] bfq\n",
		"sys/devices/vda/block/vda/vda1/dev":              "254:1\n",
		"sys/devices/vda/block/vda/vda1/partition":        "1\n",
		"sys/devices/vdb/block/vdb/dev":                   "254:16\n",
		"sys/devices/vdb/block/vdb/size":                  "2097152\n",
		"sys/devices/vdb/block/vdb/queue/scheduler":       "none [bfq]\n",
		"sys/devices/virtual/block/dm-0/dev":              "253:0\n",
		"sys/devices/virtual/block/dm-0/size":             "2097152\n",
		"sys/devices/virtual/block/dm-0/dm/name":          "vg-data\n",
		"sys/fs/cgroup/cgroup.controllers":                "cpu io memory pids\n",
		"sys/fs/cgroup/io.cost.qos":                       "254:0 enable=1 ctrl=auto rpct=0.00 rlat=250000 wpct=0.00 wlat=250000 min=1.00 max=10000.00\n",
		"sys/fs/cgroup/io.cost.model":                     "254:0 ctrl=auto model=linear rbps=488636629 rseqiops=8932 rrandiops=8518 wbps=427891549 wseqiops=28755 wrandiops=21940\n",
		"sys/fs/cgroup/kubepods.slice/cgroup.events":      "populated 1\n",
		"sys/fs/cgroup/kubepods.slice/io.max":             "",
		"sys/fs/cgroup/kubepods.slice/io.weight":          "default 100\n",
		"mnt/data/db/.keep":                               "",
		"mnt/data/layers/.keep":                           "",
		layersDir + "/.keep":                              "",
		"sys/fs/cgroup/" + podCgroup + "/io.max":          "253:0 rbps=max wbps=62914560 riops=max wiops=max\n",
		"sys/fs/cgroup/" + podCgroup + "/memory.stat":     "file_dirty 16777216\nfile_writeback 0\n",
		"sys/fs/cgroup/" + podCgroup + "/db/memory.stat":  "file_dirty 0\nfile_writeback 0\n",
		"sys/fs/cgroup/" + podCgroup + "/log/memory.stat": "file_dirty 0\nfile_writeback 0\n",
		"sys/fs/cgroup/" + podCgroup + "/db/io.max":       "253:0 rbps=max wbps=52428800 riops=max wiops=9\n",
		"sys/fs/cgroup/" + podCgroup + "/db/io.weight":    "default 100\n",
		"sys/fs/cgroup/" + podCgroup + "/log/io.max":      "",
	}
	for _, cg := range []string{"kubepods.slice", podCgroup, podCgroup + "/db", podCgroup + "/log"} {
		files["sys/fs/cgroup/"+cg+"/cgroup.controllers"] = "io\n"
	}
	return files
}

// hostLinks returns the targets of the host's symlinks, by name.
func hostLinks() map[string]string {
	return map[string]string{
		"sys/block/vda":                             "../devices/vda/block/vda",
		"sys/block/vdb":                             "../devices/vdb/block/vdb",
		"sys/block/dm-0":                            "../devices/virtual/block/dm-0",
		"sys/dev/block/254:0":                       "../../devices/vda/block/vda",
		"sys/dev/block/254:1":                       "../../devices/vda/block/vda/vda1",
		"sys/dev/block/254:16":                      "../../devices/vdb/block/vdb",
		"sys/dev/block/253:0":                       "../../devices/virtual/block/dm-0",
		"sys/devices/virtual/block/dm-0/slaves/vdb": "../../../../vdb/block/vdb",
		"var/data":                                  "/mnt/data", // of the host: absolute
	}
}

func fakeRecords(dir string) error {
	tree, err := cgroupfs.OpenTree(dir)
	if err != nil {
		return err
	}
	defer tree.Close()
	source := func(scope, target string) policy.Source {
		return policy.Source{Kind: policy.FromAnnotation, Name: "limits.blkio.noderesource.dev/" + scope, Entry: 1, Target: target}
	}
	limit := func(d blkio.Disk, key blkio.Key, amount blkio.Amount, s policy.Source) policy.Setting {
		out := asked(key, d.Dev, amount)
		out.Source = s
		return out
	}
	sda := blkio.Disk{Dev: blkio.Dev{Major: 8}, Name: "sda"}
	names := map[blkio.Dev]string{dm0.Dev: dm0.Name, vda.Dev: vda.Name, sda.Dev: sda.Name}
	pod := record.Record{Disks: names, Kind: record.KindPod, Namespace: "prod", Pod: "db-0", UID: "1"}
	pod.Settings = policy.Settings{limit(dm0, blkio.Wbps, 60<<20, source("pod-total", "/data"))}
	pod.Exits = []record.Exit{
		{Container: "web", CgroupIDs: []uint64{deadID, deadID + 1}, Limits: policy.Settings{asked(blkio.Wbps, dm0.Dev, 512<<10)}, At: time.Unix(1e9, 0).UTC()},
		{Container: "\x1b[2Jold", CgroupIDs: []uint64{deadID + 2}, At: time.Unix(1e9, 0).UTC()},
		{Container: "drained", CgroupIDs: []uint64{deadID + 3}, At: time.Unix(1e9, 0).UTC()},
	}
	db := pod
	db.Exits = nil
	db.Kind, db.Container = record.KindContainer, "db"
	db.Warnings = []string{"/data: a warning"}
	db.Settings = policy.NewSettings(
		limit(dm0, blkio.Wbps, 50<<20, source("container.db", "/data")),
		limit(dm0, blkio.Wiops, 2000, source("container.db", "/data")),
		limit(sda, blkio.Rbps, 1<<20, source("container.db", "/old")),
		limit(blkio.Disk{}, blkio.Weight, 500, policy.Source{Kind: policy.FromAnnotation, Name: "weight.blkio.noderesource.dev/container.db"}),
	)
	log := pod
	log.Exits = nil
	log.Kind, log.Container, log.Cleared = record.KindContainer, "log", true
	log.Settings = policy.Settings{limit(vda, blkio.Wbps, 1<<20, source("containers", "\x1b[2Jrootfs"))}
	log.Error = "write io.max: \x07"
	for cg, r := range map[string]record.Record{podCgroup: pod, podCgroup + "/db": db, podCgroup + "/log": log} {
		if err := record.Write(tree.Cgroup(cg), &r); err != nil {
			return err
		}
	}
	return nil
}

func asked(key blkio.Key, dev blkio.Dev, amount blkio.Amount) policy.Setting {
	return policy.Setting{Value: blkio.Value{Address: blkio.Address{Key: key, Dev: dev}, Amount: amount}}
}
