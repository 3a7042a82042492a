package suite

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// A node has two processors, and its tests mostly wait: for a limit to show, for the runtime, for a pass of the reconciler. So a
// machine with four CPUs has two nodes by default, with one half of the tests each.

// seconds is how long the longest tests take on an emulated node beside another one. It serves only to
// make parts that take about the same time: a test that is not here counts as one of fewSeconds.
var seconds = map[string]int{
	"TestCluster": 700, "TestStorage": 200, "TestLimits": 145, "TestKubelet": 145, "TestScenarios": 145,
	"TestSafety": 90, "TestEnds": 85, "TestDaemonSet": 75, "TestFailClosed": 70, "TestExits": 70,
	"TestHandOverWithinThePod": 50, "TestNoHandOver": 50, "TestFlatShares": 45, "TestRootfsElsewhere": 40,
}

const fewSeconds = 18

// e2eTests returns the names of the tests in the Go files of a directory.
func e2eTests(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" {
				names = append(names, f.Name.Name)
			}
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no tests in %s", dir)
	}
	return names, nil
}

// parts divides tests into n parts that take about the same time, each as a regular expression. Each
// test is in one part.
func parts(tests []string, n int) []string {
	lasts := func(test string) int { return cmp.Or(seconds[test], fewSeconds) }
	longestFirst := slices.SortedStableFunc(slices.Values(tests), func(a, b string) int { return cmp.Compare(lasts(b), lasts(a)) })
	chosen, took := make([][]string, n), make([]int, n)
	for _, test := range longestFirst {
		least := slices.Index(took, slices.Min(took))
		chosen[least] = append(chosen[least], regexp.QuoteMeta(test))
		took[least] += lasts(test)
	}
	var out []string
	for _, names := range chosen {
		out = append(out, "^("+strings.Join(names, "|")+")$")
	}
	return out
}

// add makes o the outcome of both: they ran at the same time.
func (o *outcome) add(part outcome) {
	o.passed, o.failed, o.took = o.passed+part.passed, o.failed+part.failed, max(o.took, part.took)
	o.failures = append(o.failures, part.failures...)
	o.scenarios = append(o.scenarios, part.scenarios...)
	o.storage = append(o.storage, part.storage...)
	o.neighbours = append(o.neighbours, part.neighbours...)
	o.weights = append(o.weights, part.weights...)
}

// lineWriter writes whole lines, each after a prefix, so that those of two nodes do not mix.
type lineWriter struct {
	to     io.Writer
	mu     *sync.Mutex // of all that write to it
	prefix string
	rest   []byte // a line that has not ended
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		i := bytes.IndexByte(w.rest, '\n')
		if i < 0 {
			return len(p), nil
		}
		if err := w.line(w.rest[:i+1]); err != nil {
			return 0, err
		}
		w.rest = w.rest[i+1:]
	}
}

func (w *lineWriter) line(line []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := io.WriteString(w.to, w.prefix+string(line))
	return err
}

// stdout guards the standard output of all nodes.
var stdout sync.Mutex

// printer returns a writer for what a part of the tests prints.
func printer(part string) io.Writer {
	if part == "" {
		return os.Stdout
	}
	return &lineWriter{to: os.Stdout, mu: &stdout, prefix: part + "  "}
}
