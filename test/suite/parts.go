package suite

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A node has two processors, and its tests mostly wait: for a limit to show, for the runtime, for a pass of the reconciler. So a
// machine with four CPUs has two nodes by default, with some of the folders each.

// folder is one of test/e2e: tests that need the same of a node.
type folder struct {
	name   string
	tests  []string
	proofs []string // those of tests that are marked with proofMark
}

// proofMark ends the comment of a test that takes so long that it runs with a proof only. Otherwise it does not run at all, and so does
// not count as passed.
const proofMark = "//e2e:proof"

// foldersIn returns the folders of a directory. Others there are packages that the tests use.
func foldersIn(dir string) ([]folder, error) {
	mains, err := filepath.Glob(filepath.Join(dir, "*", "main_test.go"))
	if err != nil {
		return nil, err
	}
	var out []folder
	for _, main := range mains {
		of := filepath.Dir(main)
		f, err := readFolder(of)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no folder with tests in %s", dir)
	}
	return out, nil
}

// readFolder reads the names of the tests in the Go files of a directory.
func readFolder(dir string) (folder, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return folder{}, err
	}
	out := folder{name: filepath.Base(dir)}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return folder{}, err
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") || f.Name.Name == "TestMain" {
				continue
			}
			out.tests = append(out.tests, f.Name.Name)
			if isProof(f.Doc) {
				out.proofs = append(out.proofs, f.Name.Name)
			}
		}
	}
	if len(out.tests) == 0 {
		return folder{}, fmt.Errorf("no tests in %s", dir)
	}
	return out, nil
}

func isProof(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return c.Text == proofMark })
}

// choose returns the folders that a list names, all if it is empty, and that have a test which run chooses, the
// regular expression of go test.
func choose(all []folder, list, run string) ([]folder, error) {
	if list != "" {
		names := strings.Fields(list)
		for _, name := range names {
			if !slices.ContainsFunc(all, func(f folder) bool { return f.name == name }) {
				return nil, fmt.Errorf("E2E_PART: test/e2e has no folder %q", name)
			}
		}
		all = slices.DeleteFunc(slices.Clone(all), func(f folder) bool { return !slices.Contains(names, f.name) })
	}
	outer, err := regexp.Compile(outerTests(run))
	if err != nil {
		return nil, fmt.Errorf("E2E_RUN: %w", err)
	}
	var out []folder
	for _, f := range all {
		if slices.ContainsFunc(f.tests, outer.MatchString) {
			out = append(out, f)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no test matches E2E_RUN=%q; some need E2E_PROOF=1", run)
	}
	return out, nil
}

// outerTests returns the part of go test's regular expression that is about tests, without those about their cases:
// "A|B" of "A/a|B/b". As for go test, a slash or a bar within brackets is of the expression.
func outerTests(run string) string {
	var out strings.Builder
	depth, isOuter, isEscaped := 0, true, false
	for _, c := range run {
		switch {
		case isEscaped:
			isEscaped = false
		case c == '\\':
			isEscaped = true
		case c == '(' || c == '[':
			depth++
		case c == ')' || c == ']':
			depth--
		case c == '/' && depth == 0:
			isOuter = false
		case c == '|' && depth == 0:
			isOuter = true
		}
		if isOuter {
			out.WriteRune(c)
		}
	}
	return out.String()
}

// parts divides folders into n parts that take about the same time. Each folder is in one part.
func parts(folders []folder, n int, took *times) [][]folder {
	lasts := func(f folder) time.Duration { return took.of(f.tests) }
	longestFirst := slices.SortedStableFunc(slices.Values(folders), func(a, b folder) int { return cmp.Compare(lasts(b), lasts(a)) })
	out, sums := make([][]folder, n), make([]time.Duration, n)
	for _, f := range longestFirst {
		least := slices.Index(sums, slices.Min(sums))
		out[least] = append(out[least], f)
		sums[least] += lasts(f)
	}
	return out
}
