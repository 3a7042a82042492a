package e2e

import "testing"

// TestLimits has the tests that need a plugin with the default policy and pods of their own, and
// nothing else. They share one plugin and run at the same time: on an emulated node it takes
// seconds to start one, and most of them wait for the reconciler. A test that stops the plugin,
// reads its log, measures a rate, changes disks or looks at all pods of the node is not among them.
func TestLimits(t *testing.T) {
	p := startPlugin(t)
	t.Cleanup(func() { // before the plugin is killed
		select {
		case <-p.done:
			t.Errorf("nri-blkio ended with %v", p.cmd.ProcessState)
		default:
		}
	})
	for _, c := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"Backstop", testBackstop},
		{"PodTotalStays", testPodTotalStays},
		{"Targets", testTargets},
		{"Scopes", testScopes},
		{"Untouched", testUntouched},
		{"LargeAnnotation", testLargeAnnotation},
		{"Refusals", testRefusals},
		{"PodRefusals", testPodRefusals},
		{"OtherContainersMount", testOtherContainersMount},
		{"RefusedLeavesNothing", testRefusedLeavesNothing},
		{"Edited", testEdited},
		{"Update", testUpdate},
		{"SandboxReplaced", testSandboxReplaced},
		{"ForgedRecord", testForgedRecord},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() {
				if t.Failed() { // at the end of all tests the log has much of the others
					t.Logf("log of nri-blkio until now:\n%s", p.log.tail())
				}
			})
			c.test(t)
		})
	}
}
