package bpf

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"
)

// TestRelocate relocates the programs to the structures of real kernels, reduced to the fields that the
// programs read. The programs have variants for several kernels. The verifier removes accesses to fields that a
// kernel does not have. That a program passes the verifiers of these kernels is a matter of the e2e tests.
func TestRelocate(t *testing.T) {
	want := map[string][]string{
		"testdata/linux-6.1.btf":  {"folio___6_18"},
		"testdata/linux-6.12.btf": {"folio___6_18", "folio___6_5"},
		"testdata/linux-6.18.btf": {"folio___6_17", "folio___6_5"},
		"testdata/linux-7.2.btf":  {"folio___6_17", "folio___6_5"},
	}
	got := map[string][]string{}
	for _, name := range kernels(t) {
		kernel, err := btf.LoadSpec(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range []string{"observer", "owner", "wait"} {
			got[name] = append(got[name], poisoned(t, object, kernel)...)
		}
		slices.Sort(got[name])
		got[name] = slices.Compact(got[name])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("structures without a field (-want, +got):\n%s", diff)
	}
}

// poisoned names the structures that an access was not found in.
func poisoned(t *testing.T, object string, kernel *btf.Spec) (names []string) {
	t.Helper()
	spec, err := Load(object)
	if err != nil {
		t.Fatal(err)
	}
	var relocations []*btf.CORERelocation
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			if r := btf.CORERelocationMetadata(&p.Instructions[i]); r != nil {
				relocations = append(relocations, r)
			}
		}
	}
	fixups, err := btf.CORERelocate(relocations, []*btf.Spec{kernel}, binary.LittleEndian, nil)
	if err != nil || len(fixups) < 10 {
		t.Fatalf("%s: %d relocations, %v", object, len(fixups), err)
	}
	for i, f := range fixups {
		if strings.HasSuffix(f.String(), "=poison") {
			names = append(names, strings.Split(relocations[i].String(), `"`)[1])
		}
	}
	return names
}
