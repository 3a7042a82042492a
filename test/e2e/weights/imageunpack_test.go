package weights

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/nri-blkio/nri-blkio/test/e2e/lab"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
	"github.com/nri-blkio/nri-blkio/test/generated"
)

// unpackCase is a case of TestUnpack.
type unpackCase struct {
	name    string
	writers []string // arguments of fio in each of the pods; nil if they are idle
	policy  string   // "" without the plugin
}

// TestUnpack measures how long a runtime, which is outside of pods, takes to unpack an image of
// 20,000 small files on the shared disk, while eight pods write at full speed. Buffered writers
// keep the processors busy as well, and direct writers do not. It runs with a proof only.
//
//e2e:proof
func TestUnpack(t *testing.T) {
	b := newSlowBench(t, sharedDisk)
	lab.LittleDirty(t)
	archive := manyFiles(t, 20_000)
	buffered, direct := []string{"--rw=write", "--bs=256k"}, []string{"--rw=write", "--bs=1M", "--direct=1"}
	reserve := noise.Policy + "reserve: {system: 30%}\n"
	cases := []unpackCase{
		{name: "idle pods"},
		{name: "direct writers", writers: direct},
		{name: "direct writers, reserve of 30 %", writers: direct, policy: reserve},
		{name: "buffered writers", writers: buffered},
		{name: "buffered writers, reserve of 30 %", writers: buffered, policy: reserve},
	}
	var pods []held
	for i := range 8 {
		pods = append(pods, b.holder(fmt.Sprint("writer", i), nil))
	}
	rows := make([]generated.Row, len(cases))
	for range figureRounds {
		for i := range cases {
			rows[i].Add(b.unpack(t, &cases[i], pods, archive))
		}
	}
	for i := range cases {
		publish(t, &rows[i], cases[i].name)
	}
}

// unpack measures one case: seconds, and MiB per second.
func (b *slowBench) unpack(t *testing.T, c *unpackCase, pods []held, archive string) map[string]float64 {
	t.Helper()
	if c.policy != "" {
		defer b.startFor(t, "--policy", lab.PolicyFile(t, c.policy))()
		b.awaitCost(true)
	}
	if c.writers != nil {
		for i, pod := range pods {
			defer os.Remove(b.shareFile(i))
			_, stop := b.startFio(pod.Cgroup, append(slices.Clone(c.writers), "--overwrite=0", "--size=128M", "--filename="+b.shareFile(i))...)
			defer stop()
		}
	}
	second := b.secondRuntime(t)
	defer second.stop()
	time.Sleep(5 * time.Second) // until what the pods write reaches the disk
	wrote := func() (sum float64) {
		for _, pod := range pods {
			sum += float64(b.counter(cgroup.Dir(pod.Cgroup), "wbytes")) / lab.MiB
		}
		return sum
	}
	out := map[string]float64{}
	before, began := wrote(), time.Now()
	unpacked := make(chan error, 1)
	go func() {
		err := second.unpack(archive)
		out["unpacked"] = time.Since(began).Seconds()
		unpacked <- err
	}()
	time.Sleep(time.Second)
	starting := time.Now()
	b.pods++
	b.end(b.holder(fmt.Sprint("another", b.pods), nil).pod)
	started := time.Since(starting).Seconds()
	if err := <-unpacked; err != nil {
		t.Fatal(err)
	}
	out["started"] = started
	out["processor"], out["disk"] = second.waited("cpu"), second.waited("io")
	second.sync()
	took := time.Since(began).Seconds()
	out["synced"] = took
	if c.writers != nil {
		out["pods"] = (wrote() - before) / took
	}
	t.Log(c.name, out)
	return out
}

// secondRuntime is a containerd of its own with its images on the shared disk, in system.slice
// as that of the node.
type secondRuntime struct {
	t                  *testing.T
	root, unit, socket string
}

func (b *slowBench) secondRuntime(t *testing.T) *secondRuntime {
	t.Helper()
	r := &secondRuntime{t: t, root: filepath.Join(b.dir, "containerd"), unit: "e2e-containerd", socket: "/run/e2e-containerd/containerd.sock"}
	config := filepath.Join(t.TempDir(), "config.toml")
	lab.WriteFile(t, config, "version = 2\ndisabled_plugins = ['io.containerd.grpc.v1.cri', 'io.containerd.nri.v1.nri', 'io.containerd.cri.v1.runtime', 'io.containerd.cri.v1.images']\n")
	program, err := exec.LookPath("containerd")
	if err != nil {
		t.Fatal(err)
	}
	lab.Administer(t, "systemd-run", "--quiet", "--unit="+r.unit, program, "--config", config, "--root", r.root, "--state", "/run/e2e-containerd", "--address", r.socket)
	lab.Eventually(t, "the second runtime answers", func() error { return r.ctr("version") })
	return r
}

func (r *secondRuntime) ctr(args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ctr", append([]string{"--address", r.socket}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ctr %q: %w: %s", args, err, out)
	}
	return nil
}

// unpack unpacks an image, as a pull does after the download.
func (r *secondRuntime) unpack(archive string) error { return r.ctr("images", "import", archive) }

// sync has all of the filesystem on the disk, as the runtime does with image_pull_with_sync_fs.
func (r *secondRuntime) sync() { lab.Administer(r.t, "sync", "-f", r.root) }

// waited returns for how many seconds some thread of the runtime has waited for a resource.
func (r *secondRuntime) waited(resource string) float64 {
	return pressure(r.t, filepath.Join(cgroup.Root, "system.slice", r.unit+".service", resource+".pressure")).Seconds()
}

func (r *secondRuntime) stop() {
	lab.Administer(r.t, "systemctl", "stop", r.unit)
	if err := os.RemoveAll(r.root); err != nil {
		r.t.Error(err)
	}
}

// manyFiles makes the archive of an image with so many files of 2 KiB.
func manyFiles(t *testing.T, count int) string {
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	content := bytes.Repeat([]byte("0123456789abcdef"), 128)
	for i := range count {
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("d%d/f%d", i/100, i), Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	// Without a platform, containerd takes it for an image of another one.
	base, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH})
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(base, l)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.NewTag("docker.io/local/files:1")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "files.tar")
	if err := tarball.WriteToFile(file, ref, image); err != nil {
		t.Fatal(err)
	}
	return file
}
