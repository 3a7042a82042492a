package suite

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/test/node"
)

// request is what the environment asks for.
type request struct {
	cfg     node.Config
	folders []folder // those that have a test to run
	took    *times   // of the last run of all tests
	table   string   // TABLE: the table of the documentation to measure
	// matrix is NODE_MATRIX: "full" for all nodes, and the tables that are made of that; "row" for a row of the matrix about the
	// one node.
	matrix string
	options
}

// options are those of the test binaries.
type options struct {
	tests string // E2E_RUN: a regular expression; "": all
	// proof is true for E2E_PROOF, a table and the whole matrix: the tests measure as long as for these.
	proof    bool
	scenario string // SCENARIO_TIME: how long each scenario is measured
	soak     string // SOAK_PODS: how many pods the soak has
	seed     string // SOAK_SEED: replays a soak
}

// only returns a regular expression for these tests.
func only(tests ...string) string { return "^(" + strings.Join(tests, "|") + ")$" }

// requestFrom reads the variables of the environment that are not about the node. E2E_PART names the folders to choose
// among, "" for all.
func requestFrom(cfg node.Config, getenv func(string) string) (request, error) {
	r := request{cfg: cfg, table: getenv("TABLE"), matrix: getenv("NODE_MATRIX")}
	if !slices.Contains([]string{"", "full", "row"}, r.matrix) {
		return request{}, fmt.Errorf("NODE_MATRIX=%q: want full or row", r.matrix)
	}
	r.options = options{
		tests: getenv("E2E_RUN"), proof: r.matrix == "full" || r.table != "" || getenv("E2E_PROOF") != "",
		scenario: getenv("SCENARIO_TIME"), soak: getenv("SOAK_PODS"), seed: getenv("SOAK_SEED"),
	}
	if r.matrix == "row" && r.tests != "" {
		return request{}, fmt.Errorf("NODE_MATRIX=row with E2E_RUN=%q: a row is about whole folders", r.tests)
	}
	if r.table != "" {
		made, ok := tables(cfg)[r.table]
		if !ok {
			return request{}, fmt.Errorf("unknown table %q", r.table)
		}
		if err := made.check(); err != nil {
			return request{}, err // now, not after hours
		}
		r.tests, r.scenario, r.soak = cmp.Or(r.tests, made.tests), cmp.Or(r.scenario, made.scenario), cmp.Or(r.soak, made.soak)
	}
	all, err := foldersIn("../e2e")
	if err != nil {
		return request{}, err
	}
	if !r.proof {
		for i := range all {
			all[i].tests = slices.DeleteFunc(all[i].tests, func(test string) bool { return slices.Contains(all[i].proofs, test) })
		}
	}
	if r.folders, err = choose(all, getenv("E2E_PART"), r.tests); err != nil {
		return request{}, err
	}
	cache, err := node.CacheDir(cfg)
	if err != nil {
		return request{}, err
	}
	r.took = &times{file: filepath.Join(cache, "e2e-times.json")}
	return r, r.took.read()
}

// nodes returns how many nodes of one kind run at the same time. A proof measures: it has the machine for itself.
// A node has two processors. If the nodes have more together than the machine, their kernels spend most of the
// time on waiting for processors that do not run, and a control plane misses its deadlines.
func (r *request) nodes() int {
	if r.proof || r.tests != "" {
		return 1
	}
	return max(1, min(len(r.folders), 2, runtime.NumCPU()/2))
}

// kernelTests are the kernels that lack what other tests need, each with its tests.
var kernelTests = map[string][]string{
	"6.1-affected":    {"TestKernelGate"}, // lacks a correction: by default, files are left to their owners
	"6.12-nothrottle": {"TestKernelFeatures"},
	"6.12-iolatency":  {"TestKernelFeatures", "TestLatencyTargets"},
}

