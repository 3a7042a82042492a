package runtimeconfig

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
)

func writeTree(t *testing.T, files, links map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range links {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// manyImports is one file more than are read.
func manyImports(main string) map[string]string {
	out := map[string]string{main: "imports = ['many/*.toml']\n"}
	for i := range maxContainerdFiles {
		out[fmt.Sprintf("etc/containerd/many/%d.toml", i)] = ""
	}
	return out
}

// rootTest is a node's configuration of containerd, and the root that it has.
type rootTest struct {
	name   string
	files  map[string]string
	links  map[string]string
	config string
	want   string
	err    string
}

func (tt *rootTest) run(t *testing.T) {
	layers, err := runtimeLayers(hostfs.Root(writeTree(t, tt.files, tt.links)), tt.config, "", "")
	if tt.err != "" {
		if err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Fatalf("got %v, want an error with %q", err, tt.err)
		}
		return
	}
	got := path.Dir(layers.Default.Dir) // the rest is the snapshotter's, or the driver's
	if err != nil || got != tt.want {
		t.Fatalf("got %q, %v, want %q", got, err, tt.want)
	}
}

func TestRuntimeRoot(t *testing.T) {
	const main = "etc/containerd/config.toml"
	for _, tt := range []rootTest{
		{name: "nothing is there", want: "/var/lib/containerd"},
		{name: "CRI-O", files: map[string]string{"var/lib/containers/storage/x": ""}, want: "/var/lib/containers/storage"},
		{
			name: "containerd without a configuration, podman beside it", want: "/var/lib/containerd",
			files: map[string]string{"var/lib/containers/storage/x": "", "var/lib/containerd/x": ""},
		},
		{name: "no root in it", files: map[string]string{main: "version = 3\n"}, want: "/var/lib/containerd"},
		{name: "root", files: map[string]string{main: "version = 2\nroot = '/data/ctd'\n[plugins.x]\nroot = '/no'\n"}, want: "/data/ctd"},
		{
			name: "imports, of imports too, the last one wins", want: "/c",
			files: map[string]string{
				main:                           "root = '/a'\nimports = ['conf.d/*.toml', '/etc/more.toml']\n",
				"etc/containerd/conf.d/1":      "root = '/no'\n",
				"etc/containerd/conf.d/1.toml": "root = '/b'\n",
				"etc/containerd/conf.d/2.toml": "version = 3\n",
				"etc/more.toml":                "imports = ['last.toml', '/etc/containerd/config.toml']\n",
				"etc/last.toml":                "root = '/c'\n",
			},
		},
		{name: "another place", config: "/k3s.toml", files: map[string]string{"k3s.toml": "root = '/k3s'\n", main: "root = '/no'\n"}, want: "/k3s"},
		{
			// Paths that a test machine cannot have, so that following
			// them to its own root finds nothing.
			name: "symlinks are the node's: absolute, relative, too far up, of directories, in imports", want: "/c",
			links: map[string]string{
				main:                           "/nri-blkio-test/current",
				"nri-blkio-test/current":       "../../../nri-blkio-test/store/config.toml",
				"etc/containerd/conf.d":        "/nri-blkio-test/conf.d",
				"nri-blkio-test/conf.d/3.toml": "/nri-blkio-test/store/3",
			},
			files: map[string]string{
				"nri-blkio-test/store/config.toml": "root = '/a'\nimports = ['conf.d/*.toml']\n",
				"nri-blkio-test/conf.d/1.toml":     "root = '/b'\n",
				"nri-blkio-test/store/3":           "root = '/c'\n",
			},
		},
		{
			name: "the directory of CRI-O is a symlink", want: "/var/lib/containers/storage",
			links: map[string]string{"var/lib/containers/storage": "/nri-blkio-test/storage"},
			files: map[string]string{"nri-blkio-test/storage/x": ""},
		},
	} {
		t.Run(tt.name, tt.run)
	}
}

// TestRuntimeRootErrors verifies that a configuration that cannot be read is an error.
func TestRuntimeRootErrors(t *testing.T) {
	const main = "etc/containerd/config.toml"
	for _, tt := range []rootTest{
		{name: "a symlink to nothing", links: map[string]string{main: "/nri-blkio-test/none"}, config: "/" + main, err: "read containerd's configuration: open "},
		{name: "a symlink to itself", links: map[string]string{main: "/" + main}, err: "too many levels"},
		{name: "a named one that is not there", config: "/k3s.toml", err: "read containerd's configuration: open "},
		{name: "an import that is not there", files: map[string]string{main: "imports = ['/x.toml']\n"}, err: "imported by /etc/containerd/config.toml: open "},
		{name: "a file without end", files: map[string]string{main: "#" + strings.Repeat("x", hostfs.MaxFile)}, err: "larger than"},
		{name: "too many imports", files: manyImports(main), err: "imports more than 256 files"},
		{name: "no TOML", files: map[string]string{main: "root = \n"}, err: "parse "},
		{name: "root is no string", files: map[string]string{main: "root = 1\n"}, err: "parse "},
	} {
		t.Run(tt.name, tt.run)
	}
}
