package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// cache is a directory of artifacts, each a directory NAME-KEY in which KEY is a
// hash of all it was made from. An artifact that exists is complete: it is built
// under another name and renamed.
type cache struct{ dir string }

// openCache finds the cache directory and makes it.
func openCache(cfg Config) (cache, error) {
	dir := cfg.CacheDir
	if dir == "" {
		dir = os.Getenv("NRI_BLKIO_CACHE")
	}
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return cache{}, fmt.Errorf("cache directory: %w (set NRI_BLKIO_CACHE)", err)
		}
		dir = filepath.Join(user, "nri-blkio")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return cache{}, fmt.Errorf("cache directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return cache{}, fmt.Errorf("cache directory: %w", err)
	}
	return cache{dir: dir}, nil
}

// CacheDir returns the cache directory, which exists.
func CacheDir(cfg Config) (string, error) {
	c, err := openCache(cfg)
	return c.dir, err
}

// cacheKey hashes an artifact's inputs. Each is preceded by its length, so that
// no two lists of inputs run together into the same bytes.
func cacheKey(inputs ...string) string {
	h := sha256.New()
	for _, in := range inputs {
		fmt.Fprintf(h, "%d:%s", len(in), in)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// artifact is something the cache can hold.
type artifact struct {
	name  string // without the key
	key   string
	part  string                                      // the directory of get below the artifact's, for one of several things that are built together
	build func(ctx context.Context, dir string) error // fills the empty directory dir
}

func (c cache) path(a artifact) string { return filepath.Join(c.dir, a.name+"-"+a.key) }

// get returns the artifact's directory, or its part, building it first where it is absent. The
// caller holds the cache's lock.
func (c cache) get(ctx context.Context, cfg Config, a artifact) (string, error) {
	path := c.path(a)
	part := filepath.Join(path, a.part)
	if c.has(a) {
		return part, nil
	}
	cfg.logf("building %s", a.name)
	start := time.Now()
	temp, err := os.MkdirTemp(c.dir, "tmp-"+a.name+"-")
	if err != nil {
		return "", fmt.Errorf("build %s: %w", a.name, err)
	}
	defer os.RemoveAll(temp)
	if err := a.build(ctx, temp); err != nil {
		return "", fmt.Errorf("build %s: %w", a.name, err)
	}
	if err := os.Chmod(temp, 0o755); err != nil {
		return "", fmt.Errorf("build %s: %w", a.name, err)
	}
	if err := os.Rename(temp, path); err != nil {
		return "", fmt.Errorf("build %s: %w", a.name, err)
	}
	c.removeOld(a)
	cfg.logf("built %s in %s", a.name, time.Since(start).Round(100*time.Millisecond))
	return part, nil
}

func (c cache) has(a artifact) bool {
	_, err := os.Stat(c.path(a))
	return err == nil
}

// removeOld removes the artifact's other keys, so that the cache does not grow
// with each change of its inputs. A node that still runs on an old one keeps its
// open files. Errors only cost space.
func (c cache) removeOld(a artifact) {
	entries, _ := os.ReadDir(c.dir)
	for _, e := range entries {
		if isOldArtifact(e.Name(), a) {
			_ = os.RemoveAll(filepath.Join(c.dir, e.Name()))
		}
	}
}

func isOldArtifact(entry string, a artifact) bool {
	key, ok := strings.CutPrefix(entry, a.name+"-")
	if !ok || key == a.key || len(key) != len(a.key) {
		return false
	}
	_, err := hex.DecodeString(key)
	return err == nil
}

// lock takes the file lock under which artifacts are built, so that two builds do
// not race. The kernel drops it with the process, so that it is never stale.
func (c cache) lock(ctx context.Context, cfg Config) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(c.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, fmt.Errorf("lock the cache: %w", err)
	}
	_ = f.Chmod(0o666) // for an ordinary user to boot what root built; only the owner can
	for said := false; ; said = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock the cache: %w", err)
		}
		if !said {
			cfg.logf("another build holds %s, waiting", f.Name())
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("lock the cache: %w", context.Cause(ctx))
		case <-time.After(200 * time.Millisecond):
		}
	}
	// Remains of an interrupted build: no other build runs while this one holds the lock.
	stale, _ := filepath.Glob(filepath.Join(c.dir, "tmp-*"))
	for _, dir := range stale {
		_ = os.RemoveAll(dir)
	}
	return func() { f.Close() }, nil
}

// runDir makes a directory for one node's disks and console. It is locked while
// the node's process lives; those of processes that died are removed first.
func (c cache) runDir() (dir string, remove func(), err error) {
	parent := filepath.Join(c.dir, "run")
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", nil, fmt.Errorf("make the node's directory: %w", err)
	}
	_ = os.Chmod(parent, 0o777|os.ModeSticky) // as for the lock
	entries, _ := os.ReadDir(parent)
	for _, e := range entries {
		removeIfUnlocked(filepath.Join(parent, e.Name()))
	}
	dir, err = os.MkdirTemp(parent, "node-")
	if err != nil {
		return "", nil, fmt.Errorf("make the node's directory: %w", err)
	}
	f, err := lockDir(dir)
	if err != nil {
		return "", nil, fmt.Errorf("lock the node's directory: %w", err)
	}
	return dir, func() {
		_ = os.RemoveAll(dir)
		f.Close()
	}, nil
}

// removeIfUnlocked spares directories younger than a minute: another process may
// have made one and not locked it yet.
func removeIfUnlocked(dir string) {
	info, err := os.Stat(dir)
	if err != nil || time.Since(info.ModTime()) < time.Minute {
		return
	}
	if f, err := lockDir(dir); err == nil {
		_ = os.RemoveAll(dir)
		f.Close()
	}
}

func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// hashFS lists the files of fsys with their contents, as inputs for a key.
func hashFS(fsys fs.FS) (string, error) {
	h := sha256.New()
	err := fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(fsys, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%d:%s%d:", len(path), path, len(data))
		h.Write(data)
		return nil
	})
	return hex.EncodeToString(h.Sum(nil)), err
}
