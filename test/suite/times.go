package suite

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// times are how long the tests took in their last run on the node. A file in the cache directory has them.
type times struct {
	file string
	mu   sync.Mutex // guards took
	took map[string]time.Duration
}

// read reads the file, if there is one.
func (t *times) read() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.took = map[string]time.Duration{}
	data, err := os.ReadFile(t.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	seconds := map[string]float64{}
	if err := json.Unmarshal(data, &seconds); err != nil {
		return fmt.Errorf("read %s: %w", t.file, err)
	}
	for test, s := range seconds {
		t.took[test] = time.Duration(s * float64(time.Second))
	}
	return nil
}

// add adds the times of a run, and writes the file.
func (t *times) add(took map[string]time.Duration) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.Copy(t.took, took)
	seconds := map[string]float64{}
	for test, d := range t.took {
		seconds[test] = d.Round(100 * time.Millisecond).Seconds()
	}
	data, err := json.MarshalIndent(seconds, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(t.file+".new", append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(t.file+".new", t.file) // a run that is interrupted leaves a whole file
}

// of returns how long tests take together. A test without a time counts as the mean of all others.
func (t *times) of(tests []string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	mean := time.Second
	if len(t.took) > 0 {
		sum := time.Duration(0)
		for _, d := range t.took {
			sum += d
		}
		mean = sum / time.Duration(len(t.took))
	}
	sum := time.Duration(0)
	for _, test := range tests {
		d, ok := t.took[test]
		if !ok {
			d = mean
		}
		sum += d
	}
	return sum
}

// stopwatch measures how long each test takes by the lines that tell of its start. The times that go test prints leave
// out the cases that run at the same time.
type stopwatch struct {
	now   func() time.Time
	test  string
	began time.Time
	took  map[string]time.Duration
	rest  []byte // a line that has not ended
}

func newStopwatch() *stopwatch { return &stopwatch{now: time.Now, took: map[string]time.Duration{}} }

func (w *stopwatch) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		line, rest, ok := bytes.Cut(w.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		if name, ok := strings.CutPrefix(string(line), "=== RUN   "); ok && !strings.Contains(name, "/") {
			w.next(name)
		}
		w.rest = rest
	}
}

// next ends the test that ran, and starts another one, "" for none.
func (w *stopwatch) next(test string) {
	now := w.now()
	if w.test != "" {
		w.took[w.test] = now.Sub(w.began)
	}
	w.test, w.began = test, now
}

// slowest returns the tests that took longest, for people.
func (w *stopwatch) slowest(n int) string {
	names := slices.SortedFunc(maps.Keys(w.took), func(a, b string) int { return int(w.took[b] - w.took[a]) })
	var out []string
	for _, name := range names[:min(n, len(names))] {
		out = append(out, fmt.Sprintf("%s %v", name, w.took[name].Round(time.Second)))
	}
	return strings.Join(out, ", ")
}
