package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"
)

func TestCacheKey(t *testing.T) {
	key := cacheKey("a", "bc")
	if key != cacheKey("a", "bc") {
		t.Error("the same inputs give another key")
	}
	for _, other := range [][]string{{"ab", "c"}, {"a", "b", "c"}, {"bc", "a"}, {"abc"}, nil} {
		if cacheKey(other...) == key {
			t.Errorf("inputs %q give the key of %q", other, []string{"a", "bc"})
		}
	}
}

func TestHashFS(t *testing.T) {
	hash := func(fsys fstest.MapFS) string {
		t.Helper()
		h, err := hashFS(fsys)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	one := hash(fstest.MapFS{"a": file("1"), "d/b": file("2")})
	if one != hash(fstest.MapFS{"d/b": file("2"), "a": file("1")}) {
		t.Error("the same files give another hash")
	}
	if one == hash(fstest.MapFS{"a": file("2"), "d/b": file("1")}) {
		t.Error("swapped contents give the same hash")
	}
}

func TestCacheGet(t *testing.T) {
	c := cache{dir: t.TempDir()}
	cfg := Config{}.withDefaults()
	builds := 0
	part := func(key string, fail error) artifact {
		return artifact{name: "part", key: key, build: func(_ context.Context, dir string) error {
			builds++
			if err := os.WriteFile(filepath.Join(dir, "file"), []byte(key), 0o644); err != nil {
				return err
			}
			return fail
		}}
	}
	old, current := part(cacheKey("old"), nil), part(cacheKey("new"), nil)
	other := artifact{name: "part-two", key: cacheKey("old"), build: func(context.Context, string) error { return nil }}
	for _, a := range []artifact{other, old, old, current} {
		if _, err := c.get(t.Context(), cfg, a); err != nil {
			t.Fatal(err)
		}
	}
	if builds != 2 {
		t.Errorf("%d builds, want 2: a warm cache builds nothing", builds)
	}
	if c.has(old) || !c.has(current) || !c.has(other) {
		t.Error("want only the artifact's old key removed")
	}
	broken := errors.New("no space")
	failing := part(cacheKey("failing"), broken)
	if _, err := c.get(t.Context(), cfg, failing); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
	if c.has(failing) || !c.has(current) {
		t.Error("a build that fails changes the cache")
	}
	if left, _ := filepath.Glob(filepath.Join(c.dir, "tmp-*")); left != nil {
		t.Errorf("a failed build left %q", left)
	}
}

func TestCacheLock(t *testing.T) {
	c := cache{dir: t.TempDir()}
	cfg := Config{}.withDefaults()
	unlock, err := c.lock(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := c.lock(ctx, cfg); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second lock: error %v, want that of its deadline", err)
	}
	unlock()
	stale := filepath.Join(c.dir, "tmp-part-1")
	if err := os.Mkdir(stale, 0o755); err != nil {
		t.Fatal(err)
	}
	unlock, err = c.lock(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Error("the directory of an interrupted build still exists")
	}
}

func TestRunDir(t *testing.T) {
	c := cache{dir: t.TempDir()}
	live, removeLive, err := c.runDir()
	if err != nil {
		t.Fatal(err)
	}
	defer removeLive()
	dead := filepath.Join(c.dir, "run", "node-dead")
	if err := os.Mkdir(dead, 0o755); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-time.Hour)
	for _, dir := range []string{live, dead} {
		if err := os.Chtimes(dir, past, past); err != nil {
			t.Fatal(err)
		}
	}
	next, removeNext, err := c.runDir()
	if err != nil {
		t.Fatal(err)
	}
	removeNext()
	for dir, want := range map[string]bool{live: true, dead: false, next: false} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s exists: %t, want %t", filepath.Base(dir), err == nil, want)
		}
	}
}
