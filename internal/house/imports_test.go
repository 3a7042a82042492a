package house

import (
	"cmp"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// importTable has a line for each package of the module: its kind, and what it may import besides. A file may have a line of
// its own. Imports run cmd -> plugin -> policy -> blkio. Tests may import more. "PACKAGE/..." has the packages below it too.
//
//   - any: everything.
//   - kernel: the standard library without log and net. Only these packages and cmd access the operating system.
//   - pure: without os, io, syscall and unsafe as well. What a package knows of the node is given to it.
//   - table: without sync and time as well. It is a function of its arguments.
//
// Libraries return errors: those with logrus get their logger from cmd.
const importTable = `
blkio                   pure    # values and formats
blkio/diskmodel         pure    blkio
blkio/kernel            pure    io/fs
blkio/hostfs            kernel  github.com/cyphar/filepath-securejoin github.com/prometheus/procfs unix
blkio/cgroupfs          kernel  blkio unix
blkio/storage           kernel  blkio unix
blkio/calibrate         kernel  blkio blkio/cgroupfs blkio/diskmodel blkio/storage github.com/prometheus/procfs unix # reads and writes disks
blkio/bpf               pure    github.com/cilium/ebpf/...
blkio/writeback         kernel  blkio blkio/bpf github.com/cilium/ebpf/... unix
blkio/wait              kernel  blkio blkio/bpf blkio/cgroupfs github.com/cilium/ebpf/... unix

policy                  pure    blkio policy/annotation policy/quote policy/spelling policy/strict
                                field k8s.io/apimachinery/pkg/labels k8s.io/apimachinery/pkg/selection
policy/quote            pure
policy/spelling         pure    policy/quote
policy/annotation       pure    blkio policy/quote policy/spelling quantity k8s.io/apimachinery/pkg/api/validate/content
policy/grant            pure    blkio policy policy/annotation
policy/budget           pure    blkio policy policy/annotation policy/quote
policy/strict           pure    io policy/quote policy/spelling field go.yaml.in/yaml/v3 sigs.k8s.io/json sigs.k8s.io/yaml # io.EOF of a decoder

plugin/bounded          pure
plugin/reminder         pure
plugin/volumepath       pure
plugin/node/guard       pure
plugin/node/queue       pure
plugin/node/metrics     pure    blkio plugin/podmetrics policy policy/annotation prometheus
plugin/node/notice      pure    plugin/podevent policy logrus
plugin/node/layers      pure    plugin/bounded plugin/inventory
plugin/node/cause       pure    io/fs blkio blkio/cgroupfs plugin/bounded plugin/podevent policy/annotation
plugin/node/lifecycle   table
plugin/repair/filestate table
plugin/recovery         pure    plugin/bounded plugin/reminder logrus prometheus
plugin/health           pure    blkio/hostfs

plugin/inventory        pure    blkio plugin/volumepath policy/... # builds on every system, as the next ones
plugin/podfacts         pure    policy policy/annotation
plugin/record           pure    blkio plugin/podfacts policy/...
plugin/record/xattr_linux.go pure blkio/cgroupfs policy/...
plugin/enforce/plan     pure    blkio plugin/podfacts plugin/record policy/...
plugin/manifest         pure    io io/fs policy/... field quantity go.yaml.in/yaml/v3
plugin/check            pure    blkio blkio/diskmodel plugin/enforce/plan plugin/inventory plugin/manifest plugin/podfacts plugin/record plugin/volumepath policy/...

plugin/mailbox          pure    io/fs blkio/hostfs plugin/reminder policy/quote sigs.k8s.io/json # a boundary of privilege
plugin/poddoc           pure    plugin/mailbox plugin/podfacts policy policy/annotation policy/quote
plugin/podevent         pure    plugin/mailbox plugin/poddoc policy/annotation policy/quote
plugin/nodereport       pure    policy/quote # builds on every system
plugin/recorder         pure    blkio/hostfs plugin/mailbox plugin/podevent plugin/reminder logrus prometheus
plugin/contested        pure    plugin/podevent plugin/reminder plugin/repair policy/quote
plugin/cluster          pure    io io/fs net net/http blkio/hostfs plugin/health plugin/mailbox plugin/nodereport plugin/poddoc plugin/podevent
                                plugin/podfacts plugin/reminder
                                policy policy/annotation logrus prometheus golang.org/x/time/rate google.golang.org/protobuf/encoding/protowire
                                k8s.io/api/coordination/v1 k8s.io/api/core/v1 k8s.io/api/events/v1 k8s.io/api/storage/v1
                                k8s.io/apimachinery/pkg/...
                                # No clientset: it takes 36 MB of program, and 1.6 MiB of memory in each part.
                                k8s.io/client-go/rest

plugin/enforce          pure    io/fs blkio blkio/cgroupfs plugin/enforce/plan plugin/record policy
plugin/handover         pure    blkio blkio/cgroupfs plugin/bounded plugin/inventory plugin/recovery plugin/reminder policy logrus
plugin/iocost           pure    blkio blkio/cgroupfs blkio/diskmodel policy
plugin/iocost/follow    pure    blkio blkio/diskmodel
plugin/shares           pure    blkio blkio/cgroupfs policy
plugin/weights          pure    io/fs blkio blkio/calibrate blkio/cgroupfs blkio/diskmodel blkio/storage plugin/bounded plugin/health
                                plugin/iocost plugin/iocost/follow plugin/recovery plugin/reminder plugin/shares policy logrus prometheus
plugin/burst            pure    blkio blkio/cgroupfs blkio/hostfs plugin/recovery plugin/reminder logrus prometheus golang.org/x/sync/errgroup
plugin/podmetrics       pure    blkio blkio/cgroupfs plugin/bounded prometheus
plugin/repair           pure    io/fs blkio blkio/cgroupfs blkio/hostfs blkio/kernel blkio/storage blkio/writeback plugin/health plugin/record
                                plugin/recovery plugin/reminder plugin/repair/filestate policy logrus prometheus golang.org/x/time/rate
plugin/runtimeconfig    pure    io/fs net blkio blkio/hostfs blkio/storage plugin/inventory logrus github.com/pelletier/go-toml/v2
                                github.com/containerd/containerd/api/services/introspection/v1 k8s.io/cri-api/pkg/apis/runtime/v1
                                google.golang.org/grpc google.golang.org/grpc/credentials/insecure google.golang.org/grpc/status
plugin/node             pure    blkio blkio/cgroupfs blkio/kernel blkio/storage plugin/bounded plugin/burst plugin/enforce plugin/enforce/plan
                                plugin/handover plugin/inventory plugin/node/cause plugin/node/guard plugin/node/layers plugin/node/lifecycle
                                plugin/node/metrics plugin/node/notice plugin/node/queue plugin/nodereport plugin/podevent plugin/podfacts plugin/podmetrics plugin/record plugin/recovery
                                plugin/reminder plugin/weights policy/... logrus prometheus
plugin                  pure    io net blkio blkio/hostfs plugin/bounded plugin/burst plugin/enforce/plan plugin/health plugin/inventory plugin/mailbox
                                plugin/node plugin/node/cause plugin/nodereport plugin/poddoc plugin/podevent plugin/podfacts plugin/recovery plugin/reminder
                                plugin/weights policy/... logrus prometheus k8s.io/apimachinery/pkg/util/wait
                                github.com/containerd/nri/pkg/api github.com/containerd/nri/pkg/stub # no other package knows NRI

plugin/inspect          pure    io io/fs blkio/... plugin/burst plugin/check plugin/health plugin/inventory plugin/iocost plugin/record plugin/repair
                                plugin/shares plugin/volumepath plugin/weights policy/...
plugin/why              pure    blkio blkio/cgroupfs blkio/wait blkio/writeback plugin/inspect plugin/record plugin/runtimeconfig policy policy/annotation
plugin/clear            pure    blkio blkio/cgroupfs plugin/enforce plugin/health plugin/inspect plugin/record plugin/weights
plugin/report           pure    io blkio blkio/calibrate blkio/diskmodel blkio/storage internal/terminal plugin/check plugin/health
                                plugin/inspect plugin/iocost plugin/manifest plugin/record plugin/repair plugin/why policy sigs.k8s.io/yaml
plugin/part             pure    plugin/health plugin/recovery plugin/reminder policy logrus prometheus golang.org/x/sync/errgroup
plugin/policyfile       pure    internal/terminal plugin/recovery plugin/reminder policy policy/quote logrus prometheus
plugin/metricsserver    pure    log net net/http logrus prometheus github.com/prometheus/client_golang/prometheus/collectors/...
                                github.com/prometheus/client_golang/prometheus/promhttp golang.org/x/net/netutil

internal/terminal       pure    io sigs.k8s.io/yaml
internal/fakenode       any
internal/house          any
cmd/nri-blkio           any
cmd/kubectl-blkio       any
`

const module = "github.com/nri-blkio/nri-blkio/"

// room is a line of the table.
type room struct {
	kind    string
	imports []string
}

// kinds has the first elements of the paths in the standard library that the packages of a kind may not import.
var kinds = map[string][]string{
	"any":    nil,
	"kernel": {"log", "net"},
	"pure":   {"log", "net", "os", "io", "syscall", "unsafe"},
	"table":  {"log", "net", "os", "io", "syscall", "unsafe", "sync", "time"},
}

// parseImportTable returns the rooms by path.
func parseImportTable(t *testing.T) map[string]room {
	t.Helper()
	long := map[string]string{
		"logrus": "github.com/sirupsen/logrus", "prometheus": "github.com/prometheus/client_golang/prometheus", "unix": "golang.org/x/sys/unix",
		"field": "k8s.io/apimachinery/pkg/util/validation/field", "quantity": "k8s.io/apimachinery/pkg/api/resource",
	}
	out, name := map[string]room{}, ""
	for line := range strings.Lines(importTable) {
		text, _, _ := strings.Cut(line, "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		if !strings.HasPrefix(line, " ") {
			name = words[0]
			_, isKind := kinds[words[1]]
			if _, isTwice := out[name]; isTwice || !isKind {
				t.Fatalf("invalid line %q", line)
			}
			out[name] = room{kind: words[1]}
			words = words[2:]
		}
		r := out[name]
		for _, word := range words {
			r.imports = append(r.imports, cmp.Or(long[word], word))
		}
		out[name] = r
	}
	return out
}

// allows reports whether a package may import another one. The path of one of this module is that below its root.
func (r room) allows(imported string) bool {
	if r.kind == "any" || slices.ContainsFunc(r.imports, func(pattern string) bool { return matches(pattern, imported) }) {
		return true
	}
	first, _, _ := strings.Cut(imported, "/")
	return isStandard(first) && !slices.Contains(kinds[r.kind], first)
}

// matches reports whether a path is that of a pattern, or below it if the pattern ends in "/...".
func matches(pattern, imported string) bool {
	above, isTree := strings.CutSuffix(pattern, "/...")
	return imported == above || isTree && strings.HasPrefix(imported, above+"/")
}

// isStandard reports whether a path that begins so is one of the standard library, and not of this module.
func isStandard(first string) bool {
	_, err := os.Stat(filepath.Join(root, first))
	return err != nil && !strings.Contains(first, ".")
}

// TestImports verifies that each package imports only what the table allows, and that the table has each package and no other
// one.
func TestImports(t *testing.T) {
	table, used := parseImportTable(t), map[string]bool{}
	for file, imports := range imports(t) {
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "test/") || strings.HasPrefix(file, "tools/") {
			continue
		}
		name := file
		if _, hasOwn := table[name]; !hasOwn {
			name = path.Dir(file)
		}
		r, known := table[name]
		if used[name] = true; !known {
			t.Errorf("the table does not have %s", name)
		}
		for _, imported := range imports {
			if known && !r.allows(imported) {
				t.Errorf("%s: %s may not import %s", file, name, imported)
			}
		}
	}
	for name, r := range table {
		if !used[name] {
			t.Errorf("%s is in the table and does not exist", name)
		}
		for _, pattern := range r.imports {
			if problem := invalidImport(name, strings.TrimSuffix(pattern, "/...")); problem != "" {
				t.Errorf("%s: %s: %s", name, pattern, problem)
			}
		}
	}
}

