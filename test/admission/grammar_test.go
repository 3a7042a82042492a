package admission

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/test/admission/policies"
)

const passes = "testdata/passes.txt"

// TestGrammar verifies that the policy rejects none of the annotations in the grammar's tests that the grammar
// accepts. testdata/passes.txt lists the invalid ones that the policy does not reject.
func TestGrammar(t *testing.T) {
	t.Parallel()
	p := readValidating(t, policies.GrammarFile)
	var passed []string
	rejected := 0
	for _, s := range samples(t) {
		if agrees(t, p, s.annotations()) {
			rejected++
		} else if errs := mistakes(s.annotations()); len(errs) > 0 {
			passed = append(passed, errs[0].Error())
		}
	}
	slices.Sort(passed)
	passed = slices.Compact(passed)
	t.Logf("%d rejected; %d invalid ones passed", rejected, len(passed))
	got := strings.Join(passed, "\n") + "\n"
	if os.Getenv("UPDATE_ADMISSION") != "" {
		if err := os.WriteFile(passes, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(passes)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("other invalid annotations pass than in %s: -file +now:\n%s", passes, diff)
	}
}

// agrees reports whether the policy rejects annotations. It fails the test if the grammar accepts
// those, or the evaluation fails.
func agrees(t testing.TB, p *validating, annotations map[string]string) (isRejected bool) {
	t.Helper()
	denials, errs := p.decide(t, create(annotations))
	if len(errs) > 0 {
		t.Errorf("%.300q: %v", annotations, errs)
	}
	if len(denials) > 0 && len(mistakes(annotations)) == 0 {
		t.Errorf("%.300q is valid: %q", annotations, denials)
	}
	return len(denials) > 0
}

// TestMixtures verifies that the policy rejects no valid annotation that is a random mixture of parts of the
// grammar's tests.
func TestMixtures(t *testing.T) {
	t.Parallel()
	p := readValidating(t, policies.GrammarFile)
	random := rand.New(rand.NewPCG(1, 2))
	pieces := [][]string{
		literals(t),
		{"/data", "@data", "rootfs", "*", `"/a b"`, "/a/", `"`, `\`, "/", ".", "/..", "//"},
		{" wbps=1Mi", " riops=2k", " rbps=max", "\twbps=", "0", "1", "9", "e3", "Ki", "+", ".5", " 5", " 10000", "wiops=1"},
		{";", "\n", "; ", " ", "\r\n", "#", "# a\n", "\n#"},
	}
	valid := 0
	for range 1000 {
		var b strings.Builder
		for i := range 1 + random.IntN(6) {
			from := pieces[1+i%3]
			if random.IntN(6) == 0 {
				from = pieces[random.IntN(len(pieces))]
			}
			b.WriteString(from[random.IntN(len(from))])
		}
		for _, key := range []string{"limits." + annotation.Domain + "/containers", "weight." + annotation.Domain + "/containers", claimKey} {
			annotations := map[string]string{key: b.String()}
			if !agrees(t, p, annotations) && len(mistakes(annotations)) == 0 {
				valid++
			}
		}
	}
	if valid < 20 {
		t.Errorf("only %d mixtures are valid", valid)
	}
}

// FuzzGrammar verifies that the policy rejects no valid annotation.
func FuzzGrammar(f *testing.F) {
	for i, s := range samples(f) {
		if i%20 == 0 && len(s.value) < 100 {
			f.Add(s.key, s.value)
		}
	}
	p := readValidating(f, policies.GrammarFile)
	f.Fuzz(func(t *testing.T, key, value string) {
		if len(validation.IsQualifiedName(strings.ToLower(key))) > 0 || !utf8.ValidString(value) {
			return // the API server rejects it
		}
		agrees(t, p, map[string]string{key: value})
	})
}

// TestLarge verifies that annotations of all sizes can be evaluated within the bounds of the API server, and
// that valid ones are never rejected.
func TestLarge(t *testing.T) {
	t.Parallel()
	many := func(entry string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, entry, i)
		}
		return b.String()
	}
	const limits = "limits." + annotation.Domain + "/container."
	p := readValidating(t, policies.GrammarFile)
	for name, tt := range map[string]struct {
		value    string
		keys     int
		isDenied bool
	}{
		"1024 entries":                 {many("/d%d wbps=1Mi;", 256), 4, false},
		"1025 entries":                 {many("/d%d wbps=1Mi;", 205), 5, true},
		"1024 long entries":            {many("/d%d"+strings.Repeat("x", 10)+" wbps=1Mi;", 256), 4, false},
		"256 entries":                  {many("/d%d wbps=1Mi;", 256), 1, false},
		"257 entries":                  {many("/d%d wbps=1Mi;", 257), 1, true},
		"64 keys":                      {"/d wbps=1Mi", 64, false},
		"65 keys":                      {"/d wbps=1Mi", 65, true},
		"64 keys of 16 entries":        {many("/d%d wbps=1Mi;", 16), 64, false},
		"16 keys of 64 entries":        {many("/d%d wbps=1Mi;", 64), 16, false},
		"64 KiB":                       {"/d" + strings.Repeat("x", 64<<10-9) + " wbps=1", 1, false},
		"more than 64 KiB":             {"/d" + strings.Repeat("x", 64<<10) + " wbps=1", 1, true},
		"64 KiB of two-byte letters":   {"/d" + strings.Repeat("ü", 32<<10-5) + " wbps=1", 1, false},
		"more of two-byte letters":     {"/d" + strings.Repeat("ü", 32<<10) + " wbps=1", 1, true},
		"32 KiB":                       {"/d" + strings.Repeat("x", 32<<10-9) + " wbps=1", 1, false},
		"32 KiB in quotes":             {`"/d` + strings.Repeat(`\"`, 16<<10-6) + `" wbps=1`, 1, false},
		"32 KiB of slashes":            {"/d" + strings.Repeat("/", 32<<10-9) + " wbps=1", 1, false},
		"a comment of 32 KiB":          {strings.Repeat("#", 32<<10-20) + "\n* wbps=1Mi", 1, false},
		"comments":                     {strings.Repeat("#\n", 16<<10-20) + "* wbps=1Mi", 1, false},
		"separators":                   {strings.Repeat(";", 32<<10-20) + "* wbps=1Mi", 1, false},
		"blanks":                       {strings.Repeat(" ", 32<<10-20) + "* wbps=1Mi", 1, false},
		"16,000 entries":               {strings.Repeat("a;", 16<<10), 1, true},
		"4 keys of 64 KiB, all wrong":  {strings.Repeat("a;", 32<<10), 4, false},
		"64 keys of 500 bytes":         {"/d" + strings.Repeat("x", 490) + " wbps=1", 64, false},
		"many keys in an entry":        {"/d " + strings.Repeat("wbps=1Mi ", 3000), 1, true},
		"numbers of the longest kind":  {"/d wbps=" + strings.Repeat("0", 39) + "1", 1, false},
		"8 keys of 128 duplicates":     {strings.Repeat("/d wbps=1Mi;", 128), 8, true},
		"128 long targets":             {many("/d%d"+strings.Repeat("x", 230)+" wbps=1Mi;", 128), 1, false},
		"4 wrong keys of 256 entries":  {strings.Repeat("/d wbps=0;", 256), 4, true},
		"4 keys of 8 KiB in one entry": {"/d " + strings.Repeat("x", 8<<10-20), 4, true},
	} {
		annotations := map[string]string{}
		for i := range tt.keys {
			annotations[fmt.Sprintf("%sc%02d", limits, i)] = tt.value
		}
		annotations = withoutScope(t, p, annotations, tt.isDenied)
		p.largest = 0
		if isDenied := agrees(t, p, annotations); isDenied != tt.isDenied {
			t.Errorf("%s: denied %t", name, isDenied)
		}
		t.Logf("%s: cost %d of %d", name, p.largest, celconfig.RuntimeCELCostBudget)
		if p.largest > celconfig.RuntimeCELCostBudget/2 {
			t.Errorf("%s: cost %d", name, p.largest)
		}
	}
}

// withoutScope verifies for one annotation that the policy decides on its value with the key without a scope as well. It returns that
// with both keys, and more annotations as they are.
func withoutScope(t *testing.T, p *validating, annotations map[string]string, isDenied bool) map[string]string {
	t.Helper()
	if len(annotations) > 1 {
		return annotations
	}
	out := map[string]string{}
	for _, value := range annotations {
		out[claimKey] = value
		if got := agrees(t, p, out); got != isDenied {
			t.Errorf("%.50q: denied %t without a scope", value, got)
		}
		out["limits."+annotation.Domain+"/containers"] = value
	}
	return out
}
