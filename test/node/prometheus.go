package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// downloadTimeout bounds each call of apt-get.
const downloadTimeout = 5 * time.Minute

// Prometheus returns the directory of the programs prometheus and promtool. They are those of the package of this machine's Debian,
// which is downloaded unless the cache has them. Compiling them would take many minutes.
func Prometheus(ctx context.Context, cfg Config) (string, error) {
	return getLocked(ctx, cfg, artifact{name: "prometheus", key: cacheKey(hostRelease(), "1"), build: downloadPrometheus})
}

func downloadPrometheus(ctx context.Context, dir string) error {
	work, err := os.MkdirTemp("", "prometheus-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := os.Chmod(work, 0o755); err != nil { // apt-get downloads as another user
		return err
	}
	apt := func(args ...string) error {
		ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, "apt-get", append(args, "-q")...)
		cmd.Dir = work
		return runQuietly(cmd)
	}
	if first := apt("download", "prometheus"); first != nil { // the lists of packages may be old
		if err := apt("update"); err != nil {
			return errors.Join(first, err)
		}
		if err := apt("download", "prometheus"); err != nil {
			return err
		}
	}
	files, err := filepath.Glob(filepath.Join(work, "prometheus_*.deb"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("%d packages of Prometheus were downloaded: %w", len(files), err)
	}
	if err := runQuietly(exec.CommandContext(ctx, "dpkg-deb", "-x", files[0], work)); err != nil {
		return err
	}
	for _, name := range []string{"prometheus", "promtool"} {
		if err := copyInto(ctx, filepath.Join(work, "usr/bin", name), dir); err != nil {
			return err
		}
	}
	return nil
}
