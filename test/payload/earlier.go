package payload

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/test/chart"
)

// Earlier is the directory of the payload with the program, the image EarlierImage, the chart and the Debian package of an earlier commit.
const (
	Earlier      = "earlier"
	EarlierImage = repository + ":earlier"
)

// checkOut writes the files of the last release before this commit, or without one of the 20th commit before, to $1.
const checkOut = `
commit=$(git describe --tags --abbrev=0 --match='v*' HEAD~1 2>/dev/null || git rev-parse --verify --quiet 'HEAD~20^{commit}') ||
	{ echo "this checkout has neither a release nor HEAD~20, which a proof updates from: fetch more of its history"; exit 1; }
git archive --format=tar "$commit" | tar -x -C "$1"`

// AddEarlier writes Earlier into dir, if one of the programs needs it.
func AddEarlier(ctx context.Context, module, dir string, programs ...Program) error {
	if !slices.ContainsFunc(programs, func(p Program) bool { return p.Cluster || p.Deb }) {
		return nil
	}
	src, err := os.MkdirTemp("", "earlier-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(src)
	git := exec.CommandContext(ctx, "sh", "-c", checkOut, "sh", src)
	git.Dir = filepath.Join(module, "..") // git archives what is below
	if out, err := git.CombinedOutput(); err != nil {
		return fmt.Errorf("check out an earlier commit: %w: %s", err, out)
	}
	program := filepath.Join(dir, Earlier, "nri-blkio")
	err = play(ctx, []step{
		{src, []string{"build", "-trimpath", "-ldflags=-s -w", "-o", program, "./cmd/nri-blkio"}},
		{module, []string{"run", "-trimpath", "./image", "-o", program + ".tar", "-name", EarlierImage, "-path", "nri-blkio", "-binary", program}},
		{filepath.Join(src, "tools/release"), []string{"run", "./package", "-o", program + ".deb"}},
	})
	if err != nil {
		return fmt.Errorf("build an earlier commit: %w", err)
	}
	c, err := chart.Open(ctx, filepath.Join(src, "deploy"))
	if err == nil {
		_, err = c.Package(ctx, chart.Release{Dir: filepath.Dir(program), Version: chartVersion, Repository: repository, Digest: digest, Time: time.Unix(0, 0)})
	}
	return err
}
