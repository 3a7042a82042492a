package nodereport

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFormat verifies the names of the fields, and that pods with several problems count once.
func TestFormat(t *testing.T) {
	data := Encode("v1", 5, []Problem{
		{"prod", "db-0", "BlkioRefused", "b <c>\x1b"},
		{"", "", Disconnected, "d"},
		{"prod", "db-0", "BlkioNotInForce", "a"},
		{"prod", "db-0", "BlkioNotInForce", "a"},
		{"batch", "db-0", "BlkioNotInForce", "a"},
	})
	want := `{"version":1,"program":"v1","pods":5,"inForce":3,"problems":[` +
		`{"reason":"Disconnected","text":"d"},{"namespace":"batch","pod":"db-0","reason":"BlkioNotInForce","text":"a"},` +
		`{"namespace":"prod","pod":"db-0","reason":"BlkioNotInForce","text":"a"},{"namespace":"prod","pod":"db-0","reason":"BlkioRefused","text":"b <c>\\x1b"}],"leftOut":0}`
	if d := cmp.Diff(want, string(data)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	r, err := Decode(data)
	if err != nil || len(r.Problems) != 4 || string(encode(r)) != want {
		t.Errorf("%v, decoded %+v", err, r)
	}
	if got := string(Encode("v1", 0, nil)); !strings.Contains(got, `"inForce":0,"problems":[]`) {
		t.Error(got)
	}
}

// TestBounds verifies that a report with the largest texts keeps to its size, and has a problem of each namespace, whatever
// one of them has.
func TestBounds(t *testing.T) {
	var problems []Problem
	for i := range 500 {
		problems = append(problems, Problem{"a-tenant", fmt.Sprintf("%0250d", i), "BlkioNotInForce", strings.Repeat(`"`, 2000)})
	}
	for i := range 10 {
		problems = append(problems, Problem{fmt.Sprintf("b%d", i), "db-0", "BlkioRefused", "x"})
	}
	data := Encode("v1", 600, problems)
	r, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > MaxSize || len(data) < MaxSize*9/10 || len(r.Problems)+r.LeftOut != len(problems) || r.InForce != 90 {
		t.Errorf("%d bytes, %d problems, %d left out, %d in force", len(data), len(r.Problems), r.LeftOut, r.InForce)
	}
	namespaces := map[string]bool{}
	for _, p := range r.Problems {
		namespaces[p.Namespace] = true
	}
	if len(namespaces) != 11 {
		t.Errorf("problems of %d namespaces", len(namespaces))
	}
	for i := range problems {
		problems[i].Pod, problems[i].Text = fmt.Sprint(i), "x"
	}
	r, err = Decode(Encode("v1", 1, problems))
	if err != nil || len(r.Problems) != MaxProblems || r.LeftOut != len(problems)-MaxProblems || r.InForce != 0 {
		t.Errorf("%v, %d problems, %d left out, %d in force", err, len(r.Problems), r.LeftOut, r.InForce)
	}
}

// TestLongNames verifies that a pod that the kubelet has not made, with names longer than those of Kubernetes, costs no report.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("n", 400)
	r, err := Decode(Encode("v1", 1, []Problem{{long, long, long, long + long}}))
	if err != nil || len(r.Problems) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestDecode verifies that what no node of this version writes is an error.
func TestDecode(t *testing.T) {
	for in, want := range map[string]string{"": "read the report", `{"version":2}`: "the report is of version 2 (known is 1)", `{"version":1,"pods":"x"}`: "read the report"} {
		if _, err := Decode([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", in, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"version":1,"program":"v1","pods":5,"inForce":3,"problems":[{"namespace":"n","pod":"p","reason":"a","text":"b"}],"leftOut":0}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := Decode(in)
		if err != nil || len(r.Program) > 1<<10 {
			return
		}
		if again := Encode(r.Program, r.Pods, r.Problems); len(again) > MaxSize {
			t.Errorf("%d bytes", len(again))
		}
	})
}