// invalidImport returns why no package may have an import in the table, or "".
func invalidImport(name, imported string) string {
	layers := []string{"blkio", "policy", "plugin", "cmd"}
	of, _, _ := strings.Cut(name, "/")
	first, _, _ := strings.Cut(imported, "/")
	switch _, err := os.Stat(filepath.Join(root, imported)); {
	case isStandard(first) || strings.Contains(first, "."):
	case err != nil:
		return "no such package"
	case slices.Index(layers, first) > slices.Index(layers, of):
		return "imports run cmd -> plugin -> policy -> blkio"
	case imported == "plugin/report":
		return "only cmd prints"
	}
	return ""
}

// TestImportsNowhere verifies that no file, tests and other modules included, imports what the program does without.
func TestImportsNowhere(t *testing.T) {
	all := imports(t)
	for _, rule := range []struct{ pattern, except, why string }{
		{"github.com/stretchr/testify/...", "", "stdlib testing with go-cmp"},
		{"math/rand", "", "math/rand/v2"},
		{"k8s.io/client-go/...", "plugin/cluster/ test/", "only plugin/cluster speaks with the API server"},
		{"k8s.io/api/...", "plugin/cluster/ test/", "only plugin/cluster speaks with the API server"},
	} {
		for file, imports := range all {
			isExcepted := slices.ContainsFunc(strings.Fields(rule.except), func(dir string) bool { return strings.HasPrefix(file, dir) })
			if !isExcepted && slices.ContainsFunc(imports, func(imported string) bool { return matches(rule.pattern, imported) }) {
				t.Errorf("%s imports %s: %s", file, rule.pattern, rule.why)
			}
		}
	}
}

