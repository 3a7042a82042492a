package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/sirupsen/logrus/hooks/test"
	"sigs.k8s.io/yaml"

	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
)

// clusterRunner returns a runner for the cluster part in an environment.
func clusterRunner(env map[string]string) *runner {
	log, _ := test.NewNullLogger()
	a := &app{getenv: func(key string) string { return env[key] }, opts: options{hostRoot: "/absent", stateDir: "/run/x"}}
	return &runner{app: a, runOptions: runOptions{only: health.Cluster}, log: log}
}

// TestClusterPart verifies that the part needs the name of the node and the address of the API server, and nothing
// of the node.
func TestClusterPart(t *testing.T) {
	const host, port = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
	address := map[string]string{host: "::1", port: "443"}
	for name, tt := range map[string]struct {
		env  map[string]string
		node string
		want string // of the error
	}{
		"no node":        {address, "", "--node-name: required with --only cluster (or set NODE_NAME)"},
		"no address":     {nil, "worker-1", "no address of the API server"},
		"no certificate": {address, "worker-1", "client of the API server: "},
	} {
		t.Run(name, func(t *testing.T) {
			r := clusterRunner(tt.env)
			r.nodeName, r.tokenDir = tt.node, t.TempDir()
			_, err := r.parts(t.Context())
			if err == nil || statusOf(err) != exitUsage || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("status %d, %v", statusOf(err), err)
			}
		})
	}
}

// TestReadDocuments verifies that the limits part reads the documents that are there before it connects, and nothing
// without the flag.
func TestReadDocuments(t *testing.T) {
	r := clusterRunner(nil)
	r.opts.stateDir = t.TempDir()
	if got := r.readDocuments(t.Context(), nil); len(got) > 0 {
		t.Errorf("without the flag: %v", got)
	}
	if _, err := os.Stat(r.exchangeDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the flag the directory is made: %v", err)
	}
	d := poddoc.Document{UID: "0f9bd3ce-7a4e-4b0c-9f52-8d1d5f1c2b3a", Facts: podfacts.Facts{Namespace: "prod", Name: "db-0"}}
	d.Bound()
	data, err := poddoc.Format().Encode(&d)
	if err != nil {
		t.Fatal(err)
	}
	r.exchange, r.exchangeGroup = t.TempDir(), os.Getgid()
	if err := os.WriteFile(filepath.Join(r.exchange, mailbox.FileName(d.UID)), data, 0o600); err != nil {
		t.Fatal(err)
	}
	p := testPlugin(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the loop ends at once
	metrics := r.readDocuments(ctx, p)
	const want = `
# HELP nri_blkio_pod_documents Documents of the cluster part, by whether the limits part can use them. For one that it cannot use, an earlier version counts.
# TYPE nri_blkio_pod_documents gauge
nri_blkio_pod_documents{state="read"} 1
nri_blkio_pod_documents{state="unreadable"} 0
`
	if err := testutil.CollectAndCompare(metrics[0], strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// TestExchangeDir verifies that the limits part makes the directory, and that the cluster part has a default below the state
// directory.
func TestExchangeDir(t *testing.T) {
	r := clusterRunner(nil)
	if got := r.exchangeDir(); got != "/run/x/cluster" {
		t.Errorf("default %s", got)
	}
	r.exchange, r.exchangeGroup = filepath.Join(t.TempDir(), "a"), os.Getgid()
	r.shareExchangeDir()
	info, err := os.Stat(r.exchangeDir())
	if err != nil || info.Mode() != fs.ModeDir|0o770 {
		t.Errorf("%v, %v", info, err)
	}
	r.exchangeGroup = -2 // fails, and only logs
	r.shareExchangeDir()
}

// TestEventsDir verifies that the limits part makes the directory of events, for the group to read, only with its flag, and
// that what it notes is there for the cluster part.
func TestEventsDir(t *testing.T) {
	r := clusterRunner(nil)
	if got := r.newRecorder(); got != nil || r.eventsDir() != "/run/x/events" {
		t.Errorf("without the flag: %v, %s", got, r.eventsDir())
	}
	r.events, r.exchangeGroup = filepath.Join(t.TempDir(), "a"), os.Getgid()
	rec := r.newRecorder()
	info, err := os.Stat(r.eventsDir())
	if err != nil || info.Mode() != fs.ModeDir|0o750 {
		t.Fatalf("%v, %v", info, err)
	}
	pod := podevent.Pod{UID: "0f9bd3ce-7a4e-4b0c-9f52-8d1d5f1c2b3a", Namespace: "prod", Name: "db-0"}
	rec.Note(pod, podevent.Refused, podevent.KeyOf("a"), "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	rec.Run(ctx, nil)
	if d, err := podevent.Format().Read(r.eventsDir(), pod.UID); err != nil || d.Pod != pod || d.Events[0].Note != "a" {
		t.Errorf("%v, %v", d, err)
	}
	r.exchangeGroup = -2 // fails, and only logs
	if r.newRecorder() == nil {
		t.Error("no recorder")
	}
}

// TestExchangeGroup verifies that the manifests and the program agree on the group and on the directory.
func TestExchangeGroup(t *testing.T) {
	type set struct {
		Kind string
		Spec struct {
			Template struct {
				Spec struct {
					SecurityContext struct {
						RunAsUser, RunAsGroup int
						SupplementalGroups    []int
					}
					Volumes    []struct{ HostPath struct{ Path string } }
					Containers []struct {
						Args         []string
						VolumeMounts []struct {
							MountPath string
							ReadOnly  bool
						}
					}
				}
			}
		}
	}
	read := func(name string) (s set) {
		t.Helper()
		data, err := os.ReadFile(filepath.Join("../../deploy/kubernetes", name))
		if err == nil {
			err = yaml.Unmarshal(data, &s)
		}
		if err != nil || s.Kind != "DaemonSet" {
			t.Fatalf("%s: %s, %v", name, s.Kind, err)
		}
		return s
	}
	limits, cluster := read("daemonset.yaml").Spec.Template.Spec, read("cluster.yaml").Spec.Template.Spec
	if c := cluster.SecurityContext; c.RunAsUser != defaultExchangeGroup || c.RunAsGroup != defaultExchangeGroup || len(c.SupplementalGroups) > 0 {
		t.Errorf("the cluster part runs as %+v", c)
	}
	if !slices.Contains(limits.SecurityContext.SupplementalGroups, defaultExchangeGroup) {
		t.Errorf("the limits part is in the groups %v", limits.SecurityContext.SupplementalGroups)
	}
	if args := limits.Containers[0].Args; !slices.Contains(args, "--exchange-dir="+filepath.Join(defaultStateDir, "cluster")) {
		t.Errorf("the limits part has the arguments %q", args)
	}
	if args := limits.Containers[0].Args; !slices.Contains(args, "--events-dir="+filepath.Join(defaultStateDir, "events")) {
		t.Errorf("the limits part has the arguments %q", args)
	}
	// What it could write, the limits part would have to distrust.
	for i, want := range []struct {
		dir      string
		readOnly bool
	}{{"cluster", false}, {"events", true}} {
		dir := filepath.Join(defaultStateDir, want.dir)
		if m := cluster.Containers[0].VolumeMounts[i]; cluster.Volumes[i].HostPath.Path != dir || m.MountPath != dir || m.ReadOnly != want.readOnly {
			t.Errorf("the cluster part has %v as %v", cluster.Volumes[i], m)
		}
	}
	if len(cluster.Volumes) != 2 || len(cluster.Containers[0].VolumeMounts) != 2 {
		t.Errorf("the cluster part has %v of the node", cluster.Volumes)
	}
}
