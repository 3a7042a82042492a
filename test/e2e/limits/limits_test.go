package limits

import (
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// limitsTests are the tests that need a plugin with the default policy and pods of their own, and
// nothing else. A test that stops the plugin, reads its log or changes disks is not among them.
var limitsTests = []struct {
	name string
	test func(t *testing.T)
	// alone is true if nothing may run beside it: it measures rates, or concerns the whole node.
	alone bool
}{
	{"Throughput", testThroughput, true},
	{"VirtualMachine", testVirtualMachine, true},
	{"FirstInstruction", testFirstInstruction, true},
	{"PodTotalThroughput", testPodTotalThroughput, true},
	{"Clear", testClear, true},
	{"OwnerOfContainers", testOwnerOfContainers, true},
	{"SystemdReload", testSystemdReload, true},
	{"Backstop", testBackstop, false},
	{"PodTotalStays", testPodTotalStays, false},
	{"Targets", testTargets, false},
	{"Scopes", testScopes, false},
	{"Untouched", testUntouched, false},
	{"LargeAnnotation", testLargeAnnotation, false},
	{"Refusals", testRefusals, false},
	{"PodRefusals", testPodRefusals, false},
	{"OtherContainersMount", testOtherContainersMount, false},
	{"RefusedLeavesNothing", testRefusedLeavesNothing, false},
	{"Edited", testEdited, false},
	{"Update", testUpdate, false},
	{"SandboxReplaced", testSandboxReplaced, false},
	{"ForgedRecord", testForgedRecord, false},
	{"ExecOutlives", testExecOutlives, false},
}

// TestLimits runs limitsTests with one plugin, since it takes seconds to start one on an emulated
// node. Most of them wait for the reconciler, and run at the same time once the others are done.
func TestLimits(t *testing.T) {
	p := lab.StartPlugin(t)
	t.Cleanup(func() { // before the plugin is killed
		select {
		case <-p.Done:
			t.Errorf("nri-blkio ended with %v", p.Cmd.ProcessState)
		default:
		}
	})
	for _, c := range limitsTests {
		t.Run(c.name, func(t *testing.T) {
			if !c.alone {
				t.Parallel() // it waits until TestLimits returns, and so for the others
			}
			t.Cleanup(func() {
				if t.Failed() { // at the end of all tests the log has much of the others
					t.Logf("log of nri-blkio until now:\n%s", p.Log.Tail())
				}
			})
			c.test(t)
		})
	}
}
