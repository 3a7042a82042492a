package runtimeconfig

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

// The sections of containerd's configuration, to be put before a key.
const (
	v2         = "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd]\n"
	v2Runtime  = "[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes."
	v3         = "version = 3\n[plugins.'io.containerd.cri.v1.images']\n"
	v3Runtimes = "[plugins.'io.containerd.cri.v1.runtime'.containerd]\n"
	v3Runtime  = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes."
	v3Plugin   = "[plugins.'io.containerd.snapshotter.v1."
)

// under is a snapshotter's directory below containerd's default root.
func under(name string) inventory.Layer {
	return inventory.Layer{Dir: "/var/lib/containerd/io.containerd.snapshotter.v1." + name}
}

func refused(reason string) inventory.Layer { return inventory.Layer{Reason: reason} }

type byHandler = map[string]inventory.Layer

// layersTest is a configuration of containerd, and where its snapshotters keep writable layers.
type layersTest struct {
	name     string
	config   string
	want     inventory.Layer
	handlers byHandler
}

func (tt *layersTest) run(t *testing.T) {
	host := hostfs.Root(writeTree(t, map[string]string{"etc/containerd/config.toml": tt.config}, nil))
	got, err := runtimeLayers(host, "", "", "")
	if err != nil {
		t.Fatal(err)
	}
	want := inventory.Layers{Default: tt.want, Handlers: tt.handlers}
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestContainerdLayers(t *testing.T) {
	thin := refused(`containerd's snapshotter "devmapper" gives each container a thin device of its own`)
	loop := refused(`containerd's snapshotter "blockfile" gives each container a loop device of its own`)
	erofs := refused(`containerd's snapshotter "erofs" gives each container a loop device of its own`)
	zfs := refused(`containerd's snapshotter "zfs" keeps them in a zfs pool, whose I/O belongs to no container`)
	fuse := refused(`containerd's snapshotter "fuse-overlayfs" has a process write them, and its I/O counts as that process's`)
	proxy := refused(`containerd's snapshotter "nydus" is a process of its own, and containerd's configuration does not say where it keeps them (exports.root)`)
	for _, tt := range []layersTest{
		{name: "nothing said", config: "version = 3\n", want: under("overlayfs")},
		{name: "version 2", config: v2 + "snapshotter = 'native'\n", want: under("native")},
		{name: "version 3", config: v3 + "snapshotter = 'native'\n", want: under("native")},
		{name: "no version, as in an import", config: v2[len("version = 2\n"):] + "snapshotter = 'native'\n", want: under("native")},
		{name: "the section of version 2 in version 3", config: "version = 3\n" + v2[len("version = 2\n"):] + "snapshotter = 'native'\n", want: under("overlayfs")},
		{name: "version 4", config: "version = 4\n" + v3[len("version = 3\n"):] + "snapshotter = 'btrfs'\n", want: under("btrfs")},
		{name: "another root", config: "root = '/data'\n" + v3 + "snapshotter = 'stargz'\n", want: inventory.Layer{Dir: "/data/io.containerd.snapshotter.v1.stargz"}},
		{
			name: "root_path is the one of the snapshotter that is used", want: inventory.Layer{Dir: "/fast/native"},
			config: v3 + "snapshotter = 'native'\n" + v3Plugin + "native']\nroot_path = '/fast/native'\n" + v3Plugin + "overlayfs']\nroot_path = '/no'\n",
		},
		{
			name: "each runtime its own, version 2", want: under("overlayfs"),
			config: v2 + "default_runtime_name = 'kata'\n" + v2Runtime + "kata]\nsnapshotter = 'devmapper'\n" +
				v2Runtime + "crun]\nsnapshotter = 'native'\n" + v2Runtime + "runc]\nruntime_type = 'x'\n",
			handlers: byHandler{"kata": thin, "": thin, "crun": under("native")},
		},
		{
			name: "each runtime its own, version 3", want: under("btrfs"),
			config: v3 + "snapshotter = 'btrfs'\n" + v3Runtimes + "default_runtime_name = 'crun'\n" +
				v3Runtime + "kata]\nsnapshotter = 'blockfile'\n" + v3Runtime + "crun]\nruntime_type = 'x'\n",
			handlers: byHandler{"kata": loop},
		},
		{
			name: "the default runtime is runc", want: under("overlayfs"), config: "version = 3\n" + v3Runtime + "runc]\nsnapshotter = 'native'\n",
			handlers: byHandler{"runc": under("native"), "": under("native")},
		},
		{
			name: "what is for pulling only", want: under("overlayfs"),
			config: v3 + "[plugins.'io.containerd.cri.v1.images'.runtime_platforms.kata]\nsnapshotter = 'native'\n",
		},
		{name: "devmapper", config: v3 + "snapshotter = 'devmapper'\n" + v3Plugin + "devmapper']\nroot_path = '/thin'\n", want: thin},
		{name: "zfs", config: v3 + "snapshotter = 'zfs'\n", want: zfs},
		{name: "erofs", config: v3 + "snapshotter = 'erofs'\n", want: under("erofs")},
		{name: "erofs, size 0", config: v3 + "snapshotter = 'erofs'\n" + v3Plugin + "erofs']\ndefault_size = '0'\n", want: under("erofs")},
		{name: "erofs with images of layers", config: v3 + "snapshotter = 'erofs'\n" + v3Plugin + "erofs']\ndefault_size = '10GiB'\n", want: erofs},
		{name: "fuse-overlayfs, built in or not", config: v3 + "snapshotter = 'fuse-overlayfs'\n", want: fuse},
		{name: "a proxy", config: v3 + "snapshotter = 'nydus'\n[proxy_plugins.nydus]\ntype = 'snapshot'\naddress = '/run/n.sock'\n", want: proxy},
		{
			name: "a proxy that tells", want: inventory.Layer{Dir: "/var/lib/nydus"},
			config: v3 + "snapshotter = 'nydus'\n[proxy_plugins.nydus]\ntype = 'io.containerd.snapshotter.v1'\n[proxy_plugins.nydus.exports]\nroot = '/var/lib/nydus'\n",
		},
		{name: "a proxy of another kind", config: v3 + "snapshotter = 'native'\n[proxy_plugins.native]\ntype = 'content'\n", want: under("native")},
		{name: "what is no table and no text", config: "version = 3\nplugins.x = 1\nplugins.'io.containerd.cri.v1.images'.snapshotter = 7\n", want: under("overlayfs")},
	} {
		t.Run(tt.name, tt.run)
	}
}

// mergeTest is a configuration with an import, and where containerd 1 and 2 keep writable layers.
type mergeTest struct {
	name         string
	first, later string
	one, two     inventory.Layer
}

func (tt *mergeTest) run(t *testing.T) {
	host := hostfs.Root(writeTree(t, map[string]string{
		"etc/containerd/config.toml": "imports = ['later.toml']\n" + tt.first,
		"etc/containerd/later.toml":  tt.later,
	}, nil))
	for version, want := range map[string]inventory.Layer{
		"": tt.one, "1.7.24~ds1": tt.one, "v1.7.27": tt.one, "v2.0.5": tt.two, "2.4.2+unknown": tt.two, "v10.1.0": tt.two,
	} {
		got, err := runtimeLayers(host, "", "containerd", version)
		if err != nil || got.Default != want {
			t.Errorf("containerd %q: got %+v, %v, want %+v", version, got.Default, err, want)
		}
	}
}

// TestContainerdMerges verifies that containerd 1 replaces a plugin's section by a later file's, containerd 2
// merges them key by key.
func TestContainerdMerges(t *testing.T) {
	const runtimes = v2Runtime + "runc]\nruntime_type = 'x'\n"
	for _, tt := range []mergeTest{
		{
			name:  "a later file has another snapshotter",
			first: v2 + "snapshotter = 'native'\n" + runtimes, later: v2 + "snapshotter = 'btrfs'\n" + runtimes,
			one: under("btrfs"), two: under("btrfs"),
		},
		{
			name:  "a later file has none",
			first: v2 + "snapshotter = 'native'\n" + runtimes, later: v2 + "default_runtime_name = 'runc'\n",
			one: under("overlayfs"), two: under("native"),
		},
		{
			name:  "a section without runtimes, whose snapshotter containerd 2 forgets",
			first: v2 + "snapshotter = 'native'\n", later: "",
			one: under("native"), two: under("overlayfs"),
		},
		{
			name:  "the section of the snapshotter",
			first: "version = 2\n" + v3Plugin + "overlayfs']\nroot_path = '/fast'\n",
			later: "version = 2\n" + v3Plugin + "overlayfs']\nupperdir_label = true\n",
			one:   under("overlayfs"), two: inventory.Layer{Dir: "/fast"},
		},
		{
			name:  "version 3 is containerd 2's, whatever it says of itself",
			first: v3 + "snapshotter = 'native'\n", later: v3 + "max_concurrent_downloads = 3\n",
			one: under("native"), two: under("native"),
		},
		{
			name:  "version 2 in an import",
			first: v3 + "snapshotter = 'native'\n", later: v2 + "snapshotter = 'btrfs'\n" + runtimes,
			one: under("btrfs"), two: under("btrfs"),
		},
		{
			name:  "a proxy is replaced as a whole",
			first: v3 + "snapshotter = 'p'\n[proxy_plugins.p]\ntype = 'snapshot'\nexports = {root = '/a', x = 'y'}\n",
			later: "[proxy_plugins.p]\ntype = 'snapshot'\nexports = {root = '/b'}\n",
			one:   inventory.Layer{Dir: "/b"}, two: inventory.Layer{Dir: "/b"},
		},
	} {
		t.Run(tt.name, tt.run)
	}
}
