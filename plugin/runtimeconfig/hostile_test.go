package runtimeconfig

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

const overlayfs = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs"

// TestBadAnswers verifies that an answer of the runtime without a directory is an error, and that the files of
// the node count then.
func TestBadAnswers(t *testing.T) {
	for _, tt := range []struct {
		name    string
		runtime *runtime
		err     string
	}{
		{"no config", &runtime{}, "CRI Status: parse config: unexpected end of JSON input"},
		{"no JSON", &runtime{config: "{"}, "CRI Status: parse config: unexpected end of JSON input"},
		{"a list", &runtime{config: "[]"}, "CRI Status: parse config: json: cannot unmarshal array"},
		{"a number", &runtime{config: `{"containerd":{"snapshotter":7}}`}, "CRI Status: parse config: json: cannot unmarshal number"},
		{"no filesystem", &runtime{config: statusNone, noImages: true}, "CRI ImageFsInfo: no filesystem"},
		{"an error", &runtime{config: statusNone, err: grpcstatus.Error(codes.Unavailable, "starting")}, "CRI Status"},
		{"not CRI", &runtime{config: statusNone, err: grpcstatus.Error(codes.Unimplemented, "unknown service")}, "CRI Status"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node := newNode(t, overlayfs+"/x=")
			tt.runtime.serve(t, node, socket)
			c := Config{HostRoot: node, Endpoint: "unix://" + socket}
			got, err := c.Layers(t.Context(), "containerd", "v2.0.0")
			if err == nil || !strings.Contains(err.Error(), "ask containerd at "+socket+": "+tt.err) {
				t.Errorf("got %v, want %q", err, tt.err)
			}
			if want := (inventory.Layer{Dir: overlayfs}); got.Default != want {
				t.Errorf("got %+v, want %+v", got.Default, want)
			}
		})
	}
}

// TestNoSocket verifies that an endpoint without a listener, or that is another file, is an error. It does not
// hide the contents of the files.
func TestNoSocket(t *testing.T) {
	node := newNode(t, overlayfs+"/x=", "run/plain.sock=x", "run/dir/x=")
	l, err := net.Listen("unix", filepath.Join(node, "run/silent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close() // the file stays, as after a crash of the runtime
	for _, endpoint := range []string{"/run/none.sock", "/run/plain.sock", "/run/dir", "/run/silent.sock", "unix:///run/none.sock"} {
		c := Config{HostRoot: node, Endpoint: endpoint}
		got, err := c.Layers(t.Context(), "containerd", "v2.0.0")
		if err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(endpoint, "unix://")) || errors.Is(err, ErrNoSocket) {
			t.Errorf("%s: %v", endpoint, err)
		}
		if got.Default.Dir != overlayfs {
			t.Errorf("%s: %+v", endpoint, got.Default)
		}
	}
	c := Config{HostRoot: node, Endpoint: NoEndpoint}
	if got, err := c.Layers(t.Context(), "containerd", "v2.0.0"); err != nil || got.Default.Dir != overlayfs {
		t.Errorf("without an endpoint: %+v, %v", got.Default, err)
	}
}

// TestFilesLeadNowhereElse verifies that a symlink on the node leads to a file of the node,
// not to one of this process's own root, and that a loop of links ends.
func TestFilesLeadNowhereElse(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside.toml")
	if err := os.WriteFile(outside, []byte("root = '/stolen'\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const config = "etc/containerd/config.toml"
	for _, tt := range []struct {
		name  string
		links map[string]string
		ok    bool
	}{
		{"an absolute link out of the node", map[string]string{config: outside}, true},
		{"a relative link out of the node", map[string]string{config: "../../../../../../../.." + outside}, true},
		{"a link to itself", map[string]string{config: "config.toml"}, false},
		{"two links to each other", map[string]string{config: "other", "etc/containerd/other": "config.toml"}, false},
		{"a link to nothing", map[string]string{config: "/none"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node := writeTree(t, map[string]string{overlayfs + "/x": ""}, tt.links)
			c := Config{HostRoot: node, Endpoint: NoEndpoint}
			got, err := c.Layers(t.Context(), "containerd", "v2.0.0")
			if strings.Contains(got.Default.Dir, "stolen") {
				t.Fatalf("a file outside of the node counts: %+v", got)
			}
			if (err == nil) != tt.ok || tt.ok && got.Default.Dir != overlayfs || !tt.ok && got.Default.Unknown == "" {
				t.Errorf("got %+v, %v", got.Default, err)
			}
		})
	}
}

// TestUnreadableFiles verifies that a configuration that is there and cannot be read is an
// error: its defaults could name another disk.
func TestUnreadableFiles(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"a directory":      {"etc/containerd/config.toml/x": ""},
		"too large":        {"etc/containerd/config.toml": "#" + strings.Repeat("x", hostfs.MaxFile)},
		"of another type":  {"etc/containerd/config.toml": "root = ['/a']\n"},
		"a number as root": {"etc/containerd/config.toml": "root = 1\n"},
		"not UTF-8":        {"etc/containerd/config.toml": "root = '\xff\xfe'\n"},
		"with a zero byte": {"etc/containerd/config.toml": "root = '/a\x00b'\n"},
	} {
		c := Config{HostRoot: writeTree(t, files, nil), Endpoint: NoEndpoint}
		got, err := c.Layers(t.Context(), "containerd", "v2.0.0")
		if err == nil || got.Default.Unknown == "" || got.Default.Dir != "" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if err := (&Config{HostRoot: c.HostRoot, Containerd: "/etc/containerd/config.toml"}).Validate(); err == nil {
			t.Errorf("%s: it is valid", name)
		}
	}
}
