package payload

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/nri-blkio/nri-blkio/test/node"
)

// The files of addHelm in the payload.
const (
	Helm          = "helm"
	PreviousChart = "previous-chart.tgz"
	// PreviousFrom has one line, which says where the previous chart comes from.
	PreviousFrom = "previous-chart.txt"
)

// storedChart is a packaged chart of an earlier commit, for a checkout without history: git archive
// --format=tar.gz --prefix=nri-blkio/ COMMIT:deploy/helm/nri-blkio.
const storedChart = "payload/testdata/nri-blkio-chart.tgz"

const chartDir = "deploy/helm/nri-blkio"

// addHelm writes helm and the previous chart into dir. That is the chart as it was before its last change, if the
// checkout has a history, and otherwise the stored one.
func addHelm(ctx context.Context, module, dir string) error {
	helm, err := node.Helm(ctx, node.Config{Log: os.Stderr})
	if err != nil {
		return err
	}
	if err := copyFile(helm, filepath.Join(dir, Helm), 0o755); err != nil {
		return err
	}
	from, err := archiveChart(ctx, filepath.Join(module, ".."), filepath.Join(dir, PreviousChart))
	if err != nil {
		from = fmt.Sprintf("%s, because there is no earlier one in the history: %v", filepath.Base(storedChart), err)
		if err := copyFile(filepath.Join(module, storedChart), filepath.Join(dir, PreviousChart), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, PreviousFrom), []byte(from+"\n"), 0o644)
}

// archiveChart writes the chart of the commit before the last change of the chart, and returns the commit.
func archiveChart(ctx context.Context, repository, file string) (commit string, err error) {
	commit = "HEAD"
	if _, err := git(ctx, repository, "diff", "--quiet", "HEAD", "--", chartDir); err == nil { // it was not changed since
		last, err := git(ctx, repository, "rev-list", "-1", "HEAD", "--", chartDir)
		if err != nil {
			return "", err
		}
		commit = last + "^"
	}
	_, err = git(ctx, repository, "archive", "--format=tar.gz", "--prefix=nri-blkio/", "--output="+file, commit+":"+chartDir)
	return "commit " + commit, err
}

func git(ctx context.Context, repository string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", repository}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), nil
}

func copyFile(from, to string, mode os.FileMode) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, mode)
}
