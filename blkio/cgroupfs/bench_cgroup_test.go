package cgroupfs

import (
	"fmt"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

const benchCgroup = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0f7ac8dd.slice/cri-containerd-4f5e.scope"

func BenchmarkReadIOMax(b *testing.B) {
	h, _ := newHierarchy(b, map[string]string{benchCgroup + "/io.max": "8:16 rbps=max wbps=1048576 riops=max wiops=max\n"})
	c := h.Cgroup(benchCgroup)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.ReadIOMax(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	h, _ := newHierarchy(b, map[string]string{benchCgroup + "/io.max": ""})
	c := h.Cgroup(benchCgroup)
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Write(blkio.Line{File: blkio.IOMax, Text: "8:16 wbps=1048576"}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWalk(b *testing.B) {
	files := make(map[string]string)
	for pod := range 250 {
		for _, c := range []string{"a", "b", "pause"} {
			files[fmt.Sprintf("kubepods.slice/kubepods-pod%d.slice/%s.scope/io.max", pod, c)] = ""
		}
	}
	h, _ := newHierarchy(b, files)
	b.ReportAllocs()
	for b.Loop() {
		if err := h.Walk("user.nri-blkio", func(Cgroup, Attribute) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
