package policy

import (
	"strconv"
	"testing"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// BenchmarkContainer decides for a typical pod: three annotations of this domain among others, 15 mounts.
func BenchmarkContainer(b *testing.B) {
	annotations := map[string]string{
		keyDB:    "/var/lib/postgresql rbps=200Mi wbps=50Mi wiops=2k; rootfs wbps=10Mi",
		keyEach:  "* wbps=20Mi",
		keyTotal: "/var/lib/postgresql wbps=60Mi",
	}
	for i := range 10 {
		annotations["example.com/annotation-"+strconv.Itoa(i)] = "x"
	}
	c := db()
	c.Mounts = append(c.Mounts, mount("/var/lib/postgresql", on(sdc)))
	for i := len(c.Mounts); i < 15; i++ {
		c.Mounts = append(c.Mounts, mount("/volumes/"+strconv.Itoa(i), on(sdb)))
	}
	p, r := Default(), annotation.Parse(annotations)
	resolved := p.of(r)
	if _, err := p.of(r).Container(c); err != nil {
		b.Fatal(err)
	}
	b.Run("ParseRequest", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			annotation.Parse(annotations)
		}
	})
	b.Run("Container", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := resolved.Container(c); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("PodTotal", func(b *testing.B) {
		b.ReportAllocs()
		cs := []Container{c}
		for b.Loop() {
			if _, err := resolved.Total(cs); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("All", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := p.of(annotation.Parse(annotations)).Container(c); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("NothingOfOurs", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := p.of(annotation.Parse(map[string]string{"example.com/a": "x"})).Container(c); err != nil {
				b.Fatal(err)
			}
		}
	})
}
