package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/policy/quote"
)

const (
	maxFile  = 32 << 20  // bytes of one file
	maxTotal = 256 << 20 // bytes of the files of a directory
	maxFiles = 10_000    // of a directory
)

// Read reads a manifest in YAML or JSON, with any number of documents. Positions have name
// as the file.
//
// Problems of the content are findings, and all other content is read. Read returns an
// error if in cannot be read, or is larger than 32 MiB.
func Read(in io.Reader, name string) (Set, error) {
	set, _, err := read(in, name, false)
	return set, err
}

func read(in io.Reader, name string, lenient bool) (set Set, size int, _ error) {
	data, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return Set{}, 0, fmt.Errorf("read manifest %s: %w", name, err)
	}
	if len(data) > maxFile {
		return Set{}, 0, fmt.Errorf("read manifest %s: larger than %d MiB", name, maxFile>>20)
	}
	d := document{set: &set, file: name, lenient: lenient, seen: map[Finding]bool{}}
	for _, c := range split(data) {
		docs, problem := c.parse()
		for _, n := range docs {
			d.number++
			d.visits = maxVisits + visitsPerByte*len(c.text)
			d.read(n, "", 0)
		}
		if problem != nil {
			d.number++
			d.object = Object{}
			d.report(problem.line, "", Error, "cannot be parsed: "+quote.ASCII(quote.Clip(problem.text, maxField)))
		}
	}
	slices.SortStableFunc(set.Findings, func(a, b Finding) int { return a.compare(b.Position) })
	return set, len(data), nil
}

// ReadFS reads the files with the suffixes .yaml, .yml and .json in fsys, at any depth, in
// the order of their names. It leaves out names that begin with a dot. Documents without a
// kind, such as a kustomization, are among the others. Positions have paths below name.
//
// The error joins the errors of all files. The set has the content of the other files.
func ReadFS(fsys fs.FS, name string) (Set, error) {
	var set Set
	var errs []error
	files, total := 0, 0
	err := fs.WalkDir(fsys, ".", func(p string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("read manifests: %w", err))
			return nil // and the other directories
		case p != "." && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir() || !isManifest(p):
			return nil
		}
		if files++; files > maxFiles {
			return fmt.Errorf("read manifests %s: more than %d files", name, maxFiles)
		}
		found, size, err := readFile(fsys, p, path.Join(name, p))
		if err != nil {
			errs = append(errs, err)
		}
		set.Add(found)
		if total += size; total > maxTotal {
			return fmt.Errorf("read manifests %s: larger than %d MiB", name, maxTotal>>20)
		}
		return nil
	})
	return set, errors.Join(append(errs, err)...)
}

// readFile reads a regular file, or one that a symbolic link leads to: the files of a
// mounted ConfigMap are such links. A FIFO would block.
func readFile(fsys fs.FS, p, name string) (set Set, size int, _ error) {
	info, err := fs.Stat(fsys, p)
	if err != nil {
		return Set{}, 0, fmt.Errorf("read manifest %s: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		return Set{}, 0, nil
	}
	f, err := fsys.Open(p)
	if err != nil {
		return Set{}, 0, fmt.Errorf("read manifest %s: %w", name, err)
	}
	defer f.Close()
	return read(f, name, true)
}

func isManifest(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}
