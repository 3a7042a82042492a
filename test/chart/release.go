package chart

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Release is a release of the chart: its package, with the image of the same release.
type Release struct {
	Dir                string // where the package is written
	Version            string // of the chart and of the program, which are released together
	Repository, Digest string // of the image
	Time               time.Time
}

// Package writes the package of the chart, and returns its file. The same release gives the same bytes.
func (c *Chart) Package(ctx context.Context, r Release) (string, error) {
	dir, err := os.MkdirTemp("", "chart-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(c.deploy, Dir))); err != nil {
		return "", err
	}
	values := filepath.Join(dir, "values.yaml")
	text, err := os.ReadFile(values)
	if err != nil {
		return "", err
	}
	for _, v := range []struct{ name, value string }{{"repository", r.Repository}, {"digest", r.Digest}} {
		field := "\n  " + v.name + `: ""` + "\n"
		if strings.Count(string(text), field) != 1 {
			return "", fmt.Errorf("%s: not one field %q", values, strings.TrimSpace(field))
		}
		text = []byte(strings.Replace(string(text), field, "\n  "+v.name+": "+v.value+"\n", 1))
	}
	if err := os.WriteFile(values, text, 0o644); err != nil {
		return "", err
	}
	// helm keeps the times of files.
	err = filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(name, r.Time, r.Time)
	})
	if err != nil {
		return "", err
	}
	_, err = c.Helm(ctx, "", "package", dir, "--destination", r.Dir, "--version", r.Version, "--app-version", r.Version)
	return filepath.Join(r.Dir, "nri-blkio-"+r.Version+".tgz"), err
}
