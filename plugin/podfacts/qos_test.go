package podfacts

import (
	"testing"

	"github.com/nri-blkio/nri-blkio/policy"
)

func TestQOSOf(t *testing.T) {
	for cgroup, want := range map[string]policy.QOS{
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice": policy.Burstable,
		"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice": policy.BestEffort,
		"/kubepods.slice/kubepods-pod1.slice":                                      policy.Guaranteed,
		"kubepods-burstable-pod1.slice":                                            policy.Burstable,
		"/my.slice/my-kubepods.slice/my-kubepods-besteffort-pod1.slice":            policy.BestEffort,
		"/kubepods/burstable/pod1-2":                                               policy.Burstable,
		"/kubepods/besteffort/pod1":                                                policy.BestEffort,
		"/my/kubepods/pod1":                                                        policy.Guaranteed,
		"/system.slice":                                                            "",
		"/kubepods/burstable":                                                      "",
		"/other/pod1":                                                              "",
		"/kubepods.slice/kubepods-besteffort.slice":                                "",
		"":                          "",
		"kubepods-other-pod1.slice": "",
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod_pod-podx.slice": "",
	} {
		if got := QOSOf(cgroup); got != want {
			t.Errorf("%q is %q, want %q", cgroup, got, want)
		}
	}
}