// imports returns the imports of each file below the root. The path of a package of this module is that below its root.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && name != "."):
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		out[name] = nil
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			out[name] = append(out[name], strings.TrimPrefix(imported, module))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestImportTable verifies that the kinds and the patterns of the table forbid what they are to forbid.
func TestImportTable(t *testing.T) {
	table := parseImportTable(t)
	for text, want := range map[string]bool{
		"blkio strings": true, "blkio time": true, "blkio io": false, "blkio os": false, "blkio policy": false, "blkio golang.org/x/sys/unix": false,
		"blkio/kernel io/fs": true, "blkio/kernel io": false, "blkio/storage os/exec": true, "blkio/storage net/http": false, "blkio/storage log/slog": false,
		"plugin/node policy/quote": true, "plugin/node policy": true, "plugin/enforce policy": true, "plugin/enforce policy/quote": false,
		"plugin/node/lifecycle time": false, "plugin/node/lifecycle sync/atomic": false, "plugin/bounded time": true,
		"plugin net": true, "plugin net/http": false, "plugin/record blkio/cgroupfs": false, "plugin/record/xattr_linux.go blkio/cgroupfs": true,
		"cmd/nri-blkio os": true, "plugin/repair unsafe": false,
	} {
		name, imported, _ := strings.Cut(text, " ")
		if r, ok := table[name]; !ok || r.allows(imported) != want {
			t.Errorf("%s: allowed %t, want %t", text, !want, want)
		}
	}
	for text, want := range map[string]string{
		"policy plugin": "imports run", "plugin/check plugin/report": "only cmd prints", "plugin plugin/absent": "no such package", "plugin policy": "", "plugin sync": "",
	} {
		name, imported, _ := strings.Cut(text, " ")
		if got := invalidImport(name, imported); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
