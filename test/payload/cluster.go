package payload

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/nri-blkio/nri-blkio/test/chart"
	"github.com/nri-blkio/nri-blkio/test/node"
)

// Files of addCluster in the payload.
const (
	Helm       = "helm"
	Prometheus = "prometheus"
	Chart      = "nri-blkio-" + chartVersion + ".tgz" // the package of the chart, with the image ImageOfChart
)

const (
	repository   = "registry.example/nri-blkio"
	chartVersion = "0.0.0"
	digest       = "sha256:41cdb9218eb67421aaa65ab7d32cc0277379ad7155a1b878276c71451f79d0f0"
)

// ImageOfChart is the image of the packaged chart, by its digest. There is no registry: the node gives its image this name.
const ImageOfChart = repository + "@" + digest

// addCluster writes into dir what the tests with a control plane need: helm, Prometheus, the plugin of kubectl, and the chart as
// `make release` packages it. module is the directory of the test module.
func addCluster(ctx context.Context, module, dir string) error {
	err := play(ctx, []step{{
		filepath.Join(module, ".."), []string{"build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "kubectl-blkio"), "./cmd/kubectl-blkio"},
	}})
	if err != nil {
		return err
	}
	cfg := node.Config{Log: os.Stderr}
	helm, err := node.Helm(ctx, cfg)
	if err != nil {
		return err
	}
	prometheus, err := node.Prometheus(ctx, cfg)
	if err != nil {
		return err
	}
	for name, file := range map[string]string{Helm: helm, Prometheus: filepath.Join(prometheus, "prometheus")} {
		data, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o755)
		}
		if err != nil {
			return err
		}
	}
	c, err := chart.Open(ctx, filepath.Join(module, "../deploy"))
	if err != nil {
		return err
	}
	_, err = c.Package(ctx, chart.Release{Dir: dir, Version: chartVersion, Repository: repository, Digest: digest, Time: time.Unix(0, 0)})
	return err
}
