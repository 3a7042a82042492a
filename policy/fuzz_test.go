package policy

import (
	"math/big"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// FuzzParseRequest: whatever the annotations, nothing panics, each error is
// one short line of printable ASCII and the same each time, and what is
// decided is what the kernel takes.
func FuzzParseRequest(f *testing.F) {
	for _, e := range entryErrors {
		if len(e.value) < 1000 {
			f.Add(keyDB, e.value)
			f.Add(keyTotal, e.value)
		}
	}
	for _, key := range []string{"limits.blkio.noderesource.dev", "weight.blkio.noderesource.dev/container.db", "class.blkio.noderesource.dev/containers", keyEach} {
		f.Add(key, "500")
		f.Add(key, "# all\n* wbps=20Mi; \"/a b\\\"\" riops=2k;\nrootfs wiops=max")
		f.Add(key, "@pgdata wbps=1Mi; /data rbps=1Mi; @scratch wiops=50; @wal wbps=max")
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		annotations := map[string]string{key: value, keyEach: value}
		r := ParseRequest(annotations)
		p := Default()
		again := ParseRequest(annotations)
		hostile(t, annotations)
		for _, c := range pod() {
			d, err := p.Container(r, c)
			if _, err2 := p.Container(again, c); err != nil && err.Error() != err2.Error() {
				t.Errorf("%v, then %v", err, err2)
			}
			if (err == nil) != (len(d.Errors) == 0) {
				t.Errorf("%v beside %v", err, d.Errors)
			}
			checkDesired(t, p, d)
		}
		d, _ := p.PodTotal(r, pod())
		checkDesired(t, p, d)
	})
}

func checkDesired(t *testing.T, p *Policy, d Desired) {
	t.Helper()
	if int(amount(d, blkio.Weight)) > p.Bounds.MaxWeight {
		t.Errorf("weight %d", amount(d, blkio.Weight))
	}
	for i, x := range d.Settings {
		if i > 0 && d.Settings[i-1].Compare(x.Address) >= 0 {
			t.Errorf("%+v is not after %+v", x.Address, d.Settings[i-1].Address)
		}
		if x.Source == (Source{}) || x.Key.IsRate() && d.Disks[x.Dev] == "" {
			t.Errorf("%+v from %v, disks %v", x.Value, x.Source, d.Disks)
		}
		if x.Key.IsRate() && x.Amount != blkio.Max && (x.Amount < p.Floors.of(x.Key) || x.Amount > x.Key.Most()) {
			t.Errorf("%+v is out of bounds", x.Value)
		}
	}
}

// FuzzRate: a rate is exactly the number that Kubernetes reads, and what we
// write about it reads as the same rate.
func FuzzRate(f *testing.F) {
	for _, s := range []string{
		"max", "0", "1", "50Mi", "0.5Gi", "1.5e3", "+1E6", "1e36", "0.000000001e27", "9223372036854775806", "9223372036854775807",
		"65536.9999999999", "7.999999999Ei", "4294967294", "50MB", "1e2147483647", "-1", "50m", "1.G", "0000000001k", "9.2E", "9.223372036854775806E", "1999999999999999999999999e0",
	} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, s string, isBytes bool) {
		k := blkio.Riops
		if isBytes {
			k = blkio.Rbps
		}
		rate, p := parseRate(k, s)
		if p != nil {
			checkLine(t, (&Error{Annotation: keyDB, Entry: 1, Text: s, Cause: p.cause, Hint: p.hint}).Error())
			return
		}
		if back, p := parseRate(k, FormatAmount(k, rate)); p != nil || back != rate {
			t.Errorf("%q is %d, written %s, which is %d", s, rate, FormatAmount(k, rate), back)
		}
		if rate == blkio.Max {
			if s != "max" {
				t.Errorf("%q is max", s)
			}
			return
		}
		if want := rational(s); want == nil || new(big.Rat).SetUint64(uint64(rate)).Cmp(want) != 0 {
			t.Errorf("%q is %d, not %v", s, rate, want)
		}
		if q, err := resource.ParseQuantity(s); err != nil || q.CmpInt64(int64(rate)) != 0 {
			t.Errorf("%q is %d, for Kubernetes %s (%v)", s, rate, q.String(), err)
		}
	})
}

// rational reads a quantity without rounding, by another way than parseRate.
func rational(s string) *big.Rat {
	number := strings.TrimRight(s, "kMGTPEi")
	suffix := s[len(number):]
	r, ok := new(big.Rat).SetString(number)
	if !ok {
		return nil
	}
	base := int64(1000)
	if strings.HasSuffix(suffix, "i") {
		base, suffix = 1024, suffix[:len(suffix)-1]
	}
	if suffix != "" {
		power := int64(strings.Index("kMGTPE", strings.Replace(suffix, "K", "k", 1)) + 1)
		r.Mul(r, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(base), big.NewInt(power), nil)))
	}
	return r
}

// FuzzParseFile: a policy is refused or is one that can be used.
func FuzzParseFile(f *testing.F) {
	for _, s := range []string{
		"", "mode: observe", "onError: {invalid: ignore}", "floors: {bps: 64Ki, iops: 8}", "bounds: {weight: {max: 100}}", "floors:\n  bps: 1e6", "hostKernelHandlers: ['', runc]",
		"exempt: {}", "classes: {gold: {limits: ['* rbps=500Mi']}}", "---\nmode: observe", "...\n", "mode: &a enforce", "<<: {mode: observe}",
	} {
		f.Add([]byte(fileHead + s))
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParseFile(data)
		if err != nil {
			if p != nil {
				t.Errorf("a policy beside %v", err)
			}
			return
		}
		if p.Mode != ModeEnforce && p.Mode != ModeObserve {
			t.Errorf("mode %q", p.Mode)
		}
		for _, a := range []Action{p.OnError.Invalid, p.OnError.Unenforceable, p.OnError.Internal} {
			if a != Reject && a != Ignore {
				t.Errorf("action %q", a)
			}
		}
		if p.Floors.Bps < minRate || p.Floors.Bps > blkio.Wbps.Most() || p.Floors.Iops < minRate || p.Floors.Iops > blkio.Wiops.Most() {
			t.Errorf("floors %v", p.Floors)
		}
		if p.Bounds.MaxWeight < 1 || p.Bounds.MaxWeight > blkio.MaxWeight {
			t.Errorf("bounds %v", p.Bounds)
		}
	})
}
