package runtimeconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
)

// FuzzContainerd verifies that any configuration of containerd gives each handler a directory, or the reason
// why it has none. A file that counts twice counts as once.
func FuzzContainerd(f *testing.F) {
	f.Add("version = 3\nroot = '/r'\n[plugins.'io.containerd.cri.v1.images']\nsnapshotter = 'erofs'\n", "2.1.0")
	f.Add("[plugins.'io.containerd.grpc.v1.cri'.containerd]\nsnapshotter = 'x'\ndefault_runtime_name = 'r'\n"+
		"[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.r]\nsnapshotter = 'devmapper'\n", "v1.7.24")
	f.Add("[proxy_plugins.x]\ntype = 'snapshot'\n[proxy_plugins.x.exports]\nroot = '/p'\n", "")
	f.Add("plugins = 1\n", "2")
	f.Add("[plugins.'io.containerd.snapshotter.v1.overlayfs']\nroot_path = ['/no']\n", "1.6")
	f.Fuzz(func(t *testing.T, config, version string) {
		once, err := parseContainerdFile("config.toml", []byte(config))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "parse config.toml: ") {
				t.Errorf("got %v", err)
			}
			return
		}
		again, err := parseContainerdFile("config.toml", []byte(config))
		if err != nil {
			t.Fatal(err)
		}
		merged := mergeContainerd([]containerdFile{once}, defaultContainerdRoot, version)
		layers := merged.layers()
		for handler, l := range layers.Handlers {
			if (l.Dir == "") == (l.Reason == "") {
				t.Errorf("handler %q: %+v", handler, l)
			}
		}
		if l := layers.Default; (l.Dir == "") == (l.Reason == "") {
			t.Errorf("the default: %+v", l)
		}
		if diff := cmp.Diff(again, once, cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("merging has changed the file:\n%s", diff)
		}
		twice := mergeContainerd([]containerdFile{once, again}, defaultContainerdRoot, version)
		if diff := cmp.Diff(layers, twice.layers()); diff != "" {
			t.Errorf("counted twice (-once, +twice):\n%s", diff)
		}
	})
}

// FuzzCRIO verifies that any configuration of CRI-O gives a directory, or the reason why there is none.
func FuzzCRIO(f *testing.F) {
	f.Add("[storage]\ndriver = 'btrfs'\ngraphroot = '/data'\n", "[crio]\nroot = '/a'\nstorage_option = ['overlay.mount_program=/x']\n")
	f.Add("", "[crio]\nstorage_driver = 'zfs'\n")
	f.Add("[storage.options.overlay]\nmount_program = '/x'\n", "crio = 1\n")
	dir := f.TempDir()
	storage, crio := filepath.Join(dir, storageFiles()[0]), filepath.Join(dir, crioConfig)
	for _, file := range []string{storage, crio} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, storageConf, crioConf string) {
		for file, data := range map[string]string{storage: storageConf, crio: crioConf} {
			if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		g, err := readCRIO(hostfs.Root(dir))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "parse /etc/") {
				t.Errorf("got %v", err)
			}
			return
		}
		if l := g.layers().Default; (l.Dir == "") == (l.Reason == "") {
			t.Errorf("got %+v", l)
		}
	})
}
