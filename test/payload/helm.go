package payload

import (
	"context"
	"os"
	"path/filepath"

	"github.com/nri-blkio/nri-blkio/test/node"
)

// Helm is the file of addHelm in the payload.
const Helm = "helm"

// addHelm writes helm into dir.
func addHelm(ctx context.Context, dir string) error {
	helm, err := node.Helm(ctx, node.Config{Log: os.Stderr})
	if err != nil {
		return err
	}
	data, err := os.ReadFile(helm)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, Helm), data, 0o755)
}
