package node_test

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScript tells stories of a node at the border of Node. The scripts know no internals. The
// clock is that of a bubble, and each command returns when the plugin is idle: a script is the same each time.
func TestScript(t *testing.T) {
	testscript.RunT(bubble{t}, testscript.Params{
		Dir: filepath.Join("testdata", "script"), Cmds: commands(), RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			w := newWorld(env.T().(bubble).T)
			env.Vars = append(env.Vars, "ESC=\x1b")
			env.Values[worldKey{}] = w
			env.Defer(w.close)
			return nil
		},
	})
}

// bubble runs each script in a bubble with a clock of its own, one after another.
type bubble struct{ *testing.T }

func (b bubble) Run(name string, script func(testscript.T)) {
	b.T.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { script(bubble{t}) }) })
}

func (bubble) Parallel()     {}
func (bubble) Verbose() bool { return testing.Verbose() }

type worldKey struct{}

// command is one command of the scripts. neg is true after a "!", which only the commands with a "!" before their usage take.
type command func(w *world, neg bool, args []string)

// commands returns the commands of the scripts. Each waits until the plugin is idle, except after "now".
func commands() map[string]func(*testscript.TestScript, bool, []string) {
	all, out := map[string]command{}, map[string]func(*testscript.TestScript, bool, []string){}
	for _, part := range []map[string]command{
		creations(), starts(), ends(), edits(), facts(), processes(), nodeDisks(), nodeLayers(), kernel(), written(), told(),
	} {
		for usage, c := range part {
			usage, takesNeg := strings.CutPrefix(usage, "! ")
			name, _, _ := strings.Cut(usage, " ")
			all[name] = func(w *world, neg bool, args []string) {
				w.check(usage, neg && !takesNeg, args)
				c(w, neg, args)
			}
			out[name] = func(ts *testscript.TestScript, neg bool, args []string) {
				w := ts.Value(worldKey{}).(*world)
				w.ts = ts
				all[name](w, neg, args)
				synctest.Wait()
			}
		}
	}
	out["now"] = func(ts *testscript.TestScript, neg bool, args []string) { // a command that something else happens beside
		w := ts.Value(worldKey{}).(*world)
		w.ts = ts
		all[args[0]](w, neg, args[1:])
	}
	return out
}

// check fails the script if a command got too few arguments, or a "!" that has no meaning for it.
func (w *world) check(usage string, neg bool, args []string) {
	required, _, _ := strings.Cut(usage, " [")
	least := len(strings.Fields(required)) - 1
	if neg || len(args) < least {
		w.ts.Fatalf("usage: %s", usage)
	}
}
