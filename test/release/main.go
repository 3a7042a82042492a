// Release adds to the directory of goreleaser what that does not make: the image of two platforms, the chart with the image's
// digest, the checksums of all files, and the manifest of kubectl blkio for krew. The same commit gives the same bytes.
//
//	go run ./release -dist ../dist -image REGISTRY/nri-blkio
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/nri-blkio/nri-blkio/test/chart"
)

func main() {
	dist := flag.String("dist", "../dist", "the directory of goreleaser")
	image := flag.String("image", "registry.example/nri-blkio", "where the image is pushed: the image of the chart")
	flag.Parse()
	if err := run(context.Background(), *dist, *image); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is what goreleaser has made.
type release struct {
	dir, version, commit string
	created              time.Time
	programs             map[string]string // the file of the program for Linux, by architecture
}

func run(ctx context.Context, dist, image string) error {
	r, err := read(dist)
	if err != nil {
		return err
	}
	// Of the commit that goreleaser has built, which need not be the last one any more.
	seconds, err := exec.CommandContext(ctx, "git", "show", "--no-patch", "--format=%ct", r.commit).Output()
	if err != nil {
		return fmt.Errorf("time of commit %s: %w", r.commit, err)
	}
	epoch, err := strconv.ParseInt(strings.TrimSpace(string(seconds)), 10, 64)
	if err != nil {
		return err
	}
	r.created = time.Unix(epoch, 0).UTC()
	digest, err := r.writeImage()
	if err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	c, err := chart.Open(ctx, filepath.Join("..", "deploy"))
	if err != nil {
		return err
	}
	packed, err := c.Package(ctx, chart.Release{Dir: dist, Version: r.version, Repository: image, Digest: digest, Time: r.created})
	if err != nil {
		return fmt.Errorf("package chart: %w", err)
	}
	fmt.Printf("%s@%s\n%s\n", image, digest, packed)
	sums, err := r.writeChecksums()
	if err != nil {
		return err
	}
	return r.writeKrew(filepath.Join("..", krew), sums)
}

// read reads what goreleaser tells of its work.
func read(dist string) (*release, error) {
	var about struct{ Version, Commit string }
	var made []struct{ Path, Goos, Goarch, Type string }
	for name, into := range map[string]any{"metadata.json": &about, "artifacts.json": &made} {
		text, err := os.ReadFile(filepath.Join(dist, name))
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			return nil, err
		}
	}
	r := &release{dir: dist, version: about.Version, commit: about.Commit, programs: map[string]string{}}
	for _, a := range made {
		if a.Type == "Binary" && a.Goos == "linux" && filepath.Base(a.Path) == "nri-blkio" {
			r.programs[a.Goarch] = filepath.Join(filepath.Dir(dist), a.Path)
		}
	}
	if r.version == "" || len(r.programs) != 2 {
		return nil, fmt.Errorf("%s: version %q, programs for Linux %v, want two", dist, r.version, r.programs)
	}
	return r, nil
}

// checksums is the file of all checksums, as sha256sum reads it.
const checksums = "SHA256SUMS"

// writeChecksums writes the checksums of the files whose name has the version: what goreleaser notes for itself has none. It returns
// them by the names of the files.
func (r *release) writeChecksums() (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(r.dir, "*"+r.version+"*"))
	if err != nil {
		return nil, err
	}
	var out strings.Builder
	sums := map[string]string{}
	for _, file := range files {
		sum, err := sha256Of(file)
		if err != nil {
			return nil, err
		}
		sums[filepath.Base(file)] = hex.EncodeToString(sum)
		fmt.Fprintf(&out, "%x  %s\n", sum, filepath.Base(file))
	}
	return sums, os.WriteFile(filepath.Join(r.dir, checksums), []byte(out.String()), 0o644)
}

// krew is the template of the manifest for krew, which has the checksums of archives.
const krew = "deploy/krew/blkio.yaml"

// writeKrew writes the manifest for krew. An archive that the release lacks is an error.
func (r *release) writeKrew(file string, sums map[string]string) error {
	manifest, err := template.ParseFiles(file)
	if err != nil {
		return err
	}
	sum := func(archive string) (string, error) {
		if sums[archive] == "" {
			return "", fmt.Errorf("no archive %s", archive)
		}
		return sums[archive], nil
	}
	var text bytes.Buffer
	if err := manifest.Execute(&text, map[string]any{"Version": r.version, "SHA256": sum}); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, filepath.Base(file)), text.Bytes(), 0o644)
}

func sha256Of(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	_, err = io.Copy(h, f)
	return h.Sum(nil), errors.Join(err, f.Close())
}
