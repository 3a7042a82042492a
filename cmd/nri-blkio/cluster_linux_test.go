package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sirupsen/logrus/hooks/test"
	"sigs.k8s.io/yaml"
)

// clusterRunner returns a runner for the cluster part in an environment.
func clusterRunner(env map[string]string) *runner {
	log, _ := test.NewNullLogger()
	a := &app{getenv: func(key string) string { return env[key] }, opts: options{hostRoot: "/absent", stateDir: "/run/x"}}
	return &runner{app: a, runOptions: runOptions{only: onlyCluster}, log: log}
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

// TestExchangeDir verifies that the limits part makes the directory, and its default is below the state directory.
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
					Volumes []struct{ HostPath struct{ Path string } }
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
	if len(cluster.Volumes) != 1 || cluster.Volumes[0].HostPath.Path != filepath.Join(defaultStateDir, "cluster") {
		t.Errorf("the cluster part has %v of the node", cluster.Volumes)
	}
}
