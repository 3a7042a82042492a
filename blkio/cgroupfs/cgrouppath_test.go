package cgroupfs

import (
	"testing"
)

func TestContainerCgroup(t *testing.T) {
	const pod = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0a1b_2c.slice"
	tests := map[string]struct {
		path, parent, want, err string
	}{
		"systemd":           {path: "kubepods-besteffort-pod0a1b_2c.slice:cri-containerd:4f5e", want: pod + "/cri-containerd-4f5e.scope"},
		"systemd, parent":   {path: "kubepods-besteffort-pod0a1b_2c.slice:crio:4f5e", parent: "/" + pod, want: pod + "/crio-4f5e.scope"},
		"guaranteed":        {path: "kubepods-pod1.slice:cri-containerd:4f5e", want: "kubepods.slice/kubepods-pod1.slice/cri-containerd-4f5e.scope"},
		"bare parent":       {path: "kubepods-pod1.slice:cri-containerd:4f5e", parent: "kubepods-pod1.slice", want: "kubepods.slice/kubepods-pod1.slice/cri-containerd-4f5e.scope"},
		"user manager":      {path: "kubelet-pod1.slice:x:y", parent: "/user.slice/user-1000.slice/user@1000.service/kubelet.slice/kubelet-pod1.slice", want: "user.slice/user-1000.slice/user@1000.service/kubelet.slice/kubelet-pod1.slice/x-y.scope"},
		"other parent":      {path: "a.slice:x:y", parent: "/b.slice", want: "a.slice/x-y.scope"},
		"empty slice":       {path: ":docker:abc", want: "system.slice/docker-abc.scope"},
		"root slice":        {path: "-.slice:docker:abc", want: "docker-abc.scope"},
		"ID is a slice":     {path: "system.slice::my.slice", want: "system.slice/my.slice"},
		"empty prefix":      {path: "system.slice::abc", want: "system.slice/-abc.scope"},
		"cgroupfs":          {path: "/kubepods/besteffort/pod0a1b-2c/4f5e", want: "kubepods/besteffort/pod0a1b-2c/4f5e"},
		"cgroupfs, colon":   {path: "/k8s.io/a:b:c", want: "k8s.io/a:b:c"},
		"cgroupfs, unclean": {path: "//kubepods/./a/", want: "kubepods/a"},
		"empty":             {path: "", err: `cgroups path "": neither SLICE:PREFIX:ID nor absolute`},
		"relative":          {path: "kubepods/pod1", err: `cgroups path "kubepods/pod1": neither SLICE:PREFIX:ID nor absolute`},
		"two parts":         {path: "a.slice:b", err: `cgroups path "a.slice:b": neither SLICE:PREFIX:ID nor absolute`},
		"four parts":        {path: "a.slice:b:c:d", err: `cgroups path "a.slice:b:c:d": neither SLICE:PREFIX:ID nor absolute`},
		"no ID":             {path: "a.slice:b:", err: `cgroups path "a.slice:b:": no unit name in "b:"`},
		"slash in ID":       {path: "a.slice:b:../c", err: `cgroups path "a.slice:b:../c": no unit name in "b:../c"`},
		"no slice":          {path: "a:b:c", err: `cgroups path "a:b:c": invalid slice name "a"`},
		"bare suffix":       {path: ".slice:b:c", err: `cgroups path ".slice:b:c": invalid slice name ".slice": empty part`},
		"dashes":            {path: "a--b.slice:b:c", err: `cgroups path "a--b.slice:b:c": invalid slice name "a--b.slice": empty part`},
		"dash first":        {path: "-a.slice:b:c", err: `cgroups path "-a.slice:b:c": invalid slice name "-a.slice": empty part`},
		"dash last":         {path: "a-.slice:b:c", err: `cgroups path "a-.slice:b:c": invalid slice name "a-.slice": empty part`},
		"path as slice":     {path: "a.slice/a-b.slice:b:c", err: `cgroups path "a.slice/a-b.slice:b:c": invalid slice name "a.slice/a-b.slice"`},
		"dots":              {path: "/kubepods/../..", err: `cgroups path "/kubepods/../..": contains ".."`},
		"dots in parent":    {path: "b.slice:x:y", parent: "/a/../b.slice", err: `cgroups path "b.slice:x:y": contains ".."`},
		"root":              {path: "/", err: `cgroups path "/": is the root cgroup`},
		"newline":           {path: "/a\nb", err: `cgroups path "/a\nb": contains a control character`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ContainerCgroup(tt.path, tt.parent)
			checkError(t, err, tt.err)
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestPodCgroup(t *testing.T) {
	tests := map[string]struct {
		parent, want, err string
	}{
		"systemd":    {parent: "/kubepods.slice/kubepods-pod1.slice", want: "kubepods.slice/kubepods-pod1.slice"},
		"bare slice": {parent: "kubepods-burstable-pod1.slice", want: "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice"},
		"cgroupfs":   {parent: "/kubepods/burstable/pod1", want: "kubepods/burstable/pod1"},
		"relative":   {parent: "kubepods/pod1", want: "kubepods/pod1"},
		"empty":      {parent: "", err: `cgroup parent "": is the root cgroup`},
		"root slice": {parent: "-.slice", err: `cgroup parent "-.slice": is the root cgroup`},
		"dots":       {parent: "/a/..", err: `cgroup parent "/a/..": contains ".."`},
		"bad slice":  {parent: "a--b.slice", err: `cgroup parent "a--b.slice": invalid slice name "a--b.slice": empty part`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := PodCgroup(tt.parent)
			checkError(t, err, tt.err)
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
