package inspect

import (
	"cmp"

	"github.com/nri-blkio/nri-blkio/plugin/check"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/policy"
)

// RunningPolicy returns the policy of the plugin that runs on this node, or the built-in one. The plugin's file can
// be missing here: that of a DaemonSet is in its pods. load reads a policy file, "" for the built-in policy, and
// replaces its mode unless mode is "".
func RunningPolicy(stateDir string, load func(file, mode string) (*policy.Policy, error)) (*policy.Policy, check.PolicySource) {
	builtIn := func(unknown string) (*policy.Policy, check.PolicySource) {
		return policy.Default(), check.PolicySource{Name: check.BuiltIn, Unknown: unknown + "; the built-in one was used"}
	}
	running, err := health.Read(stateDir, health.Limits)
	switch {
	case err != nil:
		return builtIn(err.Error())
	case running == nil:
		return policy.Default(), check.PolicySource{Name: check.BuiltIn + " (no plugin runs on this node)"}
	case running.PolicyOfRuntime:
		return builtIn("the running plugin has that of the runtime's configuration")
	}
	mode := running.Mode
	if running.RuleModes { // then --mode was not given
		mode = ""
	}
	p, err := load(running.Policy, mode)
	if err != nil {
		return builtIn("that of the running plugin cannot be read here: " + err.Error())
	}
	return p, check.PolicySource{Name: cmp.Or(running.Policy, check.BuiltIn) + " (of the running plugin), mode " + running.Mode}
}
