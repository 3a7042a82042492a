package cgroupfs

import "testing"

func TestPodUID(t *testing.T) {
	for in, want := range map[string]string{
		"kubepods.slice/kubepods-podab_cd.slice":                                                                         "ab_cd",
		"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podab_cd.slice/cri-containerd-1.scope":               "ab_cd",
		"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-podab.slice": "ab",
		"/../../kubepods-burstable-podab.slice/x":                                                                        "ab",
		"kubepods/burstable/podab-cd/1234":                                                                               "ab_cd",
		"kubelet/kubepods/podab-cd":                                                                                      "ab_cd",
		"kubepods.slice/kubepods-burstable.slice":                                                                        "",
		"system.slice/my-pod1.slice":                                                                                     "", // not the kubelet's
		"podman/pod1":                                                                                                    "",
		"kubepods/pod":                                                                                                   "",
		".":                                                                                                              "",
		"kubepods/podab/kubepods/podother":                                                                               "ab", // made by a container
		"kubepods.slice/kubepods-podab.slice/cri-containerd-1.scope/kubepods.slice/kubepods-podother.slice": "ab",
	} {
		if got := PodUID(in); got != want {
			t.Errorf("PodUID(%q) is %q, want %q", in, got, want)
		}
	}
}

func TestHoldsPods(t *testing.T) {
	for in, want := range map[string]bool{
		"kubepods.slice": true,
		"kubepods.slice/kubepods-burstable.slice":                                                          true,
		"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podab_cd.slice":                        true,
		"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podab_cd.slice/cri-containerd-1.scope": false,
		"kubepods/burstable/podab-cd":                                                                      true,
		"kubepods/burstable/podab-cd/1234":                                                                 false,
		"kubepods/podab/kubepods/podother":                                                                 false, // made by a container
		"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podab.slice":                                true,
		"system.slice/a.service":                                                                           false,
		".":                                                                                                false,
	} {
		if got := HoldsPods(in); got != want {
			t.Errorf("HoldsPods(%q) is %v", in, got)
		}
	}
}