// runs returns the nodes to test. The engines, runtimes and drivers are combined
// on the two kernels of Debian's releases; the newest kernel has the default ones.
func (r *request) runs() []run {
	one := run{cfg: r.cfg, folders: r.folders, took: r.took, options: r.options}
	if r.matrix != "full" {
		return []run{one}
	}
	var out []run
	for _, kernel := range slices.Sorted(maps.Keys(kernelTests)) {
		lacking, tests := one, kernelTests[kernel]
		lacking.cfg.Kernel, lacking.tests = kernel, only(tests...)
		lacking.folders = slices.DeleteFunc(slices.Clone(r.folders), func(f folder) bool {
			return !slices.ContainsFunc(tests, func(test string) bool { return slices.Contains(f.tests, test) })
		})
		if len(lacking.folders) > 0 {
			out = append(out, lacking)
		}
	}
	newest := one
	newest.cfg.Kernel = "7.2"
	out = append(out, newest)
	for _, one.cfg.Kernel = range []string{"6.12", "6.1"} {
		for _, one.cfg.Engine = range node.Choices("engine") {
			for _, one.cfg.Runtime = range node.Choices("runtime") {
				for _, one.cfg.Driver = range node.Choices("driver") {
					if one.cfg.Validate() == nil { // not each engine takes each runtime
						out = append(out, one)
					}
				}
			}
		}
	}
	return out
}

// write writes the table that was asked for, and those of the whole matrix.
func (r *request) write(outcomes []outcome, commit string) error {
	if len(outcomes) == 0 { // no node was played, which has failed
		return nil
	}
	last := outcomes[len(outcomes)-1]
	if r.table != "" {
		made := tables(r.cfg)[r.table]
		return made.write(made.file, r.measured(commit), last)
	}
	if r.matrix == "" {
		return nil
	}
	if !r.proof {
		outcomes[0].node += "; " + r.folderNames() + " of `make test`"
	}
	err := writeTable(page("reference/matrix.md"), commit, outcomes)
	if err == nil && r.matrix == "full" && hasWeights(last) {
		err = writeWeights(page("reference/weights-figures.md"), commit, last)
	}
	return err
}

// folderNames returns the names of the folders, for people.
func (r *request) folderNames() string {
	var names []string
	for _, f := range r.folders {
		names = append(names, f.name)
	}
	return strings.Join(names, ", ")
}

// measured returns the text by which a table has the commit of its figures.
func (r *request) measured(commit string) string {
	if r.table == "scenarios" {
		return r.scenario + ", " + commit
	}
	return commit
}

// made is how a table of the documentation is made.
type made struct {
	tests          string
	scenario, soak string // options of the tests
	file           string
	check          func() error
	write          func(file, commit string, o outcome) error
}

// page returns a file below docs.
func page(name string) string { return filepath.Join("..", "..", "docs", name) }

// tables are the values of TABLE. The soak writes none: its figures are in its output.
func tables(cfg node.Config) map[string]made {
	always := func() error { return nil }
	scenarios := page("reference/scenarios-" + cmp.Or(cfg.Kernel, node.Choices("kernel")[0]) + ".md")
	return map[string]made{
		"scenarios": {
			tests: only("TestScenarios"), scenario: "60s", file: scenarios, write: writeScenarios,
			check: func() error { return ofNode(scenarios, cfg.String()) },
		},
		"storage":   {tests: "^TestStorage", file: page("reference/storage.md"), check: always, write: writeStorage},
		"neighbour": {tests: only("TestNeighbour"), file: page("images/neighbour.svg"), check: always, write: writePlot},
		"weights":   {tests: only(weightTests()...), file: page("reference/weights-figures.md"), check: always, write: writeWeights},
		"compare":   {tests: only("TestCompare"), file: page("explanation/comparison.md"), check: always, write: writeCompare},
		"depths":    {tests: only("TestDepths"), file: page("reference/benchmarks.md"), check: always, write: writeDepths},
		"dashboard": {tests: "^TestMonitoring$/^Scraped$", file: page("images/dashboard.svg"), check: always, write: writeDashboard},
		"soak":      {tests: only("TestSoak"), soak: "1000", check: always, write: func(string, string, outcome) error { return nil }},
	}
}

// weightTests are those whose rows docs/reference/weights-figures.md has.
func weightTests() (tests []string) {
	for _, table := range weightTables() {
		tests = append(tests, table.test)
	}
	return tests
}
