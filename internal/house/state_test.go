package house

import (
	"go/parser"
	"go/token"
	"path"
	"strings"
	"testing"
)

// TestStateStaysLocked verifies that no pointer into a guard.Value outlives the section with
// its lock. In such a package the parts of the value are the types that guard.Value and
// guard.Ref name, such as state and container of plugin/node, and those that these keep. The other code keeps a
// guard.Ref or a copy. Code with the lock neither logs, nor reads or writes on the node: a disk that hangs would hold the lock.
func TestStateStaysLocked(t *testing.T) {
	var files []source
	for _, s := range sources(t, "plugin/node") {
		if path.Dir(s.path) == "plugin/node" {
			files = append(files, s)
		}
	}
	p := newGuarded(files)
	for _, name := range []string{"state", "group", "pod", "container"} {
		if !p.parts[name] {
			t.Errorf("no guard.Value or guard.Ref names %s", name)
		}
	}
	for _, name := range []string{"log", "cgroups", "storage"} {
		if !p.slow[name] {
			t.Errorf("nothing named %s logs, or reads and writes on the node", name)
		}
	}
	for _, problem := range p.check() {
		t.Error(problem)
	}
}

// guardedCode has a value with its lock, and what a package may do with it.
const guardedCode = `package p
type node struct { state *guard.Value[state]; environment }
type environment struct { log logrus.FieldLogger; cgroups *cgroupfs.Hierarchy }
type state struct { parts map[string]*part; index }
type index struct { first *part }
type part struct { details }
type details struct { n int }
type id struct { ref guard.Ref[state, part] }
func (n *node) set(i id) {
	s := n.state.Lock()
	defer n.state.Unlock()
	i.ref.In(s).n = 1
}
func (n *node) copied(i id) details {
	s := n.state.Lock()
	defer n.state.Unlock()
	return i.ref.In(s).details
}
func (s *state) first() *part { return s.parts[""] }
func newPart() *part { return &part{} }
func each(s *state, f func(*part)) { f(s.first()) }
`

// TestGuarded verifies that the rules find each way out of the lock.
func TestGuarded(t *testing.T) {
	const locked = `{
	s := n.state.Lock()
	defer n.state.Unlock()
	`
	for name, tt := range map[string]struct{ code, want string }{
		"none":        {"", ""},
		"result":      {"func (n *node) f() *part " + locked + "return s.first() }", "f has the lock, and has part in its signature"},
		"of a callee": {"func (n *node) f() *part { return n.g() }", "f returns part without having got any"},
		"in a map":    {"func (n *node) f() map[string]*part " + locked + "return s.parts }", "f has the lock, and has part in its signature"},
		"by value":    {"func (n *node) f() []part " + locked + "return []part{*s.first()} }", "f has the lock, and has part in its signature"},
		"constructor": {"func newMethod(n *node) *part { f := func() *part " + locked + "return s.first() }; return f() }", "newMethod locks in a closure"},
		"callback":    {"func (n *node) f(do func(*part)) " + locked + "do(s.first()) }", "f has the lock, and has part in its signature"},
		"half":        {"func (n *node) f() *details " + locked + "return &s.first().details }", "f has the lock, and returns a pointer to details"},
		"field":       {"type kept struct { p *part }", "kept keeps part"},
		"index":       {"func (n *node) f() *index " + locked + "return &s.index }", "f has the lock, and has index in its signature"},
		"global":      {"var kept *state", "kept keeps state"},
		"variable":    {"func (n *node) f() { var p *part; n.each(&p); p.n = 2 }", "f names part without the lock"},
		"channel":     {"func (n *node) f() { c := make(chan *part, 1); n.g(c) }", "f names part without the lock"},
		"stranger":    {"func (o *id) f() { s := o.n.state.Lock(); defer o.n.state.Unlock(); s.parts = nil }", "f locks what belongs to another type"},
		"embedded":    {"type handler struct { *node }; func (n handler) f() " + locked + "s.parts = nil }", ""},
		"goroutine":   {"func (n *node) f() " + locked + "p := s.first(); go func() { p.n = 3 }() }", "f has the lock, and begins what goes on without it"},
		"timer":       {"func (s *state) f() { p := s.first(); time.AfterFunc(1, func() { p.n = 3 }) }", "f has the lock, and begins what goes on without it"},
		"log":         {"func (n *node) f() " + locked + "n.log.Info(s) }", "f has the lock, and names log"},
		"logger":      {"func (p *part) f(log logrus.FieldLogger) { log.Info(p) }", "f has the lock, and names log"},
		"node":        {"func (s *state) f(n *node) { n.cgroups.Cgroup(s.first().path) }", "f has the lock, and names cgroups"},
		"closure":     {"func (n *node) f() " + locked + "p := s.first(); n.later(func() " + locked + "p.n = 4 }) }", "f locks in a closure"},
	} {
		t.Run(name, func(t *testing.T) {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, "x.go", guardedCode+tt.code, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			p := newGuarded([]source{{"x.go", file, fset}})
			got := strings.Join(p.check(), "\n")
			if _, after, _ := strings.Cut(got, " "); after != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
